"""Finds the dense and conv layers inside a function, so that gradients with respect to their weights stay outer products."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from limits.finite.observables import as_numbers
from zoo import Conv, Dense
from zoo.abstract import abstract


class DenseCall(NamedTuple):
    """One use of a dense or conv layer for one sample: which leaves of the parameters it holds, and its output."""

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


class _Calls:
    """An interceptor that calls visit(number, leaves, multipliers, run, module, args) for each dense layer of `params`.

    To be made inside the function that it watches: a signal inside an inner vmap, scan, jit or checkpoint belongs to that
    trace and cannot be taken out of it. Layers are recognised by their leaves, which must be those of `params` as they
    stand; with `claimed`, others than these are passed by.
    """

    def __init__(self, params: Any, visit: Callable, claimed: set[int] | None = None) -> None:
        self._position = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(params))}
        self._visit, self._claimed, self._count = visit, claimed, 0
        self._trace = get_opaque_trace_state(convention="flax")

    def __call__(self, run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """What flax.linen asks for."""
        scale = _multipliers(context, args)
        if scale is None or get_opaque_trace_state(convention="flax") != self._trace:
            return run(*args, **kwargs)
        variables = context.module.variables.get("params", {})
        leaves = {name: self._position.get(id(value), -1) for name, value in variables.items() if name in scale}
        known = "kernel" in leaves and -1 not in leaves.values()
        if not known or (self._claimed is not None and leaves["kernel"] not in self._claimed):
            return run(*args, **kwargs)
        self._count += 1
        return self._visit(self._count - 1, leaves, scale, run, context.module, args, kwargs)


def find(apply: Callable, params: Any, x: Any) -> list[DenseCall]:
    """The calls of dense layers in apply(params, sample), in order, that are all there is to their weights.

    A layer counts if nothing else uses its leaves: any other use (by another layer, inside an inner trace, as a bare array)
    is left to plain differentiation. That is what the outputs still depend on when all calls return zeros.
    """
    sample, calls = abstract((1, *x.shape[1:]), x.dtype), []

    def note(number: int, leaves: Any, scale: Any, run: Any, module: Any, args: Any, kwargs: Any) -> Any:
        out = run(*args, **kwargs)
        calls.append(DenseCall(leaves, jax.ShapeDtypeStruct(out.shape, out.dtype)))
        return out

    def cut(number: int, *rest: Any) -> Any:
        return jnp.zeros(calls[number].output.shape, calls[number].output.dtype)

    def watched(visit: Callable) -> Callable:
        def run(params: Any, x: Any) -> Any:
            with nn.intercept_methods(_Calls(params, visit)):
                return without_jit(apply)(params, x)

        return run

    jax.eval_shape(watched(note), params, sample)
    program = jax.make_jaxpr(watched(cut))(params, sample).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    elsewhere = [id(variable) in read for variable in program.invars[: len(jax.tree.leaves(params))]]
    mixed = {i for i, used in enumerate(elsewhere) if used}
    for _ in calls:  # a layer with one such leaf, and layers that share another leaf with it
        mixed |= {i for call in calls if mixed & set(call.leaves.values()) for i in call.leaves.values()}
    return [call for call in calls if not mixed & set(call.leaves.values())]


def gradients(apply: Callable, params: Any, x: Any, calls: list[DenseCall]) -> tuple[list[Any], list[Any], list[Any]]:
    """For every call: its input [n, positions, d], ∂f_k/∂(its output) [outputs, n, positions, m], and its multipliers.

    The function is mapped over samples, so that every sample has shifts of its own, be a layer's signal batched or not. One
    backward pass an output serves all samples.
    """
    claimed, scales = {call.leaves["kernel"] for call in calls}, []

    def one(sample: Any, shifts: list[Any]) -> tuple[Any, list[Any]]:
        inputs: list[Any] = []

        def shift(number: int, leaves: Any, scale: Any, run: Any, module: Any, args: Any, kwargs: Any) -> Any:
            # A convolution is a dense layer of what its window sees.
            a = as_numbers(args[0])
            inputs.append(module.patches(a) if type(module) is Conv else a)
            scales.append(scale)
            return run(*args, **kwargs) + shifts[number]

        with nn.intercept_methods(_Calls(params, shift, claimed)):
            f = without_jit(apply)(params, sample[None])
        return f[0], inputs

    n = len(x)
    shifts = [jnp.zeros((n, *call.output.shape), call.output.dtype) for call in calls]
    f, pullback, inputs = jax.vjp(lambda shifts: jax.vmap(one)(x, shifts), shifts, has_aux=True)
    k = f.shape[1]
    basis = jnp.broadcast_to(jnp.eye(k, dtype=f.dtype)[:, None, :], (k, n, k))
    slopes = jax.vmap(pullback)(basis)[0]
    flat = [a.reshape(n, -1, a.shape[-1]) for a in inputs]
    return flat, [g.reshape(k, n, -1, g.shape[-1]) for g in slopes], scales
