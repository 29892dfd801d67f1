"""Which line of a module's code makes NaN, or an infinite number, of numbers that are none."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import FlaxError
from jax.extend.core import Literal

from limits.kernels.alike import INLINED
from limits.program.trace import line_of
from zoo.definition import is_ours, name_of

_WHY = {
    "gather": 'looks up positions beyond the end, which JAX fills with NaN: mode="clip" takes the last one',
    "log": "takes the logarithm of 0 or of negative numbers",
    "log2": "takes the logarithm of 0 or of negative numbers",
    "sqrt": "takes the root of negative numbers",
    "rsqrt": "divides by the root of 0 or of negative numbers",
    "pow": "takes a broken power of 0 or of negative numbers",
    "div": "divides by 0, or infinite numbers by each other",
    "mul": "multiplies 0 by an infinite number, or numbers that are too large",
    "add": "adds ∞ and −∞, or numbers that are too large",
    "sub": "subtracts infinite numbers from each other, or adds numbers that are too large",
}


@dataclasses.dataclass(frozen=True, eq=False)
class _Made:
    """An array, what it was made by ("" of parameters, inputs, constants) and of, and the user's line."""

    array: Any
    primitive: str = ""
    of: tuple["_Made", ...] = ()
    line: str = ""


def check_defined(net: Any, x: Any, f: Any) -> None:
    """Raises where outputs f of a module of one's own are NaN or infinite because its code makes them so at initialisation."""
    if np.isfinite(f).all() or is_ours(net):
        return
    x, key = jnp.asarray(x), jax.random.key(1)
    try:
        leaves, tree = jax.tree.flatten((net.init(jax.random.key(0), x[:1]), x))
        run = lambda *leaves: net.apply(*jax.tree.unflatten(tree, leaves), rngs={"dropout": key})  # noqa: E731
        closed = jax.make_jaxpr(run)(*leaves)
    except FlaxError:  # it asks for other random numbers, or changes its variables: who called says what is not finite
        return
    consts = [_Made(each) for each in closed.consts]
    f = _run(closed.jaxpr, consts, [_Made(leaf) for leaf in leaves], "")[0]
    undefined = _origin(f, jnp.isnan)
    infinite = [_origin(each, jnp.isinf) for each in ((f,) if undefined is None else undefined.of)]
    # Where infinite numbers became NaN, what made those comes first.
    for found in (*infinite, undefined):
        if found is not None and found.line:
            what = "NaN" if found is undefined else "infinite numbers"
            why = _WHY.get(found.primitive, f"makes them by {found.primitive}")
            raise FloatingPointError(
                f"{name_of(net)}: its code makes {what} of numbers that are none, before any training: "
                f"{found.line.removeprefix(', ')} {why}."
            )


def _run(jaxpr: Any, consts: list[_Made], given: list[_Made], line: str) -> list[_Made]:
    known = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, given, strict=True))
    look = lambda v: _Made(v.val) if isinstance(v, Literal) else known[v]  # noqa: E731
    for eqn in jaxpr.eqns:
        name, here, of = eqn.primitive.name, line_of(eqn) or line, tuple(look(v) for v in eqn.invars)
        if name in INLINED:
            inner = eqn.params[INLINED[name]]
            inside = [_Made(each) for each in getattr(inner, "consts", ())]
            made = _run(getattr(inner, "jaxpr", inner), inside, list(of), here)
        else:
            arrays = eqn.primitive.bind(*(each.array for each in of), **eqn.params)
            arrays = arrays if eqn.primitive.multiple_results else [arrays]
            made = [_Made(array, name, of, here) for array in arrays]
        known |= dict(zip(eqn.outvars, made, strict=True))
    return [look(v) for v in jaxpr.outvars]


def _origin(made: _Made, broken: Callable) -> _Made | None:
    """The first that has such numbers, of those that this one has them from."""
    if not _has(made, broken):
        return None
    while of := [each for each in made.of if _has(each, broken)]:
        made = of[0]
    return made


def _has(made: _Made, broken: Callable) -> bool:
    numbers = jnp.issubdtype(jnp.result_type(made.array), jnp.inexact)
    return bool(numbers and broken(made.array).any())
