"""What was found of a sentence of a paper: whether it holds here, and the figures that say so."""

import dataclasses
from collections.abc import Sequence

from rich.table import Table

from train.evaluate.page import table

_VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A sentence, whether it `holds` (None: undecided), and the `figures`.

    >>> Finding("Kernels fall with depth", None, "0.3 [−0.1, 0.7]").verdict
    'undecided'
    """

    sentence: str
    holds: bool | None
    figures: str

    @property
    def verdict(self) -> str:
        """holds, does not hold, or undecided."""
        return _VERDICTS[self.holds]


def count(verdicts: Sequence[str]) -> str:
    """How many there are of each.

    >>> count(["holds", "undecided", "holds"])
    'holds: 2, undecided: 1'
    """
    return ", ".join(f"{each}: {verdicts.count(each)}" for each in _VERDICTS.values() if each in verdicts)


def as_table(findings: Sequence[Finding], title: str) -> Table:
    """For the terminal."""
    screen = Table(title=title)
    for name in ("claim", "verdict", "figures"):
        screen.add_column(name, overflow="fold")
    for each in findings:
        colour = {True: "green", False: "red", None: "yellow"}[each.holds]
        screen.add_row(each.sentence, each.verdict, each.figures, style=colour)
    return screen


def as_html(findings: Sequence[Finding]) -> str:
    """For a page."""
    rows = [(each.verdict, each.sentence, each.figures) for each in findings]
    kinds = [{0: {True: "good", False: "bad", None: "unsure"}[each.holds]} for each in findings]
    return table(("verdict", "claim", "figures"), rows, kinds, wrap=True)
