"""Which functions have a closed Gaussian average: found by their values, as a ψ(b x) of a known ψ."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.activations import Dual, closed_form
from limits.kernels.alike import shared
from limits.kernels.differentiable import Averages, averages
from limits.kernels.hermite import derivative
from limits.kernels.kinks import Kinked, as_kinked, scales
from limits.program import in_numpy
from zoo import activations as zoo

_PROBES = np.array([1e-3, 0.11, 0.7, 1.0, 1.9, 6.3, 40.0, 1e3, 1e4])
_PROBES = np.r_[-_PROBES[::-1], _PROBES]
_FAR = np.array([30.0, 300.0])
_NEAR = abs(_PROBES) < 10
_TOLERANCE = 1e-11


class Closed(NamedTuple):
    """a ψ(b x), of a ψ that has a closed average."""

    psi: zoo.Activation
    a: Any = 1.0
    b: Any = 1.0

    @property
    def dual(self) -> Dual:
        """Its average, as `kernels.activations` has it."""
        known: Any = closed_form(self.psi)
        if isinstance(self.psi, zoo.PiecewiseLinear):
            return known
        size = jnp.abs(self.b)

        def scaled(r1: Any, r2: Any, gap: Any, sizes: Any = None) -> tuple:
            inner = sizes and [s / jnp.abs(self.a) for s in sizes]
            s1, s2, gap, slope = known(size * r1, size * r2, gap, inner)
            return jnp.abs(self.a) * s1, jnp.abs(self.a) * s2, gap, (self.a * self.b) ** 2 * slope

        return scaled

    def of(self, function: Callable[[Any], Any]) -> "Closed | None":
        """The same ψ of a function in which numbers move that are not known: (a, b), or slopes, from its values at points."""
        if isinstance(self.psi, Kinked):
            found = scales(self.psi, function)
            return found and Closed(self.psi, *_where_it_is(self.psi, *found, function))
        at = lambda x: function(jnp.asarray(x, float))  # noqa: E731
        plus, minus = at(1.0), at(-1.0)
        if isinstance(self.psi, zoo.PiecewiseLinear):
            return Closed(zoo.PiecewiseLinear(-minus, plus))
        if isinstance(self.psi, zoo.Quadratic):
            a = (plus - minus) / 2
            return Closed(zoo.Quadratic((plus + minus) / (2 * a)), a)
        derivatives = [function]
        for _ in range(3):
            derivatives.append(derivative(derivatives[-1]))
        d = [each(jnp.zeros(())) for each in derivatives]
        if self.psi is zoo.erf:
            far = at(_FAR[1] / abs(self.b))
            return Closed(self.psi, far, d[1] * np.pi**0.5 / (2 * far))
        if self.psi is zoo.gelu:
            b = d[2] * (2 * np.pi) ** 0.5 / (4 * d[1])
            return Closed(self.psi, 2 * d[1] / b, b)
        b = jnp.sqrt(-d[3] / d[1])
        return Closed(self.psi, d[1] / b, b)

    @property
    def averages(self) -> Averages:
        """Its averages, with derivatives."""
        return averages(self.psi, self.a, self.b)


def _where_it_is(psi: Kinked, a: Any, b: Any, function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """(a, b), or NaN where the function is not a ψ(b x), as relu(x − t) is of no relu(x − 1) where t has turned its sign."""
    last = max(t for _, t, _ in psi.kinks) or 1.0
    inside, outside = (jnp.asarray(share * last) / jnp.abs(b) for share in (0.5, 1.5))
    right = jnp.asarray(True)
    for x in (inside, outside, -inside, -outside):
        there = function(x)
        size = jnp.abs(there) + jnp.abs(a) * psi.steepness * jnp.abs(b * x)
        right = right & (jnp.abs(a * psi(b * x) - there) <= 1e-3 * size)
    return jnp.where(right, a, jnp.nan), b


_kept: dict[str, Closed | None] = {}


def recognised(name: str, function: Callable[[Any], Any]) -> Closed | None:
    """This function of one variable as one that has a closed average, if it is one. `name`: equal for equal functions.

    >>> round(float(recognised("half erf", lambda x: 0.5 * jax.scipy.special.erf(2 * x)).b), 9)
    2.0
    >>> recognised("tanh", jnp.tanh) is None
    True
    """
    if name not in _kept:
        _kept[name] = _recognised(function)
    return _kept[name]


def values_at(x: np.ndarray, *functions: Callable) -> list[np.ndarray]:
    """Of functions at these points, also while a caller traces."""
    with jax.enable_x64(True):
        shape = jax.ShapeDtypeStruct(x.shape, "float64")
        traced = jax.make_jaxpr(lambda x: [jnp.broadcast_to(each(x), x.shape) for each in functions])(shape)
        found = in_numpy.run(traced.jaxpr, traced.consts, [x])
        if found is None:
            run, given = shared(traced)
            with jax.ensure_compile_time_eval():
                found = run(given, [x])
        return [np.asarray(part, float) for part in found]


def _recognised(function: Callable) -> Closed | None:
    (values,) = values_at(np.r_[_PROBES, _FAR], function)
    here, far = np.split(values, [len(_PROBES)])
    near = here[_NEAR]
    if not np.isfinite(near).all():
        return None
    same = _piecewise_linear(here)
    if same is not None:
        return Closed(same) if (same.positive, same.negative) != (0, 0) else None
    derivatives = [function]
    for _ in range(3):
        derivatives.append(derivative(derivatives[-1]))
    d = [float(each[0]) for each in values_at(np.zeros(1), *derivatives)]
    for psi, (a, b), reference in _candidates(d, far):
        if np.isfinite([a, b]).all() and a * b != 0:
            there = a * reference(b * _PROBES[_NEAR])
            if np.max(np.abs(there - near)) < _TOLERANCE * (1 + np.max(np.abs(near))):
                return Closed(psi, np.float64(a), np.float64(b))
    pieces = as_kinked(lambda x: values_at(x, function)[0])
    return Closed(pieces) if pieces else None


def _piecewise_linear(values: np.ndarray) -> zoo.PiecewiseLinear | None:
    """A function of these values, if it is positively homogeneous."""
    with np.errstate(invalid="ignore"):
        left, right = np.split(values / _PROBES, 2)
    alike = np.isfinite(values).all() and all(np.ptp(s) < 1e-12 * (1 + abs(s[0])) for s in (left, right))
    return zoo.PiecewiseLinear(float(left[-3]), float(right[2])) if alike else None


def _candidates(d: list[float], far: np.ndarray) -> list[tuple[Any, tuple[float, float], Callable]]:
    """(ψ, (a, b), ψ of numpy's arrays) with a ψ(bx) of these derivatives at 0 and these values far out."""
    with np.errstate(all="ignore"):
        plateau, slope = far[1], far[1] / 300.0
        found: list[tuple[Any, tuple[float, float], Callable]] = [
            (zoo.erf, (plateau, d[1] * np.pi**0.5 / (2 * plateau) if plateau else np.nan), np.vectorize(math.erf))
        ]
        # gelu: φ'(0) = ab/2, φ''(0) = 2 a b² / √(2π)
        b = d[2] * (2 * np.pi) ** 0.5 / (4 * d[1]) if d[1] else np.nan
        found.append(
            (zoo.gelu, (slope / b if b else np.nan, b), lambda x: x * np.vectorize(math.erfc)(-x / 2**0.5) / 2)
        )
        ratio = -d[3] / d[1] if d[1] else np.nan
        b = ratio**0.5 if ratio > 0 else np.nan
        found.append((jnp.sin, (d[1] / b if b else np.nan, b), np.sin))
        if d[1] and np.isfinite(d[1:3]).all():
            square = zoo.Quadratic(d[2] / (2 * d[1]))
            found.append((square, (d[1], 1.0), lambda x: x + square.eps * x * x))
    return found
