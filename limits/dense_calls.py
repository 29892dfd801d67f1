"""Finds the dense layers inside a function, so that gradients with respect to their weights stay outer products."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp


class DenseCall(NamedTuple):
    """One use of a dense layer: which leaves of the parameters it holds, and its output."""

    leaves: dict[str, int]  # "kernel" and "bias" → position among the flattened parameters
    output: jax.ShapeDtypeStruct


def without_jit(function: Callable) -> Callable:
    """The function under `jax.jit`, whose inside an interceptor can see."""
    while isinstance(function, type(jax.jit(lambda: None))):
        function = function.__wrapped__  # pyright: ignore
    return function


def _multipliers(module: nn.Module, fan_in: int) -> dict[str, Any] | None:
    if isinstance(module, nn.Dense):
        return {"kernel": 1.0, "bias": 1.0}
    known = getattr(module, "multipliers", None)
    return known(fan_in) if known else None


def find(apply: Callable, params: Any, x: Any) -> list[DenseCall]:
    """The calls of dense layers in apply(params, x), in order; [] where their parts cannot be taken apart.

    A layer counts if its weights are leaves of `params` as they stand (recognised by identity), its input has the samples
    first, and nothing else uses the same leaf: any other use is left to plain differentiation.
    """
    calls: list[DenseCall] = []

    def trace(params: Any, x: Any) -> Any:
        position = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(params))}

        def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
            out = run(*args, **kwargs)
            module = context.module
            scale = _multipliers(module, args[0].shape[-1]) if context.method_name == "__call__" and args else None
            if scale is not None and args[0].ndim > 1 and args[0].shape[0] == x.shape[0]:
                variables = module.variables.get("params", {})
                leaves = {name: position.get(id(value), -1) for name, value in variables.items() if name in scale}
                if "kernel" in leaves and -1 not in leaves.values():
                    calls.append(DenseCall(leaves, jax.ShapeDtypeStruct(out.shape, out.dtype)))
            return out

        with nn.intercept_methods(note):
            return without_jit(apply)(params, x)

    jaxpr = jax.make_jaxpr(trace)(params, x).jaxpr
    found = list(calls)
    variables = jaxpr.invars[: len(jax.tree.leaves(params))]
    uses = [sum(any(v is variable for v in equation.invars) for equation in jaxpr.eqns) for variable in variables]
    claimed = [sum(i in call.leaves.values() for call in found) for i in range(len(variables))]
    return [call for call in found if all(uses[i] == claimed[i] for i in call.leaves.values())]


def run(apply: Callable, params: Any, x: Any, calls: list[DenseCall], shifts: Any) -> tuple[Any, list[Any]]:
    """apply(params, x) with shifts[i] added to the output of call i; and the input and the multipliers of every call."""
    position = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(params))}
    inputs: list[Any] = []

    def shift(original: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out = original(*args, **kwargs)
        module = context.module
        scale = _multipliers(module, args[0].shape[-1]) if context.method_name == "__call__" and args else None
        if scale is None:
            return out
        leaf = position.get(id(module.variables.get("params", {}).get("kernel")))
        i = len(inputs)
        if i < len(calls) and leaf == calls[i].leaves["kernel"]:
            inputs.append((args[0], scale))
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
