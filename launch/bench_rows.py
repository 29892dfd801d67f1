"""What `launch.bench` finds: rows with a ratio, a file of them, and what became slower since an earlier one."""

import dataclasses
import datetime
import json
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from limits.kept.store import DamagedError, sealed, unsealed
from train.evaluate.report import Table

SLOWER = 1.1  # by what every round of a row must be slower than every round before
_MACHINE = ("device", "processor")
_ELSEWHERE = "another machine"


@dataclasses.dataclass(frozen=True)
class Timing:
    """One figure: seconds of limit-zoo, and of what it is held against, a number a round.

    >>> row = Timing("kernels", "relu", (0.5, 0.4, 0.6), "neural-tangents", (1.0, 1.2, 1.1))
    >>> row.median, row.ratio
    (0.5, 2.2)
    """

    what: str
    case: str
    seconds: tuple[float, ...]
    other: str = ""
    others: tuple[float, ...] = ()
    note: str = ""

    @property
    def median(self) -> float:
        """Seconds of limit-zoo."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float | None:
        """How many times longer the other side takes."""
        return statistics.median(self.others) / self.median if self.others else None

    def words(self) -> list[str]:
        """As a line of the table."""
        ratio = f"{self.ratio:.3g}×" if self.ratio is not None else "–"
        others = f"{_seconds(statistics.median(self.others))} {self.other}" if self.others else self.other or "–"
        return [self.what, self.case, _seconds(self.median) if self.seconds else "–", others, ratio, self.note]


def table(title: str, rows: Iterable[Timing]) -> Table:
    """All rows, with their ratios."""
    return Table(
        ("what", "case", "limit-zoo", "against", "ratio", "beside"), [row.words() for row in rows], title=title
    )


def document(rows: Sequence[Timing], run: dict[str, Any], yardstick: float) -> str:
    """A file of a run. yardstick: seconds of a matrix product on this machine, when it ran."""
    return sealed(
        {
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "load": os.getloadavg()[0],
            "yardstick": yardstick,
            **run,
            "rows": [dataclasses.asdict(row) for row in rows],
        }
    )


def read(file: Path) -> tuple[list[Timing], dict[str, Any]]:
    """(rows, what else the file says)."""
    try:
        found = unsealed(file.read_bytes())
        rows = [Timing(**_tuples(row)) for row in found.pop("rows")]
        float(found["yardstick"])
    except (DamagedError, AttributeError, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"--against={file} is no file that launch.bench wrote: {error}.") from None
    return rows, found


def changes(now: Sequence[Timing], then: Sequence[Timing], yardsticks: tuple[float, float], same: bool) -> Table:
    """Rows that both runs have: how many times as long each takes now.

    A row with another side is held against that, in both runs; another row against the machine's matrix product, and where
    machines differ (`same` is False) not at all. Slower: every round by more than a tenth than every round before.
    """
    found, before = [], {_key(row): row for row in then}
    for row in now:
        old = before.get(_key(row))
        if old is None or not row.seconds or not old.seconds:
            continue
        units = [
            statistics.median(each.others) if each.others else yard
            for each, yard in zip((old, row), yardsticks, strict=True)
        ]
        shown = row.what, row.case, _seconds(old.median), _seconds(row.median)
        if not row.others and not same:
            found.append((*shown, "–", "", _ELSEWHERE))
            continue
        a, b = ([s / unit for s in each.seconds] for each, unit in zip((old, row), units, strict=True))
        change = statistics.median(b) / statistics.median(a)
        word = "slower" if min(b) > SLOWER * max(a) else "faster" if SLOWER * max(b) < min(a) else ""
        found.append((*shown, f"{change:.2f}", f"{len(a)}, {len(b)}", word))
    return Table(("what", "case", "then", "now", "now / then", "rounds", ""), found, title="against the earlier run")


def slower(changed: Table) -> list[str]:
    """The cases that the table calls slower."""
    return [case for _, case, *_, word in changed.rows if word == "slower"]


def verdict(now: Sequence[Timing], then: Sequence[Timing], changed: Table, file: Any) -> str:
    """What is slower, of the rows that could be compared, and which could not.

    >>> row = Timing("kernels", "relu", (1.0,))
    >>> verdict([row], [], changes([row], [], (1.0, 1.0), True), "FILE")
    'No row in common with FILE: nothing was compared. Not in it: relu.'
    """
    before = {_key(row) for row in then if row.seconds}
    alone = [row.case for row in now if row.seconds and _key(row) not in before]
    judged = [row for row in changed.rows if row[-1] != _ELSEWHERE]
    worse = slower(changed)
    if not changed.rows:
        said = f"No row in common with {file}: nothing was compared."
    elif not judged:
        said = f"{file} is of another machine, and none of its rows has another side: nothing was compared."
    else:
        said = f"Slower: {'; '.join(worse)}." if worse else "Nothing is slower."
    return said + (f" Not in it: {'; '.join(alone)}." if alone else "")


def _key(row: Timing) -> tuple[str, str, str]:
    return row.what, row.case, row.other


def same_machine(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether both runs name the same device and processors."""
    return all(
        json.dumps(one.get(key), sort_keys=True) == json.dumps(other.get(key), sort_keys=True) for key in _MACHINE
    )


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a file, where JSON has lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
