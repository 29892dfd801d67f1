"""How far the optimum moves from size to size, and what that costs."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from train.evaluate.interval import Interval
from train.evaluate.report import Table
from train.transfer.sweep import DRAWS, Sweep, interval, loss_at
from train.transfer.valley import positive


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

    @property
    def one_seed(self) -> bool:
        """Whether the noise of a size is not known, and so neither is whether the optimum moves."""
        return any(sweep.one_seed for sweep in self.sweeps)

    def places(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(lowest, highest) log₂ of every size's optimum, drawn as probable as the data leave it."""
        return [sweep.places(seed) for seed, sweep in enumerate(self.sweeps)]

    def slope(self) -> tuple[float, float, float]:
        """log₂ optimum against log₂ size: (slope, low, high), a 95 % interval."""
        x = np.log2(self.sizes) - np.log2(self.sizes).mean()
        x /= x @ x
        low, high = np.zeros(DRAWS), np.zeros(DRAWS)
        for part, (lowest, highest) in zip(x, self.places(), strict=True):
            if part:
                low, high = (
                    low + part * (lowest if part > 0 else highest),
                    high + part * (highest if part > 0 else lowest),
                )
        return float(x @ [s.optimum().log_rate for s in self.sweeps]), *interval(low, high)

    def shift(self) -> tuple[float, float, float]:
        """How many octaves the optimum moves from the smallest to the largest size: (shift, low, high), a 95 % interval.

        It is infinite where an optimum may lie beyond an end of the grid, and where a size has one seed.
        """
        (low, high), *_, (lowest, highest) = self.places()
        moved = self.sweeps[-1].optimum().log_rate - self.sweeps[0].optimum().log_rate
        return moved, *interval(lowest - high, highest - low)

    @property
    def positive(self) -> bool:
        """Whether all losses of the largest size are, so that they have ratios and logarithms."""
        return positive(self.sweeps[-1].losses)

    def regret(self) -> tuple[float, float, float]:
        """What the smallest size's optimum costs at the largest, over the loss at its own: (loss ratio − 1, low, high).

        Of losses that are not all positive: their difference. Infinite where the largest size diverges at that rate, or
        everywhere. From nothing on where the optima may be the same; with one seed to anything.
        """
        small, large = self.sweeps[0], self.sweeps[-1]
        best, means = small.optimum().log_rate, large.losses.mean(1)

        def over(loss: float, least: float) -> float:
            return loss / least - 1 if self.positive else loss - least

        if large.valley is None or not math.isfinite(best) or self.one_seed:
            cost = over(loss_at(large.rates, means, best), large.optimum().loss)
            cost = cost if math.isfinite(cost) else math.inf
            known = not self.one_seed or not math.isfinite(cost)
            return (cost, cost, cost) if known else (cost, 0.0, math.inf)
        ends, drawn = np.log2(small.rates[[0, -1]]), large.valley.draws(DRAWS, 1)
        elsewhere = large.cost(drawn, np.clip(small.places(0)[0], *ends), seed=2)
        elsewhere = np.expm1(elsewhere) if self.positive else elsewhere
        low, high = interval(elsewhere, elsewhere)
        _, least, most = self.shift()
        low = 0.0 if least <= 0 <= most else low
        # Both places of one curve: a straight line over the least point of a grid has costs where there are none.
        there, own = (large.height(drawn, np.full(DRAWS, at)) for at in (best, large.optimum().log_rate))
        cost = float(np.median(there - own))
        return float(np.clip(np.expm1(cost) if self.positive else cost, low, high)), low, high

    @property
    def cost(self) -> str:
        """`regret` in words."""
        if self.one_seed:
            figure = (percent if self.positive else plain)(self.regret()[0])
            return f"{figure} {'of its loss' if self.positive else 'in loss'} as one seed has it"
        if self.positive:
            return f"{bracketed(percent, *self.regret())} of its loss"
        return f"{bracketed(plain, *self.regret())} in loss, which is not always positive"

    @property
    def sentence(self) -> str:
        """What was found, with its intervals."""
        lost = [getattr(s, self.over) for s in self.sweeps if not math.isfinite(s.optimum().loss)]
        at_end = [f"{getattr(s, self.over):g}" for s in self.sweeps if s.optimum().edge]
        more = f" At {self.over} {', '.join(at_end)} the optimum is at an end of the grid: try values beyond it."
        if lost:
            return f"At {self.over} {', '.join(f'{size:g}' for size in lost)} ({self.fixed}) every value diverges."
        if same := [f"{getattr(s, self.over):g}" for s in self.sweeps if s.flat]:
            return (
                f"At {self.over} {', '.join(same)} ({self.fixed}) all runs end with the same loss: nothing tells values apart. "
                "Does the loss depend on the outputs, and the optimiser on the value?"
            )
        if len(self.sweeps[0].rates) == 1:
            return f"Only one value was tried, {self.sweeps[0].rates[0]:g}: where the optimum is, is not known."
        if self.one_seed:
            return (
                f"From {self.over} {self.sizes[0]:g} to {self.sizes[-1]:g} at {self.fixed} it is not known whether the optimum "
                f"moves: with one seed nothing tells a move ({octaves(self.shift()[0])} octaves) from noise. Give two or more "
                f"seeds. The smallest size's optimum costs the largest {self.cost}.{more if at_end else ''}"
            )
        return (
            f"From {self.over} {self.sizes[0]:g} to {self.sizes[-1]:g} at {self.fixed} the optimum moves by "
            f"{bracketed(octaves, *self.shift())} octaves, {bracketed(octaves, *self.slope())} a doubling; the smallest size's "
            f"optimum costs the largest {self.cost}.{more if at_end else ''}"
        )

    def rows(self) -> list[tuple[str, ...]]:
        """A line a size."""
        return rows(self.sweeps)

    @property
    def table(self) -> Table:
        """For a report."""
        return Table(COLUMNS, self.rows(), title=f"Optimum over {self.over}, {self.fixed}", caption=self.sentence)

    def __rich__(self) -> Any:
        return self.table


