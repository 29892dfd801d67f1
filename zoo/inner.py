"""Layers from neurons to few numbers that stand inside a network (routers, gates, bottlenecks), and act on all its neurons."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from zoo.names import numberless
from zoo.scans import scan_counts
from zoo.uses import Pass

# The parameter itself; it and activations, before the sum over neurons; few signals of every neuron; the few signals.
_WEIGHTS, _MET, _OF_EACH, _SIGNAL = 1, 2, 3, 4
_SUMS = ("add", "add_any", "sub", "concatenate")


class Forward(NamedTuple):
    """A forward pass as a program, of which input `at` is one parameter and the first `count` are all of them."""

    program: Any
    at: int
    count: int


class _Said(NamedTuple):
    """What is known of a value: which part of the way from the parameter it is; whether it comes from others; or is a number
    that goes with the width."""

    part: int = 0
    held: bool = False
    varies: bool = False
    active: bool = False  # made of an input, or of a constant array, which may be one


class _OtherError(Exception):
    """The two programs are not the same but for sizes, or have what is not followed."""


def forwards(function: Callable, params: Any, *arguments: Any) -> dict[str, Forward]:
    """The forward pass function(params, *arguments) as a `Forward` of every parameter, by name; shapes are enough."""
    return forwards_of(Pass(function, params, *arguments))


def forwards_of(passed: Pass) -> dict[str, Forward]:
    """The `Forward` of every parameter of a pass, by name."""
    return {name: Forward(passed.program, at, len(passed.params)) for at, name in enumerate(passed.params)}


def is_inner(narrow: Forward, wide: Forward) -> bool:
    """Whether the few signals that weights of role readout make of activations act on neurons, whose number differs.

    Seen in two widths of one network. Only what is certain counts: not where numbers that go with the width multiply the
    signals on the way (h · tanh(r/√N), whose r may move by √N), and not where only what has no derivative leads on (argmax).
    Weights that mix the positions of every neuron (MLP-Mixer) make signals of each: they act where others' neurons multiply them.

    >>> def f(p, x):
    ...     h = jnp.tanh(x @ p["u"])
    ...     return (h * jax.nn.sigmoid(h @ p["gate"])) @ p["w"]
    >>> def seen(n):
    ...     return forwards(f, {"u": jnp.ones((3, n)), "gate": jnp.ones((n, 1)), "w": jnp.ones((n, 1))}, jnp.ones((2, 3)))
    >>> {name: is_inner(seen(4)[name], seen(8)[name]) for name in ("gate", "w")}
    {'gate': True, 'w': False}
    """
    return _walked(narrow, wide).found


def is_multiplied(narrow: Forward, wide: Forward) -> bool:
    """Whether a number that goes with the width multiplies what a parameter makes of inputs (embeddings times √N).

    >>> def f(p, x):
    ...     return p["table"][x] * p["table"].shape[-1] ** 0.5
    >>> seen = [forwards(f, {"table": jnp.ones((3, n))}, jnp.array([0]))["table"] for n in (4, 8)]
    >>> is_multiplied(*seen)
    True
    """
    return _walked(narrow, wide).multiplied


def _walked(narrow: Forward, wide: Forward) -> "_Walk":
    walk = _Walk()
    given = [_Said(held=i < narrow.count, active=i >= narrow.count) for i in range(len(narrow.program.jaxpr.invars))]
    given[narrow.at] = _Said(_WEIGHTS)
    with contextlib.suppress(_OtherError):
        walk.through(narrow.program, wide.program, given)
    return walk


def with_inner(
    places: dict[str, Any], narrow: dict[str, list[Forward]], wide: dict[str, list[Forward]]
) -> dict[str, Any]:
    """Those `Place`s that are of layers inside, weights of role readout and their biases, saying so.

    narrow, wide: how every parameter is seen in models of two widths; those of more layers by names without numbers.
    """
    kinds = {numberless(name) for name, place in places.items() if place.role == "readout"}
    both = {name for name in narrow.keys() & wide.keys() if numberless(name) in kinds}
    seen = {name for name in both if any(map(is_inner, narrow[name], wide[name]))}
    alike = {numberless(name) for name in seen}
    inside = {
        name
        for name, place in places.items()
        if place.role == "readout" and (name in seen if name in narrow else numberless(name) in alike)
    }
    layers = {name.rpartition(".")[0]: places[name] for name in inside}
    for name, place in places.items():
        layer = layers.get(name.rpartition(".")[0])
        if place.role == "constant" and layer is not None and _is_bias(place.shape, layer):
            inside.add(name)
    return {name: dataclasses.replace(places[name], inner=True) for name in inside}


def _is_bias(shape: tuple[int, ...], layer: Any) -> bool:
    """Whether it has the axes of these weights that do not grow, or their last and those of layers in front (convolutions)."""
    weights = layer.shape
    fixed = tuple(size for axis, size in enumerate(weights) if axis not in layer.grows)
    return shape == fixed or (shape[-1:] != () and shape[-1] in weights and shape[:-1] == weights[: len(shape) - 1])


class _Walk:
    """Through two programs at once, with what is known of every value."""

    def __init__(self) -> None:
        self.found = self.multiplied = False

    def through(self, one: Any, two: Any, given: Sequence[_Said]) -> list[_Said]:
        """Of the outputs, for these inputs."""
        (first, consts), (second, others) = _opened(one), _opened(two)
        if len(first.eqns) != len(second.eqns) or len(first.invars) != len(given):
            raise _OtherError
        known: dict[Any, _Said] = dict(zip(first.invars, given, strict=True))
        for v, a, b in zip(first.constvars, consts, others, strict=True):
            known[v] = _Said(varies=_differ(a, b), active=np.ndim(a) > 0)

        def of(v: Any, w: Any) -> _Said:
            if isinstance(v, Literal):
                return _Said(varies=not isinstance(w, Literal) or _differ(v.val, w.val))
            return known[v]

        for a, b in zip(first.eqns, second.eqns, strict=True):
            if a.primitive.name != b.primitive.name or len(a.invars) != len(b.invars):
                raise _OtherError
            found = self._after(a, b, [of(v, w) for v, w in zip(a.invars, b.invars, strict=True)])
            known |= dict(zip(a.outvars, found, strict=True))
        return [of(v, w) for v, w in zip(first.outvars, second.outvars, strict=True)]

    def _after(self, a: Any, b: Any, given: list[_Said]) -> list[_Said]:
        name, bodies = a.primitive.name, [_bodies(eqn) for eqn in (a, b)]
        if name == "scan":
            consts, carried = scan_counts(a.params)
            return self._repeated(bodies[0][0], bodies[1][0], given, consts, carried)
        if name == "while":
            skipped = a.params["cond_nconsts"]
            body = a.params["body_jaxpr"], b.params["body_jaxpr"]
            return self._repeated(*body, given[skipped:], a.params["body_nconsts"], len(a.outvars))
        if name == "cond":
            pairs = zip(a.params["branches"], b.params["branches"], strict=True)
            return [_joined(each) for each in zip(*(self.through(*pair, given[1:]) for pair in pairs), strict=True)]
        if bodies[0] and len(_opened(bodies[0][0])[0].invars) == len(
            given
        ):  # others say how two numbers are joined (scatter-add)
            found = self.through(bodies[0][0], bodies[1][0], given)
            if len(found) != len(a.outvars):
                raise _OtherError
            return found
        return [self._one(a, b, given, v.aval, w.aval) for v, w in zip(a.outvars, b.outvars, strict=True)]

    def _repeated(self, one: Any, two: Any, given: list[_Said], consts: int, carried: int) -> list[_Said]:
        """Of a loop, whose state is what it was or what a step makes of it."""
        while True:
            found = self.through(one, two, given)
            state = [_joined(pair) for pair in zip(given[consts : consts + carried], found[:carried], strict=True)]
            if state == given[consts : consts + carried]:
                return [*state, *found[carried:]]
            given = [*given[:consts], *state, *given[consts + carried :]]

    def _one(self, a: Any, b: Any, given: list[_Said], narrow: Any, wide: Any) -> _Said:
        """Of one output of an equation without a program inside."""
        said, grows = _joined(given), narrow.shape != wide.shape
        if not said.part:
            summed = any(v.aval.shape != w.aval.shape for v, w in zip(a.invars, b.invars, strict=True)) and not grows
            active = said.active or (not said.held and narrow.ndim > 0)
            return said._replace(varies=not said.held and (said.varies or summed), active=active)
        if said.part == _WEIGHTS and not said.held and grows and a.primitive.name in ("mul", "div"):
            self.multiplied |= any(each.varies and not each.part for each in given)
        slopes = a.primitive.name != "stop_gradient" and jnp.issubdtype(narrow.dtype, jnp.inexact)
        if not slopes or any(each.varies for each in given):
            return _Said(held=True, active=said.active)
        others = [each for each in zip(given, a.invars, b.invars, strict=True) if each[0].held and not each[0].part]
        meets = a.primitive.name not in _SUMS and any(v.aval.shape != w.aval.shape for _, v, w in others)
        if (said.part == _SIGNAL and grows) or (said.part == _OF_EACH and meets):
            self.found = True
        if said.part == _WEIGHTS and not said.active and grows and _are_multiplied_out(a, b, given):
            self.found = True
        if grows and _sums_weights(a, b, given):
            return said._replace(part=_OF_EACH)
        met = said.part > _WEIGHTS or any(each.held for each in given)
        part = max(said.part, _WEIGHTS if not met else _MET if grows else _SIGNAL)
        return said._replace(part=part)


def _sums_weights(a: Any, b: Any, given: list[_Said]) -> bool:
    """Whether a matrix product with activations sums the parameter itself over neurons (one of parameters is a parameter)."""
    if a.primitive.name != "dot_general" or not any(each.active for each in given):
        return False
    summed = a.params["dimension_numbers"][0]
    at = [i for i, each in enumerate(given) if each.part == _WEIGHTS]
    return any(a.invars[i].aval.shape[axis] != b.invars[i].aval.shape[axis] for i in at for axis in summed[i])


def _are_multiplied_out(a: Any, b: Any, given: list[_Said]) -> bool:
    """Whether few outputs of the parameter itself and another's make a matrix of neurons by neurons (W + A B, with a rank)."""
    if a.primitive.name not in ("mul", "dot_general") or sum(each.part == _WEIGHTS for each in given) != 1:
        return False
    (at,) = (i for i, each in enumerate(given) if each.part == _WEIGHTS)

    def growing(v: Any, w: Any) -> int:
        return sum(m != n for m, n in zip(v.aval.shape, w.aval.shape, strict=True))

    sides = [growing(v, w) for v, w in zip(a.invars, b.invars, strict=True)]
    return given[1 - at].held and min(sides) > 0 and growing(a.outvars[0], b.outvars[0]) > sides[at]


def _joined(given: Sequence[_Said]) -> _Said:
    return _Said(*(max(each) for each in zip(_Said(), *given, strict=True)))


def _opened(program: Any) -> tuple[Any, Sequence[Any]]:
    return getattr(program, "jaxpr", program), getattr(program, "consts", ())


def _bodies(eqn: Any) -> list[Any]:
    return [p for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]


def _differ(a: Any, b: Any) -> bool:
    """Whether two numbers, or arrays of one shape, are not the same."""
    if a is b or np.shape(a) != np.shape(b) or jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key):
        return False
    return not np.array_equal(np.asarray(a), np.asarray(b))
