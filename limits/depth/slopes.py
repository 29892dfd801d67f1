"""Gaussian averages of an activation and their derivatives in the covariance, elementwise.

`orders` is that of `limits.kernels.dual_for`: 0 for a closed form; otherwise averages of one variable are by quadrature.
"""

from typing import Any

import jax
import jax.numpy as jnp

from limits import kernels as algebra
from limits.kernels.duals import CLOSED


def power(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f(q) = E φ(h)², h ~ N(0, q); q > 0."""
    r = jnp.sqrt(q)
    if orders == CLOSED:
        return algebra.dual(phi, CLOSED)(r, r, jnp.zeros_like(r))[0] ** 2
    return algebra.rms(phi, r.ravel()).reshape(r.shape) ** 2


def slope(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f'(q) = E[φ'² + φ φ'']: how much of a change of the variance a layer passes on.

    By f' = E[z φ φ'] / r, which needs no second derivative and is right for activations with kinks.
    """
    return jax.jvp(lambda q: power(phi, orders, q), (q,), (jnp.ones_like(q),))[1]


def curvature(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f''(q)."""
    return jax.jvp(lambda q: slope(phi, orders, q), (q,), (jnp.ones_like(q),))[1]


def bend(phi: Any, orders: int, state: algebra.State) -> jax.Array:
    """∂E[φ_a φ_b] / ∂K_aa at fixed K_ab and K_bb, which is ½ E[φ_a'' φ_b].

    From the derivative in r_a at a fixed correlation, ∂_r E = E[z_a φ_a' φ_b], as (r_a ∂_r E − K_ab E[φ_a' φ_b']) / 2 K_aa.
    """

    def moment(r1: jax.Array) -> tuple[jax.Array, jax.Array]:
        s1, s2, gap, dot = algebra.dual(phi, orders)(r1, state.r2, state.gap)
        return s1 * s2 * (1 - gap), dot

    (_, dot), (change, _) = jax.jvp(moment, (state.r1,), (jnp.ones_like(state.r1),))
    return (state.r1 * change - state.covariance * dot) / (2 * state.r1**2)
