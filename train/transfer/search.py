"""Which runs next: those that tell most of the target's optimum for what they cost.

First all values with `PILOT` seeds at the cheapest size; then, at every other one, the values beside the optimum found there;
then, wherever a size's least value has not `BESIDE` values on both sides, or what diverges, those. From then on seeds and places
in between, by `gain.py`, for about `GROWTH` of what was spent so far a round, until the interval is as short as asked, or the
next runs do not fit the budget.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from train.evaluate.interval import Interval
from train.transfer.at_target import AtTarget
from train.transfer.expansion import Size
from train.transfer.gain import steps
from train.transfer.kept import Tried
from train.transfer.sweep import Sweep
from train.transfer.valley import BESIDE, logarithm

PILOT = 2  # seeds
GROWTH = 0.5
LEVEL = 0.9  # of the interval
FINEST = 0.25  # of the spacing of the values
STRETCH = 1.15  # of the interval: where rounds end when it is short, it is too short a little too often
AIM = 0.9  # of the length asked for, by what is foreseen


@dataclasses.dataclass(frozen=True)
class Space:
    """The `values` from and between which is chosen, ascending; what a run of each size costs; the size that is meant."""

    values: np.ndarray
    costs: Mapping[Size, float]
    target: Size

    @property
    def spacing(self) -> float:
        """Of log₂ of the values."""
        return float(np.median(np.diff(np.log2(self.values))))


@dataclasses.dataclass(frozen=True)
class Round:
    """What is trained next, {size: [(value, number of the seed)]}, and why; with nothing to train, why that is the end.

    before: log₂ of the target's optimum by what was there; None where it was not known. opening: to begin with, so that runs are
    given up that are hopeless; others are trained to their end.
    """

    runs: dict[Size, list[tuple[float, int]]]
    why: str
    before: Interval | None
    opening: bool = False

    @property
    def words(self) -> str:
        """How many runs at which size, and why."""
        counts = (f"{len(runs)} of {width:g} × {depth}" for (width, depth), runs in self.runs.items())
        return f"{', '.join(counts)}: {self.why}" if self.runs else self.why

    def cost(self, space: Space) -> float:
        """Of all runs."""
        return sum(len(runs) * space.costs[size] for size, runs in self.runs.items())


def cores(tried: Mapping[Size, Tried]) -> dict[Size, Sweep]:
    """Of every size the values that have all its seeds."""
    found = {size: each.core(size[0], size[1]) for size, each in tried.items()}
    return {size: sweep for size, sweep in found.items() if sweep is not None}


def next_round(
    space: Space,
    tried: Mapping[Size, Tried],
    left: float,
    spent: float,
    precision: float = 0.0,
    seed: int = 0,
    unit: tuple[float, str] | None = None,
) -> Round:
    """From what was tried; `left` of the budget, `spent` so far; precision: octaves of the interval, 0: as short as it gets;
    unit: what one of the budget's costs and its sign, (1 % of the grid, "%") or (a second, "s"), to say which would do."""

    def affordable(found: Round) -> Round:
        """It, or the end before a round that the budget does not hold."""
        cost = found.cost(space)
        if not found.runs or cost <= left:
            return found
        if left <= 0:
            return Round({}, "the budget is spent", None)
        does = ""
        if unit:
            amount = f"{math.ceil(10 * (spent + cost) / unit[0]) / 10:.1f}".removesuffix(".0")
            does = f"; --budget={amount}{unit[1]} would do for it"
        why = f"what comes next does not fit the budget ({found.words}): it takes {cost / left:.3g} times what is left{does}"
        return Round({}, why, None)

    sweeps = cores(tried)
    opening = _opening(space, sweeps, tried)
    runs, why = opening or _widened(space, sweeps)
    if runs := _new(runs, tried):
        return affordable(Round(runs, why, None, opening is not None))
    posterior = AtTarget.of(sweeps, space.target, seed)
    if posterior is None:
        return affordable(_anyhow(tried, sweeps))
    before = _stretched(posterior.interval(LEVEL))
    length = float(before.high - before.low)
    if length <= precision:
        return Round({}, f"the interval is as short as asked: {length:.2f} of {precision:g} octaves", before)
    seeds = {size: sweeps[size].curves.shape[1] for size in posterior.near}
    places = {size: near.x for size, near in posterior.near.items()}
    added: dict[Size, list[float]] = {size: [] for size in places}
    more, cost, share = dict.fromkeys(places, 0), 0.0, 1.0
    for step in steps(posterior, seeds, space.costs, FINEST * space.spacing):
        cost += step.runs * space.costs[step.size]
        if cost > left or (cost > GROWTH * spent and share < 1):
            break
        share = step.left
        if step.place is None:
            more[step.size] += 1
        else:
            added[step.size].append(step.place)
        if length * math.sqrt(share) <= AIM * precision:
            break
    runs = {
        size: [(2.0**p, s) for p in (*places[size], *added[size]) for s in range(seeds[size] + more[size])]
        for size in places
        if more[size] or added[size]
    }
    if not (runs := _new(_exactly(space, sweeps, runs), tried)):
        return Round({}, "the budget is spent: no further run fits it", before)
    return Round(runs, f"to shorten {length:.2f} octaves to {length * math.sqrt(share):.2f}, as foreseen", before)


