"""Parameters that move outputs as the bias of a readout does (no neuron's share of them, but they themselves), or at all."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal
from jax.interpreters.partial_eval import dce_jaxpr

from zoo.names import names_of

_TERMS = {
    "add",
    "sub",
    "add_any",
    "max",
    "min",
    "select_n",
    "concatenate",
    "pad",
    "clamp",
    "scatter_add",
    "scatter-add",
}
_FACTORS = {"mul", "div", "dot_general"}  # by what parameters do not enter
_NEVER = {"conv_general_dilated", "while", "cond", "custom_vjp_call", "sort", "reduce_prod", "pow"}


def added_to_outputs(function: Callable, params: Any, *arguments: Any, among: set[str] | None = None) -> set[str]:
    """The names of the parameters that reach function(params, *arguments) without meeting weights on the way; shapes are enough.

    among: those that are asked for; without it all of one axis at most (weights themselves are none).

    By sums, numbers in front, functions of each entry, changes of place and sums over axes; in products and sums over neurons, as
    of a bias inside, they are lost among those.

    >>> import jax.numpy as jnp
    >>> layer = {"w": jnp.ones((3, 2)), "b": jnp.ones(2), "inside": jnp.ones(3)}
    >>> added_to_outputs(lambda p, x: 3 * jnp.tanh(jnp.tanh(x + p["inside"]) @ p["w"] + p["b"]), layer, jnp.ones(3))
    {'b'}
    """
    program = jax.make_jaxpr(function)(params, *arguments).jaxpr
    names = names_of(params)
    of_parameters = [i < len(names) for i in range(len(program.invars))]
    return {
        name
        for at, name in enumerate(names)
        if (len(program.invars[at].aval.shape) < 2 if among is None else name in among)
        and any(_reached(program, [i == at for i in range(len(program.invars))], of_parameters) or ())
    }


def met_by(function: Callable, params: Any, weights: dict[str, set[str]]) -> dict[str, str]:
    """How parameters first meet what their `weights` make in function(params): "added" to it, or to nothing on the way out;
    "multiplied"; or not here, where that is not followed. Shapes are enough.

    A bias of few outputs is added to them, whatever is done to it before and to them then; a gain multiplies them.

    >>> import jax.numpy as jnp
    >>> layer = {"w": jnp.ones((3, 2)), "b": jnp.ones(2), "gain": jnp.ones(2)}
    >>> of_w = {"b": {"w"}, "gain": {"w"}}
    >>> met_by(lambda p: (jnp.ones(3) @ p["w"] + p["b"]) * p["gain"], layer, of_w)
    {'b': 'added', 'gain': 'multiplied'}
    """
    program = jax.make_jaxpr(function)(params).jaxpr
    names, found = names_of(params), dict[str, str]()
    for at, name in enumerate(names):
        if name not in weights:
            continue
        mine, made = [i == at for i in range(len(names))], [each in weights[name] for each in names]
        try:
            reached = _reached(program, mine, [True] * len(names), made)
        except _MetError as met:
            found[name] = str(met)
        else:
            found |= {name: "added"} if any(reached or ()) else {}
    return found


class _MetError(Exception):
    """How it meets what decides (`met_by`)."""


def used_in_outputs(function: Callable, params: Any) -> set[str]:
    """The names of the parameters on which function(params) depends; shapes are enough.

    >>> import jax.numpy as jnp
    >>> used_in_outputs(lambda p: 2 * p["a"], {"a": jnp.ones(2), "b": jnp.ones(3)})
    {'a'}
    """
    program = jax.make_jaxpr(function)(params).jaxpr
    used = dce_jaxpr(program, [True] * len(program.outvars))[1]
    return {name for name, is_used in zip(names_of(params), used, strict=True) if is_used}


def _reached(
    program: Any, from_it: list[bool], of_parameters: list[bool], of_weights: list[bool] | None = None
) -> list[bool] | None:
    """Which outputs one input reaches; None where it meets what is made of parameters otherwise than in a sum.

    of_weights: raise how it meets what is made of these, or factors (`met_by`).
    """
    made = {v for v, is_made in zip(program.invars, of_weights or (), strict=False) if is_made}
    mine = {v for v, is_mine in zip(program.invars, from_it, strict=True) if is_mine}
    held = {v for v, is_held in zip(program.invars, of_parameters, strict=True) if is_held}

    def among(found: set, variables: Any) -> list[bool]:
        return [not isinstance(v, Literal) and v in found for v in variables]

    for eqn in program.eqns:
        met, others = among(mine, eqn.invars), among(held, eqn.invars)
        if any(met):
            outs = _after(eqn, met, others, None if of_weights is None else among(made, eqn.invars))
            if outs is None:
                return None
            mine |= {v for v, is_mine in zip(eqn.outvars, outs, strict=True) if is_mine}
        if any(others):
            held |= set(eqn.outvars)
        if any(among(made, eqn.invars)):
            made |= set(eqn.outvars)
    return among(mine, program.outvars)


def _after(eqn: Any, met: list[bool], others: list[bool], made: list[bool] | None) -> list[bool] | None:
    """The same for the outputs of one equation."""
    name = eqn.primitive.name
    bodies = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
    if bodies and name not in _NEVER:
        body = bodies[0]
        if len(body.invars) != len(met) or len(body.outvars) != len(eqn.outvars):
            return None
        return _reached(body, met, others, made)
    rest = [held for held, is_mine in zip(others, met, strict=True) if not is_mine]
    if made is not None and any(is_made and not mine for is_made, mine in zip(made, met, strict=True)):
        if name in _TERMS | _FACTORS:
            raise _MetError("added" if name in _TERMS else "multiplied")
    elif made is not None and name in _FACTORS and sum(met) == 1:  # by a gate, say, before it is added
        return [True] * len(eqn.outvars)
    if name in _NEVER or (name in _FACTORS and (sum(met) > 1 or any(rest))) or (any(rest) and name not in _TERMS):
        return None
    return [True] * len(eqn.outvars)
