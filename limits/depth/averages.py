"""Gaussian averages of one activation, of their derivatives in the covariance, and the one that carries 1 − c to great depth.

`orders` is that of `limits.kernels.dual_for`: 0 for a closed form; otherwise averages of one variable are by quadrature, but
for those of functions of straight pieces.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import kernels as algebra
from limits.kernels.activations import as_kinked, as_piecewise_linear, closed_form
from limits.kernels.duals import CLOSED, series_provenance
from limits.kernels.hermite import derivative, orders_needed, quadrature_error, series_error
from limits.types import Provenance
from zoo import activation_function, checks
from zoo.once import forgettable

QUADRATURE = 1  # orders, where only averages of one variable are taken
_TOGETHER = 256  # variances at a time: of one shape, so that what is compiled for one grid of them serves all

# What every public function of this room checks of a network that it is given in numbers, as definitions check theirs.
NETWORK = {"activation": checks.activation, "w_std": checks.number(positive=True), "b_std": checks.number(0)}
RESIDUAL = checks.choice("none", "fixed", "decreasing")


def squares(w_std: Any, b_std: Any) -> tuple[float, float]:
    """(σ_w², σ_b²) in double precision, whatever the standard deviations come in.

    >>> squares(np.float32(0.5), 2)
    (0.25, 4.0)
    """
    return float(w_std) ** 2, float(b_std) ** 2


def moment(activation: Any, q: Any, order: int = 0) -> np.ndarray:
    """E[φ⁽ʲ⁾(√q Z)²], with j = `order` derivatives, for every variance in q.

    A kink has an infinite second moment of φ''. E φ'² of the variance 0 is what it is of small ones: half each side's φ'(0)².

    >>> float(moment("relu", 3.0)), float(moment("relu", 3.0, 1)), float(moment("relu", 3.0, 2))
    (1.5, 0.5, inf)
    >>> float(moment(jax.nn.relu6, 0.0, 1))
    0.5
    """
    phi, q = activation_function(activation), np.asarray(q, float)
    if order == 1 and (q == 0).any():
        some, at_zero = np.where(q > 0, q, 1.0), np.square(slopes_at_zero(phi)).mean()
        return np.where(q > 0, moment(phi, some, 1), at_zero)
    linear = as_piecewise_linear(phi)
    if linear is not None:
        size = (linear.negative**2 + linear.positive**2) / 2
        kink = np.inf if linear.negative != linear.positive else 0.0
        return np.asarray(size * q) if order == 0 else np.full_like(q, size if order == 1 else kink)
    pieces = as_kinked(phi)
    if pieces is not None and order > 1:
        return np.full_like(q, np.inf)
    if pieces is not None and order == 1:
        with jax.enable_x64(True):
            r = jnp.sqrt(jnp.asarray(q))
            return np.asarray(algebra.dual(phi, CLOSED)(r, r, jnp.zeros_like(r))[3])
    with jax.enable_x64(True):
        for _ in range(order):
            phi = derivative(phi)
        size = _TOGETHER if q.size > 1 else 1
        rows = np.resize(q, (-(-q.size // size), size))
        found = [np.zeros(0), *(power(phi, QUADRATURE, jnp.asarray(row)) for row in rows)]
        return np.concatenate(found)[: q.size].reshape(q.shape)


def slopes_at_zero(phi: Any) -> tuple[float, float]:
    """(φ'(0−), φ'(0+)), which differ where φ has a kink at 0; infinity where φ' grows without end towards 0.

    Automatic differentiation at 0 itself takes one side, or neither.

    >>> slopes_at_zero(jax.nn.relu6), slopes_at_zero(lambda x: jnp.sign(x) * jnp.sqrt(jnp.abs(x)))
    ((0.0, 1.0), (inf, inf))
    """
    with jax.enable_x64(True):
        x = jnp.asarray([[-1e-15, -1e-30], [1e-15, 1e-30]])  # numbers of float32, too
        slopes = np.asarray(derivative(phi)(x), float)
    ends = []
    for far, near in slopes:
        grows = not np.isfinite(near) or abs(near) > 1.01 * abs(far)
        ends.append(math.inf if grows else 0.0 if abs(near) < 0.99 * abs(far) else float(near))
    return ends[0], ends[1]


def power(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f(q) = E φ(h)², h ~ N(0, q); q > 0."""
    r = jnp.sqrt(q)
    if orders == CLOSED or (orders == QUADRATURE and as_kinked(phi) is not None):
        return algebra.dual(phi, CLOSED)(r, r, jnp.zeros_like(r))[0] ** 2
    return algebra.rms(phi, r.ravel()).reshape(r.shape) ** 2


def power_slope(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f'(q) = E[φ'² + φ φ'']: how much of a change of the variance a layer passes on.

    By f' = E[z φ φ'] / r, which needs no second derivative and is right for activations with kinks.
    """
    return jax.jvp(lambda q: power(phi, orders, q), (q,), (jnp.ones_like(q),))[1]


def power_curvature(phi: Any, orders: int, q: jax.Array) -> jax.Array:
    """f''(q)."""
    return jax.jvp(lambda q: power_slope(phi, orders, q), (q,), (jnp.ones_like(q),))[1]


def slope_in_variance(phi: Any, orders: int, state: algebra.State) -> jax.Array:
    """∂E[φ_a φ_b] / ∂K_aa at fixed K_ab and K_bb, which is ½ E[φ_a'' φ_b].

    From the derivative in r_a at a fixed correlation, ∂_r E = E[z_a φ_a' φ_b], as (r_a ∂_r E − K_ab E[φ_a' φ_b']) / 2 K_aa.
    """

    def average(r1: jax.Array) -> tuple[jax.Array, jax.Array]:
        s1, s2, gap, dot = algebra.dual(phi, orders)(r1, state.r2, state.gap)
        return s1 * s2 * (1 - gap), dot

    (_, dot), (change, _) = jax.jvp(average, (state.r1,), (jnp.ones_like(state.r1),))
    return (state.r1 * change - state.covariance * dot) / (2 * state.r1**2)


@forgettable
@functools.lru_cache(maxsize=512)
def _errors(phi: Any, r: float) -> tuple[int, float, float]:
    orders, missing = orders_needed(phi, r)
    return orders, series_error(phi, r, missing), quadrature_error(phi, r)


def accurate_orders(phi: Any, largest_r: float) -> tuple[int, Provenance]:
    """(orders of the Hermite series, or 0 for a closed form; what that makes of the result), keeping a small 1 − c.

    As `limits.kernels.dual_for`, but the series comes before a closed form (except for piecewise linear φ): in the other
    closed forms 1 − c is a difference of numbers near 1, and is lost below 1e-16.
    """
    if as_piecewise_linear(phi) is not None:
        return CLOSED, Provenance("exact", "closed form")
    if not np.isfinite(largest_r):
        raise ValueError(
            f"The signal overflows (largest standard deviation {largest_r}): take a smaller w_std or depth."
        )
    # Rounded up to a power of 1.1, so that the next layers and neighbouring networks find the answer again.
    orders, off, wrong = _errors(phi, 1.1 ** math.ceil(math.log(max(largest_r, 1e-6), 1.1)))
    if max(off, wrong) >= 1e-10 and closed_form(phi) is not None:
        return CLOSED, Provenance("exact", "closed form; 1 − c to 1e-16")
    return orders, series_provenance(orders, off, wrong)
