"""What was chosen in rounds, for a report: what was run, why, and the interval after each."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from train.evaluate.interval import Interval
from train.evaluate.report import Part, Table, Text
from train.transfer.search import LEVEL, Round, Space
from train.transfer.shift import octaves, words


@dataclasses.dataclass(frozen=True)
class Searched:
    """Of one setting: its rounds with their numbers, why it ended, what the whole grid costs, and the seconds of all its runs."""

    space: Space
    done: list[tuple[int, Round]]
    end: Round
    grid: float
    seconds: float

    @property
    def share(self) -> float:
        """Of the grid's cost that was spent."""
        return sum(each.cost(self.space) for _, each in self.done) / self.grid

    def afters(self) -> list[Interval | None]:
        """The interval of log₂ of the target's optimum after every round."""
        return [each.before for _, each in self.done[1:]] + [self.end.before]

    def rows(self, label: str) -> list[tuple[str, ...]]:
        """A line a round."""
        found = []
        for (number, each), after in zip(self.done, self.afters(), strict=True):
            counts = ", ".join(f"{width:g} × {depth}: {len(runs)}" for (width, depth), runs in each.runs.items())
            values = np.array([value for runs in each.runs.values() for value, _ in runs])
            what = f"{counts} (at {_range(values)})"
            length = "" if after is None else f"{after.high - after.low:.2f}"
            place = "not known yet" if after is None else words(after, _power)
            found.append(
                (str(number + 1), label, what, each.why, place, length, f"{each.cost(self.space) / self.grid:.1%}")
            )
        return found

    def sentence(self, label: str, dial: str) -> str:
        """Where the optimum lies, what it cost, why it ended."""
        width, depth = self.space.target
        after, head = self.end.before, f"{label}: the" if label else "The"
        place = "is not known"
        if after is not None:
            length = octaves(float(after.high - after.low)).removeprefix("+")
            place = f"is {words(after, _power)}, {length} octaves"
        return (
            f"{head} best {dial} of width {width:g}, depth {depth} {place}, after {self.share:.1%} of what the whole grid "
            f"costs ({self.seconds:.1f} seconds of training); {self.end.why}.{self.doubts()}"
        )

    def doubts(self) -> str:
        """Where that lies beyond what was tried."""
        runs = [(size, runs) for _, each in self.done for size, runs in each.runs.items() if runs]
        if self.end.before is None or not runs:
            return ""
        best, tried = 2.0 ** float(self.end.before.value), [value for _, each in runs for value, _ in each]
        said = ""
        if not min(tried) <= best <= max(tried):
            said = f" Doubtful: it lies beyond the values that were tried, {_range(tried)}; give more."
        width, depth = self.space.target
        if width < min(w for (w, _), _ in runs) or depth < min(d for (_, d), _ in runs):
            said += " Doubtful: the target is smaller than what was trained."
        return said

    def numbers(self) -> dict[str, Any]:
        """For the file of JSON."""

        def place(each: Interval | None) -> Any:
            return None if each is None else dataclasses.asdict(each)

        rounds = [
            {
                "round": number + 1, "why": each.why, "cost": each.cost(self.space) / self.grid, "log2_after": place(after),
                "runs": [{"width": w, "depth": d, "values": [v for v, _ in runs], "seeds": [s for _, s in runs]}
                         for (w, d), runs in each.runs.items()],
            }
            for (number, each), after in zip(self.done, self.afters(), strict=True)
        ]  # fmt: skip
        return {
            "target": self.space.target, "level": LEVEL, "log2_optimum": place(self.end.before), "end": self.end.why,
            "cost": self.share, "seconds": self.seconds, "rounds": rounds,
        }  # fmt: skip


def _power(log_value: float) -> str:
    return f"{2.0**log_value:.3g}"


def _range(values: Sequence[float] | np.ndarray) -> str:
    """In words.

    >>> _range([0.5, 2.0]), _range([1.0, 1.0])
    ('0.5 to 2', '1')
    """
    return " to ".join(dict.fromkeys(f"{end(values):.3g}" for end in (min, max)))


READING = (
    "Rounds: each takes the runs that shorten the {level:.0%} interval of the target's optimum most for their cost (parameters "
    "times steps), by what all sizes say together; costs are shares of that of the whole grid. Runs far from the least loss of "
    "their size are given up half-way and left out, as are values that lack seeds which others have."
)


def parts(found: Mapping[str, Searched], dial: str) -> list[Part]:
    """Sentences, and a table of all rounds."""
    rows = [row for label, each in found.items() for row in each.rows(label)]
    columns = (
        "round",
        "setting",
        "runs by width × depth",
        "why",
        f"best {dial} of the target after",
        "octaves",
        "cost",
    )
    said: list[Part] = [Text(each.sentence(label if len(found) > 1 else "", dial)) for label, each in found.items()]
    rows = sorted(rows, key=lambda row: int(row[0]))
    return [*said, Table(columns, rows, title="Rounds", caption=READING.format(level=LEVEL))]
