"""How far networks of width N and depth L are from their limit, taken apart: scatter, and what width and depth do to the mean."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from train.evaluate.interval import Interval
from train.evaluate.statistics import weighted_fit

DRAWS = 200  # of the bootstrap over members

Samples = Mapping[tuple[int, int], Any]  # (N, L) → [member, point]


@dataclasses.dataclass(frozen=True)
class ErrorSurface:
    """Of networks f_NL and their limit f, over points:

        E(f_NL − f)² = (scatter + scatter_depth / L) / N + (bias)²,   bias = mean f_NL − f = w/N + d/L

    width and depth are the root mean squares of w and d over points, cross is the mean of w d. depth_exponent: e of
    |mean f_NL − f|² ~ L^(−e) at the largest width, whose own bias is left in (`ensembled` has the squares by depth).
    width_first, depth_first: the root mean square over points of what is left at infinite width and depth, f subtracted, after
    extrapolating in N at each L and then in L, and the other way round. Dropped: 1/N², 1/(NL), 1/L² in the mean, 1/N² in the
    scatter.

    Reference: Bordelon et al. (2023), Depthwise hyperparameter transfer in residual networks, equation 116.
    """

    scatter: Interval
    scatter_depth: Interval
    width: Interval
    depth: Interval
    cross: Interval
    depth_exponent: Interval
    width_first: Interval
    depth_first: Interval
    ensembled: tuple[float, ...]

    def predicted(self, n: Any, l: Any) -> Any:
        """E(f_NL − f)² as fitted, for widths and depths that broadcast."""
        n, l = np.asarray(n, float), np.asarray(l, float)
        bias = (self.width.value / n) ** 2 + (self.depth.value / l) ** 2 + 2 * self.cross.value / (n * l)
        return (self.scatter.value + self.scatter_depth.value / l) / n + bias

    @property
    def sentence(self) -> str:
        """In words."""
        return (
            f"single networks scatter by ({self.scatter} + {self.scatter_depth} / L) / N in square; the mean is off by "
            f"{self.width} / N and {self.depth} / L"
        )


def error_surface(samples: Samples, limit: Any) -> ErrorSurface:
    """The surface of `samples`, (N, L) → values [member, point], around the `limit` [point].

    >>> random = np.random.default_rng(0)
    >>> shape, sizes = (400, 3), [(n, l) for n in (16, 32, 64) for l in (4, 8, 16)]
    >>> samples = {(n, l): 1 + 0.5 / l + random.normal(size=shape) * (2 / n) ** 0.5 for n, l in sizes}
    >>> found = error_surface(samples, np.ones(3))
    >>> found.scatter.low < 2 < found.scatter.high, found.depth.low < 0.5 < found.depth.high
    (True, True)
    """
    sizes = {side: sorted({size[i] for size in samples}) for i, side in enumerate("NL")}
    missing = [(n, l) for n in sizes["N"] for l in sizes["L"] if (n, l) not in samples]
    if missing or min(map(len, sizes.values())) < 2:
        raise ValueError(
            f"An error surface takes at least two widths and two depths and all their pairs; got {sorted(samples)}."
        )
    away = {size: np.asarray(values, float) - np.asarray(limit, float) for size, values in samples.items()}
    value = _parts(away)
    random, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS):
        picks = {size: random.integers(len(values), size=len(values)) for size, values in away.items()}
        drawn.append(_parts({size: values[picks[size]] for size, values in away.items()}))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)  # not a number where one draw is none
    names = [field.name for field in dataclasses.fields(ErrorSurface)][:-1]
    parts = [Interval(*map(float, each)) for each in zip(value, low, high, strict=True)]
    squares = tuple(float(v) for v in ensembled(away))
    return ErrorSurface(**dict(zip(names, parts, strict=True)), ensembled=squares)


def ensembled(away: Samples) -> np.ndarray:
    """|mean over members|² by depth at the largest width, averaged over points, without what the scatter of the mean adds."""
    largest = max(n for n, _ in away)
    each = [values for (n, _), values in sorted(away.items(), key=lambda item: item[0][1]) if n == largest]
    return np.array([(f.mean(0) ** 2 - f.var(0, ddof=1) / len(f)).mean() for f in each])


def _parts(away: Samples) -> np.ndarray:
    """The numbers of `ErrorSurface`, in order."""
    n, l = np.array(list(away), float).T
    variance = np.array([f.var(0, ddof=1).mean() for f in away.values()])
    scatter, _ = weighted_fit(np.stack([1 / n, 1 / (n * l)]), variance[:, None], variance)
    means = np.stack([f.mean(0) for f in away.values()])
    noise = variance / [len(f) for f in away.values()]
    bias, covariance = weighted_fit(np.stack([1 / n, 1 / l]), means, noise**0.5)
    # A square of an estimate is too large by the estimate's variance.
    width, depth = np.sqrt(np.maximum((bias**2).mean(1) - np.diag(covariance), 0))
    cross = (bias[0] * bias[1]).mean() - covariance[0, 1]
    depths, squares = np.unique(l), ensembled(away)
    slope = -np.polyfit(np.log(depths), np.log(squares), 1)[0] if (squares > 0).all() else np.nan
    first = [_left(n, l, means, noise), _left(l, n, means, noise)]
    return np.array([*scatter[:, 0], width, depth, cross, slope, *first])


def _left(first: np.ndarray, second: np.ndarray, means: np.ndarray, noise: np.ndarray) -> float:
    """The root mean square over points of the limit in one size and then in the other."""

    def at_infinity(sizes: np.ndarray, values: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, float]:
        found, covariance = weighted_fit(np.stack([sizes**0, 1 / sizes]), values, variances**0.5)
        return found[0], covariance[0, 0]

    sizes = np.unique(second)
    each = [at_infinity(first[here], means[here], noise[here]) for here in (second == size for size in sizes)]
    rows, variances = map(np.array, zip(*each, strict=True))
    limit, variance = at_infinity(sizes, rows, variances)
    return float(np.sqrt(max((limit**2).mean() - variance, 0)))
