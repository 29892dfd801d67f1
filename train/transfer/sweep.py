"""One size: losses over a grid of learning rates, and the optimum among them."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.transfer.shapes import MOST
from train.transfer.valley import Drawn, Valley, between_walls, logarithm, positive, valley
from zoo import checks

DRAWS = 2000  # of optima, and of the bootstrap over seeds
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


def start_of(curves: np.ndarray) -> np.ndarray:
    """How large the loss of each run is at the start, for [rate, seed, step] or [run, step].

    The largest of its rate, and no less than the median of all: a first batch may happen to have next to no loss. Where that
    is 0, the least that a run rises to.

    >>> start_of(np.array([[0.0, 0.02, 0.01], [0.3, 0.2, 0.1]])).tolist(), start_of(np.array([[0.0, 0.02, 0.01]])).tolist()
    ([0.15, 0.3], [0.02])
    """
    sizes = np.where(np.isfinite(curves), np.abs(curves), 0.0)
    there = np.isfinite(curves[..., 0])
    if not there.any():
        return np.full(curves.shape[:-1], np.inf)
    first, peaks = sizes[..., 0], sizes.max(-1)
    first = np.broadcast_to(first.max(1, keepdims=True), first.shape) if first.ndim == 2 else first
    start = np.maximum(first, np.median(sizes[..., 0][there]))
    return np.where(start > 0, start, peaks[peaks > 0].min(initial=np.inf))


def losses_of(curves: np.ndarray, scores: np.ndarray | None = None) -> np.ndarray:
    """What each of these runs [..., step] of a size is judged by, see `Sweep.losses`."""
    steps = curves.shape[-1]
    end = curves[..., steps - max(steps // 10, 1) :].mean(-1)
    ended = np.where(end > LOST * start_of(curves), np.inf, end)
    return ended if scores is None else np.where(np.isfinite(ended), scores, np.inf)


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Losses of one size: `curves` [rate, seed, step], infinite from the step on at which a run became infinite.

    `rates` may be the values of any positive hyperparameter; they are put in order. Width infinity: the limit, where replicas
    take the place of seeds. `scores` [rate, seed]: what is scored instead of the training loss at the end.
    """

    width: float
    depth: int
    rates: np.ndarray
    curves: np.ndarray
    scores: np.ndarray | None = None

    def __post_init__(self) -> None:
        rates = np.asarray(self.rates, float)
        if not (rates.ndim == 1 and len(rates) and np.all(np.isfinite(rates) & (rates > 0))):
            raise ValueError(
                "Sweep: rates must be positive numbers, one for each row of curves, as their logarithms are looked at; got "
                f"{rates}."
            )
        if len(self.curves) != len(rates):
            raise ValueError(
                f"Sweep: curves must have one row for each of {len(rates)} rates; its shape is {np.shape(self.curves)}."
            )
        order = np.argsort(rates)
        for name in ("rates", "curves", "scores"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else np.asarray(value)[order])

    @property
    def losses(self) -> np.ndarray:
        """The mean over the last tenth of the steps, or the scores, [rate, seed]; infinite for runs that diverged.

        Diverged: the loss is infinite, or ends above ten times what it was at the start (`start_of`).
        """
        return losses_of(self.curves, self.scores)

    def until(self, step: int) -> np.ndarray:
        """What `losses` would be, had training ended after so many steps."""
        return losses_of(self.curves[..., :step])

    @property
    def diverged(self) -> np.ndarray:
        """How many seeds diverged at each rate."""
        return np.sum(~np.isfinite(self.losses), axis=1)

    @property
    def one_seed(self) -> bool:
        """Whether nothing tells how large the noise is, so that the optimum may be anywhere."""
        return self.losses.shape[1] == 1

    @property
    def flat(self) -> bool:
        """Whether every run has the same finite loss, so that nothing tells values apart."""
        return len(self.rates) > 1 and bool(np.isfinite(self.losses).all() and np.ptp(self.losses) == 0)

    @functools.cached_property
    def valley(self) -> Valley | None:
        """Where the optimum may lie."""
        return valley(np.log2(self.rates), self.losses)

    def optimum(self) -> Optimum:
        """Of the mean of the logarithm of the loss over seeds."""
        return _optimum(self.rates, self.losses, self.valley)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the optimal rate lies with this probability; 0 or infinite where that is beyond an end of the grid, or not known.

        `optimum` is in it, also where that is an end of the grid and noise makes a place before it more probable.
        """
        if self.valley is None:
            return math.nan, math.nan
        if self.one_seed:
            return 0.0, math.inf
        low, high = (2.0 ** self.valley.quantile(q) for q in ((1 - level) / 2, (1 + level) / 2))
        best = self.optimum().rate
        return min(low, best), max(high, best)

    def places(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(lowest, highest) log₂ of the optimum, [draw], see `Drawn.bounds`; of one seed anywhere; NaN where all diverge."""
        if self.valley is not None and not self.one_seed:
            return self.valley.draws(DRAWS, seed).bounds()
        anywhere = np.full(DRAWS, np.inf if np.isfinite(self.losses).all(1).any() else np.nan)
        return -anywhere, anywhere

    def cost(self, drawn: Drawn, at: np.ndarray, seed: int | None = None) -> np.ndarray:
        """The logarithm of the loss at a place over that at the optimum on the grid, for each draw of the valley.

        Straight lines where no curve was fitted; `seed`: with the errors of means over seeds.
        """
        x, stable = np.log2(self.rates), np.isfinite(self.losses).all(1)
        values, errors = logarithm(self.losses)[stable], np.zeros(len(x))
        values = values - values.mean(0)
        if values.shape[1] > 1 and seed is not None:
            errors[stable] = values.std(1, ddof=1) / values.shape[1] ** 0.5
        noise = between(x, errors, at) * np.random.default_rng(seed).normal(size=len(at))
        own = drawn.height(np.clip(drawn.place, drawn.valley.x[0], drawn.valley.x[-1]))
        above = np.maximum(self.height(drawn, at) + noise - own, 0.0)
        # Infinite: it diverges there. Of losses that are not all positive it is no logarithm.
        return np.where(np.isinf(above) | (not positive(self.losses)), above, np.minimum(above, MOST))

    def height(self, drawn: Drawn, at: np.ndarray) -> np.ndarray:
        """The logarithm of the loss at a place for each draw, above that of the least point; straight lines where no curve was
        fitted."""
        values = logarithm(self.losses).mean(1)
        there = drawn.height(at)
        return np.where(np.isnan(there), between(np.log2(self.rates), values - values.min(), at), there)

    def moving_optimum(self, points: int = 24) -> tuple[np.ndarray, np.ndarray]:
        """(steps, log₂ of the optimum had training ended there)."""
        steps = np.unique(np.linspace(self.curves.shape[-1] / points, self.curves.shape[-1], points).astype(int))
        steps = steps[steps > 0]
        ended = [Sweep(self.width, self.depth, self.rates, self.curves[..., :step]) for step in steps.tolist()]
        return steps, np.array([sweep.optimum().log_rate for sweep in ended])

    def settled(self, octaves: float = 1.0) -> int:
        """Early selection: the step from which on the optimum stays within so many octaves of the final one."""
        steps, path = self.moving_optimum()
        away = ~(np.abs(path - path[-1]) <= octaves)
        if away[-1]:
            return int(steps[-1])  # everything diverged
        return int(steps[np.flatnonzero(away)[-1] + 1]) if away.any() else int(steps[0])


