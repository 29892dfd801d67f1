"""Error sentences shared by the rooms."""

import difflib
import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name: the nearest known one, then all of them.

    >>> did_you_mean("rleu", ["relu", "erf"])
    'Did you mean "relu"? Known: erf, relu.'
    """
    word, names = str(word), sorted(known)
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
    hint = f'Did you mean "{lower[close[0]]}"? ' if close else ""
    return f"{hint}Known: {', '.join(names)}."


def as_text(shown: Any) -> str:
    """What `rich` would print, as plain text: for print(…) of an object.

    >>> as_text("a sentence")
    'a sentence'
    """
    console = Console(file=io.StringIO(), width=160, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
