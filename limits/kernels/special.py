"""Elementary functions that the kernels are made of, written so that they vectorise and keep small differences."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.compiled import of_own_numbers


@of_own_numbers
def safe_sqrt(x: jax.Array) -> jax.Array:
    """sqrt(max(x, 0)), with gradient 0 at 0 instead of infinity."""
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1)), 0)


@of_own_numbers
def held(gap: jax.Array, rounding: Any = 16.0) -> jax.Array:
    """1 − c in [0, 2]; what is within so many ε of 2 is 2: it has no more digits there, as it has at 0.

    >>> held(jnp.array([-1e-7, 0.5, 1.9999995])).tolist()
    [0.0, 0.5, 2.0]
    """
    return jnp.where(gap > 2 - rounding * jnp.finfo(gap.dtype).eps, 2, jnp.maximum(gap, 0))


@of_own_numbers
def snapped(gap: jax.Array, rounding: Any = 16.0) -> jax.Array:
    """The same where 1 − c is a difference: what is within the rounding of a sum of products of 0 is 0.

    >>> snapped(jnp.array([-1e-7, 1e-6, 0.5, 1.9999995])).tolist()
    [0.0, 0.0, 0.5, 2.0]
    """
    return jnp.where(gap < rounding * jnp.finfo(gap.dtype).eps, 0, held(gap, rounding))


@of_own_numbers
def gap_behind(left: jax.Array, r1: jax.Array, r2: jax.Array, gap: jax.Array, rounding: Any = 16.0) -> jax.Array:
    """1 − c′ in [0, 2] of φ(u) and φ(v): `left`, without its rounding where u = v (0) or u = −v (0 or 2 of even and odd φ).

    Standard deviations of one input differ by rounding where a compiler orders rows and columns differently.
    """
    same = jnp.abs(r1 - r2) <= 16 * jnp.finfo(gap.dtype).eps * jnp.maximum(r1, r2)
    found = jnp.where(same & (gap == 2), snapped(left, rounding), held(left))
    return jnp.where(same & (gap == 0), 0, found)


@functools.cache
def _arcsine_polynomial(degree: int) -> tuple[float, ...]:
    """Coefficients in t of arcsin(s)/s on s² = z = (t + 1)/8 in [0, 1/4], highest power first."""

    def arcsine(t: np.ndarray) -> np.ndarray:
        s = np.sqrt((t + 1) / 8)
        return np.where(s > 0, np.arcsin(s) / np.where(s > 0, s, 1), 1)

    chebyshev = np.polynomial.chebyshev.chebinterpolate(arcsine, degree)  # pyright: ignore
    return tuple(np.polynomial.chebyshev.cheb2poly(chebyshev)[::-1].tolist())


def _arcsine_ratio(z: jax.Array) -> jax.Array:
    """arcsin(s)/s at s² = z in [0, 1/4]."""
    t, ratio = 8 * z - 1, jnp.zeros_like(z)
    for coefficient in _arcsine_polynomial(14 if z.dtype == jnp.float64 else 7):
        ratio = ratio * t + coefficient
    return ratio


@of_own_numbers
def angle(gap: jax.Array) -> jax.Array:
    """θ = arccos(1 − gap) for gap in [0, 2], accurate to rounding at every gap, however small.

    For gap ≤ 1/2 it is 2 arcsin(sqrt(gap/2)), near gap = 2 its mirror image, and between them π/2 − arcsin(c); one
    polynomial serves the three, which is several times faster than the library's scalar arccos and, unlike it,
    resolves a gap of 1e-20.

    >>> bool(abs(angle(jnp.array(1.0)) - jnp.pi / 2) < 1e-6)
    True
    """
    c, half = 1 - gap, 0.5 * jnp.where(gap < 1, gap, 2 - gap)
    outer = half < 0.25
    ratio = _arcsine_ratio(jnp.where(outer, half, c * c))
    small = 2 * safe_sqrt(half) * ratio
    return jnp.where(outer, jnp.where(gap < 1, small, jnp.pi - small), jnp.pi / 2 - c * ratio)


@of_own_numbers
def arcsine(x: jax.Array, left: jax.Array) -> jax.Array:
    """arcsin x, given left = 1 − |x| too: to rounding of the result where x is small, and to rounding of `left` near ±1.

    >>> bool(abs(arcsine(jnp.array(-1.0), jnp.array(0.0)) + jnp.pi / 2) < 1e-6)
    True
    """
    outer, sign = left < 0.5, jnp.where(x < 0, -1, 1)
    ratio = _arcsine_ratio(jnp.where(outer, left / 2, x * x))
    return jnp.where(outer, sign * (jnp.pi / 2 - 2 * safe_sqrt(left / 2) * ratio), x * ratio)


_BRACKET = tuple((-1) ** (n + 1) * 2 * n / math.factorial(2 * n + 1) for n in range(8, 0, -1))


@of_own_numbers
def sine_minus_theta_cosine(theta: jax.Array) -> jax.Array:
    """sin θ − θ cos θ = Σ_n (−1)^(n+1) 2n θ^(2n+1)/(2n+1)!, to rounding for 0 ≤ θ ≤ 1/2.

    >>> bool(abs(sine_minus_theta_cosine(jnp.array(0.3)) - (jnp.sin(0.3) - 0.3 * jnp.cos(0.3))) < 1e-7)
    True
    """
    square, total = theta * theta, jnp.zeros_like(theta)
    for coefficient in _BRACKET:
        total = total * square + coefficient
    return total * square * theta
