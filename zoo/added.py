"""Parameters that are added to the outputs, as the bias of a readout is, seen where jax traces the model."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

from zoo.names import names_of

_MOVED = {
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "convert_element_type", "copy", "copy_p",
    "reduce_sum", "neg",
}  # fmt: skip
_SUMS, _PRODUCTS = {"add", "sub", "add_any"}, {"mul", "div"}


def added_to_outputs(function: Callable, params: Any, *arguments: Any) -> set[str]:
    """The names of the parameters b with function(params, *arguments) = … + b, but for a number in front; shapes are enough.

    >>> import jax.numpy as jnp
    >>> layer = {"w": jnp.ones((3, 2)), "b": jnp.ones(2), "inside": jnp.ones(3)}
    >>> added_to_outputs(lambda p, x: jnp.tanh(x + p["inside"]) @ p["w"] + p["b"], layer, jnp.ones(3))
    {'b'}
    """
    program = jax.make_jaxpr(function)(params, *arguments).jaxpr
    names = dict(zip(program.invars, names_of(params), strict=False))
    found = {v for out in program.outvars for v in _summands(program, out)}
    return {names[v] for v in found if v in names}


def _summands(program: Any, out: Any) -> set[Any]:
    """The inputs of the program that this variable of it is a sum of, besides others."""
    made = {v: (eqn, i) for eqn in program.eqns for i, v in enumerate(eqn.outvars)}
    found, left = set(), [out]
    while left:
        v = left.pop()
        if isinstance(v, Literal):
            continue
        if v not in made:
            found.add(v)
            continue
        eqn, i = made[v]
        name = eqn.primitive.name
        if name in _SUMS:
            left += eqn.invars
        elif name in _MOVED:
            left += eqn.invars[:1]
        elif name in _PRODUCTS:  # by a number
            first, second = eqn.invars
            left += [first] if isinstance(second, Literal) else [second] if isinstance(first, Literal) else []
        else:
            left += _of_call(eqn, i)
    return found


def _of_call(eqn: Any, i: int) -> list[Any]:
    """The operands of a call, a jitted function or a rematerialised layer, that its output i is a sum of."""
    bodies = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
    if len(bodies) != 1 or len(bodies[0].invars) != len(eqn.invars) or len(bodies[0].outvars) != len(eqn.outvars):
        return []
    if eqn.primitive.name in ("scan", "while", "cond"):
        return []
    inside = _summands(bodies[0], bodies[0].outvars[i])
    return [v for v, mine in zip(eqn.invars, bodies[0].invars, strict=True) if mine in inside]
