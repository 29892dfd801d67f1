"""All sweeps of a transfer study, one for every setting and size; and the value with which to train the target size."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.transfer.shift import Transfer, along, bracketed, octaves
from train.transfer.sweep import Sweep, loss_at
from train.transfer.tuning import Tuning


@dataclasses.dataclass(frozen=True)
class Outcome:
    """`sweeps`: {label: {(width, depth): sweep over `dial`}}, a label a setting; `limits`: {label: {depth: sweep}}.

    `settings`: of every label the value of each axis, and under "setting" the label without them; `absent`: why a label
    has no limit; `unbounded`: why the optimum of a label goes on moving at any width, where that is known without a sweep;
    `scored`: what is least at an optimum; `tuning`: {label: {(width, depth): what its runs took}}, where that is known; `tasks`:
    {label: what makes its losses others than those of other labels}, where labels differ in that.
    """

    dial: str
    sweeps: dict[str, dict[tuple[float, int], Sweep]]
    limits: dict[str, dict[int, Sweep]] = dataclasses.field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    absent: dict[str, str] = dataclasses.field(default_factory=dict)
    unbounded: dict[str, str] = dataclasses.field(default_factory=dict)
    scored: str = "training loss at the end"
    tuning: dict[str, dict[tuple[float, int], Tuning]] = dataclasses.field(default_factory=dict)
    tasks: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The settings."""
        return list(self.sweeps)

    def each(self) -> list[tuple[str, Sweep]]:
        """(setting, sweep) of all sizes, then of the limits."""
        finite = [(label, sweep) for label, sizes in self.sweeps.items() for sweep in sizes.values()]
        return finite + [(label, sweep) for label, depths in self.limits.items() for sweep in depths.values()]

    def series(self, label: str) -> list[Transfer]:
        """Sizes of this setting that differ in width alone or in depth alone."""
        return along(self.sweeps[label])

    def over(self, label: str, over: str) -> Transfer:
        """The first of them over width, or over depth."""
        found = [series for series in self.series(label) if series.over == over] if label in self.sweeps else []
        if not found:
            raise ValueError(f'There are no two sizes of "{label}" that differ in {over} alone.')
        return found[0]

    def best_values(self) -> list[tuple[str, str, str, str, str]]:
        """(setting, axis, size, best value with everything else tuned, loss there), for axes with more than one value."""
        rows = []
        axes = [
            axis
            for axis in dict.fromkeys(axis for each in self.settings.values() for axis in each)
            if axis != "setting"
        ]
        groups: dict[str, list[str]] = {}
        for label, setting in self.settings.items():
            groups.setdefault(setting["setting"], []).append(label)
        for axis, (group, labels) in itertools.product(axes, groups.items()):
            for width, depth in (
                size for size in self.sweeps[labels[0]] if all(size in self.sweeps[e] for e in labels)
            ):
                losses = [self.sweeps[label][width, depth].optimum().loss for label in labels]
                value = self.settings[labels[int(np.argmin(losses))]][axis]
                rows.append((group, axis, f"{width:g} × {depth}", str(value), f"{min(losses):.4g}"))
        return rows

    def best_label(self) -> str:
        """The setting whose largest sizes have the least loss at the smallest one's optimum."""

        def transferred(label: str) -> float:
            ends = [(series.sweeps[0], series.sweeps[-1]) for series in self.series(label)]
            ends = ends or [(sweep, sweep) for sweep in self.sweeps[label].values()]
            return max(loss_at(large.rates, large.losses.mean(1), small.optimum().log_rate) for small, large in ends)

        return min(self.labels, key=transferred)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is drawn, for a file of arrays."""
        found = {}
        for label, sweep in self.each():
            at = place_of(label, sweep.width, sweep.depth)
            of_size = (
                {self.dial: sweep.rates} if math.isfinite(sweep.width) else {}
            )  # of the limit the report alone has them
            scores = {} if sweep.scores is None else {"scores": sweep.scores}
            found |= {at + name: each for name, each in {**of_size, "curves": sweep.curves, **scores}.items()}
        return found


def place_of(label: str, width: float, depth: int) -> str:
    """How names of a size's arrays begin."""
    return f"{label}/limit x{depth}/" if math.isinf(width) else f"{label}/{width:g}x{depth}/"


@dataclasses.dataclass(frozen=True)
class Target:
    """A setting, a size and the value to train it with; `advice`: where that comes from, and what speaks against it."""

    label: str
    width: float
    depth: int
    value: float
    advice: str


