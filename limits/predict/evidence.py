"""What data say of a kernel: the log marginal likelihood and leave-one-out predictions, as functions of JAX arrays."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, Real

from limits.kept.precision import computing_in
from limits.predict.gaussian_process import check_noise, factorised, singular
from limits.predict.symmetry import check_symmetric
from zoo import checks


class LeaveOneOut(NamedTuple):
    """Of each point, given all others: mean [n, outputs] and variance [n] of y, and log p(y) [n], summed over outputs."""

    mean: Any
    variance: Any
    log_density: Any


_arguments = checks.arguments(
    k=checks.array(None, None),
    y=checks.array(None) | checks.array(None, None),
    noise=checks.number(0) | checks.array(None),
)


def _worked(function: Callable, owner: str, k: Any, y: Any, noise: Any) -> Any:
    """The function of K + noise and targets [n, outputs].

    A kernel of JAX, or anything traced, keeps the caller's precision. On the host it is worked in float64 and NumPy arrays come
    back: half of the digits are not enough for a kernel's inverse.
    """
    if isinstance(k, jax.Array) or any(isinstance(v, Tracer) for v in (y, noise)):
        return function(*_prepared(owner, k, y, noise))
    with computing_in(np.float64), jax.ensure_compile_time_eval():  # inside the caller's `jit`, too
        given, y, noise = k, np.asarray(y, float), np.asarray(noise, float)
        return jax.tree.map(np.asarray, function(*_prepared(owner, np.asarray(k, float), y, noise, given)))


def _prepared(owner: str, k: Any, y: Any, noise: Any, given: Any = None) -> tuple[Any, Any]:
    """K plus a variance, one for all points or one for each, and targets [n, outputs]. `given`: K in its own precision."""
    given, k = k if given is None else given, jnp.asarray(k)
    k = k if jnp.issubdtype(k.dtype, jnp.inexact) else k.astype(float)  # whole numbers hold no noise
    y, variance = jnp.asarray(y, k.dtype), jnp.asarray(noise, k.dtype)
    if k.shape != (len(y), len(y)) or variance.shape not in ((), (len(y),)):
        raise ValueError(
            f"k must be [n, n], y [n, outputs], noise a number or [n]; their shapes are {k.shape}, {y.shape} and "
            f"{variance.shape}."
        )
    check_symmetric(owner, k=given)
    if not isinstance(noise, Tracer):
        check_noise(owner, noise, len(y))
    return k + jnp.diag(jnp.broadcast_to(variance, (len(k),))), y[:, None] if y.ndim == 1 else y


@_arguments
def log_marginal_likelihood(k: Real[Array | np.ndarray, "n n"], y: Any, noise: Any) -> Float[Array | np.ndarray, ""]:
    """log p(y) of y = f + N(0, noise), f ~ N(0, K), independent outputs; noise: a variance, or one a point [n].

        −½ Σ_outputs yᵀ(K + noise)⁻¹y − outputs/2 (log det(K + noise) + n log 2π)

    May be compiled and differentiated; NumPy kernels are worked in float64. NaN where K + noise is not positive definite, of
    NumPy kernels also where it is singular to rounding.

    >>> float(log_marginal_likelihood(jnp.zeros((1, 1)), jnp.ones((1, 1)), 1.0)).__round__(4)  # −½ − ½ log 2π
    -1.4189

    Reference: Rasmussen & Williams (2006), Gaussian processes for machine learning, equation 2.30.
    """
    found = _worked(_log_density, "log_marginal_likelihood", k, y, noise)
    if isinstance(found, np.ndarray) and np.isfinite(found):
        with contextlib.suppress(ValueError):
            factorised(
                "log_marginal_likelihood", np.asarray(k, float), np.broadcast_to(np.asarray(noise, float), len(k))
            )
            return found
        return np.asarray(np.nan)
    return found


@jax.custom_jvp
def _log_density(a: Any, y: Any) -> Any:
    return _from_factor(cho_factor(a, lower=True), y)


def _from_factor(factor: Any, y: Any) -> Any:
    n, outputs = y.shape
    log_det = 2 * jnp.log(jnp.diag(factor[0])).sum()
    return -0.5 * jnp.sum(y * cho_solve(factor, y)) - 0.5 * outputs * (log_det + n * jnp.log(2 * jnp.pi))


@_log_density.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    """½ tr((K⁻¹y yᵀK⁻¹ − outputs K⁻¹) dK) − yᵀK⁻¹dy: one inverse, where a derivative of the factor takes three times as long."""
    (a, y), (da, dy) = primals, tangents
    factor = cho_factor(a, lower=True)
    inverse, weights = cho_solve(factor, jnp.eye(len(a), dtype=a.dtype)), cho_solve(factor, y)
    along = 0.5 * jnp.sum((weights @ weights.T - y.shape[1] * inverse) * da) - jnp.sum(weights * dy)
    return _from_factor(factor, y), along


@_arguments
def leave_one_out(k: Real[Array | np.ndarray, "n n"], y: Any, noise: Any) -> LeaveOneOut:
    """Every y_i predicted from all others: with A = K + noise,

        mean_i = y_i − (A⁻¹y)_i / (A⁻¹)_ii,   variance_i = 1 / (A⁻¹)_ii.

    May be compiled and differentiated; NumPy kernels are worked in float64. The sum of `log_density` is what leave-one-out
    maximises. K + noise must be positive definite: anything else is an error, or NaN while a function is being compiled.

    >>> found = leave_one_out(jnp.array([[2.0, 1.0], [1.0, 2.0]]), jnp.array([[1.0], [4.0]]), 0.0)
    >>> found.mean.round(5).ravel().tolist(), found.variance.round(5).tolist()  # half the other one, 2 − ½
    ([2.0, 0.5], [1.5, 1.5])

    Reference: Rasmussen & Williams (2006), equations 5.10 to 5.12.
    """
    found, known = _worked(_left_out, "leave_one_out", k, y, noise), not any(isinstance(v, Tracer) for v in (k, noise))
    if known and not isinstance(found.variance, Tracer):
        _check_left_out(found, np.asarray(k, float), noise, isinstance(k, jax.Array))
    return found


def _check_left_out(found: LeaveOneOut, k: np.ndarray, noise: Any, as_given: bool) -> None:
    """Raises where K + noise is singular: to rounding in float64, or in the precision in which the kernel is given."""
    if np.isfinite(k).all():
        variances = check_noise("leave_one_out", noise, len(k))
        if not as_given:
            factorised("leave_one_out", k, variances)
        if not np.isfinite(np.asarray(found.variance)).all():
            raise singular("leave_one_out", k + np.diag(variances), variances)


def _left_out(a: Any, y: Any) -> LeaveOneOut:
    inverse = cho_solve(cho_factor(a, lower=True), jnp.eye(len(a), dtype=a.dtype))
    precision = jnp.diag(inverse)
    mean = y - jnp.matmul(inverse, y, precision=jax.lax.Precision.HIGHEST) / precision[:, None]
    log_density = 0.5 * jnp.log(precision / (2 * jnp.pi))[:, None] - 0.5 * precision[:, None] * (y - mean) ** 2
    return LeaveOneOut(mean, 1 / precision, log_density.sum(1))
