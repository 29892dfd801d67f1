"""Mean and covariance of relu(z), z Gaussian: exact, without cancellation, with finite gradients everywhere.

They need the bivariate normal distribution function, to rounding at every correlation, vectorised and differentiable.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc

from limits.kernels import activations
from limits.kernels.special import safe_sqrt
from zoo import activation_function, checks
from zoo.activations import PiecewiseLinear

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


def _owen(h: Any, k: Any) -> Any:
    """Owen's T(h, k/h) = 1/2π ∫_0^{k/h} exp(−h²(1 + x²)/2)/(1 + x²) dx for h > 0, odd in k.

    Slopes above 1 are turned over, T(h, k/h) + T(k, h/k) = (1 − erf(h/√2) erf(k/√2))/4, so that the integrand is analytic
    far around [0, 1] and 20 Gauss–Legendre nodes give double precision.
    """
    size = jnp.abs(k)
    large, small = jnp.maximum(h, size), jnp.minimum(h, size)
    slope = small / large
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    total = jnp.zeros_like(slope)
    for x, w in zip((nodes + 1) / 2, weights / 2, strict=True):
        total = total + w * jnp.exp(-(large**2 + (x * small) ** 2) / 2) / (1 + (x * slope) ** 2)
    total = slope * total / (2 * math.pi)
    turned = (1 - erf(h / math.sqrt(2)) * erf(size / math.sqrt(2))) / 4 - total
    return jnp.sign(k) * jnp.where(size > h, turned, total)


def sector(a: Any, b: Any, r: Any) -> Any:
    """Owen's T(a, (b − ra)/(ac)); zero counts as a small positive number, so that two zeros keep the angle between them."""
    least = jnp.full_like(a, tiny(a))
    k = jnp.where((a == 0) & (b == 0), distance(least, least, r), distance(a, b, r))
    return jnp.where(a < 0, -1.0, 1.0) * _owen(jnp.maximum(jnp.abs(a), least), k)


def joint(a: Any, b: Any, sector_a: Any, sector_b: Any) -> Any:
    """P(u < a, v < b) − Φ(a) Φ(b) from Owen's T of either side."""
    apart = (a < 0) != (b < 0)
    split = (1 - erf(a / math.sqrt(2)) * erf(b / math.sqrt(2))) / 4
    return split - sector_a - sector_b - jnp.where(apart, 0.5, 0.0)


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