def target(
    outcome: Outcome,
    width: float | None = None,
    depth: int | None = None,
    values: Sequence[float] | np.ndarray | None = None,
) -> Target:
    """In the best setting, the size (by default the largest one). values: of the whole grid, of which not all may be there.

    The smallest size's optimum, moved by what was measured over width and over depth where 95 % intervals exclude that it stays.
    """
    label, dial = outcome.best_label(), outcome.dial.replace("_", " ")
    sizes = outcome.sweeps[label]
    width = max(width for width, _ in sizes) if width is None else width
    depth = max(depth for _, depth in sizes) if depth is None else depth
    small = next(sizes[size] for size in sorted(sizes) if math.isfinite(sizes[size].optimum().loss))
    at = small.optimum()
    moves, said = [], []
    for over, size in (("width", width), ("depth", depth)):
        move, words = _drift(outcome, label, small, over, size)
        moves.append(move)
        said += words
    value = 2.0 ** (at.log_rate + sum(moves))
    if len(tasks := {outcome.tasks.get(each, "") for each in outcome.labels}) > 1:
        said.append(
            f"Of {len(tasks)} kinds of losses ({', '.join(sorted(filter(None, tasks)))}), which are not compared, this setting "
            "has the least: the tables have the best values of the others."
        )
    if small.flat:
        said.append(
            f"Warning: all runs of width {small.width:g}, depth {small.depth} end with the same loss: any value is as good."
        )
    elif at.edge:
        ends = np.log2([small.rates[0], small.rates[-1]] if values is None else [min(values), max(values)])
        last = np.isclose(at.log_rate, ends).any()
        where, remedy = (
            ("the grid", "try values") if last else ("the runs that are there", "others ended early or are to come,")
        )
        said.append(
            f"Warning: the optimum of width {small.width:g}, depth {small.depth} is at an end of {where}: {remedy} beyond "
            f"{at.rate:.3g}."
        )
    where = f"{dial} {at.rate:.3g} of width {small.width:g}, depth {small.depth}"
    used = f"{where}, moved by {octaves(sum(moves))} octaves to {value:.3g}" if any(moves) else where
    setting = f', setting "{label}"' if label else ""
    size = f"width {width:g}, depth {depth}"
    return Target(label, width, depth, value, " ".join([f"To train {size} with the best {used}{setting}.", *said]))


def _drift(outcome: Outcome, label: str, small: Sweep, over: str, size: float) -> tuple[float, list[str]]:
    """(octaves by which to move the optimum of `small` for this width or depth, sentences on it)."""
    start = float(getattr(small, over))
    if size == start:
        return 0.0, []
    other = "depth" if over == "width" else "width"
    fitting = [
        s for s in outcome.series(label) if s.over == over and getattr(s.sweeps[0], other) == getattr(small, other)
    ]
    series = [_from(start, each) for each in fitting]
    series = [each for each in series if each is not None]
    if not series:
        elsewhere = any(s.over == over for s in outcome.series(label))
        where = f" at {other} {getattr(small, other):g}, where the least loss is" if elsewhere else ""
        return 0.0, [f"Warning: whether the optimum moves with {over} was not measured{where}."]
    found, measured = series[0], series[0].sizes
    if size in measured:
        found = Transfer(over, (found.sweeps[0], found.sweeps[list(measured).index(size)]))
        move, low, high = found.shift()
        what = f"from {over} {start:g} to {size:g}"
    else:
        doublings = np.log2(size / start)
        move, low, high = (doublings * each for each in found.slope())
        what = f"from {over} {start:g} to {size:g}, at the slope between {measured.min():g} and {measured.max():g}"
    low, high = min(low, high), max(low, high)
    figures = f"{bracketed(octaves, move, low, high)} octaves"
    said: list[str] = []
    if not math.isfinite(move):
        return 0.0, [f"Warning: some {over}s diverge at every value, so that the drift {what} is not known."]
    if found.one_seed:
        return 0.0, [
            f"Warning: with one seed it is not known whether it moves {what}: {octaves(move)} octaves may be noise, and are not "
            "taken into account. Give two or more seeds."
        ]
    if any(sweep.flat for sweep in found.sweeps):
        return 0.0, [f"Warning: all runs of a {over} end with the same loss, so that the drift {what} is not known."]
    if any(sweep.optimum().edge for sweep in found.sweeps):
        return 0.0, [
            f"Warning: over {over} an optimum is at an end of the grid, so that the drift {what} is not known ({figures}) and "
            "not taken into account: widen the grid."
        ]
    if low <= 0 <= high:
        if max(-low, high) > 1:
            said.append(
                f"Warning: {what} it may move by {figures}, which is not taken into account: sweep more, or near the target."
            )
        else:
            said.append(f"Measured {what}: {figures}, which may be none.")
        return 0.0, said
    said.append(f"Warning: it does not carry over {what}: it moves by {figures}, which is taken into account.")
    if size not in measured:
        said.append(f"That is extrapolated: no {over} of {size:g} was swept.")
    return move, said


def _from(start: float, series: Transfer) -> Transfer | None:
    """The sizes from this one on that have an optimum."""
    sweeps = [s for s in series.sweeps if getattr(s, series.over) >= start]
    return Transfer(series.over, tuple(sweeps)) if len(sweeps) > 1 else None
