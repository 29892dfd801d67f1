"""Which functions have a closed Gaussian average: found by their values, as a ψ(b x) of a known ψ."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from limits.kernels.activations import Dual, closed_form
from zoo import activations as zoo

_PROBES = np.array([-40.0, -6.3, -1.9, -1.0, -0.7, -0.11, -1e-3, 1e-3, 0.11, 0.7, 1.0, 1.9, 6.3, 40.0])
_FAR = np.array([30.0, 300.0])
_NEAR = abs(_PROBES) < 10
_TOLERANCE = 1e-11


_kept: dict[str, Dual | None] = {}


def closed_dual(name: str, function: Callable[[Any], Any]) -> Dual | None:
    """The closed average of this function of one variable, if there is one.

    >>> closed_dual("half erf", lambda x: 0.5 * jax.scipy.special.erf(2 * x)) is not None
    True
    >>> closed_dual("tanh", jnp.tanh) is None
    True
    """
    if name not in _kept:
        _kept[name] = _recognised(function)
    return _kept[name]


def values_at(x: np.ndarray, *functions: Callable) -> list[np.ndarray]:
    """Of functions at these points, compiled together, also while a caller traces."""
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        compiled = jax.jit(lambda x: [jnp.broadcast_to(each(x), x.shape) for each in functions])
        return [np.asarray(part, float) for part in compiled(jnp.asarray(x))]


def derivative(function: Callable) -> Callable:
    """Entry by entry."""
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]


def _recognised(function: Callable) -> Dual | None:
    derivatives = [function]
    for _ in range(3):
        derivatives.append(derivative(derivatives[-1]))
    values, *slopes = values_at(np.r_[_PROBES, _FAR, 0.0], *derivatives)
    here, far, d = values[: len(_PROBES)], values[-3:-1], [float(each[-1]) for each in (values, *slopes)]
    near = here[_NEAR]
    if not np.isfinite(near).all():
        return None
    same = _piecewise_linear(here)
    if same is not None:
        return closed_form(same) if (same.positive, same.negative) != (0, 0) else None
    for psi, (a, b), reference in _candidates(d, far):
        if np.isfinite([a, b]).all() and a * b != 0:
            there = a * reference(b * _PROBES[_NEAR])
            if np.max(np.abs(there - near)) < _TOLERANCE * (1 + np.max(np.abs(near))):
                return _scaled(closed_form(psi), a, b)
    return None


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
            (zoo.erf, (plateau, d[1] * np.pi**0.5 / (2 * plateau) if plateau else np.nan), scipy.special.erf)
        ]
        # gelu: φ'(0) = ab/2, φ''(0) = 2 a b² / √(2π)
        b = d[2] * (2 * np.pi) ** 0.5 / (4 * d[1]) if d[1] else np.nan
        found.append((zoo.gelu, (slope / b if b else np.nan, b), lambda x: x * scipy.special.ndtr(x)))
        ratio = -d[3] / d[1] if d[1] else np.nan
        b = ratio**0.5 if ratio > 0 else np.nan
        found.append((jnp.sin, (d[1] / b if b else np.nan, b), np.sin))
        if d[1]:
            square = zoo.Quadratic(d[2] / (2 * d[1]))
            found.append((square, (d[1], 1.0), lambda x: x + square.eps * x * x))
    return found


def _scaled(dual: Dual | None, a: float, b: float) -> Dual | None:
    if dual is None:
        return None
    size = abs(b)

    def scaled(r1: Any, r2: Any, gap: Any) -> tuple:
        s1, s2, gap, slope = dual(size * r1, size * r2, gap)
        return abs(a) * s1, abs(a) * s2, gap, (a * b) ** 2 * slope

    return scaled
