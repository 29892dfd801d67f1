"""Gaussian averages E[φ(u)φ(v)] and E[φ'(u)φ'(v)] in closed form.

Each function takes (r1, r2, gap), the standard deviations of u and v and one minus their correlation, and returns the
same three for φ(u), φ(v), and the average of the derivatives. φ(u) need not be centred: "standard deviation" is
sqrt(E φ²) and "correlation" E[φφ'] over their product.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.special import angle, safe_sqrt, sine_minus_theta_cosine
from zoo import activations as zoo

Dual = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array, jax.Array]]


def piecewise_linear(phi: zoo.PiecewiseLinear) -> Dual:
    """φ = (p+n)/2 x + (p−n)/2 |x|, of angle θ between u and v (arc-cosine kernel of degree 1).

    With A = ((p+n)/2)², B = ((p−n)/2)²:  E φ² = (A + B) r²,
    1 − c' = (1 − c) − B/(A+B) (2/π) (sin θ − θ cos θ),   E φ'φ' = A + B (1 − 2θ/π).
    The bracket, θ³/3 at small θ, is a series there: the difference would lose all its digits at a depth of 1e5.

    Reference: Cho & Saul, Kernel methods for deep learning (2009).
    """
    even, odd = ((phi.positive - phi.negative) / 2) ** 2, ((phi.positive + phi.negative) / 2) ** 2
    size, share = float(np.sqrt(even + odd)), even / max(even + odd, 1e-300)

    def dual(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple:
        if even == 0:
            return size * r1, size * r2, gap, jnp.full_like(gap, odd)
        theta = angle(gap)
        sine = safe_sqrt(gap * (2 - gap))
        bracket = jnp.where(theta < 0.5, sine_minus_theta_cosine(theta), sine - theta * (1 - gap))
        bent = gap - share * (2 / np.pi) * bracket
        slope = odd + even * (1 - theta * (2 / np.pi))
        # Where a signal vanishes (a black pixel without bias) its slope is φ'(0), which is the left one.
        s1, s2 = (jnp.where(r > 0, (phi.positive + phi.negative) / 2, phi.negative) for r in (r1, r2))
        return size * r1, size * r2, jnp.maximum(bent, 0), jnp.where(r1 * r2 > 0, slope, s1 * s2)

    return dual


def _from_covariance(moment: Callable, derivative: Callable) -> Dual:
    """A dual from E[φφ'](q1, q2, k) and E[φ'φ'](q1, q2, k), where k is the covariance of u and v."""

    def dual(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple:
        q1, q2, k = r1 * r1, r2 * r2, r1 * r2 * (1 - gap)
        s1, s2 = safe_sqrt(moment(q1, q1, q1)), safe_sqrt(moment(q2, q2, q2))
        product = s1 * s2
        c = moment(q1, q2, k) / jnp.where(product > 0, product, 1)
        same = (gap == 0) & (r1 == r2)
        return s1, s2, jnp.where(same, 0, jnp.clip(1 - c, 0, 2)), derivative(q1, q2, k)

    return dual


def _arcsin(x: jax.Array) -> jax.Array:
    return jnp.pi / 2 - angle(1 - x)


# erf: 2/π arcsin(2k / sqrt((1+2q1)(1+2q2))), the arcsine kernel of Williams (1997).
def _erf(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    return (2 / np.pi) * _arcsin(2 * k / (jnp.sqrt(1 + 2 * q1) * jnp.sqrt(1 + 2 * q2)))


def _erf_derivative(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    return (4 / np.pi) / jnp.sqrt((1 + 2 * q1) * (1 + 2 * q2) - 4 * k * k)


# sin: the characteristic function of u ± v.
def _sin(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    return (jnp.exp(k - (q1 + q2) / 2) - jnp.exp(-k - (q1 + q2) / 2)) / 2


def _sin_derivative(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    return (jnp.exp(k - (q1 + q2) / 2) + jnp.exp(-k - (q1 + q2) / 2)) / 2


# gelu = x Φ(x), by Gaussian integration by parts. With Δ = (1+q1)(1+q2) − k², M = E[Φ'(u)Φ'(v)] = 1/(2π sqrt Δ) and
# P = E[Φ(u)Φ(v)] = 1/4 + arcsin(k / sqrt((1+q1)(1+q2))) / 2π.
def _gelu_parts(q1: jax.Array, q2: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    delta = (1 + q1) * (1 + q2) - k * k
    p = 0.25 + _arcsin(k / (jnp.sqrt(1 + q1) * jnp.sqrt(1 + q2))) / (2 * np.pi)
    return delta, 1 / (2 * np.pi * jnp.sqrt(delta)), p


def _gelu(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    _, m, p = _gelu_parts(q1, q2, k)
    return q1 * q2 * m + k * k * m * (1 / (1 + q1) + 1 / (1 + q2) - 1) + k * p


def _gelu_derivative(q1: jax.Array, q2: jax.Array, k: jax.Array) -> jax.Array:
    delta, m, p = _gelu_parts(q1, q2, k)
    return p + k * m * (1 / (1 + q1) + 1 / (1 + q2) + 1 / delta)


def quadratic(phi: zoo.Quadratic) -> Dual:
    """φ = x + ε x²:  E φφ' = k + ε² (q1 q2 + 2k²),  E φ'φ' = 1 + 4ε² k."""
    e = phi.eps**2
    return _from_covariance(
        lambda q1, q2, k: k + e * (q1 * q2 + 2 * k * k),
        lambda q1, q2, k: 1 + 4 * e * k,
    )


def closed_form(phi: zoo.Activation) -> Dual | None:
    """The closed form of this activation, if there is one.

    A callable that is positively homogeneous is recognised by its values: it is piecewise linear.

    >>> closed_form(lambda x: jnp.maximum(x, 0.3 * x)) is not None, closed_form(jnp.tanh) is None
    (True, True)
    """
    if phi in (zoo.erf, jnp.sin, zoo.gelu):
        table = {
            zoo.erf: (_erf, _erf_derivative),
            jnp.sin: (_sin, _sin_derivative),
            zoo.gelu: (_gelu, _gelu_derivative),
        }
        return _from_covariance(*table[phi])
    if isinstance(phi, zoo.Quadratic):
        return quadratic(phi)
    same = as_piecewise_linear(phi)
    return piecewise_linear(same) if same else None


def as_piecewise_linear(phi: zoo.Activation) -> zoo.PiecewiseLinear | None:
    """This activation as a PiecewiseLinear, if it is positively homogeneous (which its values tell).

    >>> as_piecewise_linear(lambda x: jnp.maximum(x, 0.5 * x))
    PiecewiseLinear(negative=0.5, positive=1.0)
    """
    if isinstance(phi, zoo.PiecewiseLinear):
        return phi
    # Twins ask within a function that is being compiled: values all the same, not tracers.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        x = jnp.array([1e-3, 0.11, 0.7, 1.0, 1.9, 6.3, 40.0])
        left, right = -np.asarray(phi(-x)) / np.asarray(x), np.asarray(phi(x)) / np.asarray(x)
    if np.ptp(left) < 1e-12 * (1 + abs(left[0])) and np.ptp(right) < 1e-12 * (1 + abs(right[0])):
        return zoo.PiecewiseLinear(float(left[3]), float(right[3]))
    return None
