"""Extrapolation to infinite width, the test against the limit, and power laws with bootstrap intervals."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

if TYPE_CHECKING:
    import scipy.stats

LACK_OF_FIT = 0.01  # the level at which residuals demand a 1/N² term
CURVED = 0.05  # the level at which a test of that term alone does, before a limit is rejected


@dataclasses.dataclass(frozen=True)
class Extrapolation:
    """mean(N) = a + b/N (+ c/N²): a [projection], its covariance and degrees of freedom, the model and its residuals."""

    a: np.ndarray
    cov: np.ndarray
    dof: float
    order: int
    fit_p: float
    slow: bool = False  # a + b/d + c/N, d the size of a head

    @property
    def model(self) -> str:
        """The fitted law."""
        return "a + b/d + c/N" if self.slow else ("a + b/N", "a + b/N + c/N²")[self.order - 1]

    @property
    def sem(self) -> np.ndarray:
        """Standard errors of a."""
        return np.sqrt(np.diag(self.cov))


def extrapolate(widths: Sequence[int], samples: Sequence[np.ndarray]) -> Extrapolation:
    """Fits the means over members, samples[i] = [members, projection] at widths[i], weighted by their precision.

    A 1/N² term is added if the residuals of a + b/N have probability below `LACK_OF_FIT` and four widths are there.

    >>> rng = np.random.default_rng(0)
    >>> data = [1 + 3 / n + rng.normal(size=(400, 2)) / n**0.5 for n in (16, 32, 64, 128)]
    >>> extrapolate((16, 32, 64, 128), data).model
    'a + b/N'
    """
    if len(widths) < 2:
        raise ValueError(f"Extrapolation in 1/N needs at least two widths, got {list(widths)}.")
    fit = _fit(widths, samples, 1)
    if fit.fit_p < LACK_OF_FIT and len(widths) >= 4:
        fit = _fit(widths, samples, 2)
    return fit


def extrapolate_curved(widths: Sequence[int], samples: Sequence[np.ndarray]) -> Extrapolation | None:
    """The fit with a 1/N² term, if that term differs from zero at the level `CURVED`; else None.

    For use before a rejection, which must not rest on a law that the means themselves speak against: residuals of all
    widths have little power against one small term, while a limit that is known well notices it.
    """
    if len(widths) < 4:
        return None
    bend = _fit(widths, samples, 2, which=2)
    return _fit(widths, samples, 2) if hotelling(bend.a, bend.cov, bend.dof)[1] < CURVED else None


def extrapolate_slow(
    widths: Sequence[int], samples: Sequence[np.ndarray], sizes: Sequence[float]
) -> Extrapolation | None:
    """The fit of a + b/d + c/N, d(N) the `sizes` of a head where these grow more slowly than N; None where widths do not tell.

    For use before a rejection: 1/d, about 1/√N, is the term that is left in the end, while that of 1/N may be the larger one at
    widths that can be trained.

    >>> data = [1 + 2 / d + 3 / n + np.zeros((9, 1)) + np.eye(9, 1) / 1e6 for n, d in ((16, 4), (32, 8), (64, 8))]
    >>> extrapolate_slow((16, 32, 64), data, (4, 8, 8)).a.round(4), extrapolate_slow((16, 64), data[::2], (4, 8))
    (array([1.]), None)
    """
    terms = min(sizes) / np.array(sizes, float)
    design = np.stack([np.ones(len(widths)), terms, min(widths) / np.array(widths, float)], axis=1)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    return dataclasses.replace(_fit_of(design, samples, 0), slow=True)


def _fit(widths: Sequence[int], samples: Sequence[np.ndarray], order: int, which: int = 0) -> Extrapolation:
    """The coefficient of N^(−which), in units of the smallest width, as `a`."""
    return _fit_of((min(widths) / np.array(widths, float))[:, None] ** np.arange(order + 1), samples, which)


def _fit_of(design: np.ndarray, samples: Sequence[np.ndarray], which: int) -> Extrapolation:
    """The coefficient of the column `which` of design [width, term] as `a`."""
    counts = np.array([len(s) for s in samples])
    means = np.stack([s.mean(0) for s in samples])
    covs = np.stack([np.atleast_2d(np.cov(s.T)) for s in samples]) / counts[:, None, None]
    scale = np.sqrt(np.einsum("wjj->j", covs) / len(samples)) + 1e-300
    spread = np.einsum("wjj,j->w", covs, scale**-2.0)  # one weight a width serves all projections
    weights = 1 / spread
    solve = np.linalg.solve(design.T @ (weights[:, None] * design), design.T * weights)
    coefficients = solve @ means
    share = solve[which] ** 2
    cov = np.einsum("w,wij->ij", share, covs)
    parts = share * spread
    dof = parts.sum() ** 2 / np.sum(parts**2 / (counts - 1))
    residuals, freedom = means - design @ coefficients, (len(samples) - design.shape[1]) * means.shape[1]
    fit_p = 1.0
    if freedom > 0:
        chi2 = sum(r @ np.linalg.pinv(c, rcond=1e-6, hermitian=True) @ r for r, c in zip(residuals, covs, strict=True))
        fit_p = float(scipy.stats.chi2.sf(chi2, freedom))
    return Extrapolation(coefficients[which], cov, float(dof), design.shape[1] - 1, fit_p)


def joint_dof(*parts: tuple[np.ndarray, float]) -> float:
    """Degrees of freedom of a sum of covariances of means, (covariance, how many were averaged); Welch, Satterthwaite.

    >>> joint_dof((np.eye(2), 11), (0 * np.eye(2), 3))
    10.0
    """
    traces = [(float(np.trace(cov)), max(count - 1, 1)) for cov, count in parts]
    return sum(trace for trace, _ in traces) ** 2 / sum(trace**2 / dof for trace, dof in traces)


def hotelling(difference: np.ndarray, cov: np.ndarray, dof: float) -> tuple[float, float, int]:
    """(T², probability under no difference, dimensions): projections that say the same are merged first.

    T² = dᵀ C⁻¹ d, compared with J dof / (dof − J + 1) F(J, dof − J + 1). Directions in which the correlation matrix has
    less than 1e-4 of its largest eigenvalue are dropped, and of few networks all but the dof / 2 that vary most: with J near dof
    a test rejects nothing (of 10 directions and 5 degrees of freedom .5 % where two of them reject 84 %).

    >>> hotelling(np.array([3.0]), np.array([[1.0]]), dof=1e9)[1] < 0.003
    True
    """
    scale = np.sqrt(np.diag(cov))
    if np.any(scale == 0):
        exact = scale == 0
        if np.any(np.abs(difference[exact]) > 1e-6 * np.abs(difference).max(initial=1e-300)) and exact.all():
            return float("inf"), 0.0, int(exact.sum())
        difference, cov, scale = difference[~exact], cov[np.ix_(~exact, ~exact)], scale[~exact]
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    keep = values > 1e-4 * values[-1]
    if keep.sum() > dof / 2:
        keep &= np.arange(len(values)) >= len(values) - max(1, int(dof // 2))
    rotated = (vectors.T @ (difference / scale))[keep]
    t2 = float(np.sum(rotated**2 / values[keep]))
    j = int(keep.sum())
    return t2, float(scipy.stats.f.sf(t2 * (dof - j + 1) / (j * dof), j, dof - j + 1)), j


@dataclasses.dataclass(frozen=True)
class PowerLaw:
    """value ~ x^exponent, with a 95 % bootstrap interval; `values` are what was fitted."""

    exponent: float
    low: float
    high: float
    values: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def meets(self, expected: float, tolerance: float, widest: float = 0.3) -> bool:
        """Whether the interval meets expected ± tolerance and is narrower than `widest`."""
        near = self.low <= expected + tolerance and self.high >= expected - tolerance
        return bool(near and self.high - self.low < widest)


def weighted_fit(terms: np.ndarray, values: np.ndarray, sem: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(coefficients [term, …], their covariance) of values [point, …] and terms [term, point], weighted with 1/sem²."""
    matrix = (terms / sem).T
    covariance = np.linalg.inv(matrix.T @ matrix)
    return covariance @ matrix.T @ (values / sem[:, None]), covariance


