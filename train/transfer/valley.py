"""Where a noisy curve is least: how probable every place of its minimum is, given its values at the points of a grid.

The logarithm of the loss is c + a g(x − x₀) near its minimum x₀, with a > 0 and a shape g of `shapes.py`. c and a are integrated
out, shapes are averaged over. The spread of x₀ is what data and grid leave open: noise (variances over seeds, pooled over
neighbouring points, Student's t with their degrees of freedom), slopes in which seeds differ, and between two points of the grid,
which of the shapes it is.
"""

import dataclasses
import math

import numpy as np

from train.transfer.shapes import COARSE, own_shapes, shape_shares, shapes_at

# No shape is exact: of the rise of a point over the least one, and of that of the least one's neighbours. Where points are closer
# around the optimum than elsewhere, it grows with the square of how much farther others are; so it does with spacings of more
# than an octave, up to a share. Valleys are narrower than some grids (half decades, powers of 4), and not even inside of them.
# Where the loss is many times the least one, it grows with the logarithm; losses that are not all positive have a unit of their
# own, which no number is to be held against.
MISFIT, MOST_MISFIT, HIGHER = 0.03, 0.15, 0.5
POOLED = 2.0  # degrees of freedom by which a point's variance is drawn to that of all points
FREEDOM = 4.0  # of the fit besides those of the seeds
FINE, FINEST, MOST_PLACES = 8, 40, 4096  # places between the closest points, and in all: of the likely ones, at first
KEPT = 1e-5  # of the largest weight: places that are looked at more closely
BEYOND = 2.0  # spacings beyond the points that are fitted
SIGNIFICANT = 2.0  # standard errors above the least point: what is lower may be the least one as well
BESIDE = 2  # points on both sides of what may be the least one


@dataclasses.dataclass(frozen=True)
class Valley:
    """The minimum of a curve: `weights` [shape, place] of `places`, with the slope a, its error, and the floor c for each.

    `x`, `rise`: the points fitted, and by how much they lie above the least one; `ends`: those of the whole grid.
    """

    places: np.ndarray
    weights: np.ndarray
    slopes: np.ndarray
    errors: np.ndarray
    floor: np.ndarray
    x: np.ndarray
    rise: np.ndarray
    spacing: float
    ends: tuple[float, float]

    def quantile(self, level: float) -> float:
        """Of the place; infinite beyond an end of the grid, where nothing was measured."""
        chances = np.concatenate([[0.0], np.cumsum(self.weights.sum(0))])
        step = self.places[1] - self.places[0]
        place = float(np.interp(level, chances, np.append(self.places - step / 2, self.places[-1] + step / 2)))
        return -math.inf if place < self.ends[0] else math.inf if place > self.ends[1] else place

    def draws(self, count: int, seed: int) -> "Drawn":
        """Places and curves as probable as the data leave them."""
        random = np.random.default_rng(seed)
        shape, place = np.divmod(random.choice(self.weights.size, count, p=self.weights.ravel()), len(self.places))
        within = (self.places[1] - self.places[0]) * (random.random(count) - 0.5)
        slopes = self.slopes[shape, place] + self.errors[shape, place] * random.normal(size=count)
        return Drawn(self, self.places[place] + within, shape, np.maximum(slopes, 0.0), self.floor[shape, place])


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Draws of a `Valley`: place, number of the shape, a and c."""

    valley: Valley
    place: np.ndarray
    shape: np.ndarray
    slopes: np.ndarray
    floor: np.ndarray

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(lowest, highest) place of every draw: they differ beyond an end of the grid only, where it may lie anywhere."""
        (first, last), place = self.valley.ends, self.place
        lowest = np.where(place < first, -np.inf, np.minimum(place, last))
        return lowest, np.where(place > last, np.inf, np.maximum(place, first))

    def curve(self, x: np.ndarray) -> np.ndarray:
        """The logarithm of the loss at one place for each draw, above that of the least point."""
        return self.floor + self.slopes * own_shapes(x - self.place, self.valley.spacing, self.shape)

    def height(self, x: np.ndarray) -> np.ndarray:
        """The same, through the points that were fitted; NaN beyond them."""
        points = self.valley.x
        missed = np.stack([y - self.curve(np.full_like(x, at)) for at, y in zip(points, self.valley.rise, strict=True)])
        right = np.clip(np.searchsorted(points, x), 1, len(points) - 1) if len(points) > 1 else np.zeros(len(x), int)
        left = np.maximum(right - 1, 0)
        part = (x - points[left]) / np.where(right > left, points[right] - points[left], 1.0)
        draw = np.arange(len(x))
        found = self.curve(x) + (1 - part) * missed[left, draw] + part * missed[right, draw]
        return np.where((x >= points[0]) & (x <= points[-1]), found, np.nan)


