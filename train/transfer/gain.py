"""What further runs would tell of the target's optimum: how much of its variance goes for what they cost.

Draws of the target's optimum T and of the curves of all sizes are taken for a normal distribution. Runs measure what a curve
rises from place to place (seeds' offsets cancel), with their noise and what shapes miss; conditioning on them leaves

    var T − Σ_TJ (Σ_JJ + R)⁻¹ Σ_JT

whatever they will give. The best share of it for its cost is taken, Σ conditioned on it, and so on.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from train.transfer.at_target import AtTarget
from train.transfer.expansion import Size
from train.transfer.fit import COMMON

HIGH = 1.5  # of the logarithm of the loss over the least one: what lies higher tells nothing more


@dataclasses.dataclass
class _Curve:
    """Of a size: places x, which of them are measured, seeds; the variance of one run and of what shapes miss at each."""

    x: np.ndarray
    measured: np.ndarray
    seeds: int
    noise: np.ndarray
    missed: np.ndarray
    columns: np.ndarray

    def of_more_seeds(self) -> tuple[np.ndarray, np.ndarray]:
        """(columns, R) of one seed more at all measured places: what it adds to what the others have said."""
        noise, missed = self.noise[self.measured], self.missed[self.measured]
        before, after = noise / self.seeds + missed, noise / (self.seeds + 1) + missed
        return self.columns[self.measured], before * after / np.maximum(before - after, 1e-300)

    def of_a_place(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """(column, R) of a new place with all seeds."""
        return self.columns[i : i + 1], self.noise[i : i + 1] / self.seeds + self.missed[i : i + 1]


@dataclasses.dataclass(frozen=True)
class Step:
    """Of a size one seed more at all of its places, or a new place (log₂); `left`: the share of T's variance after it."""

    size: Size
    place: float | None
    runs: int
    left: float


def steps(found: AtTarget, seeds: Mapping[Size, int], costs: Mapping[Size, float], finest: float) -> Iterator[Step]:
    """Ever more runs, the best for their cost first; without end. Places are no closer than `finest` octaves."""
    curves, covariance = _joint(found, seeds, finest)
    whole = covariance[0, 0]
    while True:
        options = [
            (size, i, *chosen)
            for size, c in curves.items()
            for i, chosen in [
                (None, c.of_more_seeds()),
                *((int(i), c.of_a_place(int(i))) for i in np.flatnonzero(~c.measured)),
            ]
        ]
        worth = []
        for size, i, columns, noise in options:
            runs = int(curves[size].measured.sum()) if i is None else curves[size].seeds
            across = covariance[0, columns]
            told = across @ np.linalg.solve(covariance[np.ix_(columns, columns)] + np.diag(noise), across)
            worth.append(told / (runs * costs[size]))
        size, i, columns, noise = options[int(np.argmax(worth))]
        c = curves[size]
        runs = int(c.measured.sum()) if i is None else c.seeds
        across = covariance[:, columns]
        inverse = np.linalg.inv(covariance[np.ix_(columns, columns)] + np.diag(noise))
        covariance = covariance - across @ inverse @ across.T
        if i is None:
            c.seeds += 1
        else:
            c.measured[i] = True
        yield Step(size, None if i is None else float(c.x[i]), runs, float(covariance[0, 0] / whole))


def _joint(found: AtTarget, seeds: Mapping[Size, int], finest: float) -> tuple[dict[Size, _Curve], np.ndarray]:
    """(curves, the covariance of T and of all their places)."""
    curves, every = {}, [found.place - found.place.mean()]
    column = 1
    for size, near in found.near.items():
        middle = (near.x[1:] + near.x[:-1])[np.diff(near.x) > 1.5 * finest] / 2
        x = np.sort(np.concatenate([near.x, middle]))
        measured = np.isin(x, near.x)
        rise = np.minimum(found.rise(size, x), HIGH)
        rise = rise - rise[:, measured].mean(1, keepdims=True)
        every += list((rise - rise.mean(0)).T)
        noise, missed = (np.interp(x, near.x, each) for each in (near.variance, near.misfit * (1 + COMMON**2)))
        curves[size] = _Curve(x, measured, seeds[size], noise + 1e-12, missed, column + np.arange(len(x)))
        column += len(x)
    return curves, np.cov(np.array(every))
