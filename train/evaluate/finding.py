"""What was found of a sentence: whether it holds, does not, or is undecided, and the figures that say so."""

import dataclasses
from collections.abc import Sequence

_VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}
_KINDS = {True: "good", False: "bad", None: "unsure"}
STYLES = {"good": "green", "bad": "red", "unsure": "yellow", "foreseen": "dim", "": ""}  # on the terminal


@dataclasses.dataclass(frozen=True)
class Finding:
    """A sentence, whether it `holds` (None: undecided), and the `figures`. foreseen: it must not hold.

    >>> Finding("Kernels fall with depth", None, "0.3 [−0.1, 0.7]").verdict
    'undecided'
    """

    sentence: str
    holds: bool | None
    figures: str
    foreseen: bool = False

    @property
    def verdict(self) -> str:
        """holds, does not hold, or undecided."""
        return _VERDICTS[self.holds]

    @property
    def kind(self) -> str:
        """good, bad, unsure, or foreseen: the colour in which every report shows it."""
        return "foreseen" if self.foreseen and self.holds is False else _KINDS[self.holds]


def count(verdicts: Sequence[str]) -> str:
    """How many there are of each.

    >>> count(["holds", "undecided", "holds"])
    'holds: 2, undecided: 1'
    """
    return ", ".join(f"{each}: {verdicts.count(each)}" for each in _VERDICTS.values() if each in verdicts)
