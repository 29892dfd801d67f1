"""Numbers in code that multiply what weights make, and the weights for whose start they stand."""

import math
from collections.abc import Mapping
from typing import NamedTuple

MARGIN = 0.05  # of a power of N


class InForward(NamedTuple):
    """factor: the number at the width that was looked at, NaN where there are several; power: of the width, with which it
    goes."""

    factor: float = 1.0
    power: float = 0.0


NONE = InForward()


class Stood(NamedTuple):
    """Weights of which it is asked: their role, the power of N with which they start (None: at zero), and the numbers."""

    role: str
    power: float | None
    number: InForward


def stand_for_starts(weights: Mapping[str, Stood]) -> set[str]:
    """Weights for whose start the numbers stand: drawn alike at all widths, as N(0, 1) is, and multiplied by N^(−1/2).

    Of a readout by N^(−1) too, as mean-field networks are written. Those that start at zero go with the others: queries may be
    divided by √d for another reason.

    >>> start = Stood("hidden", 0.0, InForward(0.1, -0.5))
    >>> sorted(stand_for_starts({"w": start, "zero": start._replace(power=None), "lecun": start._replace(power=-0.5)}))
    ['w', 'zero']
    """

    def near(each: Stood) -> bool:
        powers = (-0.5,) if each.role == "hidden" else ()
        powers = (-0.5, -1.0) if each.role == "readout" and math.isfinite(each.number.factor) else powers
        return any(abs(each.number.power - power) < MARGIN for power in powers)

    drawn = {
        name for name, each in weights.items() if each.power is not None and abs(each.power) < MARGIN and near(each)
    }
    hidden = any(weights[name].role == "hidden" for name in drawn)
    zeros = {name for name, each in weights.items() if each.power is None and near(each)}
    return drawn | {name for name in zeros if hidden or weights[name].role == "readout"}
