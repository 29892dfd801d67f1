"""Spectra of kernels and of weights: effective ranks, and what a random matrix would have."""

from typing import Any

import numpy as np

from zoo import checks
from zoo.names import by_name

_TRACY_WIDOM = 2.0234  # its 99 % quantile, for real matrices


def eigenvalues(kernels: Any) -> np.ndarray:
    """Eigenvalues of symmetric kernels [..., n, n], largest first: [..., n].

    Of a kernel that was computed in float32, those below about 1e-7 of the largest are rounding.

    >>> eigenvalues(np.diag([1.0, 3.0, 2.0])).tolist()
    [3.0, 2.0, 1.0]
    """
    return np.linalg.eigvalsh(np.asarray(kernels, np.float64))[..., ::-1]


@checks.arguments(values=checks.array(least=1))
def effective_rank(values: Any) -> Any:
    """exp(−Σ p log p) with p = λ / Σλ, of eigenvalues [..., n] (negative ones, which are rounding, count as 0).

    >>> float(effective_rank([2.0, 2.0, 0.0]).round(12))
    2.0

    Reference: Roy, Vetterli (2007), The effective rank.
    """
    p = _shares(values)
    return np.exp(-np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))


@checks.arguments(values=checks.array(least=1))
def participation_ratio(values: Any) -> Any:
    """(Σλ)² / Σλ², of eigenvalues [..., n].

    >>> float(participation_ratio([2.0, 2.0, 0.0]).round(12))
    2.0
    """
    return 1 / np.sum(_shares(values) ** 2, axis=-1)


def _shares(values: Any) -> np.ndarray:
    positive = np.maximum(np.asarray(values, np.float64), 0.0)
    with np.errstate(invalid="ignore"):
        return positive / positive.sum(-1, keepdims=True)


@checks.arguments(kernels=checks.kernels & checks.array(least=2))
def spectrum(kernels: Any) -> dict[str, Any]:
    """`eigenvalues`, `effective_rank` and `participation_ratio` of kernels [..., n, n].

    >>> {name: value.tolist() for name, value in spectrum(np.diag([1.0, 0.0])).items()}
    {'eigenvalues': [1.0, 0.0], 'effective_rank': 1.0, 'participation_ratio': 1.0}
    """
    values = eigenvalues(kernels)
    return {
        "eigenvalues": values,
        "effective_rank": effective_rank(values),
        "participation_ratio": participation_ratio(values),
    }


def marchenko_pastur(rows: int, columns: int, variance: float = 1.0) -> tuple[float, float]:
    """The smallest and the largest singular value of a large matrix of independent entries: s |√rows ∓ √columns|.

    >>> marchenko_pastur(9, 4)
    (1.0, 5.0)
    """
    return variance**0.5 * abs(rows**0.5 - columns**0.5), variance**0.5 * (rows**0.5 + columns**0.5)


def outliers(singular: Any, rows: int, columns: int) -> int:
    """How many singular values a random matrix with entries of the same mean square would not have.

    The largest of a matrix with independent Gaussian entries of variance s² is √(μ + σ T) s with μ = (√(r − 1) + √c)²,
    σ = √μ (1/√(r − 1) + 1/√c)^{1/3} and T of Tracy and Widom's law: those above its 99 % quantile are counted.
    Large outliers are themselves part of the mean square, so that the count errs on the low side.

    Reference: Johnstone (2001), On the distribution of the largest eigenvalue in principal components analysis.
    """
    squares = np.asarray(singular, np.float64) ** 2
    r, c = max(rows, columns), min(rows, columns)
    if c < 2 or not squares.any():
        return 0  # one singular value is its own mean square
    root = (r - 1) ** 0.5 + c**0.5
    largest = root**2 + _TRACY_WIDOM * root * ((r - 1) ** -0.5 + c**-0.5) ** (1 / 3)
    return int(np.sum(squares / (squares.sum() / (rows * columns)) > largest))


@checks.arguments(params=checks.tree)
def weight_spectra(params: Any) -> dict[str, dict[str, Any]]:
    """Of every weight matrix by name: `singular_values` (largest first), `stable_rank` |W|²_F / |W|², `edge`, `outliers`.

    Weights are arrays of two axes or more, [window, fan-in, fan-out] as [window × fan-in, fan-out]; as they are stored,
    before multipliers of the forward pass. `edge` is the largest singular value that a random matrix with the same mean
    square has (`marchenko_pastur`), `outliers` how many lie clearly above it.

    >>> found = weight_spectra({"a": {"kernel": np.diag([2.0, 1.0]), "bias": np.ones(2)}})
    >>> list(found), found["a.kernel"]["stable_rank"], found["a.kernel"]["singular_values"].tolist()
    (['a.kernel'], 1.25, [2.0, 1.0])
    """
    found = {}
    for name, leaf in by_name(params).items():
        if np.ndim(leaf) < 2:
            continue
        matrix = np.asarray(leaf).reshape(-1, leaf.shape[-1])
        if not np.isfinite(matrix).all():
            raise FloatingPointError(f"weight_spectra: params hold numbers that are NaN or infinite, in {name}.")
        values = np.linalg.svd(matrix, compute_uv=False).astype(np.float64)
        mean_square = float(np.sum(values**2)) / matrix.size
        found[name.removeprefix("params.")] = {
            "singular_values": values,
            "stable_rank": float(np.sum(values**2) / values[0] ** 2) if values[0] > 0 else float("nan"),
            "edge": marchenko_pastur(*matrix.shape, variance=mean_square)[1],
            "outliers": outliers(values, *matrix.shape),
        }
    return found