def valley(x: np.ndarray, losses: np.ndarray) -> Valley | None:
    """From losses [point, seed] over ascending x; None where no point has a finite loss at all seeds, or there is one point only.

    A point at which a seed diverged is a wall: the minimum lies before it.

    >>> x = np.arange(-4.0, 5.0)
    >>> found = valley(x, np.exp(0.3 * (x[:, None] - 0.4) ** 2) * np.array([1.0, 1.1]))
    >>> abs(found.quantile(0.5) - 0.4) < 0.1
    True
    """
    found = near(x, losses)
    if found is None:
        return None
    points, spacing = found.x, found.spacing
    low, high = max(points[0] - BEYOND * spacing, found.walls[0]), min(points[-1] + BEYOND * spacing, found.walls[1])
    count = min(max(round((high - low) / found.finest * FINE), 2), MOST_PLACES)
    precision = np.linalg.inv(found.covariance)
    while True:
        cell = (high - low) / count
        places = low + (np.arange(count) + 0.5) * cell
        shapes = shapes_at(points - places[:, None], spacing)
        fitted = _posterior(shapes, found.rise, precision, found.freedom + FREEDOM)
        likely = np.flatnonzero(fitted[0].sum(0) > KEPT * fitted[0].sum(0).max())
        low, high = max(low, places[likely[0]] - 1.5 * cell), min(high, places[likely[-1]] + 1.5 * cell)
        count = min(max(2 * len(likely), FINEST), count)
        if (high - low) / count > 0.8 * cell:
            return Valley(places, *fitted, points, found.rise, spacing, (float(x[0]), float(x[-1])))


@dataclasses.dataclass(frozen=True)
class Near:
    """The points that are fitted: `means` over seeds of `values` [point, seed], by how much they `rise` above the least one,
    their `covariance` but for offsets of the seeds, with `freedom`; `variance` of one run; `walls`: what diverges on both sides,
    infinite where nothing does; `last`: the point before the right one; `spacing`, `finest`: how far neighbours are apart, what
    shapes go by and the least.
    """

    x: np.ndarray
    values: np.ndarray
    covariance: np.ndarray
    misfit: np.ndarray
    variance: np.ndarray
    freedom: float
    walls: tuple[float, float]
    last: float
    spacing: float
    finest: float

    @property
    def means(self) -> np.ndarray:
        """Over seeds."""
        return self.values.mean(1)

    @property
    def rise(self) -> np.ndarray:
        """Above the least point."""
        return self.means - self.means.min()


def near(x: np.ndarray, losses: np.ndarray, wide: bool = False) -> Near | None:
    """What of losses [point, seed] is fitted, see `valley`.

    wide: for curves of several sizes that are fitted together, and say of each other how exact a shape is: where points are
    closer somewhere than elsewhere, as far as `BESIDE` of the largest spacings, in spacings that are the median of all.
    """
    stable = np.asarray(np.isfinite(losses).all(axis=1))
    if not stable.any() or len(x) < 2:
        return None
    values = logarithm(losses)
    means = np.where(stable, np.where(stable[:, None], values, 0.0).mean(1), np.inf)
    best = int(np.argmin(means))
    first, last = between_walls(stable, best)
    reach = BESIDE * float(np.diff(x[first : last + 1]).max(initial=0.0)) * (1 + 1e-6) if wide else 0.0
    left, right = _window(x, values, means, best, first, last, reach)
    part = slice(left, right + 1)
    variance, freedom, residuals = _noise(values[part])
    rise, points, seeds = means[part] - means[best], x[part], losses.shape[1]
    gaps = np.diff(points) if len(points) > 1 else np.diff(x)
    spacing = float(np.median(np.diff(x)) if wide else max(gaps.min(), np.median(gaps) / 2))
    far = (
        np.ones(len(points))
        if wide
        else _far(points, rise, np.sqrt((variance + variance[best - left]) / seeds), spacing)
    )
    beside = rise[[i for i in (best - left - 1, best - left + 1) if 0 <= i < len(rise)]]
    share = max(min(MISFIT * (spacing / COARSE) ** 2, MOST_MISFIT), MISFIT)
    higher = 1 + HIGHER * rise if positive(losses) else 1.0
    misfit = (share * far**2 * rise * higher) ** 2 + (share * (beside.mean() if beside.size else 0.0)) ** 2
    covariance = np.diag(variance / seeds + misfit + 1e-24) + _common_slope(points, variance, residuals) / seeds
    walls = float(x[first - 1]) if first > 0 else -math.inf, float(x[last + 1]) if last < len(x) - 1 else math.inf
    return Near(
        points, values[part], covariance, misfit, variance, freedom, walls, float(x[last]), spacing, float(gaps.min())
    )


