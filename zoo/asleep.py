"""Two layers of which each changes nothing while the other is zero, as those of LoRA: where both begin there, neither learns."""

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

from zoo.inferred import Place
from zoo.scans import CALLS, scan_counts
from zoo.uses import Pass

_LOW_RANK = (
    "{name} makes few signals of all neurons, and they act through {other} alone, which starts at zero (as in LoRA). "
    "Neither learns while both are zero, and what is inside starts at zero or as 1/width (with 1/√width signals move by more in "
    "wider networks): SGD leaves them there for longer the wider the network is, and Adam begins with smaller steps. Start "
    "{name} at zero and {other} with numbers of O(1), as nn.initializers.normal(1.0) does, and take Adam, Lion or Muon: the "
    "network begins the same, and moves alike at every width."
)
_BOTH = (
    "{name} and {other} both start at zero, and each changes nothing while the other is zero: both stay at zero. Start one of "
    "them away from zero."
)
_FACTORS = {"mul", "dot_general", "conv_general_dilated"}  # zero where one of them is
_STAY = {  # zero where all are
    "add", "sub", "add_any", "neg", "reduce_sum", "cumsum", "transpose", "reshape", "broadcast_in_dim", "squeeze", "slice",
    "dynamic_slice", "gather", "convert_element_type", "copy", "copy_p", "concatenate", "tanh", "sin", "abs", "sqrt", "square",
    "integer_pow", "reduce_precision", "optimization_barrier", "rev", "split", "expand_dims", "sign", "max", "min", "select_n",
}  # fmt: skip
_ONE = {"div", "dynamic_slice", "gather"}  # by the first alone
# Of a value, in bits: on which weights it depends, in each of several cases; in which it is zero.
_Said = tuple[int, int]


class Asleep(NamedTuple):
    """What weights of a layer inside wait for; `low_rank`: makes of few signals those of neurons, which LoRA's remedy is for."""

    other: str
    low_rank: bool

    def said(self, name: str) -> str:
        """In words."""
        return (_LOW_RANK if self.low_rank else _BOTH).format(name=name, other=self.other)


def sleepers(passed: Pass, places: Mapping[str, Place], zeros: set[str]) -> dict[str, Asleep]:
    """{weights of a layer inside: those that start at zero, alone met by its signals, and that learn from these alone}.

    Of those that sum over neurons, or are one number (gates, heads, the keys of queries), where both start at zero.
    zeros: the parameters that start at zero; passed: a forward pass, which may have names of its own.

    >>> import jax.numpy as jnp
    >>> p = {"a": jnp.ones((4, 2)), "b": jnp.ones((2, 4)), "w": jnp.ones((4, 1))}
    >>> places = {"a": Place("readout", (4, 2), (0,), inner=True), "b": Place("input", (2, 4), (1,)),
    ...           "w": Place("readout", (4, 1), (0,))}
    >>> def seen(act):
    ...     return Pass(lambda p, x: (x + act(x @ p["a"]) @ p["b"]) @ p["w"], p, jnp.ones((3, 4)))
    >>> sleepers(seen(jnp.tanh), places, {"b"}), sleepers(seen(jnp.cos), places, {"b"}), sleepers(seen(jnp.tanh), places, {"w"})
    ({'a': Asleep(other='b', low_rank=True)}, {}, {})
    """
    inside = [name for name, place in places.items() if place.inner and place.role == "readout"]
    few = {name for name in zeros & places.keys() if _is_of_few(places[name])}
    others = sorted(zeros & places.keys() if zeros & set(inside) else few)
    if not inside or not others:
        return {}
    layers = {
        name: {name, *(zero for zero in zeros if places[zero].inner and _is_beside(zero, name))} for name in inside
    }
    cases = [set[str](), *({other} for other in others), *layers.values()]
    reached = _Walk(passed, [*dict.fromkeys([*inside, *others])], cases).reached()

    def wait(name: str, other: str) -> bool:
        """Whether outputs depend on both, but on neither where the other is zero."""
        both = reached[name][0] and reached[other][0]
        return both and not reached[name][1 + others.index(other)] and not reached[other][at[name]]

    at = {name: 1 + len(others) + i for i, name in enumerate(inside)}
    found: dict[str, Asleep] = {}
    for name in inside:
        mine = [other for other in others if (other in few or name in zeros) and other not in layers[name]]
        for other in sorted((other for other in mine if wait(name, other)), key=lambda other: other not in few)[:1]:
            if other not in found:
                found[name] = Asleep(other, other in few)
    return found