def along(found: dict[tuple[float, int], Sweep]) -> list[Transfer]:
    """All series of at least two sizes that differ in width alone, or in depth alone."""
    result: list[Transfer] = []
    for over, axis in (("width", 0), ("depth", 1)):
        for other in dict.fromkeys(size[1 - axis] for size in found):
            sizes = sorted(size for size in found if size[1 - axis] == other)
            if len(sizes) > 1:
                result.append(Transfer(over, tuple(found[size] for size in sizes)))
    return result


def octaves(move: float) -> str:
    """A signed number, or how it is unbounded.

    >>> octaves(-0.5), octaves(float("inf"))
    ('-0.50', '+∞')
    """
    return f"{move:+.2f}" if math.isfinite(move) else "?" if math.isnan(move) else "+∞" if move > 0 else "-∞"


_LARGE = 10.0  # shares from here on are written as factors


def percent(cost: float) -> str:
    """A cost in words: a share, or of much what the loss is times.

    >>> percent(0.051), percent(264.0)
    ('5.1%', '× 265')
    """
    if not math.isfinite(cost):
        return "∞ (it diverges)"
    return f"{cost:.1%}" if cost < _LARGE else f"× {1 + cost:.3g}"


def plain(cost: float) -> str:
    """A cost in words, as a number."""
    return f"{cost:.3g}" if math.isfinite(cost) else "∞ (it diverges)"


def bracketed(words: Callable[[float], str], value: float, low: float, high: float) -> str:
    """A number with its interval.

    >>> bracketed(percent, 0.1, 0.05, float("inf"))
    '10.0% [5.0%, ∞ (it diverges)]'
    """
    return f"{words(value)} [{words(low)}, {words(high)}]"


def words(each: Interval, form: Callable[[float], str] = "{:.4g}".format) -> str:
    """The same of an `Interval`."""
    return bracketed(form, *map(float, each.ends))


def rows(sweeps: Iterable[Sweep]) -> list[tuple[str, ...]]:
    """A line a size, under `COLUMNS`."""
    return [
        (f"{s.width:g}", str(s.depth), *_optimum(s), f"{s.diverged.sum()} of {s.losses.size}",
         f"{s.settled()} of {s.curves.shape[-1]}")
        for s in sweeps
    ]  # fmt: skip


def _optimum(sweep: Sweep) -> tuple[str, str, str]:
    """The optimum, its interval, the loss there."""
    best = sweep.optimum()
    if not math.isfinite(best.loss):
        return "none: all diverge", "", ""
    if sweep.flat:
        return "none: all are equal", "", f"{best.loss:.4g}"
    mark = " (end of the grid)" if best.edge else ""
    return f"{best.rate:.3g}{mark}", bounds(sweep), f"{best.loss:.4g}"


def bounds(sweep: Sweep) -> str:
    """The interval of the optimum in words."""
    low, high = sweep.interval()
    if sweep.one_seed or len(sweep.rates) == 1:
        return "one seed" if len(sweep.rates) > 1 else "one value"
    if low == 0 and math.isinf(high):
        return "not bounded"
    return f"below {high:.3g}" if low == 0 else f"above {low:.3g}" if math.isinf(high) else f"[{low:.3g}, {high:.3g}]"


LEAST = "mean loss, best on the grid"  # `Optimum.loss`, in tables
COLUMNS = ("width", "depth", "optimum", "95 % interval", LEAST, "diverged runs", "settled after step")
