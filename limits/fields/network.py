"""A network's own forward code, with revealed matrices in place of drawn ones."""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from limits.fields import plain
from limits.fields.exact import Coordinates
from limits.fields.matrix import REVEALED as REVEALED
from limits.fields.matrix import TOLERANCE, Matrix, multiply
from limits.finite.forward import STATISTICS, mixes_inputs, on_all_points
from limits.types import AbsentError
from zoo.abstract import abstract
from zoo.layers import Linear
from zoo.once import once
from zoo.plain import PlainNetwork
from zoo.starts import readout_of

_BOTH_SIDES = ("hidden", "branch")  # roles of weights whose inputs and outputs both grow with the width


def revealing(capacity: int, rows: dict[tuple[str, ...], int] | None = None, exact: Coordinates | None = None) -> Any:
    """The interceptor: weights with the width on both sides become a `Matrix` in the collection "revealed".

    Where there is none yet (in `init`), one with room for `capacity` directions is put there. `rows` is told how many
    vectors each matrix meets. With `exact`, coordinates replace all that `init` draws.
    """

    def replace(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if not isinstance(module, Linear) or context.method_name not in ("weigh", "__call__"):
            return run(*args, **kwargs)
        if context.method_name == "__call__":
            out = run(*args, **kwargs)
            if exact is not None:
                exact.bias(module)
            return out
        if module.role not in _BOTH_SIDES:
            out = run(*args, **kwargs)
            if exact is not None:
                exact.weights(module, args[0].shape[-1])
            return out
        seen = module.patches(args[0])
        flat = seen.reshape(-1, seen.shape[-1])
        if rows is not None:
            rows[module.path] = rows.get(module.path, 0) + _all_rows(flat)
        if module.is_initializing():
            if module.has_variable(REVEALED, "kernel"):  # a layer that is used twice
                return jnp.zeros((*seen.shape[:-1], module.features), flat.dtype)
            std, _ = module.scales("kernel", args[0].shape[-1])
            source = None if exact is None else exact.matrix(capacity, math.prod(module.window))
            fresh = Matrix.fresh(
                flat.shape[-1], module.features, capacity, 0.0 if module.zero_init else std, flat.dtype, source
            )
            module.put_variable(REVEALED, "kernel", fresh)
            return jnp.zeros((*seen.shape[:-1], module.features), flat.dtype)
        key = jax.random.key_data(module.make_rng("reveal"))
        out, after = multiply(flat, module.get_variable(REVEALED, "kernel"), key, TOLERANCE[str(flat.dtype)])
        module.put_variable(REVEALED, "kernel", after)
        return out.reshape(*seen.shape[:-1], module.features)

    return replace


def _all_rows(flat: jax.Array) -> int:
    """How many rows meet a matrix at once, those that `nn.vmap` hides included."""
    counts: list[int] = []

    @jax.custom_batching.custom_vmap
    def count(a: jax.Array) -> jax.Array:
        counts.append(len(a))
        return a

    @count.def_vmap
    def together(size: int, batched: Any, a: jax.Array) -> Any:
        return count(a.reshape(-1, a.shape[-1])).reshape(a.shape), True

    count(flat)
    return counts[-1]


def forward(net: nn.Module, variables: dict[str, Any], x: Any, key: Any, **options: Any) -> tuple[Any, dict[str, Any]]:
    """(the network's outputs, its collections but for "params" afterwards)."""
    if isinstance(net, PlainNetwork):
        return plain.forward(net, variables, x, key, **options)[:2]
    mutable = [name for name in variables if name == REVEALED or (name == STATISTICS and options.get("train"))]
    with nn.intercept_methods(revealing(0)):
        found: Any = net.apply(variables, x, rngs={"reveal": key}, mutable=mutable, **options)
    out, after = found
    return out, {name: part for name, part in variables.items() if name not in ("params", "perturbations")} | after


def on_points(
    net: nn.Module, variables: dict[str, Any], x: Any, n: int, key: Any, look: Callable = forward
) -> tuple[Any, Any]:
    """(what `look`, such as `forward`, finds for all points, the first n of them training points; the matrices then)."""
    revealed = variables.get(REVEALED, {})

    def run(x: Any, **more: Any) -> Any:
        nonlocal revealed
        held = variables | ({REVEALED: revealed} if revealed else {})
        out, after = look(net, held, x, jax.random.fold_in(key, int(bool(more))), **more)
        revealed = after.get(REVEALED, {})
        return out

    out = on_all_points(run, x, n, mixes_inputs(variables))
    return out, revealed


def start(net: nn.Module, x: Any, key: Any, capacity: int, exact: Coordinates | None = None) -> dict[str, Any]:
    """The network's variables at initialisation: parameters, and matrices of which nothing is known."""
    if isinstance(net, PlainNetwork):
        return plain.start(net, x, key, capacity)
    with nn.intercept_methods(revealing(capacity, None, exact)):
        return dict(net.init({"params": key, "reveal": key}, x[:1]))


def vectors_met(net: nn.Module, x: Any) -> dict[tuple[str, ...], int]:
    """How many vectors each matrix meets in one pass of inputs of this shape. Nothing is computed."""
    return dict(_vectors_met(net, tuple(x.shape), str(jax.dtypes.canonicalize_dtype(x.dtype))))


@once(maxsize=256)
def _vectors_met(net: nn.Module, shape: tuple[int, ...], kind: str) -> dict[tuple[str, ...], int]:
    x = abstract(shape, kind)
    if isinstance(net, PlainNetwork):
        return plain.vectors_met(net, x)
    rows: dict[tuple[str, ...], int] = {}
    key = jax.random.key(0)
    with nn.intercept_methods(revealing(1, rows)):
        jax.eval_shape(lambda x: net.init({"params": key, "reveal": key}, x), x)
    return rows


def readout_scales(net: nn.Module, x: Any) -> tuple[float, float]:
    """(w, b) of the readout, whose output has the covariance w² Φ + b² before it is scaled down. Nothing is computed."""
    if isinstance(net, PlainNetwork):
        return readout_of(net, x)
    found: list[tuple[float, float]] = []

    def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if isinstance(module, Linear) and module.role == "readout" and context.method_name == "__call__":
            starts = module.has_bias and module.bias_init != "zeros" and not module.zero_init
            found.append((0.0 if module.zero_init else float(module.w_std), float(module.b_std) if starts else 0.0))
        return run(*args, **kwargs)

    with nn.intercept_methods(note):
        one = abstract((1, *x.shape[1:]), x.dtype)
        jax.eval_shape(lambda key, x: net.init(key, x), jax.random.key(0), one)  # see zoo.roles.placed
    if len(found) != 1:
        raise AbsentError(
            f'{type(net).__name__} has {len(found)} layers of role "readout"; its kernels need exactly one, from the last '
            "features to the outputs."
        )
    return found[0]


def coordinates_needed(net: nn.Module, x: Any, capacity: int) -> int:
    """How many coordinates stand for all that is drawn, with so much room in every matrix. Nothing is computed."""
    exact = Coordinates()
    jax.eval_shape(lambda x: start(net, x, jax.random.key(0), capacity, exact), x)
    return exact.used
