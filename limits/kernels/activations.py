"""Gaussian averages E[φ(u)φ(v)] and E[φ'(u)φ'(v)] in closed form.

Each function takes (r1, r2, gap), the standard deviations of u and v and one minus their correlation, and returns the
same three for φ(u), φ(v), and the average of the derivatives. φ(u) need not be centred: "standard deviation" is
sqrt(E φ²) and "correlation" E[φφ'] over their product. `sizes` are the standard deviations of φ(u), φ(v) where these are known.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels import kinks
from limits.kernels.compiled import of_own_numbers
from limits.kernels.special import angle, arcsine, gap_behind, safe_sqrt, sine_minus_theta_cosine
from zoo import activations as zoo
from zoo.once import forgettable

Dual = Callable[..., tuple[jax.Array, jax.Array, jax.Array, jax.Array]]


def piecewise_linear(phi: zoo.PiecewiseLinear) -> Dual:
    """φ = (p+n)/2 x + (p−n)/2 |x|, of angle θ between u and v (arc-cosine kernel of degree 1).

    With A = ((p+n)/2)², B = ((p−n)/2)²:  E φ² = (A + B) r²,
    1 − c' = (1 − c) − B/(A+B) (2/π) (sin θ − θ cos θ),   E φ'φ' = A + B (1 − 2θ/π).
    The bracket b(θ), θ³/3 at small θ, is a series there: the difference would lose all its digits at a depth of 1e5. So it is
    near π, by b(θ) = b(π − θ) − π cos θ: 1 − c' of |x| at opposite inputs is 0.

    Reference: Cho & Saul, Kernel methods for deep learning (2009).
    """
    even, odd = ((phi.positive - phi.negative) / 2) ** 2, ((phi.positive + phi.negative) / 2) ** 2
    known = isinstance(even, float)  # else slopes are traced
    size: Any = float(np.sqrt(even + odd)) if known else jnp.sqrt(even + odd)
    share = even / (max(even + odd, 1e-300) if known else even + odd)

    def dual(r1: jax.Array, r2: jax.Array, gap: jax.Array, sizes: Any = None) -> tuple:
        del sizes
        if known and even == 0:
            return size * r1, size * r2, gap, jnp.full_like(gap, odd)
        bent, slope = _bent_and_slope(share, odd, even, phi.negative, phi.positive, r1, r2, gap)
        return size * r1, size * r2, bent, slope

    return dual


@of_own_numbers
def _bent_and_slope(share: Any, odd: Any, even: Any, negative: Any, positive: Any, r1: Any, r2: Any, gap: Any) -> tuple:
    alike, near = gap < 1, jnp.where(gap < 1, gap, 2 - gap)
    theta = angle(near)
    sine = safe_sqrt(near * (2 - near))
    bracket = (2 / np.pi) * jnp.where(theta < 0.5, sine_minus_theta_cosine(theta), sine - theta * (1 - near))
    bent = jnp.where(alike, gap, 2 * (1 - share) + (2 * share - 1) * near) - share * bracket
    slope = odd + even * jnp.where(alike, 1, -1) * (1 - theta * (2 / np.pi))
    # Where a signal vanishes (a black pixel without bias) its slope is φ'(0), which is the left one.
    s1, s2 = (jnp.where(r > 0, (positive + negative) / 2, negative) for r in (r1, r2))
    return jnp.maximum(bent, 0), jnp.where(r1 * r2 > 0, slope, s1 * s2)


def _from_moments(moment: Callable, derivative: Callable) -> Dual:
    """A dual from E[φφ'] and E[φ'φ'], functions of (r1, r2, gap) as the dual itself."""

    def dual(r1: jax.Array, r2: jax.Array, gap: jax.Array, sizes: Any = None) -> tuple:
        s1, s2 = sizes or (safe_sqrt(moment(r, r, jnp.zeros_like(r))) for r in (r1, r2))
        return s1, s2, _bent(moment(r1, r2, gap), s1 * s2, r1, r2, gap), derivative(r1, r2, gap)

    return dual


@of_own_numbers
def _bent(moment: Any, product: Any, r1: Any, r2: Any, gap: Any) -> Any:
    c = moment / jnp.where(product > 0, product, 1)
    return gap_behind(1 - c, r1, r2, gap)


def _covariance(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    return r1 * r2 * (1 - gap)


def _arcsine_parts(factor: float, r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple[jax.Array, ...]:
    """What erf (factor λ = 2) and Φ (λ = 1) have in common, for u_i = 1/(1 + λ q_i): (u1, u2, √(λ²q1 q2 u1 u2), 1 − x², x),

    with x = λk √(u1 u2), of which the averages are arcsines. 1 − x² = u1 + u2 − u1 u2 + λ² q1 q2 u1 u2 (1 − c²) is a sum
    of positive numbers (u ≤ 1), and nothing here overflows before q does.
    """
    u1, u2 = (1 / (1 + factor * r * r) for r in (r1, r2))
    v1, v2 = (np.sqrt(factor) * r * jnp.sqrt(u) for r, u in ((r1, u1), (r2, u2)))
    both = v1 * v2
    return u1, u2, both, u1 + u2 - u1 * u2 + both * both * gap * (2 - gap), both * (1 - gap)


def _arcsine(x: jax.Array, rest: jax.Array) -> jax.Array:
    """arcsin x, given rest = 1 − x²."""
    return arcsine(x, rest / (1 + jnp.abs(x)))


# erf: 2/π arcsin(2k / sqrt((1+2q1)(1+2q2))), the arcsine kernel of Williams (1997).
@of_own_numbers
def _erf(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    *_, rest, x = _arcsine_parts(2.0, r1, r2, gap)
    return (2 / np.pi) * _arcsine(x, rest)


@of_own_numbers
def _erf_derivative(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    u1, u2, _, rest, _ = _arcsine_parts(2.0, r1, r2, gap)
    return (4 / np.pi) * (jnp.sqrt(u1) * jnp.sqrt(u2)) / jnp.sqrt(rest)


# sin: the characteristic function of u ± v, (exp(−E(u−v)²/2) ∓ exp(−E(u+v)²/2)) / 2, as the larger of the two times what
# is left of 1: E φφ' = ± exp(−d) (1 − exp(−2|k|)) / 2 with d = (r1 − r2)²/2 + r1 r2 (1 − |c|).
def _sin_parts(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    sign = jnp.where(gap > 1, -1, 1)
    size = sign * _covariance(r1, r2, gap)
    return sign, size, jnp.exp(-((r1 - r2) ** 2) / 2 - r1 * r2 * jnp.where(gap > 1, 2 - gap, gap)) / 2


@of_own_numbers
def _sin(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    sign, size, larger = _sin_parts(r1, r2, gap)
    return -sign * larger * jnp.expm1(-2 * size)


@of_own_numbers
def _sin_derivative(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    _, size, larger = _sin_parts(r1, r2, gap)
    return larger * (1 + jnp.exp(-2 * size))


# gelu = x Φ(x), by Gaussian integration by parts. With Δ = (1+q1)(1+q2) − k², M = E[Φ'(u)Φ'(v)] = 1/(2π sqrt Δ) and
# P = E[Φ(u)Φ(v)] = 1/4 + arcsin(x) / 2π, x = k / sqrt((1+q1)(1+q2)):
# E φφ' = M (q1 q2 − k² + k² (u1 + u2)) + k P,  E φ'φ' = P + k M (u1 + u2 + 1/Δ),  u_i = 1/(1+q_i).
@of_own_numbers
def _gelu(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    u1, u2, both, rest, x = _arcsine_parts(1.0, r1, r2, gap)
    c, p = 1 - gap, 0.25 + _arcsine(x, rest) / (2 * np.pi)
    return r1 * r2 * (both * (gap * (2 - gap) + c * c * (u1 + u2)) / (2 * np.pi * jnp.sqrt(rest)) + c * p)


@of_own_numbers
def _gelu_derivative(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
    u1, u2, _, rest, x = _arcsine_parts(1.0, r1, r2, gap)
    p = 0.25 + _arcsine(x, rest) / (2 * np.pi)
    return p + x * (u1 + u2 + u1 * u2 / rest) / (2 * np.pi * jnp.sqrt(rest))


def quadratic(phi: zoo.Quadratic) -> Dual:
    """φ = x + ε x²:  E φφ' = k + ε² (q1 q2 + 2k²),  E φ'φ' = 1 + 4ε² k."""
    e = phi.eps**2

    def moment(r1: jax.Array, r2: jax.Array, gap: jax.Array) -> jax.Array:
        k = _covariance(r1, r2, gap)
        return k + e * ((r1 * r2) ** 2 + 2 * k * k)

    return _from_moments(moment, lambda r1, r2, gap: 1 + 4 * e * _covariance(r1, r2, gap))


def closed_form(phi: zoo.Activation) -> Dual | None:
    """The closed form of this activation, if there is one.

    A callable of straight pieces that meet is recognised by its values.

    >>> closed_form(lambda x: jnp.maximum(x, 0.3 * x)) is not None, closed_form(jnp.tanh) is None
    (True, True)
    """
    if isinstance(phi, kinks.Kinked):
        return kinks.dual(phi)
    if phi in (zoo.erf, jnp.sin, zoo.gelu):
        table = {
            zoo.erf: (_erf, _erf_derivative),
            jnp.sin: (_sin, _sin_derivative),
            zoo.gelu: (_gelu, _gelu_derivative),
        }
        return _from_moments(*table[phi])
    if isinstance(phi, zoo.Quadratic):
        return quadratic(phi)
    same = as_piecewise_linear(phi)
    if same:
        return piecewise_linear(same)
    kinked = as_kinked(phi)
    return kinks.dual(kinked) if kinked else None


def as_piecewise_linear(phi: zoo.Activation) -> zoo.PiecewiseLinear | None:
    """This activation as a PiecewiseLinear, if it is positively homogeneous (which its values tell).

    >>> as_piecewise_linear(lambda x: jnp.maximum(x, 0.5 * x))
    PiecewiseLinear(negative=0.5, positive=1.0)
    """
    if isinstance(phi, zoo.PiecewiseLinear):
        return phi
    x, values = _probed(phi) if _hashable(phi) else _probed.__wrapped__(phi)
    right, left = np.split(values / x, 2)
    if np.ptp(left) < 1e-12 * (1 + abs(left[0])) and np.ptp(right) < 1e-12 * (1 + abs(right[0])):
        return zoo.PiecewiseLinear(float(left[3]), float(right[3]))
    return None


def as_kinked(phi: zoo.Activation) -> kinks.Kinked | None:
    """This activation as straight pieces that meet elsewhere than at 0, if its values say so.

    >>> as_kinked(jax.nn.relu6)
    Kinked(value=0.0, slope=0.0, kinks=((1.0, 0.0, 1.0), (1.0, 6.0, -1.0)))
    """
    return _pieces(phi) if _hashable(phi) else _pieces.__wrapped__(phi)


@forgettable
@functools.lru_cache(maxsize=512)
def _pieces(phi: Any) -> kinks.Kinked | None:
    def values(x: np.ndarray) -> np.ndarray:
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            return np.asarray(phi(jnp.asarray(x)), float)

    return kinks.as_kinked(values)


def _hashable(phi: Any) -> bool:
    try:
        hash(phi)
    except TypeError:  # itself, or a field of it
        return False
    return True


def called(activation: Any) -> str:
    """What sentences call an activation: its name, or that of its function."""
    return activation if isinstance(activation, str) else getattr(activation, "__name__", None) or repr(activation)


_PROBES = np.array([1e-3, 0.11, 0.7, 1.0, 1.9, 6.3, 40.0, 1e3, 1e4])


@forgettable
@functools.lru_cache(maxsize=512)
def _probed(phi: Any) -> tuple[np.ndarray, np.ndarray]:
    """(x, φ(x)) at some points of either sign; an error that says why, if φ is no function to be averaged."""
    name = called(phi)
    # Twins ask within a function that is being compiled: values all the same, not tracers.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        x = jnp.asarray(np.r_[_PROBES, -_PROBES, 0])
        try:
            made = jax.eval_shape(lambda x: phi(x), x)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"activation {name} must be written in jax.numpy, without branches on its values, so that it can be compiled "
                f"and differentiated: {str(error).splitlines()[0]}"
            ) from error
        if getattr(made, "shape", None) != x.shape:
            raise ValueError(
                f"activation {name} must act on each number by itself: of {len(x)} numbers it made shape "
                f"{getattr(made, 'shape', None)}; return an array of the shape of x."
            )
        if not jnp.issubdtype(made.dtype, jnp.floating):
            raise ValueError(f"activation {name} must return real floating-point numbers; it returns {made.dtype}.")
        values, part = np.asarray(phi(x), float), np.asarray(phi(x[2:5]), float)
    x, few = np.asarray(x), abs(np.asarray(x)) < 10
    if not np.isfinite(values[few]).all():
        at = np.argmin(np.isfinite(values) | ~few)
        raise ValueError(
            f"activation {name} is {values[at]} at x = {x[at]:g}: signals are Gaussian and take every real value, so it must be "
            "finite on the whole real line."
        )
    if not np.allclose(values[2:5], part, rtol=1e-5, atol=1e-12):
        raise ValueError(
            f"activation {name} must act on each number by itself: its value at x = {x[2]:g} depends on the other numbers in x."
        )
    return x[:-1], values[:-1]