def _is_of_few(place: Place) -> bool:
    """Whether it sums over no neurons, and is more than one number."""
    return place.role in ("input", "bias") or (place.role == "constant" and len(place.shape) - place.stacked > 1)


def _is_beside(one: str, other: str) -> bool:
    """Whether both are of one layer."""
    return "." in one and one.rpartition(".")[0] == other.rpartition(".")[0]


class _Walk:
    """Through a program, for all cases at once: bit i·cases + k of what depends on weights is that of weights i in case k."""

    def __init__(self, passed: Pass, names: Sequence[str], cases: Sequence[set[str]]) -> None:
        """cases: the weights that are zero."""
        self.passed, self.names, self.cases = passed, names, cases
        self.all = (1 << len(cases)) - 1
        self.each = sum(1 << i * len(cases) for i in range(len(names)))  # times cases: these, of all weights

    def reached(self) -> dict[str, list[bool]]:
        """{weights: whether outputs depend on them, in each of the cases}."""
        jaxpr, count = self.passed.program.jaxpr, len(self.cases)
        given = [self._given(own.removeprefix("params.")) for own in self.passed.params]
        outs = self._through(jaxpr, given + [(0, 0)] * (len(jaxpr.invars) - len(given)))
        bits = 0
        for v, (depends, _) in zip(jaxpr.outvars, outs, strict=True):
            bits |= depends if v not in jaxpr.invars else 0  # Linen returns the parameters beside outputs
        return {name: [bool(bits >> i * count + k & 1) for k in range(count)] for i, name in enumerate(self.names)}

    def _given(self, own: str) -> _Said:
        known = {name for name in set(self.names).union(*self.cases) if f".{name}".endswith(f".{own}")}
        depends = sum(self.all << i * len(self.cases) for i, name in enumerate(self.names) if name in known)
        return depends, sum(1 << k for k, case in enumerate(self.cases) if case & known)

    def _through(self, jaxpr: Any, given: list[_Said]) -> list[_Said]:
        known: dict[Any, _Said] = dict(zip(jaxpr.invars, given, strict=True))

        def of(v: Any) -> _Said:
            if isinstance(v, Literal):
                return 0, self.all if getattr(v.val, "ndim", 0) == 0 and not v.val else 0
            return known.get(v, (0, 0))

        for eqn in jaxpr.eqns:
            known |= zip(eqn.outvars, self._after(eqn, [of(v) for v in eqn.invars]), strict=True)
        return [of(v) for v in jaxpr.outvars]

    def _after(self, eqn: Any, given: list[_Said]) -> list[_Said]:
        name, count = eqn.primitive.name, len(eqn.outvars)
        bodies = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        if name == "scan":
            return self._repeated(bodies[0], given, *scan_counts(eqn.params))
        if name in CALLS and bodies and len(bodies[0].invars) == len(given):
            return self._through(bodies[0], given)
        if name == "cond":
            branches = zip(*(self._through(body, given[1:]) for body in bodies), strict=True)
            return [(_any(d for d, _ in each), self._every(zero for _, zero in each)) for each in branches]
        if all(isinstance(v, Literal) for v in eqn.invars):
            return [(0, 0)] * count  # numbers, which may stand for inputs
        zero = [each for _, each in given]
        values = zero[1:] if name == "select_n" else zero[:1] if name in _ONE else zero
        gone = _any(zero) if name in _FACTORS else self._every(values) if name in _STAY | _ONE else 0
        return [(_any(depends for depends, _ in given) & ~(gone * self.each), gone)] * count

    def _repeated(self, body: Any, given: list[_Said], consts: int, carried: int) -> list[_Said]:
        """Of a loop, whose state is what it was or what a step makes of it."""
        while True:
            found = self._through(body, given)
            before = given[consts : consts + carried]
            state = [(a | c, b & d) for (a, b), (c, d) in zip(before, found[:carried], strict=True)]
            if state == before:
                return [*state, *found[carried:]]
            given = [*given[:consts], *state, *given[consts + carried :]]

    def _every(self, bits: Iterable[int]) -> int:
        return functools.reduce(operator.and_, bits, self.all)


def _any(bits: Iterable[int]) -> int:
    return functools.reduce(operator.or_, bits, 0)
