"""Exact inference with a kernel: Gaussian-process posterior and kernel regression."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float

from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg


@dataclasses.dataclass(frozen=True)
class GaussianPosterior:
    """mean [m, outputs], covariance [m, m] (the same for every output), and the log marginal likelihood of y."""

    mean: Any
    cov: Any
    log_marginal_likelihood: float

    def draws(self, count: int, seed: int = 0) -> np.ndarray:
        """Functions drawn from it, [count, m, outputs].

        >>> GaussianPosterior(np.zeros((2, 1)), np.eye(2), 0.0).draws(3).shape
        (3, 2, 1)
        """
        return draws(self.mean, self.cov, count, seed)


@checks.arguments(mean=checks.array(None, None), cov=checks.array(None, None), count=checks.count(), seed=checks.seed)
def draws(
    mean: Float[np.ndarray, "m k"], cov: Float[np.ndarray, "m m"], count: int, seed: int = 0
) -> Float[np.ndarray, "count m k"]:
    """Functions at m points drawn from a Gaussian process, independent outputs; of the prior, mean is zero and cov the NNGP.

    >>> draws(np.zeros((1, 1)), np.zeros((1, 1)), 2).tolist()
    [[[0.0]], [[0.0]]]
    """
    mean, cov = checks.dimensions("predict.draws", mean=(mean, "m k"), cov=(cov, "m m"))
    size, directions = np.linalg.eigh(cov)
    if size[0] < -1e-8 * max(size[-1], 1e-300):
        raise ValueError(f"draws: cov has a negative eigenvalue ({size[0]:.2e}; the largest is {size[-1]:.2e}).")
    root = directions * np.sqrt(np.maximum(size, 0))
    return mean + root @ np.random.default_rng(seed).normal(size=(count, *mean.shape))


def check_noise(owner: str, noise: Any, points: int) -> np.ndarray:
    """Raises unless noise is a variance ≥ 0, or one for each of the points; as an array [points]."""
    if np.ndim(noise) == 0:
        checks.number(0)(f"{owner}: noise", noise)
        return np.full(points, float(noise))
    if not checks.array(None).holds(noise):
        raise ValueError(f"{owner}: noise must be a variance, or one a point as an array; got {checks.shown(noise)}.")
    noise = np.asarray(noise, float)
    if noise.shape != (points,) or not np.isfinite(noise).all() or (noise < 0).any():
        raise ValueError(
            f"{owner}: noise must be one variance ≥ 0, or one for each of the {points} training points; got "
            f"{checks.shown(noise)}."
        )
    return noise


def _factor(k_train: np.ndarray, noise: np.ndarray) -> Any:
    try:
        return scipy.linalg.cho_factor(k_train + np.diag(noise), lower=True)
    except np.linalg.LinAlgError as error:
        smallest = np.linalg.eigvalsh(k_train)[0]
        raise ValueError(
            f"The training kernel plus noise is not positive definite (smallest eigenvalue {smallest:.2e}, noise from "
            f"{noise.min():.2e} on): two inputs may coincide, the network be too deep to tell them apart, or the kernel so "
            "smooth that rounding is more than its least eigenvalue. Raise the noise above that size."
        ) from error


@checks.arguments()
def posterior(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    k_test_train: Float[np.ndarray, "m n"],
    k_test: Float[np.ndarray, "m m"],
    noise: Any = 0.0,
) -> GaussianPosterior:
    """Posterior of f given y = f + N(0, noise), for a prior with this kernel (the NNGP: a Bayesian network's posterior).

        mean = K_* (K + noise)⁻¹ y,   cov = K_** − K_* (K + noise)⁻¹ K_*ᵀ,
        log p(y) = −½ Σ_outputs yᵀ(K + noise)⁻¹y − outputs/2 (log det(K + noise) + n log 2π).

    noise is a variance, absolute (neural-tangents' diag_reg is relative: noise = diag_reg · mean(diag K)), or one a point [n].

    >>> p = posterior(np.eye(1), np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), noise=3.0)
    >>> p.mean.item(), p.cov.item()
    (0.25, 0.75)
    """
    k_train, y, k_test_train, k_test = checks.dimensions(
        "predict.posterior",
        k_train=(k_train, "n n"),
        y=(y, "n k"),
        k_test_train=(k_test_train, "m n"),
        k_test=(k_test, "m m"),
    )
    factor = _factor(k_train, check_noise("predict.posterior", noise, len(k_train)))
    weights = scipy.linalg.cho_solve(factor, y)
    cov = k_test - k_test_train @ scipy.linalg.cho_solve(factor, k_test_train.T)
    log_det = 2 * np.log(np.diag(factor[0])).sum()
    n, k = y.shape
    evidence = -0.5 * np.sum(y * weights) - 0.5 * k * (log_det + n * np.log(2 * np.pi))
    return GaussianPosterior(k_test_train @ weights, (cov + cov.T) / 2, float(evidence))


@checks.arguments()
def kernel_regression(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    k_test_train: Float[np.ndarray, "m n"],
    noise: Any = 0.0,
) -> Float[np.ndarray, "m k"]:
    """K_* (K + noise)⁻¹ y: what training to the end predicts (from f(0) = 0), with the NTK.

    >>> kernel_regression(4 * np.eye(1), np.ones((1, 1)), np.ones((1, 1))).item()
    0.25
    """
    k_train, y, k_test_train = checks.dimensions(
        "kernel_regression", k_train=(k_train, "n n"), y=(y, "n k"), k_test_train=(k_test_train, "m n")
    )
    factor = _factor(k_train, check_noise("kernel_regression", noise, len(k_train)))
    return k_test_train @ scipy.linalg.cho_solve(factor, y)
