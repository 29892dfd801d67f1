"""Two layers of which each changes nothing while the other is zero, as those of LoRA: where both begin there, neither learns."""

from collections.abc import Mapping
from typing import Any

from jax.extend.core import Literal

from zoo.inferred import Place
from zoo.scans import scan_counts
from zoo.uses import Pass

ASLEEP = (
    "{caller}{name} makes few signals of all neurons, and they act through {other} alone, which starts at zero (as in LoRA). "
    "Neither learns while both are zero, and what is inside starts at zero or as 1/width (with 1/√width signals move by more in "
    "wider networks): SGD leaves them there for longer the wider the network is, and Adam begins with smaller steps. Start "
    "{name} at zero and {other} with numbers of O(1), as nn.initializers.normal(1.0) does, and take Adam, Lion or Muon: the "
    "network begins the same, and moves alike at every width."
)
_FACTORS = {"mul", "dot_general", "conv_general_dilated"}  # zero where one of them is
_STAY = {  # zero where all are
    "add", "sub", "add_any", "neg", "reduce_sum", "cumsum", "transpose", "reshape", "broadcast_in_dim", "squeeze", "slice",
    "dynamic_slice", "gather", "convert_element_type", "copy", "copy_p", "concatenate", "tanh", "sin", "abs", "sqrt", "square",
    "integer_pow", "reduce_precision", "optimization_barrier", "rev", "split", "expand_dims", "sign", "max", "min", "select_n",
}  # fmt: skip
_ONE = {"div", "dynamic_slice", "gather"}  # by the first alone
_INSIDE = {
    "pjit",
    "jit",
    "closed_call",
    "core_call",
    "remat",
    "remat2",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
}

_Said = tuple[bool, bool]  # of a value: whether it depends on the weights that are asked of; whether it is zero


def sleepers(passed: Pass, places: Mapping[str, Place], zeros: set[str]) -> dict[str, str]:
    """{weights of a layer inside: those that start at zero, alone met by its signals, and that learn from these alone}.

    zeros: the parameters that start at zero; passed: a forward pass, which may have names of its own.

    >>> import jax.numpy as jnp
    >>> p = {"a": jnp.ones((4, 2)), "b": jnp.ones((2, 4)), "w": jnp.ones((4, 1))}
    >>> places = {"a": Place("readout", (4, 2), (0,), inner=True)}
    >>> def seen(act):
    ...     return Pass(lambda p, x: (x + act(x @ p["a"]) @ p["b"]) @ p["w"], p, jnp.ones((3, 4)))
    >>> sleepers(seen(jnp.tanh), places, {"b"}), sleepers(seen(jnp.cos), places, {"b"}), sleepers(seen(jnp.tanh), places, {"w"})
    ({'a': 'b'}, {}, {})
    """
    found = {}
    for name, place in places.items():
        if not (place.inner and place.role == "readout") or not _sleeps(passed, name, zeros - {name}):
            continue
        layer = (
            {each for each in zeros if places[each].inner and _layer(each) == _layer(name)} if _layer(name) else set()
        )
        for other in sorted(zeros - {name} - layer):
            if _sleeps(passed, name, {other}) and _sleeps(passed, other, {name, *layer}):
                found[name] = other
    return found


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _sleeps(passed: Pass, name: str, zeros: set[str]) -> bool:
    """Whether outputs depend on it, but not as long as these are zero."""
    return _reaches(passed, name, set()) and not _reaches(passed, name, zeros)


def _reaches(passed: Pass, name: str, zeros: set[str]) -> bool:
    def stands_for(own: str, other: str) -> bool:
        own = own.removeprefix("params.")
        return f".{other}".endswith(f".{own}")

    jaxpr = passed.program.jaxpr
    given = [(stands_for(own, name), any(stands_for(own, zero) for zero in zeros)) for own in passed.params]
    rest = [(False, False)] * (len(jaxpr.invars) - len(given))
    outs = zip(jaxpr.outvars, _through(jaxpr, given + rest), strict=True)
    return any(
        depends for v, (depends, _) in outs if v not in jaxpr.invars
    )  # Linen returns the parameters beside outputs


def _through(jaxpr: Any, given: list[_Said]) -> list[_Said]:
    known: dict[Any, _Said] = dict(zip(jaxpr.invars, given, strict=True))

    def of(v: Any) -> _Said:
        if isinstance(v, Literal):
            return False, getattr(v.val, "ndim", 0) == 0 and not v.val
        return known.get(v, (False, False))

    for eqn in jaxpr.eqns:
        known |= dict(zip(eqn.outvars, _after(eqn, [of(v) for v in eqn.invars]), strict=True))
    return [of(v) for v in jaxpr.outvars]


def _after(eqn: Any, given: list[_Said]) -> list[_Said]:
    name, count = eqn.primitive.name, len(eqn.outvars)
    bodies = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
    if name == "scan":
        return _repeated(bodies[0], given, *scan_counts(eqn.params))
    if name in _INSIDE and bodies and len(bodies[0].invars) == len(given):
        return _through(bodies[0], given)
    if name == "cond":
        branches = zip(*(_through(body, given[1:]) for body in bodies), strict=True)
        return [(any(d for d, _ in each), all(zero for _, zero in each)) for each in branches]
    if all(isinstance(v, Literal) for v in eqn.invars):
        return [(False, False)] * count  # numbers, which may stand for inputs
    zero = [each for _, each in given]
    values = zero[1:] if name == "select_n" else zero[:1] if name in _ONE else zero
    gone = any(zero) if name in _FACTORS else name in _STAY | _ONE and all(values)
    return [(not gone and any(depends for depends, _ in given), gone)] * count


def _repeated(body: Any, given: list[_Said], consts: int, carried: int) -> list[_Said]:
    """Of a loop, whose state is what it was or what a step makes of it."""
    while True:
        found = _through(body, given)
        state = [
            (a or c, b and d) for (a, b), (c, d) in zip(given[consts : consts + carried], found[:carried], strict=True)
        ]
        if state == given[consts : consts + carried]:
            return [*state, *found[carried:]]
        given = [*given[:consts], *state, *given[consts + carried :]]
