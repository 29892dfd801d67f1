"""Gaussian averages with derivatives of every order, where variances and covariances are what one differentiates by.

By Price's theorem, for centred Gaussian u, v of variances q1, q2 and covariance k,

    ∂_k E[f g] = E[f′g′],   ∂_q1 E[f g] = ½ E[f″g],   ∂_q2 E[f g] = ½ E[f g″].

1 − c enters as well, for what cancels near c = ±1, but it is no variable. Where a derivative does not exist (the tangent
kernel of a relu at coinciding inputs, signals of variance zero) the mean of those from both sides stands, which is finite.

Reference: Price (1958), A useful theorem for nonlinear devices having Gaussian inputs.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.kinks import Kinked, of_pieces
from limits.kernels.special import angle, arcsine, safe_sqrt, sine_minus_theta_cosine
from zoo import activations as zoo


class Averages(NamedTuple):
    """E[φφ′] and E[φ′φ′] of one function, of (q1, q2, k, 1 − c).

    smooth: whether nothing in them cancels but where q is large, so that they may do without 1 − c (None in its place).
    """

    moment: Callable[..., Any]
    slope: Callable[..., Any]
    smooth: bool = True


def broadcasting(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of derivatives, which jax calls when it comes to it: also where arrays of another rank must not meet."""

    @functools.wraps(rule)
    def call(*arguments: Any) -> Any:
        with jax.numpy_rank_promotion("allow"):
            return rule(*arguments)

    return call


