"""Two Gaussians above thresholds at once: P(z1 > a, z2 > b) and E (z1 − a)₊ (z2 − b)₊, of which functions with kinks are made.

With c = 1 − gap the correlation, w² = 1 − c², n the density and Q the upper tail of N(0, 1), n₂ the density of both, T Owen's:

    P = ½ [Q(a) + Q(b)] − T(a, (b − ca)/(aw)) − T(b, (a − cb)/(bw))      for a, b > 0,
    E (z1 − a)₊ (z2 − b)₊ = (c + ab) P + w² n₂ − a n(b) Q((a − cb)/w) − b n(a) Q((b − ca)/w).

Reference: Rosenbaum, Moments of a truncated bivariate normal distribution (1961).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.bivariate import LARGEST, distribution, normal_density, owen, tiny
from limits.kernels.compiled import of_own_numbers
from limits.kernels.special import safe_sqrt


def upper_tail(x: Any) -> Any:
    """Q(x) = P(z > x)."""
    return distribution(-x)


def mean_excess(a: Any) -> Any:
    """E (z − a)₊ = n(a) − a Q(a)."""
    return normal_density(a) - a * upper_tail(a)


@jax.custom_jvp
@of_own_numbers
def exceedance(a: jax.Array, b: jax.Array, gap: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(P(z1 > a, z2 > b), E (z1 − a)₊ (z2 − b)₊) for thresholds ≥ 0, with derivatives.

    >>> both, excess = exceedance(jnp.array(0.0), jnp.array(0.0), jnp.array(0.5))
    >>> round(float(both), 4), round(float(excess), 4)  # 1/4 + arcsin(1/2)/2π, (√3/2 + (2π/3)/2)/2π
    (0.3333, 0.3045)
    """
    positive = [jnp.maximum(each, tiny(each)) for each in (a, b)]
    sectors = [owen(one, _distance(one, other, gap)) for one, other in (positive, positive[::-1])]
    both = jnp.maximum((upper_tail(a) + upper_tail(b)) / 2 - (sectors[0] + sectors[1]), 0)
    at_a, at_b = _given(a, b, gap)
    rest = _exponential(a, b, gap) * safe_sqrt(gap * (2 - gap)) / (2 * np.pi) - (a * at_b + b * at_a)
    return both, jnp.maximum((1 - gap + a * b) * both + rest, 0)


@exceedance.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (a, b, gap), (da, db, dgap) = primals, tangents
    (both, excess), (at_a, at_b), c = exceedance(a, b, gap), _given(a, b, gap), 1 - gap
    of_both = -(at_a * da + at_b * db) - _density_of_both(a, b, gap) * dgap
    of_excess = -(at_b + c * at_a - b * both) * da - (at_a + c * at_b - a * both) * db - both * dgap
    return (both, excess), (of_both, of_excess)


def _distance(a: Any, b: Any, gap: Any) -> Any:
    """(b − ca)/w, what is left to b given a. At c = ±1 it is 0 where b = ±a, else far, and without derivatives: they cancel."""
    rest = jnp.where(gap < 1, (b - a) + gap * a, (b + a) - (2 - gap) * a)
    w = safe_sqrt(gap * (2 - gap))
    far = jnp.sign(rest) / tiny(gap)
    return jnp.where(w > 0, rest / jnp.where(w > 0, w, 1), far)


def _given(a: Any, b: Any, gap: Any) -> tuple[Any, Any]:
    """(n(a) P(z2 > b | z1 = a), n(b) P(z1 > a | z2 = b))."""

    def one(a: Any, b: Any) -> Any:
        return normal_density(a) * upper_tail(jnp.clip(_distance(a, b, gap), -LARGEST, LARGEST))

    return one(a, b), one(b, a)


def _exponential(a: Any, b: Any, gap: Any) -> Any:
    """exp(−(a² − 2cab + b²)/(2w²))."""
    apart, together = ((a - b) ** 2, gap), ((a + b) ** 2, 2 - gap)
    parts = [
        jnp.where(by > 0, x / jnp.where(by > 0, 4 * by, 1), jnp.where(x > 0, LARGEST**2, 0))
        for x, by in (apart, together)
    ]
    return jnp.exp(-sum(parts))


def _density_of_both(a: Any, b: Any, gap: Any) -> Any:
    """n₂(a, b), and 0 at c = ±1, where it is infinite or nothing."""
    w = safe_sqrt(gap * (2 - gap))
    return jnp.where(w > 0, _exponential(a, b, gap) / (2 * np.pi * jnp.where(w > 0, w, 1)), 0)
