"""One size: losses over a grid of learning rates, and the optimum among them."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo import checks

DRAWS = 1000  # of the bootstrap over seeds
LOST = 10.0  # times the loss at the start: a run that ends above it has diverged


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best learning rate (log₂; NaN where all diverge), the least loss on the grid; `edge`: the grid ends there."""

    log_rate: float
    loss: float
    edge: bool

    @property
    def rate(self) -> float:
        """The learning rate."""
        return 2.0**self.log_rate


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Losses of one size: `curves` [rate, seed, step], infinite from the step on at which a run became infinite.

    `rates` may be the values of any positive hyperparameter. Width infinity: the limit, where replicas take the place of
    seeds.
    """

    width: float
    depth: int
    rates: np.ndarray
    curves: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """The mean over the last tenth of the steps, [rate, seed]; infinite for runs that diverged.

        Diverged: the loss is infinite, or ends above ten times what it was at the start.
        """
        return self.until(self.curves.shape[-1])

    def until(self, step: int) -> np.ndarray:
        """What `losses` would be, had training ended after so many steps."""
        end = self.curves[..., step - max(step // 10, 1) : step].mean(-1)
        return np.where(end > LOST * abs(self.curves[..., 0]), np.inf, end)

    @property
    def diverged(self) -> np.ndarray:
        """How many seeds diverged at each rate."""
        return np.sum(~np.isfinite(self.losses), axis=1)

    def optimum(self, seeds: Any = slice(None)) -> Optimum:
        """Of the mean loss over these seeds."""
        return optimum(self.rates, self.losses[:, seeds].mean(1))

    def optima(self, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
        """log₂ of the optimum for seeds drawn with replacement, [draw]."""
        count = self.losses.shape[1]
        drawn = np.random.default_rng(seed).integers(count, size=(draws, count))
        return minimum(np.log2(self.rates), self.losses[:, drawn].mean(-1).T)[0]

    def interval(self) -> tuple[float, float]:
        """A 95 % interval of the optimal rate, by bootstrap over seeds."""
        places = self.optima()
        if not np.isfinite(places).any():
            return math.nan, math.nan
        low, high = 2.0 ** np.nanpercentile(places, [2.5, 97.5])
        return float(low), float(high)

    def moving_optimum(self, points: int = 24) -> tuple[np.ndarray, np.ndarray]:
        """(steps, log₂ of the optimum had training ended there)."""
        steps = np.unique(np.linspace(self.curves.shape[-1] / points, self.curves.shape[-1], points).astype(int))
        steps = steps[steps > 0]
        means = np.stack([self.until(step).mean(1) for step in steps.tolist()])
        return steps, minimum(np.log2(self.rates), means)[0]

    def settled(self, octaves: float = 1.0) -> int:
        """Early selection: the step from which on the optimum stays within so many octaves of the final one."""
        steps, path = self.moving_optimum()
        away = ~(np.abs(path - path[-1]) <= octaves)
        if away[-1]:
            return int(steps[-1])  # everything diverged
        return int(steps[np.flatnonzero(away)[-1] + 1]) if away.any() else int(steps[0])


@checks.arguments(
    rates=checks.several(checks.number(0), distinct=True),
    losses=checks.Check("an array [seed, rate] of numbers", lambda v: np.ndim(v) == 2 and np.size(v)),
)
def optimum(rates: Sequence[float] | np.ndarray, losses: np.ndarray) -> Optimum:
    """The minimum of the parabola in log₂ rate through the least loss and its neighbours.

    Beside a diverged rate, or at an end of the grid, it is the grid point itself.

    >>> optimum([0.25, 0.5, 1.0], np.array([2.0, 1.0, 2.0])).rate
    0.5
    """
    place, loss, edge = minimum(np.log2(np.asarray(rates, float)), np.asarray(losses, float)[None])
    return Optimum(float(place[0]), float(loss[0]), bool(edge[0]))


def minimum(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(place by a parabola, least loss on the grid, whether at an end) of the minimum of every row, [row]."""
    best = np.argmin(losses, axis=1)
    least = np.take_along_axis(losses, best[:, None], 1)[:, 0]
    edge = (best == 0) | (best == len(x) - 1) | ~np.isfinite(least)
    on_grid = np.where(np.isfinite(least), x[best], np.nan)
    if len(x) < 3:
        return on_grid, least, edge
    inner = np.clip(best, 1, len(x) - 2)
    (x0, x1, x2), (y0, y1, y2) = (
        (x[inner - 1], x[inner], x[inner + 1]),
        (np.take_along_axis(losses, (inner + i)[:, None], 1)[:, 0] for i in (-1, 0, 1)),
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
        a = (second - first) / (x2 - x0)
        place = (x0 + x1) / 2 - first / (2 * a)
    smooth = ~edge & np.isfinite(y0 + y2) & (a > 0)
    return np.where(smooth, place, on_grid), least, edge


@checks.arguments(rates=checks.array(None), log_rate=checks.number())
def loss_at(rates: np.ndarray, losses: np.ndarray, log_rate: Any) -> float:
    """The loss at a rate between those of the grid, by a straight line in log₂ rate; beside divergence the nearer one's."""
    x = np.log2(rates)
    if not np.isfinite(log_rate):
        return math.inf
    if len(x) == 1:
        return float(losses[0])
    right = int(np.clip(np.searchsorted(x, log_rate), 1, len(x) - 1))
    part = np.clip((log_rate - x[right - 1]) / (x[right] - x[right - 1]), 0, 1)
    ends = losses[right - 1], losses[right]
    if not np.isfinite(ends).all():
        return float(ends[int(part > 0.5)])
    return float((1 - part) * ends[0] + part * ends[1])
