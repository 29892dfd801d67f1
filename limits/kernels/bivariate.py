"""The bivariate normal distribution function, to rounding at every correlation, vectorised and differentiable."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erfc

from zoo import checks

NODES = 20
LARGEST = 40.0  # beyond so many standard deviations Φ is 0 or 1 in double precision


def tiny(u: Any) -> float:
    """A number so far below the precision of u, and so far above its smallest, that ratios with it are safe."""
    return float(jnp.finfo(u.dtype).tiny) ** 0.25


def normal_density(u: Any) -> Any:
    """exp(−u²/2)/√(2π)."""
    return jnp.exp(-u * u / 2) / math.sqrt(2 * math.pi)


def distribution(u: Any) -> Any:
    """Φ(u), with relative accuracy on the left."""
    return erfc(-u / math.sqrt(2)) / 2


def remainder(a: Any, b: Any, r: Any) -> Any:
    """b − r a, keeping its digits near r = ±1."""
    return jnp.where(r > 0, (b - a) + (1 - r) * a, (b + a) - (1 + r) * a)


def distance(a: Any, b: Any, r: Any) -> Any:
    """(b − r a)/√(1 − r²), the distance that is left to b given a: at r = ±1 it is 0 where b = ±a, else huge."""
    return remainder(a, b, r) / jnp.maximum(root(r), tiny(r))


def root(r: Any) -> Any:
    """√(1 − r²), with gradient 0 at r = ±1."""
    square = (1 - r) * (1 + r)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def owen(h: Any, k: Any) -> Any:
    """Owen's T(h, k/h) = 1/2π ∫_0^{k/h} exp(−h²(1 + x²)/2)/(1 + x²) dx for h > 0, odd in k.

    Slopes above 1 are turned over, T(h, k/h) + T(k, h/k) = ½ [Q(h) + Q(k)] − Q(h) Q(k) of upper tails Q, so that the
    integrand is analytic far around [0, 1] and 20 Gauss–Legendre nodes give double precision.
    """
    size = jnp.abs(k)
    large, small = jnp.maximum(h, size), jnp.minimum(h, size)
    slope = small / large
    nodes, weights = np.polynomial.legendre.leggauss(NODES)

    def add(total: Any, point: Any) -> tuple[Any, None]:
        x, w = point
        return total + w * jnp.exp(-(large**2 + (x * small) ** 2) / 2) / (1 + (x * slope) ** 2), None

    rule = [np.asarray(part, slope.dtype) for part in ((nodes + 1) / 2, weights / 2)]
    total = jax.lax.scan(add, jnp.zeros_like(slope), rule, unroll=5)[0]
    total = slope * total / (2 * math.pi)
    turned = _split(h, size) - total
    return jnp.sign(k) * jnp.where(size > h, turned, total)


def _split(a: Any, b: Any) -> Any:
    """(1 − erf(a/√2) erf(b/√2))/4, with relative accuracy for positive numbers."""
    above, right = distribution(-a), distribution(-b)
    return (above + right) / 2 - above * right


def sector(a: Any, b: Any, r: Any) -> Any:
    """Owen's T(a, (b − ra)/(ac)); zero counts as a small positive number, so that two zeros keep the angle between them."""
    least = jnp.full_like(a, tiny(a))
    k = jnp.where((a == 0) & (b == 0), distance(least, least, r), distance(a, b, r))
    return jnp.where(a < 0, -1.0, 1.0) * owen(jnp.maximum(jnp.abs(a), least), k)


def joint(a: Any, b: Any, sector_a: Any, sector_b: Any) -> Any:
    """P(u < a, v < b) − Φ(a) Φ(b) from Owen's T of either side."""
    apart = (a < 0) != (b < 0)
    return _split(a, b) - sector_a - sector_b - jnp.where(apart, 0.5, 0.0)


@jax.custom_jvp
def bivariate(a: Any, b: Any, r: Any) -> Any:
    """Φ₂(a, b; r) = P(u < a, v < b) of standard normals with correlation r, elementwise.

        Φ₂ = ½ [Φ(a) + Φ(b)] − T(a, (b − ra)/(a c)) − T(b, (a − rb)/(b c)) − ½ [ab < 0],   c = √(1 − r²)

    with Owen's T: Plackett's ∂Φ₂/∂r = exp(−(a² − 2rab + b²)/2c²)/(2πc), integrated over r, in variables where the
    integrand stays smooth up to |r| = 1. Derivatives are in closed form; that by r is infinite at |r| = 1, a = ±b (0 is
    returned there).

    >>> round(float(bivariate(0.0, 0.0, 0.5)), 6)
    0.333333

    References: Plackett (1954), A reduction formula for normal multivariate integrals; Owen (1956), Tables for computing
    bivariate normal probabilities.
    """
    a, b, r = jnp.broadcast_arrays(*(jnp.asarray(each, float) for each in (a, b, r)))
    return distribution(a) * distribution(b) + joint(a, b, sector(a, b, r), sector(b, a, r))


@bivariate.defjvp
def _bivariate_slope(primals: Any, tangents: Any) -> Any:
    a, b, r = (jnp.asarray(each, float) for each in primals)
    da, db, dr = tangents
    k, c = distance(a, b, r), root(r)
    by_a, by_b = normal_density(a) * distribution(k), normal_density(b) * distribution(distance(b, a, r))
    by_r = jnp.where(c > 0, normal_density(a) * normal_density(k) / jnp.where(c > 0, c, 1), 0)
    return bivariate(a, b, r), by_a * da + by_b * db + by_r * dr


bivariate = checks.arguments(a=checks.array(), b=checks.array(), r=checks.array())(bivariate)
