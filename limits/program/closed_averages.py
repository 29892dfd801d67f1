"""Functions of fields that have a closed average: those that are recognised, and multiples of their derivatives."""

import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import hermite
from limits.program import differentiated
from limits.program.functions import Factor, Function
from limits.program.nodes import Det
from limits.program.recognise import Closed, recognised, values_at
from limits.program.values import InfiniteError, NoLimitError


class ClosedAverage(NamedTuple):
    """A closed average of (q1, q2, k, 1 − c, numbers in the function that move)."""

    call: Any
    smooth: bool  # whether it does without 1 − c
    numbers: tuple


def closed_average(f: Function, g: Function) -> ClosedAverage | None:
    """E[f g] with derivatives, if it has a closed form."""
    slopes, scale, which = slopes_of(f, g), 1.0, "moment"
    if slopes is not None:
        (f, g), scale = slopes
        which = "slope"
    known = recognised_function(f) if same_function(f, g) else None
    if known is None:
        return None

    def average(q1: Any, q2: Any, k: Any, gap: Any, numbers: tuple) -> Any:
        places = {id(det): number.reshape(()) for det, number in zip(f.dets, numbers, strict=True)}
        known: Any = recognised_function(f, lambda det: places[id(det)])
        return scale * getattr(known.averages, which)(q1, q2, k, gap)

    return ClosedAverage(average, known.averages.smooth, differentiated.values_of_dets(f))


def same_function(f: Function, g: Function) -> bool:
    """Whether both are one function, of variables that may differ; numbers in it may move, alike."""
    return f.name == g.name and len(f.dets) == len(g.dets) and all(map(operator.is_, f.dets, g.dets))


def recognised_function(f: Function, place: Any = None) -> Closed | None:
    """f as a function that has a closed average; where numbers in it move, by their usual values."""
    usual = {id(det): det.default for det in f.dets}
    if None in usual.values():
        return None
    if not usual:
        return recognised(f.name, _alone(f))
    key = f"{f.name} at {[*usual.values()]}"
    known = recognised(key, _alone(f, lambda det: usual[id(det)]))
    if known is None or not _stays(f, known, usual):
        return None
    return known.of(_alone(f, place or (lambda det: det.array.reshape(()))))


_staying: dict[Any, bool] = {}


def _stays(f: Function, known: Closed, usual: dict[int, Any]) -> bool:
    """Whether f is a ψ(b x) of the same ψ where its numbers are others: found as one there, it has the values of one."""
    powers = [getattr(number, "powers", None) for number in usual.values()]
    key = f.name, tuple(usual.values()), tuple(powers)
    if key not in _staying:
        apart = dict(zip(usual, _elsewhere([*usual.values()], powers), strict=True))
        moved = _alone(f, lambda det: apart[id(det)])
        with jax.enable_x64(True), jax.ensure_compile_time_eval():
            x = jnp.asarray(_PROBES)
            there = known.of(moved)
            values = None if there is None else there.a * there.psi(there.b * x)
            _staying[key] = values is not None and np.allclose(values, moved(x), rtol=1e-9, atol=1e-12)
    return _staying[key]


_PROBES = np.array([-50.0, -3.1, -1.3, -0.4, -0.05, 0.0, 0.05, 0.3, 0.9, 2.2, 50.0])


def _elsewhere(usual: list[float], powers: list[Any]) -> list[float]:
    """These numbers where those of the network are others, each by a factor of its own, or they are where powers are unknown."""
    factor = lambda k: 1.37 / (1 + 0.3 * k)  # noqa: E731
    if None in powers:
        return [(number or 0.3) * factor(k) for k, number in enumerate(usual)]
    return [
        number * math.prod(factor(k) ** p for k, p in enumerate(own)) for number, own in zip(usual, powers, strict=True)
    ]


def _alone(f: Function, place: Any = None) -> Any:
    """As a function of its one variable; without `place` it must be without deterministic values."""
    (leaf,) = f.random
    return lambda x: f({id(leaf): x}, place or _no_values) * jnp.ones_like(x)


_infinite: dict[str, bool] = {}


def check_square(m: Any, f: Function) -> None:
    """Raises where the mean square of a function, or of a slope, is infinite for what it does at 0."""
    if f.name not in _infinite:
        (values,) = values_at(hermite.TOWARDS_ZERO, _alone(f, lambda _: 1.0))
        _infinite[f.name] = hermite.infinite_square(values)
    if _infinite[f.name]:
        slope = any(factor.slopes for factor in f.factors)
        what = ("slope of this function", "tangent kernel") if slope else ("function", "covariance")
        raise InfiniteError(f"{m.own.place(f)}: the {what[0]} {hermite.STEEP} the {what[1]}, is infinite")


def has_closed_form(f: Function) -> bool:
    """Whether no series of it is needed: it has a closed average, or is a slope of what has one."""
    if len(f.random) != 1:
        return False
    slopes = slopes_of(f, f)
    return recognised_function(f) is not None or (slopes is not None and has_closed_form(slopes[0][0]))


def _no_values(det: Det) -> Any:
    raise NoLimitError("a deterministic value was not expected here")


def slopes_of(f: Function, g: Function) -> tuple[tuple[Function, Function], float] | None:
    """((φ, φ), κ) where f and g are multiples of the derivative of one φ, κ the product."""
    moving = [det.default is None for each in (f, g) for det in each.dets]
    if any(moving) or not any(factor.slopes for factor in f.factors):
        return None
    found = []
    for function in (f, g):
        if sum(len(factor.slopes) for factor in function.factors) != 1 or len(function.random) != 1:
            return None
        base = Function(tuple(Factor(factor.node) for factor in function.factors), function.rank)
        scale = _ratio(function, base)
        if scale is None:
            return None
        found.append((base, scale))
    (a, s), (b, t) = found
    one_slope = len(a.derivatives(a.random[0])) == len(b.derivatives(b.random[0])) == 1
    return ((a, b), s * t) if same_function(a, b) and one_slope else None


_ratios: dict[str, float | None] = {}


def _ratio(function: Function, base: Function) -> float | None:
    """κ with function = κ φ′."""
    if function.dets:  # of one factor, a slope is that of its base
        return 1.0 if len(function.factors) == 1 else None
    slopes = base.derivatives(base.random[0])
    if len(slopes) == 1 and slopes[0].name == function.name:
        return 1.0
    if function.name not in _ratios:
        x = np.array([-3.1, -1.3, -0.4, 0.3, 0.9, 2.2])
        mine, *parts = values_at(x, *map(_alone, (function, *slopes)))
        theirs = np.sum(parts, axis=0)
        at = np.argmax(np.abs(theirs))
        scale = mine[at] / theirs[at] if theirs[at] else 0.0
        same = np.allclose(mine, scale * theirs, rtol=1e-12, atol=1e-13)
        _ratios[function.name] = float(scale) if same and scale else None
    return _ratios[function.name]
