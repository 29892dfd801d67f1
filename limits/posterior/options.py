"""The options of the solver, and what is wrong with those that cannot be."""

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo import checks

Order = str  # "leading" or "full"


@checks.arguments()
@dataclasses.dataclass(frozen=True)
class Sweeps:
    """How to iterate: C̃ ← damping · C̃ + (1 − damping) · C̃_new until the residual is below `tolerance`."""

    damping: float = 0.5
    tolerance: float = 1e-7
    limit: int = 200

    def __post_init__(self) -> None:
        if not 0 <= number(self.damping) < 1:
            raise ValueError(f"posterior: damping is the share of C̃ that is kept, 0 ≤ damping < 1; got {self.damping}.")
        if not 1e-14 <= number(self.tolerance) <= 0.01:
            raise ValueError(
                f"posterior: tolerance is the relative residual to reach, between 1e-14 and 0.01; got {self.tolerance}."
            )
        whole("iterations", self.limit, 1)


def number(value: Any) -> float:
    """The value as a float; what is no number becomes NaN, which no range contains.

    >>> number("2"), number(2)
    (nan, 2.0)
    """
    try:
        return np.nan if isinstance(value, (str, bool)) else float(value)
    except (TypeError, ValueError):
        return np.nan


def whole(name: str, value: Any, least: int) -> int:
    """The value of an option that counts, or an error.

    >>> whole("seed", 3, 0)
    3
    """
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise ValueError(f"posterior: {name} is a whole number ≥ {least}; got {value!r}.")
    return found


def check_order(order: str) -> None:
    """Raises where it is none."""
    if not isinstance(order, str) or order not in ("leading", "full"):
        raise ValueError(f'order must be "leading" or "full", got "{order}".')


def falling(widths: Any, width: float) -> list[float]:
    """The widths to anneal over, ending in the one that is asked for.

    >>> falling((400, 200), 100)
    [400.0, 200.0, 100.0]
    """
    listed = [*widths, width] if isinstance(widths, (Sequence, np.ndarray)) and not isinstance(widths, str) else []
    values = [number(w) for w in listed]
    if not values or not np.isfinite(values).all() or (np.diff(values) >= 0).any():
        raise ValueError(
            f"posterior: widths is a falling list of widths above the {width:g} that is asked for, such as "
            f"({4 * width:g}, {2 * width:g}); got {widths!r}."
        )
    return values
