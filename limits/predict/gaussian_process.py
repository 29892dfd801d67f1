"""Exact inference with a kernel: Gaussian-process posterior and kernel regression."""

import dataclasses
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float

from zoo import checks


@dataclasses.dataclass(frozen=True)
class GaussianPosterior:
    """mean [m, outputs], covariance [m, m] (the same for every output), and the log marginal likelihood of y."""

    mean: Any
    cov: Any
    log_marginal_likelihood: float


def _factor(k_train: np.ndarray, noise: float) -> Any:
    try:
        return scipy.linalg.cho_factor(k_train + noise * np.eye(len(k_train)), lower=True)
    except np.linalg.LinAlgError as error:
        smallest = np.linalg.eigvalsh(k_train)[0]
        raise ValueError(
            f"The training kernel plus noise is not positive definite (smallest eigenvalue {smallest:.2e}, noise {noise:.2e}): "
            "two inputs may coincide, or the network is too deep to tell them apart. Raise the noise above that size."
        ) from error


@checks.arguments(noise=checks.number())
def posterior(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    k_test_train: Float[np.ndarray, "m n"],
    k_test: Float[np.ndarray, "m m"],
    noise: float = 0.0,
) -> GaussianPosterior:
    """Posterior of f given y = f + N(0, noise), for a prior with this kernel (the NNGP: a Bayesian network's posterior).

        mean = K_* (K + noise)⁻¹ y,   cov = K_** − K_* (K + noise)⁻¹ K_*ᵀ,
        log p(y) = −½ Σ_outputs yᵀ(K + noise)⁻¹y − outputs/2 (log det(K + noise) + n log 2π).

    noise is a variance, absolute (neural-tangents' diag_reg is relative: noise = diag_reg · mean(diag K)).

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
    factor = _factor(k_train, noise)
    weights = scipy.linalg.cho_solve(factor, y)
    cov = k_test - k_test_train @ scipy.linalg.cho_solve(factor, k_test_train.T)
    log_det = 2 * np.log(np.diag(factor[0])).sum()
    n, k = y.shape
    evidence = -0.5 * np.sum(y * weights) - 0.5 * k * (log_det + n * np.log(2 * np.pi))
    return GaussianPosterior(k_test_train @ weights, (cov + cov.T) / 2, float(evidence))


@checks.arguments(noise=checks.number())
def kernel_regression(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    k_test_train: Float[np.ndarray, "m n"],
    noise: float = 0.0,
) -> Float[np.ndarray, "m k"]:
    """K_* (K + noise)⁻¹ y: what training to the end predicts (from f(0) = 0), with the NTK.

    >>> kernel_regression(4 * np.eye(1), np.ones((1, 1)), np.ones((1, 1))).item()
    0.25
    """
    k_train, y, k_test_train = checks.dimensions(
        "kernel_regression", k_train=(k_train, "n n"), y=(y, "n k"), k_test_train=(k_test_train, "m n")
    )
    return k_test_train @ scipy.linalg.cho_solve(_factor(k_train, noise), y)
