"""Gaussian averages of a layer: in closed form what depends on two samples, and sampled what depends on four."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import kernels as algebra
from limits.depth.averages import power, power_slope, slope_in_variance
from limits.depth.response import start
from limits.kernels.activations import as_piecewise_linear
from limits.kernels.hermite import coefficients, derivative
from zoo import activation_function, checks
from zoo.once import forgettable, jitted

_LEAST = 1e-2  # of the size of φ's own noise: a linear part with less than this is left out


def is_linear(activation: Any) -> bool:
    """Whether φ(x) = c x.

    >>> is_linear("linear"), is_linear("relu")
    (True, False)
    """
    found = as_piecewise_linear(activation_function(activation))
    return found is not None and found.negative == found.positive


@checks.arguments(activation=checks.activation, c=checks.array(None, None))
def pair_averages(activation: Any, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """<φ_a φ_b> over N(0, C), its derivative in C_ab, and its derivative in C_aa (0 at a = b); each [n, n].

    By Price's theorem the second is <φ_a'φ_b'> (on the diagonal <φ'² + φφ''>) and the third ½ <φ_a''φ_b>; both are taken as
    derivatives of the first, so that a kink of φ does no harm. Closed forms where there are, else Hermite series.
    At a point of variance 0 they are limits; with a kink there the third is infinite, and 0 here: nothing moves such a point.

    >>> mean, own, across = pair_averages("erf", np.array([[0.3, 0.1], [0.1, 0.2]]))
    >>> own[0, 1].round(6).item(), across[0, 1].round(6).item()
    (0.858418, -0.053651)
    """
    phi = activation_function(activation)
    with jax.enable_x64(True):
        orders = _orders(phi, _rounded(float(np.sqrt(np.diagonal(c).max()))))
        return tuple(np.asarray(part) for part in _pair_averages(phi, orders, jnp.asarray(c)))  # pyright: ignore[reportReturnType]


@forgettable
@functools.lru_cache(maxsize=512)
def _orders(phi: Any, r: float) -> int:
    return algebra.dual_for(phi, r)[0]


def _rounded(r: float) -> float:
    """Upwards to a power of 1.1, so that neighbouring kernels share their number of orders."""
    return float(1.1 ** np.ceil(np.log(max(r, 1e-6)) / np.log(1.1)))


@jitted(static_argnums=(0, 1))
def _pair_averages(phi: Any, orders: int, c: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    same, (q, silent) = jnp.eye(len(c), dtype=bool), _floored(jnp.diagonal(c))
    state = start(q[:, None], q[None, :], c)
    active = algebra.activate(state, algebra.dual(phi, orders))
    across = jnp.where(same, 0.0, slope_in_variance(phi, orders, state))
    mean = jnp.where(same, jnp.broadcast_to(power(phi, orders, q)[:, None], c.shape), active.covariance)
    own = jnp.where(same, jnp.broadcast_to(power_slope(phi, orders, q)[:, None], c.shape), active.ntk)
    # A point with h = 0 has φ = φ(0), no random number. At a kink slopes on both sides differ, however near.
    at_zero = phi(jnp.zeros_like(q))
    average, change = jax.jvp(lambda q: coefficients(phi, jnp.sqrt(q), 2)[0], (q,), (jnp.ones_like(q),))
    average = jnp.where(silent, at_zero, average)
    mean = jnp.where(silent[:, None], at_zero[:, None] * average[None, :], mean)
    mean = jnp.where(silent[None, :], mean.T, mean)
    across = jnp.where(silent[None, :] & ~silent[:, None], change[:, None] * at_zero[None, :], across)
    left, right = derivative(phi)(jnp.asarray([[-1e-9, -1e-3], [1e-9, 1e-3]]))
    jump, near = jnp.abs(right - left)
    kinked = jump > near / 2
    return mean, own, jnp.where(silent[:, None] & kinked, 0.0, across)


def _floored(q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Variances for divisions by them, and which are 0 (an input of zeros, no bias)."""
    silent = q <= 0
    return jnp.where(silent, 1e-10 * jnp.where(silent.all(), 1.0, q.max()), q), silent


