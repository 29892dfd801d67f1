"""Mean and covariance of φ(z), z Gaussian, for any activation: a Hermite series about every neuron's own mean."""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from limits.kernels.hermite import coefficients
from limits.kernels.special import safe_sqrt
from zoo import checks

ORDERS = 64
COARSE = 1e-3  # error, in units of the variances, above which a warning is given


def hermite_coefficients(phi: Any, mean: Any, variance: Any, orders: int = ORDERS) -> Any:
    """a_k [orders + 1, N] of φ(μ_i + s_i u) = Σ_k a_k He_k(u)/√(k!); the last holds the size of what the others miss."""
    return coefficients(lambda h: phi(mean[:, None] + h), safe_sqrt(variance), orders)


def held(x: Any, low: Any, high: Any) -> Any:
    """x kept between `low` and `high`, with the gradient of x itself, also at the ends."""
    return x + jax.lax.stop_gradient(jnp.clip(x, low, high) - x)


@checks.arguments(
    phi=checks.function, mean=checks.array(None), covariance=checks.array(None, None), orders=checks.count(1, 512)
)
def quadrature_moments(phi: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z), z ~ N(mean, covariance), with `phi` elementwise.

        μ'_i = a_0^i,   Σ'_ij = Σ_{k≥1} a_k^i a_k^j r_ij^k      (Mehler)

    The averages over one neuron are Gauss–Legendre sums of 1920 nodes, at least 12 in a quarter standard deviation; no
    two-dimensional integral. Dropped off the diagonal: orders above `orders`, at most √(T_i T_j) |r|^orders,
    T = Σ_{k>orders} a_k². In units of the variances T is 1e-12 for smooth activations and standard deviations s of about 1
    in units of the scale on which φ bends, 1e-4 to 1e-3 where φ has a kink (orders^(−3/2)), and 5 % where it jumps, or
    bends within s/100 (orders^(−1/2)).
    The diagonal is complete, while the nodes resolve φ (sin: s < 60). Where any of this is more than 0.1 % a warning says
    so, unless jax is tracing.

    Gradients are right at |r| = 1 and at Σ = 0 too (variances below ε^(2/3), ε the precision, are averaged over that one's
    Gaussian). Correlations beyond ±1, which an indefinite Σ can have, are taken as ±1.

    >>> m, c = quadrature_moments(jnp.tanh, jnp.zeros(2), jnp.eye(2))
    >>> c.round(4).tolist()
    [[0.3942999839782715, 0.0], [0.0, 0.3942999839782715]]
    """
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    if not any(isinstance(each, Tracer) for each in (mean, covariance)):
        warn_if_coarse(phi, mean, covariance, orders)
    variance = held(jnp.diagonal(covariance), float(jnp.finfo(covariance.dtype).eps) ** (2 / 3), None)
    s = jnp.sqrt(variance)
    a = hermite_coefficients(phi, mean, variance, orders)
    r = held(covariance / (s[:, None] * s[None, :]), -1, 1)

    def add(total: Any, a_k: Any) -> tuple[Any, None]:
        return r * (total + a_k[:, None] * a_k[None, :]), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(r), a[-2:0:-1], unroll=8)
    return a[0], total + jnp.diag(a[-1] ** 2 * jnp.diagonal(r))


def shares_missed(phi: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> tuple[float, float]:
    """Largest errors of `quadrature_moments` in units of √(Σ'_ii Σ'_jj): (by the orders that are dropped, by the nodes).

    The first is a bound; the second the change of the variances with 37 nodes for every 24.

    >>> [share < 1e-4 for share in shares_missed(jnp.tanh, jnp.zeros(2), jnp.ones((2, 2)))]
    [True, True]
    """
    s = safe_sqrt(jnp.diagonal(covariance))
    a = hermite_coefficients(phi, mean, jnp.diagonal(covariance), orders)
    t, w = np.polynomial.legendre.leggauss(37)
    u = (np.arange(-10, 10, 0.5)[:, None] + 0.25 * (1 + t)).ravel()
    w = np.tile(0.25 * w, 40) * np.exp(-u * u / 2) / math.sqrt(2 * math.pi)
    values = np.asarray(phi(mean[:, None] + s[:, None] * jnp.asarray(u[None], s.dtype)), np.float64)
    fine = np.clip(values**2 @ w - (values @ w) ** 2, 0, None)
    a, s = np.asarray(a, np.float64), np.asarray(s, np.float64)
    size = np.maximum(fine, 1e-6 * (values**2 @ w) + 1e-30)  # below is rounding
    r = np.minimum(np.abs(covariance) / np.maximum(s[:, None] * s[None, :], 1e-30), 1) * (1 - np.eye(len(s)))
    tail = np.abs(a[-1]) / np.sqrt(size)
    return (
        float((tail[:, None] * tail * r ** (orders + 1)).max(initial=0)),
        float((np.abs((a[1:] ** 2).sum(0) - fine) / size).max(initial=0)),
    )


def warn_if_coarse(phi: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> None:
    """A warning where `quadrature_moments` of these numbers is off by more than `COARSE`."""
    dropped, nodes = shares_missed(phi, mean, covariance, orders)
    if max(dropped, nodes) > COARSE:
        what = f"{orders} orders leave out up to {dropped:.1%}" if dropped > nodes else f"the nodes miss {nodes:.1%}"
        largest = float(np.sqrt(np.max(np.diagonal(covariance))))
        warnings.warn(
            f"quadrature_moments: this activation changes too sharply for inputs with standard deviations up to {largest:.3g}: "
            f"{what} of its covariance. Lower the inputs' scale (w_std), or take more `orders` (up to 500).",
            stacklevel=3,
        )


def derivative_means(phi: Any, mean: Any, variance: Any, orders: tuple[int, ...]) -> list[Any]:
    """<φ^(n)(z_i)> for every n in `orders`, in the sense of distributions: √(n!) a_n/s^n (kinks are no trouble).

    0 where the variance is.

    >>> relu = lambda z: jnp.maximum(z, 0.0)
    >>> bool(abs(derivative_means(relu, jnp.zeros(1), jnp.ones(1), (2,))[0] - (2 * jnp.pi) ** -0.5)[0] < 1e-5)
    True
    """
    a = hermite_coefficients(phi, mean, variance, max(orders) + 1)
    still = variance <= 0
    s = jnp.sqrt(jnp.where(still, 1, variance))
    return [jnp.where(still, 0, math.sqrt(math.factorial(n)) * a[n] / s**n) for n in orders]
