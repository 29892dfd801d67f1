"""How far the optimum moves from size to size, and what that costs."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np
from rich.table import Table

from train.transfer.sweep import DRAWS, Sweep, loss_at, minimum


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Sweeps of several sizes, in the order of their size along `over`."""

    over: str
    sweeps: tuple[Sweep, ...]

    @property
    def sizes(self) -> np.ndarray:
        """Widths or depths."""
        return np.array([getattr(sweep, self.over) for sweep in self.sweeps], float)

    @property
    def fixed(self) -> str:
        """The size that is the same for all, in words."""
        other = "depth" if self.over == "width" else "width"
        return f"{other} {getattr(self.sweeps[0], other):g}"

    def slope(self) -> tuple[float, float, float]:
        """log₂ optimum against log₂ size: (slope, low, high), a 95 % bootstrap interval over seeds."""
        x = np.log2(self.sizes) - np.log2(self.sizes).mean()
        fitted = [np.array([s.optimum().log_rate for s in self.sweeps])]
        fitted += list(np.stack([s.optima(seed=i) for i, s in enumerate(self.sweeps)], axis=1))
        slopes = np.array(fitted) @ x / (x @ x)
        low, high = np.nanpercentile(slopes[1:], [2.5, 97.5]) if np.isfinite(slopes[1:]).any() else (np.nan, np.nan)
        return float(slopes[0]), float(low), float(high)

    def shift(self) -> tuple[float, float, float]:
        """How many octaves the optimum moves from the smallest to the largest size: (shift, low, high)."""
        small, large = self.sweeps[0], self.sweeps[-1]
        drawn = large.optima(seed=1) - small.optima(seed=0)
        low, high = np.nanpercentile(drawn, [2.5, 97.5]) if np.isfinite(drawn).any() else (np.nan, np.nan)
        return large.optimum().log_rate - small.optimum().log_rate, float(low), float(high)

    def regret(self) -> tuple[float, float, float]:
        """What the smallest size's optimum costs at the largest, over the loss at its own: (loss ratio − 1, low, high).

        Infinite where the largest size diverges at that rate, or everywhere.
        """
        small, large = self.sweeps[0], self.sweeps[-1]
        random, counts = np.random.default_rng(0), [sweep.losses.shape[1] for sweep in (small, large)]
        drawn = [random.integers(n, size=(DRAWS, n)) for n in counts]
        rows = [
            np.concatenate([np.arange(n)[None], each]) for n, each in zip(counts, drawn, strict=True)
        ]  # all seeds first
        best, _, _ = minimum(np.log2(small.rates), small.losses[:, rows[0]].mean(-1).T)
        losses = large.losses[:, rows[1]].mean(-1).T
        _, own, _ = minimum(np.log2(large.rates), losses)
        there = np.array([loss_at(large.rates, *pair) for pair in zip(losses, best, strict=True)])
        cost = np.where(np.isfinite(own), there / np.where(np.isfinite(own), own, 1) - 1, math.inf)
        low, high = np.percentile(cost[1:], [2.5, 97.5], method="nearest")
        return float(cost[0]), float(low), float(high)

    @property
    def sentence(self) -> str:
        """What was found, with its intervals."""
        lost = [getattr(s, self.over) for s in self.sweeps if not math.isfinite(s.optimum().loss)]
        at_end = [s for s in self.sweeps if s.optimum().edge and len(s.rates) > 2]
        more = f" At {len(at_end)} of {len(self.sweeps)} sizes the optimum is at an end of the grid." if at_end else ""
        if lost:
            return f"At {self.over} {', '.join(f'{size:g}' for size in lost)} ({self.fixed}) every value diverges."
        if len(self.sweeps[0].rates) == 1:
            return f"Only one value was tried, {self.sweeps[0].rates[0]:g}: where the optimum is, is not known."
        (slope, *bounds), (shift, *ends), (cost, least, most) = self.slope(), self.shift(), self.regret()
        return (
            f"From {self.over} {self.sizes[0]:g} to {self.sizes[-1]:g} at {self.fixed} the optimum moves by {shift:+.2f} "
            f"[{ends[0]:+.2f}, {ends[1]:+.2f}] octaves, {slope:+.2f} [{bounds[0]:+.2f}, {bounds[1]:+.2f}] a doubling; "
            f"the smallest size's optimum costs the largest {percent(cost)} [{percent(least)}, {percent(most)}] of its loss."
            f"{more}"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """A line a size."""
        return rows(self.sweeps)

    def __rich__(self) -> Table:
        table = Table(title=f"Optimum over {self.over}, {self.fixed}", caption=self.sentence)
        for column in COLUMNS:
            table.add_column(column, justify="right")
        for row in self.rows():
            table.add_row(*row)
        return table


def percent(cost: float) -> str:
    """A cost in words."""
    return f"{cost:.1%}" if math.isfinite(cost) else "∞ (it diverges)"


def rows(sweeps: Iterable[Sweep]) -> list[tuple[str, ...]]:
    """A line a size, under `COLUMNS`."""
    return [
        (f"{s.width:g}", str(s.depth), *_optimum(s), f"{s.diverged.sum()} of {s.losses.size}",
         f"{s.settled()} of {s.curves.shape[-1]}")
        for s in sweeps
    ]  # fmt: skip


def _optimum(sweep: Sweep) -> tuple[str, str, str]:
    """The optimum, its interval, the loss there."""
    best, (low, high) = sweep.optimum(), sweep.interval()
    if not math.isfinite(best.loss):
        return "none: all diverge", "", ""
    mark = " (end of the grid)" if best.edge and len(sweep.rates) > 2 else ""
    interval = f"[{low:.3g}, {high:.3g}]" if sweep.losses.shape[1] > 1 else "one seed"
    return f"{best.rate:.3g}{mark}", interval, f"{best.loss:.4g}"


COLUMNS = ("width", "depth", "optimum", "95 % interval", "loss", "diverged runs", "settled after step")
