"""What a sweep is asked for, checked: sizes, values and numbers, each refused by name."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least so many.

    >>> whole("seeds", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number; got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}.")
    return int(value)


def sizes(name: str, values: Any) -> tuple[int, ...]:
    """Widths or depths: whole numbers of at least 1, each once.

    >>> sizes("widths", (64, 128))
    (64, 128)
    """
    found = tuple(whole(f"Each of {name}", value) for value in several(name, values))
    once(name, found)
    return found


def positive(name: str, values: Any, what: str = "") -> np.ndarray:
    """Values of what is swept: positive numbers (of `what`) in ascending order, each once.

    >>> positive("values", (0.1, 0.01)).tolist()
    [0.01, 0.1]
    """
    found = several(name, values)
    numbers = [isinstance(each, int | float | np.number) and not isinstance(each, bool) for each in found]
    if not all(numbers) or not all(math.isfinite(each) and each > 0 for each in found):
        raise ValueError(f"{name} must be positive numbers{f' of {what}' if what else ''}, got {_listed(found)}.")
    once(name, found)
    return np.sort(np.asarray(found, float))


def several(name: str, values: Any) -> list:
    """A list that is not empty."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be several values, such as (1, 2); got {values!r}.")
    found = list(values)
    if not found:
        raise ValueError(f"{name} is empty: give at least one value.")
    return found


def once(name: str, found: Iterable) -> None:
    """Raises where a value is there twice."""
    found = list(found)
    twice = list(dict.fromkeys(each for each in found if found.count(each) > 1))
    if twice:
        raise ValueError(f"{name} has {_listed(twice)} more than once: give each value once.")


def _listed(values: Iterable) -> str:
    return ", ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in values)
