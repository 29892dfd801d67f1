"""Finds the dense and conv layers inside a function, so that gradients with respect to their weights stay outer products."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import Conv, Dense


class DenseCall(NamedTuple):
    """One use of a dense or conv layer: which leaves of the parameters it holds, and its output."""

    leaves: dict[str, int]  # "kernel" and "bias" → position among the flattened parameters
    output: jax.ShapeDtypeStruct


def without_jit(function: Callable) -> Callable:
    """The function under `jax.jit`, whose inside an interceptor can see."""
    while isinstance(function, type(jax.jit(lambda: None))):
        function = function.__wrapped__  # pyright: ignore
    return function


def _multipliers(context: Any, args: Any) -> dict[str, Any] | None:
    """The forward multipliers of a dense or conv layer's parameters; None for any other method or module."""
    module = context.module
    if context.method_name != "__call__" or not args:
        return None
    if type(module) is nn.Dense:  # a subclass may do anything
        return {"kernel": 1.0, "bias": 1.0}
    return module.multipliers(args[0].shape[-1]) if type(module) in (Dense, Conv) else None


def find(apply: Callable, params: Any, x: Any) -> list[DenseCall]:
    """The calls of dense layers in apply(params, x), in order; [] where their parts cannot be taken apart.

    A layer counts if its weights are leaves of `params` as they stand (recognised by identity), its input has the samples
    first, and nothing else uses the same leaf: any other use is left to plain differentiation. The axis of samples is the
    one that grows when a sample is added: another axis may have the same length by chance.
    """
    longer = jax.ShapeDtypeStruct((x.shape[0] + 1, *x.shape[1:]), x.dtype)
    calls, uses = _traced(apply, params, jax.ShapeDtypeStruct(x.shape, x.dtype))
    more, _ = _traced(apply, params, longer)
    if [call.leaves for call in calls] != [call.leaves for call in more]:
        return []
    n = x.shape[0]
    claimed = {i: sum(i in call.leaves.values() for call in calls) for call in calls for i in call.leaves.values()}
    grows = [a.output.shape[:1] == (n,) and b.output.shape[:1] == (n + 1,) for a, b in zip(calls, more, strict=True)]
    mixed = {i for call, good in zip(calls, grows, strict=True) if not good for i in call.leaves.values()}
    return [call for call in calls if all(uses[i] == claimed[i] and i not in mixed for i in call.leaves.values())]


def _traced(apply: Callable, params: Any, x: Any) -> tuple[list[DenseCall], list[int]]:
    """All calls of dense layers whose weights are leaves of params, and how often each leaf is used in all."""
    calls: list[DenseCall] = []

    def trace(params: Any, x: Any) -> Any:
        position = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(params))}

        def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
            out = run(*args, **kwargs)
            scale = _multipliers(context, args)
            # A signal inside an inner vmap, scan, jit or checkpoint belongs to that trace and cannot be taken out of it.
            if (
                scale is not None
                and args[0].ndim > 1
                and getattr(args[0], "_trace", None) is getattr(x, "_trace", None)
            ):
                variables = context.module.variables.get("params", {})
                leaves = {name: position.get(id(value), -1) for name, value in variables.items() if name in scale}
                if "kernel" in leaves and -1 not in leaves.values():
                    calls.append(DenseCall(leaves, jax.ShapeDtypeStruct(out.shape, out.dtype)))
            return out

        with nn.intercept_methods(note):
            return without_jit(apply)(params, x)

    jaxpr = jax.make_jaxpr(trace)(params, x).jaxpr
    variables = jaxpr.invars[: len(jax.tree.leaves(params))]
    uses = [sum(any(v is variable for v in equation.invars) for equation in jaxpr.eqns) for variable in variables]
    return calls, uses


def run(apply: Callable, params: Any, x: Any, calls: list[DenseCall], shifts: Any) -> tuple[Any, list[Any]]:
    """apply(params, x) with shifts[i] added to the output of call i; and the input and the multipliers of every call."""
    position = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(params))}
    inputs: list[Any] = []

    def shift(original: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out = original(*args, **kwargs)
        scale = _multipliers(context, args)
        if scale is None:
            return out
        leaf = position.get(id(context.module.variables.get("params", {}).get("kernel")))
        i = len(inputs)
        if i < len(calls) and leaf == calls[i].leaves["kernel"]:
            # A convolution is a dense layer of what its window sees.
            inputs.append((context.module.patches(args[0]) if type(context.module) is Conv else args[0], scale))
            out = out + shifts[i]
        return out

    with nn.intercept_methods(shift):
        f = without_jit(apply)(params, x)
    return f, inputs


def gradients(apply: Callable, params: Any, x: Any, calls: list[DenseCall]) -> tuple[list[Any], list[Any], list[Any]]:
    """For every call: its input [n, positions, d], ∂f_k/∂(its output) [outputs, n, positions, m], and its multipliers.

    One backward pass an output serves all samples, since f of a sample depends on that sample alone.
    """
    shifts = [jnp.zeros((x.shape[0], *call.output.shape[1:]), call.output.dtype) for call in calls]
    f, pullback, inputs = jax.vjp(lambda s: run(apply, params, x, calls, s), shifts, has_aux=True)
    n, k = f.shape
    basis = jnp.broadcast_to(jnp.eye(k, dtype=f.dtype)[:, None, :], (k, n, k))
    slopes = jax.vmap(pullback)(basis)[0]
    flat = [a.reshape(n, -1, a.shape[-1]) for a, _ in inputs]
    return flat, [g.reshape(k, n, -1, g.shape[-1]) for g in slopes], [scale for _, scale in inputs]