def slope(x: Any, y: Any) -> Any:
    """Of the straight line through (x, y), y [..., point], by least squares.

    >>> float(slope([0, 1, 2], [5.0, 7.0, 9.0]))
    2.0
    """
    away = np.asarray(x, float) - np.mean(x)
    return np.asarray(y) @ away / (away @ away)


def power_law(
    x: Sequence[float], samples: Sequence[np.ndarray], statistic: Any, draws: int = 400, seed: int = 0
) -> PowerLaw:
    """The slope of log statistic(members) against log x, members resampled within each x for the interval.

    statistic maps weighted members to a positive number: statistic(samples [members, …], weights [draw, members]).
    """
    random = np.random.default_rng(seed)
    tables = []
    for members in samples:
        m = len(members)
        resampled = random.multinomial(m, np.full(m, 1 / m), size=draws) / m
        tables.append(statistic(members, np.concatenate([np.full((1, m), 1 / m), resampled])))
    values = np.stack(tables, axis=1)  # [1 + draws, x]
    slopes = slope(np.log(x), np.log(np.maximum(values, 1e-300)))
    low, high = np.percentile(slopes[1:], [2.5, 97.5])
    return PowerLaw(float(slopes[0]), float(low), float(high), tuple(float(v) for v in values[0]))


def relative_variance(size: float) -> Any:
    """A statistic for `power_law`: the variances of the projections, summed, over size²."""

    def statistic(members: np.ndarray, weights: np.ndarray) -> np.ndarray:
        m = len(members)
        mean, square = weights @ members, weights @ members**2
        return (square - mean**2).sum(-1) * m / (m - 1) / size**2

    return statistic


def absolute_bias(limit: float) -> Any:
    """A statistic for `power_law`: |mean − limit| of one projection."""
    return lambda members, weights: np.abs(weights @ members - limit)
