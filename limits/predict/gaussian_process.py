"""Exact inference with a kernel: Gaussian-process posterior and kernel regression."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float

from limits.predict.symmetry import check_symmetric
from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg
    import scipy.linalg.lapack


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
    check_symmetric("predict.draws", cov=cov)
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
    if not (np.ndim(noise) == 1 and checks.matrix.holds(noise)):
        raise ValueError(f"{owner}: noise must be a variance, or one a point as an array; got {checks.shown(noise)}.")
    noise = np.asarray(noise, float)
    if noise.shape != (points,):
        raise ValueError(
            f"{owner}: noise must be one variance ≥ 0, or one for each of the {points} training points; got "
            f"{checks.shown(noise)}."
        )
    bad = ~(np.isfinite(noise) & (noise >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"{owner}: noise must be variances, finite and ≥ 0, and noise[{first}] is {noise[first]:g} ({bad.sum()} of {points} "
            "points are not): give σ² of each point's noise, 0 where there is none."
        )
    return noise


def check_regular(owner: str, k: np.ndarray, noise: np.ndarray) -> None:
    """K + noise [n] must have an inverse that is more than rounding.

    Its least eigenvalue is compared with the rounding of K, and where that says no, with that of K + noise at unit diagonal,
    which is what a factorisation loses: inputs or noises of very different size do no harm.
    """
    values, a, rounding = np.linalg.eigvalsh(k), k + np.diag(noise), len(k) * np.finfo(float).eps
    if values[0] + noise.min() > rounding * values[-1] or _share(a) > rounding:
        return
    raise singular(owner, a, noise)


def singular(owner: str, a: np.ndarray, noise: np.ndarray) -> ValueError:
    """What is wrong with A = K + noise, and what to do."""
    values = np.linalg.eigvalsh(a)
    between = f"{noise.min():g}" if noise.min() == noise.max() else f"from {noise.min():g} to {noise.max():g}"
    return ValueError(
        f"{owner}: the training points' kernel plus noise is singular (eigenvalues {values[0]:.2e} to {values[-1]:.2e}, noise "
        f"{between}): two inputs coincide, the network is too deep to tell them apart, or the kernel is so smooth that rounding "
        "is more than its least eigenvalue. Raise the noise, or take inputs out."
    )


def _share(a: np.ndarray) -> float:
    """Least over largest eigenvalue at unit diagonal."""
    size = np.diagonal(a)
    if size.min() <= 0:
        return 0.0
    values = np.linalg.eigvalsh(a / np.sqrt(size[:, None] * size))
    return float(values[0] / values[-1])


def factorised(owner: str, k: np.ndarray, noise: np.ndarray) -> Any:
    """The Cholesky factor of K + noise [n]; raises where that is singular."""
    a = k + np.diag(noise)
    try:
        factor = scipy.linalg.cho_factor(a, lower=True)
    except np.linalg.LinAlgError as error:
        raise singular(owner, a, noise) from error
    # Eigenvalues cost several factorisations: they are asked for only where an estimate says that digits are lost.
    root = np.sqrt(np.diagonal(a))
    size = np.abs(a / (root[:, None] * root)).sum(0).max()
    scaled = np.tril(factor[0]) / root[:, None]
    share, _ = scipy.linalg.lapack.dpocon(scaled, size, uplo="L")  # pyright: ignore[reportAttributeAccessIssue]
    if share < 100 * len(a) * np.finfo(float).eps:
        check_regular(owner, k, noise)
    return factor


@checks.arguments()
def posterior(
    k_train: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    k_test_train: Float[np.ndarray, "m n"],
    k_test: Float[np.ndarray, "m m"],
    noise: Any = 0.0,
) -> GaussianPosterior:
    """Posterior of f given y = f + N(0, noise), for a prior with this kernel (the NNGP: a Bayesian network's posterior).

    It is the prior where there are no training points.

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
    check_symmetric("predict.posterior", k_train=k_train, k_test=k_test)
    variances = check_noise("predict.posterior", noise, len(k_train))
    if not len(y):
        return GaussianPosterior(np.zeros((len(k_test), y.shape[1])), (k_test + k_test.T) / 2, 0.0)
    factor = factorised("predict.posterior", k_train, variances)
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
    check_symmetric("kernel_regression", k_train=k_train)
    variances = check_noise("kernel_regression", noise, len(k_train))
    if not len(y):
        return np.zeros((len(k_test_train), y.shape[1]))
    factor = factorised("kernel_regression", k_train, variances)
    return k_test_train @ scipy.linalg.cho_solve(factor, y)