@checks.arguments(activation=checks.activation, z=checks.array(None, None))
class Draws:
    """The same standard normal numbers z [samples, n] for every average: an iteration over them has no noise of its own.

    For test points, n grows at the end and the draws of the training points stay (`roots_of_blocks`).
    """

    def __init__(self, activation: Any, z: np.ndarray) -> None:
        self.phi, self.z, self.linear = activation_function(activation), z, is_linear(activation)

    def signals(self, c: np.ndarray, known: int) -> np.ndarray:
        """h ~ N(0, C), [samples, n]; the first `known` points depend on their block of C alone."""
        return self.z[:, : len(c)] @ roots_of_blocks(c, known).T * (np.diagonal(c) > 0)  # no rounding where h = 0

    def features(self, h: np.ndarray) -> np.ndarray:
        """φ(h)."""
        with jax.enable_x64(True):
            return np.asarray(self.phi(jnp.asarray(h)))

    def slopes(self, c: np.ndarray) -> np.ndarray:
        """<φ'> of every point, [n]."""
        with jax.enable_x64(True):
            return np.asarray(_slopes(self.phi, jnp.asarray(np.diagonal(c))))


@jitted(static_argnums=0)
def _slopes(phi: Any, q: jax.Array) -> jax.Array:
    r = jnp.sqrt(_floored(q)[0])
    return coefficients(phi, r, 2)[1] / r


@checks.arguments(
    draws=checks.Check("Draws", lambda v: isinstance(v, Draws)),
    c=checks.array(None, None),
    force=checks.array(None, None),
)
def contraction(draws: Draws, c: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Σ_cd V_ab,cd C̃_cd = Cov(φ_a φ_b, φᵀC̃φ) over N(0, C), with V_ab,cd = <φ_a φ_b φ_c φ_d> − <φ_a φ_b> <φ_c φ_d>.

    force = C̃ may have fewer rows than C: it is zero on the points behind. Costs samples × n² and never holds V. For the
    linear part <φ'> h of φ it is known, 2 K C̃ K with K = <φ_a'> C_ab <φ_b'>, which serves as control variate. Where that part
    is small (even φ: <φ'> is rounding) its share fades out, so that the result stays continuous in C.

    >>> c, force = np.array([[1.0, 0.5], [0.5, 2.0]]), np.eye(2)
    >>> contraction(Draws("linear", np.zeros((1, 2))), c, force).round(9).tolist()  # 2 C C̃ C
    [[2.5, 3.0], [3.0, 8.5]]
    """
    known, alpha = len(force), draws.slopes(c)
    k = alpha[:, None] * c * alpha[None, :]
    exact = 2 * k[:, :known] @ force @ k[:known]
    if draws.linear or not force.any():
        return exact
    h = draws.signals(c, known)
    (sampled, size), (simple, simple_size) = (_covariance(a, force) for a in (draws.features(h), h * alpha[None, :]))
    # Least squares, of order 1/samples off the best, with a ridge: alone it does not depend on the scale of <φ'>.
    ridge = np.mean(simple_size**2) + _LEAST**2 * np.mean(size**2)
    share = np.mean(size * simple_size) / ridge if ridge > 0 else 0.0
    return sampled + share * (exact - simple)


def _covariance(a: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a a and aᵀ C̃ a over draws; and every draw's share of its trace over the known points."""
    q = quadratic(a, force)
    q -= q.mean()
    size = np.sum(a[:, : len(force)] ** 2, axis=1) * q
    return (a * q[:, None]).T @ a / len(a), size - size.mean()


def quadratic(a: np.ndarray, force: np.ndarray) -> np.ndarray:
    """aᵀ C̃ a of every draw."""
    known = a[:, : len(force)]
    return np.einsum("sp,sp->s", known @ force, known)


def symmetric(a: np.ndarray) -> np.ndarray:
    """(A + Aᵀ)/2: without the rounding of an inverse or a product."""
    return (a + a.T) / 2


def symmetric_root(c: np.ndarray) -> np.ndarray:
    """R = Rᵀ with R R = C, negative eigenvalues taken as zero. Continuous in C, which an iteration over fixed draws needs.

    >>> symmetric_root(np.diag([4.0, 0.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(c)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def roots_of_blocks(c: np.ndarray, known: int) -> np.ndarray:
    """R with R Rᵀ = C, zero in the upper right: the first points know nothing of the others."""
    first = symmetric_root(c[:known, :known])
    if known == len(c):
        return first
    whole = np.zeros_like(c)
    whole[:known, :known] = first
    whole[known:, :known] = c[known:, :known] @ np.linalg.pinv(first, rcond=1e-12, hermitian=True)
    part = whole[known:, :known]
    whole[known:, known:] = symmetric_root(c[known:, known:] - part @ part.T)
    return whole
