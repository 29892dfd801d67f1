"""Numbers by which code multiplies what weights make, as in h @ W / √N: they may stand for what initialisations leave out."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from zoo.held import OF_SHAPES
from zoo.in_forward import MARGIN, NONE, InForward, Stood, stand_for_starts
from zoo.inner import Forward, forwards_of
from zoo.names import numberless
from zoo.scans import scan_counts

_PASSED = (
    *OF_SHAPES, "convert_element_type", "copy", "copy_p", "reduce_precision", "stop_gradient", "neg", "rev", "expand_dims",
    "gather", "pad", "optimization_barrier", "sharding_constraint",
)  # fmt: skip
_JOINED = ("add", "add_any", "sub", "select_n", "concatenate", "dynamic_update_slice")
_PRODUCTS = ("dot_general", "conv_general_dilated")


class AtTwoWidths(NamedTuple):
    """The number at two widths, without its sign; several: one of those of many terms, which go alike with the width."""

    narrow: float = 1.0
    wide: float = 1.0
    several: bool = False

    def times(self, other: "AtTwoWidths", power: int = 1) -> "AtTwoWidths":
        """Multiplied by it, or divided."""
        narrow, wide = (
            abs(a * b) if power > 0 else abs(a / b) if b else math.nan for a, b in zip(self[:2], other[:2], strict=True)
        )
        return AtTwoWidths(narrow, wide, self.several or other.several)

    @staticmethod
    def joined(each: Sequence["AtTwoWidths"]) -> "AtTwoWidths":
        """Of the terms of a sum, or of the pieces of a function: unknown where they do not go alike with the width."""
        first, *others = each
        if all(other == first for other in others):
            return first
        return first._replace(several=True) if _agree(each) else _UNKNOWN


_UNKNOWN, _ONE = AtTwoWidths(math.nan, math.nan), AtTwoWidths()


class _Value(NamedTuple):
    """A value of both programs: a number; or parameters, what weights made, and other signals, with what multiplied them."""

    number: AtTwoWidths | None = None
    own: Mapping[str, AtTwoWidths] = {}  # parameters that it is made of
    made: Mapping[str, AtTwoWidths] = {}  # weights whose products it is a sum of, with nothing but numbers since
    before: AtTwoWidths = _ONE  # since the last function, where no weights made it
    summed: bool = True  # over the inputs of the weights that made it
    looked: bool = False  # rows of these parameters, which may be signals

    def times(self, factors: AtTwoWidths, power: int = 1) -> "_Value":
        """Multiplied by a number, or divided."""
        own, made = ({name: f.times(factors, power) for name, f in each.items()} for each in (self.own, self.made))
        return _Value(None, own, made, self.before.times(factors, power), self.summed, self.looked)


def by_hand(
    narrow: Mapping[str, list[Forward]], wide: Mapping[str, list[Forward]], ratio: float
) -> dict[str, InForward]:
    """By what the code multiplies the products of every parameter, seen in two widths, of this ratio; none of what is unclear.

    >>> from zoo.inner import forwards
    >>> def seen(n):
    ...     return forwards(lambda p, x: x @ p["w"] / p["w"].shape[0] ** 0.5, {"w": jnp.ones((n, 1))}, jnp.ones((2, n)))
    >>> by_hand(*({name: [each] for name, each in seen(n).items()} for n in (4, 16)), ratio=4)
    {'w': InForward(factor=0.5, power=-0.5)}
    """
    found: dict[str, list[AtTwoWidths]] = {}
    for one, two in _programs(narrow, wide):
        walk = _Walk()
        with contextlib.suppress(_OtherError):  # two programs that differ in more than sizes
            walk.whole(one, two)
            for name, each in walk.found.items():
                found.setdefault(name, []).extend(each)
    return {name: _said(each, ratio) for name, each in found.items() if _agree(each)}


def with_by_hand(
    places: Mapping[str, Any], models: Any, sizes: Sequence[Any], ratio: float, zeros: Callable[[], set[str]]
) -> dict[str, Any]:
    """The `Place`s of the weights for whose start numbers in the code stand, saying so; sizes: two, of this ratio of widths.

    zeros: the names of what starts at zero.
    """
    weights = {
        name: place
        for name, place in places.items()
        if place.role in ("hidden", "readout") and abs(place.init[0]) < MARGIN
    }
    found: dict[str, InForward] = {}
    if weights:
        with contextlib.suppress(Exception):  # without a forward pass of both sizes nothing is seen
            found = by_hand(*(models.seen(forwards_of, each) for each in sizes), ratio=ratio)
            found = {**{numberless(name): each for name, each in reversed(found.items())}, **found}
    found = {name: found.get(name, found.get(numberless(name), NONE)) for name in weights}
    none = zeros() if any(abs(each.power) > MARGIN for each in found.values()) else set[str]()
    asked = {
        name: Stood(place.role, None if name in none else place.init[0], found[name]) for name, place in weights.items()
    }
    return {name: dataclasses.replace(places[name], by_hand=asked[name].number) for name in stand_for_starts(asked)}


def _programs(narrow: Mapping[str, list[Forward]], wide: Mapping[str, list[Forward]]) -> list[tuple[Any, Any]]:
    """Pairs of ({number of the input: name}, program), each program once."""
    pairs: dict[int, tuple[Any, Any]] = {}
    for name in narrow.keys() & wide.keys():
        for one, two in zip(narrow[name], wide[name], strict=False):
            names, others = pairs.setdefault(id(one.program), (({}, one.program), ({}, two.program)))
            names[0][one.at], others[0][two.at] = name, name
    return list(pairs.values())


def _agree(factors: Sequence[AtTwoWidths]) -> bool:
    if not all(0 < end < math.inf for each in factors for end in each[:2]):
        return False
    ratios = [each.wide / each.narrow for each in factors]
    return bool(np.allclose(ratios, ratios[0], rtol=1e-3))


def _said(factors: Sequence[AtTwoWidths], ratio: float) -> InForward:
    narrow, wide, _ = factors[0]
    one = not any(each.several for each in factors) and np.allclose(
        [each.narrow for each in factors], narrow, rtol=1e-3
    )
    return InForward(narrow if one else math.nan, round(math.log(wide / narrow, ratio), 6) + 0.0)


class _OtherError(Exception):
    """The two programs are not the same but for sizes and numbers."""


class _Walk:
    """Through two programs at once."""

    def __init__(self) -> None:
        self.found: dict[str, list[AtTwoWidths]] = {}

    def whole(self, one: Any, two: Any) -> None:
        """Of a forward pass."""
        (names, program), (others, other) = one, two
        if names != others:
            raise _OtherError
        given = [_Value(own={names[i]: _ONE}) if i in names else _Value() for i in range(len(program.jaxpr.invars))]
        for value in self.through(program, other, given):
            self._end(value)

    def through(self, one: Any, two: Any, given: Sequence[_Value]) -> list[_Value]:
        """Of the outputs, for these inputs."""
        (first, consts), (second, others) = ((getattr(p, "jaxpr", p), getattr(p, "consts", ())) for p in (one, two))
        if len(first.eqns) != len(second.eqns) or len(first.invars) != len(given):
            raise _OtherError
        known: dict[Any, _Value] = dict(zip(first.invars, given, strict=True))
        known |= {v: _constant(a, b) for v, a, b in zip(first.constvars, consts, others, strict=True)}

        def of(v: Any, w: Any) -> _Value:
            return _constant(v.val, w.val) if isinstance(v, Literal) and isinstance(w, Literal) else known[v]

        for a, b in zip(first.eqns, second.eqns, strict=True):
            if a.primitive.name != b.primitive.name or len(a.invars) != len(b.invars):
                raise _OtherError
            found = self._after(a, b, [of(v, w) for v, w in zip(a.invars, b.invars, strict=True)])
            known |= dict(zip(a.outvars, found, strict=True))
        return [of(v, w) for v, w in zip(first.outvars, second.outvars, strict=True)]

    def _end(self, *values: _Value) -> None:
        """What goes no further with numbers alone."""
        for value in values:
            for name, factors in value.made.items():
                self.found.setdefault(name, []).append(factors)

    def _after(self, a: Any, b: Any, given: list[_Value]) -> list[_Value]:
        name, bodies = a.primitive.name, [_bodies(eqn) for eqn in (a, b)]
        if name in ("scan", "while"):
            self._end(*given)
            return self._loop(a, bodies, given)
        if name == "cond":
            pairs = zip(a.params["branches"], b.params["branches"], strict=True)
            return [self._join(list(each)) for each in zip(*(self.through(*p, given[1:]) for p in pairs), strict=True)]
        inner = [getattr(each[0], "jaxpr", each[0]) if each else None for each in bodies]
        if inner[0] is not None and len(inner[0].invars) == len(given) and len(inner[0].outvars) == len(a.outvars):
            return self.through(bodies[0][0], bodies[1][0], given)
        return [self._one(a, b, given)] * len(a.outvars)

    def _loop(self, a: Any, bodies: Sequence[Sequence[Any]], given: list[_Value]) -> list[_Value]:
        """States and what comes out are signals that begin anew; what is gone over and constants are what they are."""
        scan = a.primitive.name == "scan"
        fixed, carried = scan_counts(a.params) if scan else (a.params["body_nconsts"], len(a.outvars))
        given = given if scan else given[a.params["cond_nconsts"] :]
        states = [_fresh(each) for each in given[fixed : fixed + carried]]
        at = 0 if scan else 1  # behind the condition
        inside = [*(each._replace(made={}) for each in given[:fixed]), *states, *given[fixed + carried :]]
        self._end(*self.through(bodies[0][at], bodies[1][at], inside))
        return [_Value(before=_ONE)] * len(a.outvars)

    def _one(self, a: Any, b: Any, given: list[_Value]) -> _Value:
        """Of an equation without a program inside."""
        name = a.primitive.name
        if all(each.number is not None for each in given) and given:
            return _worked_out(a, b, [each.number for each in given])
        if name in _PASSED:
            return given[0]._replace(looked=given[0].looked or (name == "gather" and bool(given[0].own)))
        if name not in ("mul", "div", *_PRODUCTS):
            given = [_signal(each) for each in given]
        if name in _JOINED:
            return self._join(given[1:] if name == "select_n" else given)
        if name in ("mul", "div") and len([each for each in given if each.number is not None]) == 1:
            at = 0 if given[0].number is not None else 1
            if name == "mul" or at == 1:
                return given[1 - at].times(given[at].number, 1 if name == "mul" else -1)  # pyright: ignore
        if name in ("mul", *_PRODUCTS):
            return self._product(a, b, given)
        if name in ("reduce_sum", "cumsum") and not given[0].own:
            count = _summed(a, b)
            return given[0].times(count) if given[0].summed or count == _ONE else given[0]._replace(summed=True)
        if name == "div" and not given[1].own and not given[1].made:  # by a signal, as a norm
            self._end(given[0])
            return _Value()
        self._end(*given)
        return _Value(own={key: _UNKNOWN for each in given for key in each.own})

    def _product(self, a: Any, b: Any, given: list[_Value]) -> _Value:
        if all(each.own for each in given):
            given = [_signal(each) for each in given]
        weights = [bool(each.own) for each in given]
        if all(weights):
            return _Value(own={key: _UNKNOWN for each in given for key in each.own})
        if any(weights):
            held, other = given if weights[0] else given[::-1]
            self._end(other)
            before = _ONE if other.made else other.before
            products = {key: f.times(before) for key, f in held.own.items()}
            return _Value(made=products, summed=a.primitive.name != "mul")
        summed = a.primitive.name != "mul" and _summed(a, b) != _ONE
        if not summed and sum(bool(each.made) for each in given) == 1:
            one, other = given if given[0].made else given[::-1]
            return one.times(other.before)
        self._end(*given)
        return _Value(before=_UNKNOWN if summed or any(each.before != _ONE for each in given) else _ONE)

    def _join(self, given: list[_Value]) -> _Value:
        """A sum: of what weights made every term is followed; signals beside must have the same numbers."""
        given = [each for each in given if each.number is None]
        if any(each.own for each in given) and not all(each.own for each in given):  # a bias
            given = [each for each in given if not each.own]
        own, made = (
            {key: AtTwoWidths.joined([kind(each)[key] for each in given if key in kind(each)]) for key in keys}
            for kind in (_own, _made)
            for keys in [dict.fromkeys(key for each in given for key in kind(each))]
        )
        befores = [each.before for each in given if not each.made and not each.own]
        before = AtTwoWidths.joined(befores) if befores else _ONE
        return _Value(None, own, made, before, all(each.summed for each in given))


def _own(value: _Value) -> Mapping[str, AtTwoWidths]:
    return value.own


def _made(value: _Value) -> Mapping[str, AtTwoWidths]:
    return value.made


def _signal(value: _Value) -> _Value:
    """What is looked up, as words of an embedding."""
    return _Value(before=next(iter(value.own.values()))) if value.looked and value.own else value


def _fresh(value: _Value) -> _Value:
    return _Value(before=_ONE if value.made or value.own or value.number is not None else value.before)


def _constant(a: Any, b: Any) -> _Value:
    number = np.size(a) == 1 == np.size(b) and all(jnp.issubdtype(jnp.result_type(each), np.number) for each in (a, b))
    ends = [float(np.asarray(each).item()) for each in (a, b)] if number else []
    return _Value(AtTwoWidths(ends[0], ends[1])) if number else _Value()


def _worked_out(a: Any, b: Any, numbers: Sequence[Any]) -> _Value:
    """A number made of numbers; arrays of one number are that number."""
    if a.primitive.name in _PASSED:
        return _Value(numbers[0])
    if any(v.aval.shape for eqn in (a, b) for v in eqn.invars) or len(a.outvars) != 1:
        return _Value()
    with contextlib.suppress(Exception), jax.ensure_compile_time_eval():  # what cannot be worked out is no number
        ends = []
        for eqn, at in ((a, 0), (b, 1)):
            arrays = [jnp.asarray(each[at], v.aval.dtype) for each, v in zip(numbers, eqn.invars, strict=True)]
            ends.append(float(np.asarray(eqn.primitive.bind(*arrays, **eqn.params)).item()))
        return _Value(AtTwoWidths(ends[0], ends[1]))
    return _Value()


def _summed(a: Any, b: Any) -> AtTwoWidths:
    """How many entries a sum has."""

    def count(eqn: Any) -> float:
        name, shape = eqn.primitive.name, eqn.invars[0].aval.shape
        if name == "dot_general":
            return math.prod(shape[i] for i in eqn.params["dimension_numbers"][0][0])
        if name == "conv_general_dilated":
            return math.prod(eqn.invars[1].aval.shape)
        return math.prod(shape[i] for i in ([eqn.params["axis"]] if name == "cumsum" else eqn.params["axes"]))

    one, two = count(a), count(b)
    return _ONE if one == two else AtTwoWidths(one, two)


def _bodies(eqn: Any) -> list[Any]:
    return [p for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
