"""A sentence of a paper as a check: what is claimed, whether it holds here, and the figures that say so."""

import dataclasses
from collections.abc import Sequence

from rich.table import Table

from train.evaluate.page import table


@dataclasses.dataclass(frozen=True)
class Claim:
    """What is claimed, whether it `holds` (None: undecided), and the `figures`."""

    text: str
    holds: bool | None
    figures: str

    @property
    def verdict(self) -> str:
        """holds, does not hold, or undecided."""
        return {True: "holds", False: "does not hold", None: "undecided"}[self.holds]


def as_table(claims: Sequence[Claim], title: str) -> Table:
    """For the terminal."""
    screen = Table(title=title)
    for name in ("claim", "verdict", "figures"):
        screen.add_column(name, overflow="fold")
    for claim in claims:
        colour = {True: "green", False: "red", None: "yellow"}[claim.holds]
        screen.add_row(claim.text, claim.verdict, claim.figures, style=colour)
    return screen


def as_html(claims: Sequence[Claim]) -> str:
    """For a page."""
    rows = [(claim.verdict, claim.text, claim.figures) for claim in claims]
    kinds = [{0: {True: "good", False: "bad", None: "unsure"}[claim.holds]} for claim in claims]
    return table(("verdict", "claim", "figures"), rows, kinds, wrap=True)
