"""What finding an optimum took."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Tuning:
    """So many `runs`, the `work` of all (parameters times steps, the same on every machine), and the `seconds` that they took;
    not a number where that is not known.

    >>> Tuning.of([Tuning(2, 1e6, 3.0), Tuning(1, 5e5, 1.5)])
    Tuning(runs=3, work=1500000.0, seconds=4.5)
    """

    runs: int
    work: float
    seconds: float

    @classmethod
    def of(cls, parts: "Iterable[Tuning]") -> "Tuning":
        """All of them together."""
        runs, work, seconds = zip(*((each.runs, each.work, each.seconds) for each in parts), strict=True)
        return cls(sum(runs), sum(work), sum(seconds))
