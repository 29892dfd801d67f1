"""One size in one setting of a study, and what settings are called."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Size:
    """One size in one setting: what one compilation trains. An infinite width is the limit."""

    variant: str
    label: str  # the variant's, with the axes that are compiled
    fields: dict[str, Any]
    width: float
    depth: int

    @property
    def key(self) -> tuple[str, float, int]:
        """What tells it apart in a study."""
        return self.label, self.width, self.depth

    @property
    def cost(self) -> float:
        """Of a run, for the bar of progress."""
        return (4096 if math.isinf(self.width) else self.width) ** 2 * self.depth

    @property
    def name(self) -> str:
        """In words, for files and messages."""
        word = "".join(c if c.isalnum() else "_" for c in self.label)
        return f"{word}_width_{self.width:g}_depth_{self.depth}"


def labelled(label: str, chosen: Mapping[str, Any]) -> str:
    """A setting in words: a label, and the values that were chosen besides."""
    words = [
        f"{name.replace('_', ' ')} {_word(value)}" if not isinstance(value, str) else value
        for name, value in chosen.items()
    ]
    return ", ".join([label, *words] if label else words)


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def products(axes: Mapping[str, tuple]) -> list[dict[str, Any]]:
    """All combinations of values."""
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*axes.values())]