@checks.arguments(
    rates=checks.several(checks.number(positive=True), distinct=True),
    losses=checks.Check(
        "an array [rate] or [rate, seed] of numbers", lambda v: np.asarray(v, float).ndim in (1, 2) and np.size(v)
    ),
)
def optimum(rates: Sequence[float] | np.ndarray, losses: np.ndarray) -> Optimum:
    """The median of where losses [rate] or [rate, seed] may be least, see `train.transfer.valley`.

    At an end of the grid it is the grid point itself. Beside a rate that diverges it is one that does not.

    >>> round(optimum([0.25, 0.5, 1.0], np.array([2.0, 1.0, 2.0])).rate, 2)
    0.5
    """
    rates, losses = np.asarray(rates, float), np.asarray(losses, float)
    if len(losses) != len(rates):
        raise ValueError(
            f"optimum: losses must have one row for each of {len(rates)} rates; its shape is {losses.shape}."
        )
    order = np.argsort(rates)
    rates, losses = rates[order], losses.reshape(len(rates), -1)[order]
    return _optimum(rates, losses, valley(np.log2(rates), losses))


def _optimum(rates: np.ndarray, losses: np.ndarray, found: Valley | None) -> Optimum:
    stable = np.asarray(np.isfinite(losses).all(axis=1))
    if not stable.any():
        return Optimum(math.nan, math.inf, True)
    x, means = np.log2(rates), np.where(stable, losses.mean(1), np.inf)
    best = int(np.argmin(np.where(stable, logarithm(losses).mean(1), np.inf)))
    edge = best in (0, len(x) - 1)
    if edge or found is None:
        return Optimum(float(x[best]), float(means.min()), edge)
    first, last = between_walls(stable, best)
    return Optimum(float(np.clip(found.quantile(0.5), x[first], x[last])), float(means.min()), edge)


def interval(lowest: np.ndarray, highest: np.ndarray, among: int = 1) -> tuple[float, float]:
    """95 % of draws that lie somewhere between two values each: infinite where nothing bounds them, NaN where there is none.

    among: so many intervals hold together (Bonferroni).
    """
    ends = zip((lowest, highest), (2.5 / among, 100 - 2.5 / among), strict=True)
    low, high = (float(np.percentile(each, q, method="inverted_cdf")) for each, q in ends)
    return low, high


@checks.arguments(
    rates=checks.array(None),
    losses=checks.Check("an array [rate] of numbers", lambda v: np.asarray(v, float).ndim == 1),
    log_rate=checks.real,
)
def loss_at(rates: np.ndarray, losses: np.ndarray, log_rate: Any) -> float:
    """The loss at a rate between those of the grid, by a straight line in log₂ rate; beside divergence the nearer one's.

    Infinite where there is no such rate (NaN, the optimum where all diverge).
    """
    if len(losses) != len(rates):
        raise ValueError(f"loss_at: losses must be one for each of {len(rates)} rates; there are {len(losses)}.")
    return float(between(np.log2(rates), losses, np.asarray(log_rate))) if np.isfinite(log_rate) else math.inf


def between(x: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Straight lines between points, level beyond them; beside an infinite one the nearer one's value."""
    if len(x) == 1:
        return np.full(np.shape(at), y[0])
    right = np.clip(np.searchsorted(x, at), 1, len(x) - 1)
    part = np.clip((at - x[right - 1]) / (x[right] - x[right - 1]), 0, 1)
    first, last = y[right - 1], y[right]
    with np.errstate(invalid="ignore"):
        line = (1 - part) * first + part * last
    return np.where(np.isfinite(first) & np.isfinite(last), line, np.where(part > 0.5, last, first))