@jax.custom_jvp
def relu_moments(mean: Any, covariance: Any) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of max(z, 0), z ~ N(mean, covariance).

    With s_i = √Σ_ii, a_i = μ_i/s_i, r the correlation, c = √(1 − r²), φ and Φ the normal density and distribution, and
    Φ_{j|i} = Φ((a_j − r a_i)/c) the chance of z_j > 0 given z_i = 0:

        μ'_i = μ_i Φ_i + s_i φ_i
        Σ'_ij = Σ_ij Φ₂ + μ_i μ_j (Φ₂ − Φ_i Φ_j) + μ_i s_j φ_j (Φ_{i|j} − Φ_i) + μ_j s_i φ_i (Φ_{j|i} − Φ_j)
                + s_i s_j [c φ(√(a_i² + (a_j − r a_i)²/c²))/√(2π) − φ_i φ_j]

    where every bracket vanishes for independent neurons. The same formula holds on the diagonal (r = 1) and at r = −1.
    Correlations beyond ±1, which an indefinite Σ can have, are taken as ±1. Gradients are the closed forms

        ∂Σ'_ij/∂Σ_ij = Φ₂,   ∂Σ'_ij/∂μ_i = E[1(z_i>0) y_j] − Φ_i μ'_j,   ∂Σ'_ij/∂Σ_ii = φ_i/(2 s_i) (E[y_j | z_i=0] − μ'_j)

    finite for every Σ_ii > 0; of a neuron that does not vary (Σ_ii = 0), φ_i/s_i counts as 0.

    >>> m, c = relu_moments(jnp.zeros(2), jnp.eye(2))
    >>> bool(abs(m[0] - (2 * jnp.pi) ** -0.5) < 1e-6), bool(abs(c[0, 0] - (0.5 - 0.5 / jnp.pi)) < 1e-6)
    (True, True)

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, Table 2.2 and A.1.1.
    Divergence: there the quadrant probability holds erf(√2 μ/√Σ) where erf(μ/√(2Σ)) is right; 8 to 15 % off for μ ≠ 0.
    """
    value, _ = _moments_and_parts(mean, covariance)
    return value


@jax.jit
def _moments_and_parts(mean: Any, covariance: Any) -> tuple[Any, Any]:
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    s = jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 0))
    a = jnp.where(s > 0, mean / jnp.where(s > 0, s, 1), jnp.sign(mean) * LARGEST)
    a = jnp.clip(a, -LARGEST, LARGEST)
    both = s[:, None] * s[None, :]
    r = covariance / jnp.where(both > 0, both, 1)
    r = jnp.where(jnp.eye(len(s), dtype=bool), 1.0, jnp.clip(r, -1, 1))
    p, phi = distribution(a), normal_density(a)
    row, column = jnp.broadcast_to(a[:, None], r.shape), jnp.broadcast_to(a[None, :], r.shape)
    half = sector(row, column, r)
    together = joint(row, column, half, half.T)  # Φ₂ − Φ_i Φ_j
    k = distance(row, column, r)
    given = distribution(k)  # Φ_{j|i}
    lean = mean[None, :] * (s * phi)[:, None] * (given - p[None, :])
    spread = root(r) * normal_density(row) * normal_density(k) - phi[:, None] * phi[None, :]
    quadrant = p[:, None] * p[None, :] + together
    out = covariance * quadrant + mean[:, None] * mean[None, :] * together + lean + lean.T
    out = out + both * spread
    return (mean * p + s * phi, out), (s, p, phi, r, remainder(row, column, r), k, given, together)


@relu_moments.defjvp
def _relu_slope(primals: Any, tangents: Any) -> Any:
    dmean, dcov = tangents
    value, (s, p, phi, r, left, k, given, together) = _moments_and_parts(*primals)
    mean = jnp.asarray(primals[0], float)
    sharp = jnp.where(s > 0, phi / jnp.where(s > 0, s, 1), 0)  # the density of z_i at 0
    by_mean = mean[None, :] * together  # E[1(z_i > 0) y_j] − Φ_i μ'_j
    by_mean += s[None, :] * (r * phi[:, None] * given + phi[None, :] * (given.T - p[:, None]))
    on_edge = s[None, :] * (left * given + root(r) * normal_density(k))  # E[y_j | z_i = 0]
    by_variance = sharp[:, None] / 2 * (on_edge - value[0][None, :])
    slope = by_mean * dmean[:, None] + by_variance * jnp.diagonal(dcov)[:, None]
    quadrant = p[:, None] * p[None, :] + together
    return value, (p * dmean + sharp / 2 * jnp.diagonal(dcov), quadrant * dcov + slope + slope.T)


def as_piecewise_linear(activation: Any) -> PiecewiseLinear | None:
    """This activation, by name too, as a PiecewiseLinear if it is one (which its values tell)."""
    return activations.as_piecewise_linear(activation_function(activation))


def piecewise_linear_moments(phi: PiecewiseLinear, mean: Any, covariance: Any) -> tuple[Any, Any]:
    """(mean, covariance) of φ(z) = n z + (p − n) max(z, 0): leaky and scaled relu, the absolute value, linear.

    Σ' = n² Σ + n (p − n) Σ_ij (Φ_i + Φ_j) + (p − n)² Σ'_relu, since Cov(z_i, y_j) = Σ_ij Φ_j.

    >>> m, c = piecewise_linear_moments(PiecewiseLinear(-1.0, 1.0), jnp.zeros(1), jnp.eye(1))
    >>> bool(abs(c[0, 0] - (1 - 2 / jnp.pi)) < 1e-6)
    True
    """
    n, bend = phi.negative, phi.positive - phi.negative
    if bend == 0:
        return n * mean, n**2 * covariance
    out, cov = relu_moments(mean, covariance)
    if n == 0:
        return bend * out, bend**2 * cov
    s = safe_sqrt(jnp.diagonal(covariance))
    a = jnp.where(s > 0, mean / jnp.where(s > 0, s, 1), jnp.sign(mean) * LARGEST)
    p = distribution(a)
    mixed = covariance * (p[:, None] + p[None, :])
    return n * mean + bend * out, n**2 * covariance + n * bend * mixed + bend**2 * cov


relu_moments = checks.arguments(mean=checks.array(None), covariance=checks.array(None, None))(relu_moments)
