"""Made-up loss surfaces in place of training: what a run of (size, value, seed) gives depends on nothing else.

With u = 16/N, the logarithm of a run's loss is −1 + b u + c u² + f((x − x₀ − a u − d u²)(1 + s u)), x = log₂ of the value, plus
the offset of its seed, half of whose variance all widths have in common, plus noise of its own.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from train.transfer.expansion import Size
from train.transfer.hopeless import hopeless
from train.transfer.kept import KeptRuns, Tried
from train.transfer.search import Round, Space, next_round
from train.transfer.sweep import Sweep

CURVES: dict[str, Any] = {
    "skewed": lambda t: 0.3 * (np.exp(0.8 * t) - 0.8 * t - 1) + 0.02 * t**2,
    "diverging": lambda t: np.where(t < 0, 0.12 * t**2, 0.5 * t**2),
    "flat": lambda t: 0.15 * t**2 / (1 + 0.1 * np.abs(t)),
    "quadratic": lambda t: 0.15 * t**2,
    "steep": lambda t: 0.5 * t**2 / (1 + 0.05 * t),
}
X = np.arange(-5.0, 4.0)


def runs_of(sweep: Sweep, dial: str, first: int = 0) -> KeptRuns:
    """All runs of a grid, whose seeds begin with this one."""
    values, seeds = sweep.curves.shape[:2]
    scores = None if sweep.scores is None else sweep.scores.ravel()
    jobs = {dial: np.repeat(sweep.rates, seeds)}
    curves = sweep.curves.reshape(values * seeds, -1)
    return KeptRuns.of(jobs, np.tile(first + np.arange(seeds), values), curves, scores)


@dataclasses.dataclass
class Surface:
    """One study; `trained` and `seconds`: what was asked of it."""

    kind: str
    number: int
    noise: float = 0.06
    widths: tuple[int, ...] = (16, 32, 64, 128)
    target: int = 1024
    trained: list[tuple[Size, float, int]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng([self.number, sum(map(ord, self.kind))])
        self.best, self.b, self.a = random.uniform(-1, 1), 0.5 * random.normal(), 0.5 * random.normal()
        self.c, self.d = 0.5 * self.b * random.uniform(-1, 1), 0.5 * self.a * random.uniform(-1, 1)
        self.s = random.uniform(-0.2, 0.2)

    @property
    def space(self) -> Space:
        """Costs go with the square of the width."""
        return Space(2.0**X, {(width, 2): (width / 16) ** 2 for width in self.widths}, (self.target, 2))

    def truth(self, width: float) -> float:
        """log₂ of a width's optimum."""
        u = 16 / width
        return self.best + self.a * u + self.d * u**2

    def run(self, size: Size, value: float, seed: int) -> np.ndarray:
        """A curve of 20 steps that begins at 5."""
        self.trained.append((size, value, seed))
        u, x = 16 / size[0], np.log2(value)
        t = (x - self.truth(size[0])) * (1 + self.s * u)
        common = np.random.default_rng([self.number, 1, seed]).normal()
        own = np.random.default_rng([self.number, 2, seed, int(size[0])]).normal()
        noise, edge = np.random.default_rng([self.number, 3, seed, int(size[0]), round(1000 * (x + 20))]).normal(size=2)
        scale = np.clip(2.0 ** (t + 0.5), 1, 4) if self.kind == "diverging" else 1.0
        value = -1 + self.b * u + self.c * u**2 + CURVES[self.kind](t) + self.noise * (common + own + scale * noise)
        steps = np.arange(20)
        curve = np.exp(value) + (5 - np.exp(value)) * np.exp(-steps)
        if self.kind == "diverging" and t > 1.4 + 0.2 * edge:
            curve[3:] = np.inf
        return curve

    def train(self, size: Size, wanted: list[tuple[float, int]], judge: Any = None) -> KeptRuns:
        """All of these; judge(curves so far, log₂ of the values): which are given up."""
        curves = np.stack([self.run(size, *each) for each in wanted])
        values, seeds = (np.array(each) for each in zip(*wanted, strict=True))
        for step in (10, 15) if judge else ():
            curves[judge(curves[:, :step], np.log2(values)) & np.isfinite(curves[:, step]), step:] = np.nan
        return KeptRuns.of({"rate": values}, seeds, curves)


def grid(surface: Surface, seeds: int) -> tuple[dict[Size, Tried], float]:
    """All values at all sizes, and what they cost."""
    space, found = surface.space, {}
    for size in space.costs:
        found[size] = surface.train(size, [(v, s) for v in space.values.tolist() for s in range(seeds)]).table(
            "rate", {}
        )
    return found, seeds * len(X) * sum(space.costs.values())


def given_up(before: KeptRuns | None, curves: np.ndarray, x: np.ndarray) -> np.ndarray:
    """As `train.study.rounds` does."""
    others, places = (
        (np.zeros((0, 20)), np.zeros(0)) if before is None else (before.curves, np.log2(before.jobs["rate"]))
    )
    return hopeless(curves, x, others, places, 20, 2.0)


def search(
    surface: Surface, budget: float, precision: float = 0.0, runs: Mapping[Size, KeptRuns] | None = None, most: int = 60
) -> tuple[dict[Size, KeptRuns], list[Round], float]:
    """(runs, rounds, cost) of an adaptive study."""
    there, spent, rounds = dict(runs or {}), 0.0, []
    for _ in range(most):
        tried = {size: each.table("rate", {}) for size, each in there.items()}
        found = next_round(surface.space, tried, budget - spent, spent, precision)
        rounds.append(found)
        if not found.runs:
            break
        for size, wanted in found.runs.items():
            before = there.get(size)
            judge = functools.partial(given_up, before) if found.opening else None
            there[size] = surface.train(size, wanted, judge).joined(before)
        spent += found.cost(surface.space)
    return there, rounds, spent
