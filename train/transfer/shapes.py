"""Shapes that a valley may have (`valley.py`), and how plausible each is before there are data.

|x|^p on both sides, of other steepness and other p; |x| + x²/4 and x² + x⁴/4; eᵗ − t − 1, steep on one side; of such ones over a
floor the logarithm, as log(1 + x²/4); and what is level where rates are small.
"""

from collections.abc import Callable

import numpy as np

COARSE = 1.0  # octaves of a grid's spacing, from which on shapes are narrower
MOST = 50.0  # of a logarithm: what lies higher is not drawn
STEEPEST = 8.0  # the right side over the left one, or the other way round


def _steepnesses(count: int) -> tuple[float, ...]:
    return tuple(np.geomspace(1 / STEEPEST, STEEPEST, count).tolist())


# One side of a shape, of |x| and x².
SIDES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "straight": lambda size, _: size,
    "bent": lambda size, square: size + square / 4,  # beside a kink whose sides are not straight
    "3/2": lambda size, _: size * np.sqrt(size),
    "square": lambda _, square: square,
    "cube": lambda size, square: size * square,
    "fourth": lambda _, square: square * square,
    "curved more": lambda _, square: square + square * square / 4,  # as of cosh x − 1
    "floored": lambda _, square: np.log1p(square / 4),
    "floored cube": lambda size, square: np.log1p(size * square / 4),
    "floored fourth": lambda _, square: np.log1p(square * square / 4),
    "plateau": lambda _, square: square / (1 + square / 3),
    "steep plateau": lambda size, square: size * square / (1 + size * square / 3),
}
# (left side, right side, share, steepnesses of the right side over the left one): how plausible a shape is before there are data.
# The place of a kink hangs on how much steeper the right side is: with 9 steepnesses it would be one of a few, all next to the
# true one. Over a floor few, as with many they would pass for a kink, and place that wrongly.
FAMILIES = (
    ("straight", "straight", 0.2, _steepnesses(17)),
    ("bent", "bent", 0.2, _steepnesses(17)),
    ("3/2", "3/2", 0.1, _steepnesses(9)),
    ("square", "square", 0.3, _steepnesses(9)),
    ("3/2", "square", 0.05, _steepnesses(9)),
    ("square", "3/2", 0.05, _steepnesses(9)),
    ("cube", "cube", 0.08, _steepnesses(9)),
    ("fourth", "fourth", 0.08, _steepnesses(9)),
    ("curved more", "curved more", 0.1, _steepnesses(9)),
    ("plateau", "square", 0.06, _steepnesses(9)),
    ("plateau", "3/2", 0.06, _steepnesses(9)),
    ("steep plateau", "floored", 0.06, _steepnesses(9)),
    ("floored", "floored", 0.15, (0.5, 1.0, 2.0)),
    ("floored cube", "floored cube", 0.05, (0.5, 1.0, 2.0)),
    ("floored fourth", "floored fourth", 0.1, (0.5, 1.0, 2.0)),
)
SKEWS, SKEWED_SHARE = tuple(k / 4 for k in range(-6, 7) if k), 0.2
# A skewed loss over a floor, log(1 + (eᵗ − t − 1)/2 r²) with t = r x: on one side it is all but level soon, as where small rates
# leave a loss as it began; shapes that go on rising on both sides place its minimum too far on the steep side.
FLOORED_SKEWS, FLOORED_SKEWED_SHARE = tuple(k / 4 for k in range(-4, 5) if k), 0.15


def shape_shares() -> np.ndarray:
    """How plausible every shape of `shapes_at` is before there are data."""
    kinds = [(share, len(steepnesses)) for *_, share, steepnesses in FAMILIES]
    kinds += [(SKEWED_SHARE, len(SKEWS)), (FLOORED_SKEWED_SHARE, len(FLOORED_SKEWS))]
    shares = np.array([share / count for share, count in kinds for _ in range(count)])
    return shares / shares.sum()


def own_shapes(away: np.ndarray, spacing: float, shape: np.ndarray) -> np.ndarray:
    """Of each draw its own shape, by number, so far from the minimum [draw, …]."""
    found = np.empty(np.shape(away))
    for i in np.unique(shape):
        found[shape == i] = shapes_at(away[shape == i], spacing, np.array([i]))[0]
    return found


def shapes_at(away: np.ndarray, spacing: float, among: np.ndarray | None = None) -> np.ndarray:
    """Shapes of `shape_shares` so far from the minimum, on a grid of that spacing: all, or those of these numbers, [shape, …]."""
    t, skew = away / spacing, max(spacing / COARSE, 1.0) ** 0.5
    size, square, sides = np.abs(t), t * t, dict[str, np.ndarray]()
    among = np.arange(len(_SHAPES)) if among is None else among
    found = np.empty((len(among), *np.shape(t)))
    for row, i in enumerate(among):
        left, right, r = _SHAPES[i]
        if left:
            for name in {left, right} - sides.keys():
                sides[name] = SIDES[name](size, square)
            found[row] = np.where(t < 0, sides[left] / r**0.5, sides[right] * r**0.5)
        else:
            rises = np.exp(np.minimum(skew * r * t, 20.0)) - skew * r * t - 1
            found[row] = np.log1p(rises / (2 * (skew * r) ** 2)) if right else rises
    return found


# (left side, right side, steepness of the right side over the left one); without a left side the skew, with a right one floored.
_SHAPES = [(left, right, r) for left, right, _, steepnesses in FAMILIES for r in steepnesses]
_SHAPES += [("", "", s) for s in SKEWS]
_SHAPES += [("", "floored", s) for s in FLOORED_SKEWS]
