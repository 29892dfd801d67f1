"""Mean and covariance of φ(z), z Gaussian, for any activation: a Hermite series about every neuron's own mean."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from limits.kernels.hermite import coefficients
from limits.kernels.special import safe_sqrt

ORDERS = 64


def hermite_coefficients(phi: Any, mean: Any, variance: Any, orders: int = ORDERS) -> Any:
    """a_k [orders + 1, N] of φ(μ_i + s_i u) = Σ_k a_k He_k(u)/√(k!); the last holds the size of what the others miss."""
    return coefficients(lambda h: phi(mean[:, None] + h), safe_sqrt(variance), orders)


def quadrature_moments(phi: Any, mean: Any, covariance: Any, orders: int = ORDERS) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z), z ~ N(mean, covariance), with `phi` elementwise.

        μ'_i = a_0^i,   Σ'_ij = Σ_{k≥1} a_k^i a_k^j r_ij^k      (Mehler)

    The averages over one neuron are Gauss–Legendre sums of 1920 nodes; no two-dimensional integral. Dropped off the diagonal:
    orders above `orders`, at most Σ_{k>orders} a_k² |r|^k, which is 1e-12 for smooth activations and about 0.1
    orders^(−3/2) where φ has a kink (relu at |r| = 1). The diagonal is complete.

    >>> m, c = quadrature_moments(jnp.tanh, jnp.zeros(2), jnp.eye(2))
    >>> c.round(4).tolist()
    [[0.3942999839782715, 0.0], [0.0, 0.3942999839782715]]
    """
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    s = safe_sqrt(jnp.diagonal(covariance))
    a = hermite_coefficients(phi, mean, jnp.diagonal(covariance), orders)
    both = s[:, None] * s[None, :]
    r = jnp.where(jnp.eye(len(s), dtype=bool), 1.0, jnp.clip(covariance / jnp.where(both > 0, both, 1), -1, 1))

    def add(total: Any, a_k: Any) -> tuple[Any, None]:
        return r * (total + a_k[:, None] * a_k[None, :]), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(r), a[-2:0:-1], unroll=8)
    return a[0], total + jnp.diag(a[-1] ** 2)


def derivative_means(phi: Any, mean: Any, variance: Any, orders: tuple[int, ...]) -> list[Any]:
    """<φ^(n)(z_i)> for every n in `orders`, in the sense of distributions: √(n!) a_n/s^n (kinks are no trouble).

    >>> relu = lambda z: jnp.maximum(z, 0.0)
    >>> bool(abs(derivative_means(relu, jnp.zeros(1), jnp.ones(1), (2,))[0] - (2 * jnp.pi) ** -0.5)[0] < 1e-5)
    True
    """
    a = hermite_coefficients(phi, mean, variance, max(orders) + 1)
    s = jnp.sqrt(variance)
    return [math.sqrt(math.factorial(n)) * a[n] / s**n for n in orders]
