"""Curves of all sizes fitted together: one valley (`valley.py`) whose floor and place go with the size as a `Model` says.

The logarithm of the loss at log₂ value x is floor(size) + A g((x − place(size)) / spacing), with a shape g that all sizes
share. On a grid of shapes, places and drifts, everything linear (floor, A) is integrated out. Noise: of every point its own
over seeds, as in `valley`; of every size the spread of its seeds' offsets, the part that seeds have in common over sizes (the
order of their data) in all of them; and no expansion is exact: A may differ from size to size by `AMPLITUDE`. How probable
all this is: Student's t.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from train.transfer.expansion import REMAINDER, Axis, Model, Size, columns, distances
from train.transfer.shapes import MOST, own_shapes, shape_shares, shapes_at
from train.transfer.sweep import Sweep
from train.transfer.valley import FREEDOM, Near, near

AMPLITUDE = 0.15
COMMON = 2.5  # what a shape misses at one value in all sizes alike, over what it misses at one size
DRIFT = 1.0  # octaves from the smallest to the largest size: how far an optimum is expected to move
MOST_FREEDOM = 12.0  # of the noise: where a model misses more than it, its intervals widen
REACH, COARSE, FINE = (
    2.5,
    3,
    14,
)  # the first grid, in spacings around what is measured and points a spacing; points after zooming
KEPT = 1e-4  # of the largest weight: what is zoomed to


@dataclasses.dataclass(frozen=True)
class Curve:
    """One size: the points near its optimum, the variance of its seeds' offsets, and the number of seeds."""

    size: Size
    near: Near
    offsets: np.ndarray

    @classmethod
    def of(cls, size: Size, near: Near) -> "Curve":
        """Offsets weigh points by their noise."""
        away, weights = near.values - near.means[:, None], 1 / (near.variance + 1e-24)
        return cls(size, near, (away * weights[:, None]).sum(0) / weights.sum())

    @classmethod
    def all(cls, sweeps: Mapping[Size, Sweep]) -> "list[Curve]":
        """Of all sizes, without those that diverge at every value."""
        found = {size: near(np.log2(sweep.rates), sweep.losses, wide=True) for size, sweep in sorted(sweeps.items())}
        return [cls.of(size, each) for size, each in found.items() if each is not None]

    @property
    def finite(self) -> bool:
        """Whether it is of networks, not of their limit."""
        return math.isfinite(self.size[0])

    @property
    def best(self) -> float:
        """The least point."""
        return float(self.near.x[int(np.argmin(self.near.means))])


def offset_variances(curves: Sequence[Curve]) -> np.ndarray:
    """The covariance [size, size] of the sizes' means over seeds, from the spread of the seeds' offsets."""
    own = np.array([(c.offsets**2).sum() for c in curves])
    free = np.array([len(c.offsets) - 1 for c in curves], float)
    finite = np.array([c.finite for c in curves])
    pooled = own[finite].sum() / max(free[finite].sum(), 1) if finite.any() else 0.0
    variance = np.where(finite, (own + 2 * pooled) / (free + 2), own / np.maximum(free, 1))
    found = np.diag(variance / (free + 1))
    pairs = [
        (i, j)
        for i, j in itertools.combinations(np.flatnonzero(finite).tolist(), 2)
        if len(curves[i].offsets) == len(curves[j].offsets)
    ]
    if len(pairs) and len(curves[pairs[0][0]].offsets) > 1:
        shared = np.mean([(curves[i].offsets @ curves[j].offsets) / free[i] for i, j in pairs])
        shared = float(np.clip(shared, 0.0, variance[finite].min()))
        for i, j in pairs:
            found[i, j] = found[j, i] = shared / (free[i] + 1)
    return found


@dataclasses.dataclass(frozen=True)
class JointFit:
    """A model, fitted: `evidence`: the logarithm of how probable the data are; `misfit`, `freedom`: the χ² of its best candidate.

    grid: [candidate, place and drifts], cell: how far apart; weights [shape, candidate].
    """

    model: Model
    axes: tuple[Axis, ...]
    evidence: float
    misfit: float
    freedom: float
    grid: np.ndarray
    cell: np.ndarray
    weights: np.ndarray
    system: "_System"

    def draws(self, count: int, random: np.random.Generator) -> "DrawnSizes":
        """Curves as probable as the data leave them."""
        shape, candidate = np.divmod(random.choice(self.weights.size, count, p=self.weights.ravel()), len(self.grid))
        places = self.grid[candidate] + self.cell * (random.random((count, self.grid.shape[1])) - 0.5)
        drawn = self.system.drawn(places, shape, random)
        return DrawnSizes(self.model, self.axes, self.system.spacing, places, shape, *drawn)

    def shares(self, size: Size) -> np.ndarray:
        """By how much the floor there rises with all points of one curve, [curve], at the most probable candidate: 1 in all."""
        shape, candidate = np.divmod(int(self.weights.argmax()), len(self.grid))
        plain, more = columns(self.axes, [size], self.model.floor)
        return self.system.shares(self.grid[[candidate]], np.array([shape]), np.concatenate([plain, more], axis=1)[0])


