"""Mean and covariance of relu(z), z Gaussian: exact, without cancellation, with finite gradients everywhere."""

from typing import Any

import jax
import jax.numpy as jnp

from limits.kernels import activations
from limits.kernels.bivariate import LARGEST, distance, distribution, joint, normal_density, remainder, root, sector
from limits.kernels.special import safe_sqrt
from zoo import activation_function, checks
from zoo.activations import PiecewiseLinear


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