def _far(points: np.ndarray, rise: np.ndarray, error: np.ndarray, spacing: float) -> np.ndarray:
    """How much farther points are from what may be the least one than they would be were all as close as there: 1 or more."""
    lowest = np.flatnonzero(rise <= SIGNIFICANT * error)
    first, last, number = int(lowest[0]), int(lowest[-1]), np.arange(len(points))
    away = np.maximum(np.maximum(points[first] - points, points - points[last]), 0.0)
    between = np.maximum(np.maximum(first - number, number - last), BESIDE)
    return np.maximum(away / (between * spacing * (1 + 1e-6)), 1.0)


def logarithm(losses: np.ndarray) -> np.ndarray:
    """Of losses; themselves where one is not positive."""
    finite = np.where(np.isfinite(losses), losses, 1.0)
    return np.where(np.isfinite(losses), np.log(finite) if positive(losses) else finite, np.inf)


def positive(losses: np.ndarray) -> bool:
    """Whether all losses that are numbers are positive."""
    return bool((np.where(np.isfinite(losses), losses, 1.0) > 0).all())


def between_walls(stable: np.ndarray, best: int) -> tuple[int, int]:
    """The first and the last of the stable points around the best one."""
    walls = np.flatnonzero(~stable)
    return int(max(walls[walls < best], default=-1)) + 1, int(min(walls[walls > best], default=len(stable))) - 1


def _window(
    x: np.ndarray, values: np.ndarray, means: np.ndarray, best: int, first: int, last: int, reach: float
) -> tuple[int, int]:
    """The points that are fitted: all that may be the least one, and beside `BESIDE` points, or as many octaves as `reach`; what
    is farther has another shape."""

    def beside(point: int) -> tuple[int, int]:
        near = np.flatnonzero(np.abs(x - x[point]) <= reach)
        return max(min(point - BESIDE, int(near[0])), first), min(max(point + BESIDE, int(near[-1])), last)

    left, right = beside(best)
    while True:
        variance, _, _ = _noise(values[left : right + 1])
        error = np.sqrt((variance + variance[best - left]) / values.shape[1])
        low = np.flatnonzero(means[left : right + 1] - means[best] <= SIGNIFICANT * error)
        ends = beside(left + int(low[0])), beside(left + int(low[-1]))
        wider = min(left, ends[0][0]), max(right, ends[1][1])
        if wider == (left, right):
            return left, right
        left, right = wider


def _noise(values: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """(variance of one run at every point, degrees of freedom, residuals) of values [point, seed] without the seeds' offsets."""
    points, seeds = values.shape
    if seeds == 1 or points == 1:
        return np.zeros(points), 0.0, np.zeros_like(values)
    away, variance = values - values.mean(1, keepdims=True), np.ones(points)
    freedom, near = (seeds - 1) * (points - 1) / points, np.abs(np.subtract.outer(range(points), range(points))) <= 1
    residuals = away
    for _ in range(2):  # offsets weigh the points by their noise
        residuals = away - (away / variance[:, None]).sum(0) / (1 / variance).sum()
        squares = (residuals**2).sum(1)
        variance = (near @ squares + POOLED * squares.mean() / freedom) / (freedom * near.sum(1) + POOLED) + 1e-24
    return variance, freedom * points, residuals


def _common_slope(x: np.ndarray, variance: np.ndarray, residuals: np.ndarray) -> np.ndarray:
    """The covariance [point, point] of slopes in which seeds differ more than the noise makes them."""
    seeds = residuals.shape[1]
    if seeds == 1 or len(x) < 3:
        return np.zeros((len(x), len(x)))
    away = x - (x / variance).sum() / (1 / variance).sum()
    weight = (away**2 / variance).sum()
    slopes = (residuals * (away / variance)[:, None]).sum(0) / weight
    return max(slopes.var(ddof=1) - 1 / weight, 0.0) * np.outer(away, away)


def _posterior(
    shapes: np.ndarray, rise: np.ndarray, precision: np.ndarray, freedom: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(weights, a, error of a, floor), [shape, place]: Student's t of what the best c and a leave, times the chance of a > 0."""
    total = precision.sum(0)
    free = precision - np.outer(total, total) / total.sum()  # of the constant
    scores = shapes @ free
    information = np.maximum((scores * shapes).sum(-1), 1e-300)
    along = scores @ rise
    slopes, left = along / information, rise @ free @ rise - along**2 / information
    kernel = -(freedom + len(rise) - 2) / 2 * np.log1p(np.maximum(left, 0.0) / freedom)
    upward = (1 + np.tanh(0.8 * slopes * np.sqrt(information))) / 2  # the normal distribution's, nearly
    weights = np.exp(kernel - kernel.max()) * upward * shape_shares()[:, None]
    floor = (total @ rise - slopes * (shapes @ total)) / total.sum()
    return weights / weights.sum(), slopes, information**-0.5, floor