def _stretched(found: Interval) -> Interval:
    """About its median."""
    return Interval(found.value, *(found.value + STRETCH * (end - found.value) for end in (found.low, found.high)))


def _opening(
    space: Space, sweeps: Mapping[Size, Sweep], tried: Mapping[Size, Tried]
) -> tuple[dict[Size, list[tuple[float, int]]], str] | None:
    """All values at the cheapest size; values beside its optimum at the others."""
    first = min(space.costs, key=lambda size: space.costs[size])
    if first not in tried:
        return {first: [(v, s) for v in space.values.tolist() for s in range(PILOT)]}, "all values at the cheapest size"
    others = [size for size in space.costs if size not in tried]
    if not others:
        return None
    best = sweeps[first].optimum().log_rate if first in sweeps else math.nan
    middle = int(np.argmin(np.abs(np.log2(space.values) - best))) if math.isfinite(best) else 0
    beside = space.values[max(middle - BESIDE, 0) : middle + BESIDE + 1].tolist()
    return {
        size: [(v, s) for v in beside for s in range(PILOT)] for size in others
    }, "beside the cheapest size's optimum"


def _widened(space: Space, sweeps: Mapping[Size, Sweep]) -> tuple[dict[Size, list[tuple[float, int]]], str]:
    """Values that lack on a side of a size's least one, those that were given up too."""
    runs = {}
    for size, sweep in sweeps.items():
        stable = np.asarray(np.isfinite(sweep.losses).all(1))
        if stable.any():
            means = np.where(stable[:, None], logarithm(sweep.losses), 0.0).mean(1)
            best = int(np.argmin(np.where(stable, means, np.inf)))
            walls = sweep.rates[~stable]
            low = max(walls[walls < sweep.rates[best]], default=0.0)
            high = min(walls[walls > sweep.rates[best]], default=math.inf)
            below = space.values[(space.values < sweep.rates[best]) & (space.values > low)][-BESIDE:]
            above = space.values[(space.values > sweep.rates[best]) & (space.values < high)][:BESIDE]
            lacks = [v for v in (*below, *above) if v not in sweep.rates]
        else:
            lacks = space.values[space.values < sweep.rates[0]][-BESIDE:].tolist()
        if lacks:
            runs[size] = [(float(v), s) for v in lacks for s in range(sweep.curves.shape[1])]
    return runs, "beside the least value of each size"


def _anyhow(tried: Mapping[Size, Tried], sweeps: Mapping[Size, Sweep]) -> Round:
    """A seed more at every size, where no common curve says more."""
    runs = {}
    for size, sweep in sweeps.items():
        stable = sweep.rates[np.isfinite(sweep.losses).all(1)].tolist()
        runs[size] = [(v, s) for v in stable for s in range(sweep.curves.shape[1] + 1)]
    lacks = _new(runs, tried)
    why = (
        "the sizes have no curve in common yet: a seed more at each"
        if lacks
        else "every value diverges: give smaller ones"
    )
    return Round(lacks, why, None)


def _exactly(
    space: Space, sweeps: Mapping[Size, Sweep], runs: Mapping[Size, list[tuple[float, int]]]
) -> dict[Size, list[tuple[float, int]]]:
    """Values as they are written where they are, not as 2 to the power of their logarithm."""

    def own(size: Size, value: float) -> float:
        known = np.concatenate([space.values, sweeps[size].rates])
        nearest = float(known[np.argmin(np.abs(np.log(known / value)))])
        return nearest if math.isclose(nearest, value, rel_tol=1e-9) else value

    return {size: [(own(size, v), s) for v, s in wanted] for size, wanted in runs.items()}


def _new(
    runs: Mapping[Size, list[tuple[float, int]]], tried: Mapping[Size, Tried]
) -> dict[Size, list[tuple[float, int]]]:
    """Those that are not there."""
    found = {}
    for size, wanted in runs.items():
        there = set() if size not in tried else tried[size].pairs
        if lacks := [run for run in wanted if run not in there]:
            found[size] = lacks
    return found