def with_derivatives(value: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """`value`, which is function(*arguments) worked out in another way, with the derivatives of the function.

    >>> jax.grad(lambda x: with_derivatives(jax.lax.stop_gradient(x), lambda y: y, x))(2.0).item()
    1.0
    """

    @jax.custom_jvp
    def attached(value: Any, arguments: tuple) -> Any:
        del arguments
        return value

    @attached.defjvp
    @broadcasting
    def _(primals: tuple, tangents: tuple) -> Any:
        value, arguments = primals
        moved = jax.jvp(lambda *each: jnp.broadcast_to(function(*each), jnp.shape(value)), arguments, tangents[1])[1]
        return attached(value, arguments), moved

    return attached(jax.lax.stop_gradient(value), arguments)


def _determinant(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    """q1 q2 − k²."""
    return _not_negative(q1, q2, k) if gap is None else _near_one(q1, q2, k, gap)


@jax.custom_jvp
def _not_negative(q1: Any, q2: Any, k: Any) -> Any:
    return jnp.maximum(q1 * q2 - k * k, 0)


@_not_negative.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k), (dq1, dq2, dk) = primals, tangents
    return _not_negative(q1, q2, k), q2 * dq1 + q1 * dq2 - 2 * k * dk


@jax.custom_jvp
def _near_one(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    del k
    return q1 * q2 * gap * (2 - gap)


@_near_one.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    return _near_one(q1, q2, k, gap), q2 * dq1 + q1 * dq2 - 2 * k * dk


@jax.custom_jvp
def _root(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    """√(q1 q2 − k²); products of variances themselves may be more than float32 holds."""
    del k
    return safe_sqrt(q1) * safe_sqrt(q2) * safe_sqrt(gap * (2 - gap))


@_root.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    root = _root(q1, q2, k, gap)
    over = _inverse(root)
    return root, 0.5 * (q2 * over * dq1 + q1 * over * dq2) - k * over * dk


@jax.custom_jvp
def _arcsine(x: Any, rest: Any) -> Any:
    """arcsin x, given rest = 1 − x²."""
    return arcsine(x, rest / (1 + jnp.abs(x)))


@_arcsine.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (x, rest), (dx, _) = primals, tangents
    return _arcsine(x, rest), dx / jnp.sqrt(rest)


def _inverse(x: Any) -> Any:
    """1/x, and 0 at 0."""
    return jnp.where(x > 0, 1 / jnp.where(x > 0, x, 1), 0)


@jax.custom_jvp
def _of_sizes(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    """E|u||v| = r1 r2 (c + (2/π) (sin θ − θ cos θ))."""
    del k
    theta = angle(gap)
    sine = safe_sqrt(gap * (2 - gap))
    bracket = jnp.where(theta < 0.5, sine_minus_theta_cosine(theta), sine - theta * (1 - gap))
    return jnp.sqrt(q1) * jnp.sqrt(q2) * (1 - gap + (2 / np.pi) * bracket)


@_of_sizes.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    root = _root(q1, q2, k, gap) / np.pi
    moved = _of_signs(q1, q2, k, gap) * dk + root * (_inverse(q1) * dq1 + _inverse(q2) * dq2)
    return _of_sizes(q1, q2, k, gap), moved


@jax.custom_jvp
def _of_signs(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    """E sign(u) sign(v) = 1 − 2θ/π; 0 where one of them is 0."""
    del k
    return jnp.where((q1 > 0) & (q2 > 0), 1 - (2 / np.pi) * angle(gap), 0)


@_of_signs.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    along = dk - 0.5 * k * (_inverse(q1) * dq1 + _inverse(q2) * dq2)
    moved = (2 / np.pi) * _inverse(_root(q1, q2, k, gap)) * along
    return _of_signs(q1, q2, k, gap), moved


def piecewise_linear(negative: Any, positive: Any) -> Averages:
    """φ = a x + b |x| with a = (p + n)/2, b = (p − n)/2; the slopes n, p may be traced.

    E φφ′ = a² k + b² E|u||v|,   E φ′φ′ = a² + b² E sign(u) sign(v).
    """
    a, b = (positive + negative) / 2, (positive - negative) / 2

    def moment(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
        return a**2 * k + b**2 * _of_sizes(q1, q2, k, gap)

    def slope(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
        # Where a signal vanishes (a black pixel without bias) its slope is φ'(0), which is the left one.
        s1, s2 = (jnp.where(q > 0, a, negative) for q in (q1, q2))
        return jnp.where((q1 > 0) & (q2 > 0), a**2 + b**2 * _of_signs(q1, q2, k, gap), s1 * s2)

    return Averages(moment, slope, smooth=False)


def _parts(factor: float, q1: Any, q2: Any, k: Any, gap: Any) -> tuple[Any, Any, Any, Any]:
    """(u1, u2, x, 1 − x²) for u_i = 1/(1 + λ q_i), x = λ k √(u1 u2): what erf (λ = 2) and gelu (λ = 1) are made of."""
    u1, u2 = (1 / (1 + factor * q) for q in (q1, q2))
    x = factor * k * jnp.sqrt(u1) * jnp.sqrt(u2)
    rest = u1 + u2 - u1 * u2 + _determinant(factor * u1 * q1, factor * u2 * q2, x, gap)
    return u1, u2, x, rest


@jax.custom_jvp
def _erf_moment(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    *_, x, rest = _parts(2.0, q1, q2, k, gap)
    return (2 / np.pi) * _arcsine(x, rest)


@_erf_moment.defjvp
@broadcasting
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    along = dk - k * (dq1 / (1 + 2 * q1) + dq2 / (1 + 2 * q2))
    return _erf_moment(q1, q2, k, gap), _erf_slope(q1, q2, k, gap) * along


@jax.custom_jvp
def _erf_slope(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    u1, u2, _, rest = _parts(2.0, q1, q2, k, gap)
    return (4 / np.pi) * (jnp.sqrt(u1) * jnp.sqrt(u2)) / jnp.sqrt(rest)


@_erf_slope.defjvp
@broadcasting
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    u1, u2, _, rest = _parts(2.0, q1, q2, k, gap)
    slope = _erf_slope(q1, q2, k, gap)
    return slope, slope / rest * (4 * (u1 * k) * u2 * dk - (u1 * dq1 + u2 * dq2))


def _gelu_parts(q1: Any, q2: Any, k: Any, gap: Any) -> tuple[Any, ...]:
    u1, u2, x, rest = _parts(1.0, q1, q2, k, gap)
    m = jnp.sqrt(u1) * jnp.sqrt(u2) / (2 * np.pi * jnp.sqrt(rest))  # E Φ′(u) Φ′(v)
    return u1, u2, u1 * u2 / rest, m, 0.25 + _arcsine(x, rest) / (2 * np.pi)


def _gelu_moment(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    u1, u2, _, m, p = _gelu_parts(q1, q2, k, gap)
    return m * (_determinant(q1, q2, k, gap) + k * k * (u1 + u2)) + k * p


def _gelu_slope(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    u1, u2, inverse, m, p = _gelu_parts(q1, q2, k, gap)
    return p + k * m * (u1 + u2 + inverse)


def _sine_parts(q1: Any, q2: Any, k: Any, gap: Any) -> tuple[Any, Any, Any]:
    del gap
    sign = jnp.where(k < 0, -1, 1)
    return sign, sign * k, jnp.exp(sign * k - (q1 + q2) / 2) / 2


def _sine_moment(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    sign, size, larger = _sine_parts(q1, q2, k, gap)
    return -sign * larger * jnp.expm1(-2 * size)


def _sine_slope(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    _, size, larger = _sine_parts(q1, q2, k, gap)
    return larger * (1 + jnp.exp(-2 * size))


def quadratic(eps: Any) -> Averages:
    """φ = x + ε x²; ε may be traced."""
    return Averages(
        lambda q1, q2, k, gap: k + eps**2 * (q1 * q2 + 2 * k * k), lambda q1, q2, k, gap: 1 + 4 * eps**2 * k
    )


def averages(psi: zoo.Activation, outer: Any = 1.0, inner: Any = 1.0) -> Averages:
    """Of outer · ψ(inner · x), for a ψ that has a closed form (`activations.closed_form`).

    >>> round(float(averages(zoo.erf).moment(1.0, 1.0, 1.0, 0.0)), 4)  # (2/π) arcsin(2/3)
    0.4646
    """
    table = {
        zoo.erf: (_erf_moment, _erf_slope),
        jnp.sin: (_sine_moment, _sine_slope),
        zoo.gelu: (_gelu_moment, _gelu_slope),
    }
    if isinstance(psi, zoo.Quadratic):
        known = quadratic(psi.eps)
    elif isinstance(psi, zoo.PiecewiseLinear):
        known = piecewise_linear(psi.negative, psi.positive)
    elif isinstance(psi, Kinked):
        known = Averages(*of_pieces(psi), smooth=False)
    else:
        known = Averages(*table[psi])  # pyright: ignore[reportArgumentType]
    square = inner**2

    def scaled(function: Callable[..., Any], factor: Any) -> Callable[..., Any]:
        return lambda q1, q2, k, gap: factor * function(square * q1, square * q2, square * k, gap)

    return Averages(scaled(known.moment, outer**2), scaled(known.slope, (outer * inner) ** 2), known.smooth)