@dataclasses.dataclass(frozen=True)
class DrawnSizes:
    """Of a model: (place at the largest size, drifts) [draw, …], number of the shape, A, the floor's coefficients, and how much
    larger errors are than they were taken to be."""

    model: Model
    axes: tuple[Axis, ...]
    spacing: float
    places: np.ndarray
    shape: np.ndarray
    height: np.ndarray
    beta: np.ndarray
    scale: np.ndarray

    def floor(self, size: Size) -> np.ndarray:
        """The logarithm of the least loss, [draw]."""
        plain, more = columns(self.axes, [size], self.model.floor)
        return self.beta @ np.concatenate([plain, more], axis=1)[0]

    def place(self, size: Size) -> np.ndarray:
        """log₂ of the best value, [draw]."""
        return self.places[:, 0] + self.places[:, 1:] @ distances(self.axes, [size], self.model.drift)[0]

    def cost(self, x: np.ndarray, size: Size) -> np.ndarray:
        """The logarithm of the loss at each x over the least one, [draw, x]; at most `MOST`."""
        every = own_shapes(np.asarray(x, float) - self.place(size)[:, None], self.spacing, self.shape)
        return np.minimum(self.height[:, None] * every, MOST)


class _System:
    """The linear part: points of all curves, whitened, and columns of the floor."""

    def __init__(self, curves: Sequence[Curve], axes: Sequence[Axis], model: Model, slope: float) -> None:
        sizes, counts = [c.size for c in curves], [len(c.near.x) for c in curves]
        rows = np.repeat(np.arange(len(curves)), counts)
        self.spacing = float(np.median([c.near.spacing for c in curves]))
        self.x = np.concatenate([c.near.x for c in curves])
        self.far = distances(axes, sizes, model.drift)[rows]
        self.own = rows[:, None] == np.arange(len(curves))
        rise = np.concatenate([c.near.rise for c in curves])
        covariance = offset_variances(curves)[np.ix_(rows, rows)]
        same = rows[:, None] == rows
        covariance = covariance + np.where(same, np.outer(rise, rise) * (AMPLITUDE**2 if len(curves) > 1 else 0.0), 0.0)
        missed = COMMON * np.sqrt(np.concatenate([c.near.misfit for c in curves]))
        alike = np.isclose(self.x[:, None], self.x, atol=min(c.near.finest for c in curves) / 4)
        covariance = covariance + np.where(alike, np.outer(missed, missed), 0.0)
        start = 0
        for c, n in zip(curves, counts, strict=True):
            covariance[start : start + n, start : start + n] += c.near.covariance
            start += n
        self.whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        plain, more = columns(axes, sizes, model.floor)
        tight = 1 / max(REMAINDER * slope, 1e-9)
        ridge = np.zeros((more.shape[1], plain.shape[1] + more.shape[1]))
        ridge[:, plain.shape[1] :] = tight * np.eye(more.shape[1])
        wide = np.concatenate([self.whiten @ np.concatenate([plain, more], axis=1)[rows], ridge])
        self.q, self.r = np.linalg.qr(wide)
        self.y = np.concatenate([self.whiten @ np.concatenate([c.near.means for c in curves]), np.zeros(len(ridge))])
        self.left = self.y - self.q @ (self.q.T @ self.y)
        self.points, self.known = len(self.x), plain.shape[1] + 1
        self.freedom = FREEDOM + min(sum(c.near.freedom for c in curves), MOST_FREEDOM)
        self.constant = len(ridge) * math.log(tight) - float(np.log(np.abs(np.diag(self.r))).sum())

    def columns(self, places: np.ndarray) -> np.ndarray:
        """Distances from the minimum, [candidate, point]."""
        return self.x - places[:, :1] - places[:, 1:] @ self.far.T

    def _freed(self, shape: np.ndarray) -> np.ndarray:
        """Whitened values of a shape [candidate, point], and what the floor's columns leave of them."""
        white = np.concatenate([shape @ self.whiten.T, np.zeros((len(shape), len(self.y) - self.points))], axis=1)
        return white - (white @ self.q) @ self.q.T

    def scores(self, places: np.ndarray, among: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(logarithms of weights, χ²) [shape, candidate] of the shapes among which it is; others have no weight."""
        shares, which = shape_shares(), np.flatnonzero(among)
        scores, misfits = np.full((2, len(shares), len(places)), -np.inf)
        for i, shape in zip(which, shapes_at(self.columns(places), self.spacing, which), strict=True):
            freed = self._freed(shape)
            information = np.maximum((freed**2).sum(1), 1e-300)
            along = freed @ self.left
            left = np.maximum(self.left @ self.left - along**2 / information, 0.0)
            power = (self.freedom + self.points - self.known) / 2
            upward = (1 + np.tanh(0.8 * along / np.sqrt(information))) / 2
            scores[i] = (
                -power * np.log1p(left / self.freedom) + np.log(np.maximum(upward, 1e-300)) + math.log(shares[i])
            )
            misfits[i] = left
        return scores, misfits

    def drawn(
        self, places: np.ndarray, shape: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(A, coefficients of the floor, scale of all errors), a draw for each place and shape."""
        every = own_shapes(self.columns(places), self.spacing, shape)
        freed = self._freed(every)
        information = np.maximum((freed**2).sum(1), 1e-300)
        best = freed @ self.left / information
        left = np.maximum(self.left @ self.left - best**2 * information, 0.0)
        scale = np.sqrt((self.freedom + left) / random.chisquare(self.freedom + self.points - self.known, len(best)))
        height = np.maximum(best + scale * random.normal(size=len(best)) / np.sqrt(information), 0.0)
        white = every @ self.whiten.T
        target = self.q.T @ self.y - height[:, None] * (white @ self.q[: self.points])
        noise = scale[:, None] * random.normal(size=target.shape)
        return height, np.linalg.solve(self.r, (target + noise).T).T, scale

    def shares(self, places: np.ndarray, shape: np.ndarray, at: np.ndarray) -> np.ndarray:
        """By how much `at` times the floor's coefficients rises with all points of one curve, [curve], at one candidate."""
        above = np.zeros((len(self.y), 1 + self.own.shape[1]))
        above[: self.points] = self.whiten @ np.column_stack(
            [own_shapes(self.columns(places), self.spacing, shape)[0], self.own]
        )
        found = np.linalg.lstsq(np.column_stack([above[:, 0], self.q @ self.r]), above[:, 1:], rcond=None)[0]
        return at @ found[1:]


def fit(curves: Sequence[Curve], model: Model) -> JointFit:
    """Of curves of one size or several."""
    axes = Axis.of([c.size for c in curves])
    system = _System(curves, axes, model, _slope(curves, axes, model))
    allowed = _walls(curves, axes, model)
    last = max([c for c in curves if c.finite] or curves, key=lambda c: c.size)
    middle, near = [last.best], [c for c in curves if c.finite]
    for axis in axes:
        ends = [np.mean([c.best for c in near if axis.size(c.size) == end]) for end in (axis.first, axis.last)]
        middle.append(float(ends[1] - ends[0]))
    step = 1 / COARSE if len(middle) < 3 else 1 / 2
    lines = [m + system.spacing * np.arange(-REACH, REACH + 1e-9, step) for m in middle]
    among = np.full(len(shape_shares()), True)
    for _ in range(4):
        cell = np.array([line[1] - line[0] for line in lines])
        grid = np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(lines))
        scores, misfits = system.scores(grid, among)
        prior = -0.5 * ((grid[:, 1:] / DRIFT) ** 2).sum(1) - (len(lines) - 1) * math.log(DRIFT)
        scores = scores + np.where(allowed(grid), prior, -np.inf)
        if not np.isfinite(scores).any():
            raise ValueError("The optima lie where other sizes diverge: their curves have nothing in common.")
        weights = np.exp(scores - scores.max())
        each, among = weights.sum(0), weights.max(1) > KEPT
        kept = grid[each > KEPT * each.max()]
        box = [(kept[:, i].min() - cell[i], kept[:, i].max() + cell[i]) for i in range(len(lines))]
        count = FINE if len(lines) < 3 else FINE // 2 + 3
        finer = [np.linspace(low, high, count) for low, high in box]
        if all(line[1] - line[0] > 0.8 * c for line, c in zip(finer, cell, strict=True)):
            break
        lines = finer
    evidence = float(scores.max() + math.log(weights.sum()) + np.log(cell).sum()) + system.constant
    best = float(misfits.ravel()[int(np.argmax(scores))])
    free = system.points - system.known - len(lines)
    return JointFit(model, tuple(axes), evidence, best, free, grid, cell, weights / weights.sum(), system)


def _slope(curves: Sequence[Curve], axes: Sequence[Axis], model: Model) -> float:
    """How large b is, roughly: from the least points of the curves, and their errors."""
    if not axes:
        return 0.0
    plain, _ = columns(axes, [c.size for c in curves], model.floor)
    floors = np.array([c.near.means.min() for c in curves])
    slope = np.linalg.lstsq(plain, floors, rcond=None)[0][1:]
    errors = np.sqrt(np.diag(offset_variances(curves)).mean())
    return float(np.hypot(np.abs(slope).max(), errors))


def _walls(curves: Sequence[Curve], axes: Sequence[Axis], model: Model):
    """Whether every size's optimum lies before what diverges there, [candidate]."""
    far = distances(axes, [c.size for c in curves], model.drift)
    low, high = np.array([c.near.walls for c in curves]).T

    def allowed(grid: np.ndarray) -> np.ndarray:
        places = grid[:, :1] + grid[:, 1:] @ far.T
        return ((places > low) & (places < high)).all(1)

    return allowed
