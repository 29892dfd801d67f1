"""From a few depths to infinite depth, for what is a series in 1/L."""

from collections.abc import Sequence

import numpy as np


def weights_at_infinity(depths: Sequence[int]) -> np.ndarray:
    """The value at 1/L = 0 of the polynomial in 1/L through these depths, as weights of the values there.

    >>> weights_at_infinity([8, 16]).tolist(), round(float(weights_at_infinity([8, 16]) @ [1 + 1 / 8, 1 + 1 / 16]), 12)
    ([-1.0, 2.0], 1.0)

    Reference: Richardson (1911).
    """
    h = 1 / np.asarray(depths, float)
    others = [np.delete(h, i) for i in range(len(h))]
    return np.array([np.prod(rest / (rest - own)) for own, rest in zip(h, others, strict=True)])


def dropped(depths: Sequence[int], order: int) -> float:
    """|error of the extrapolation from the last `order` depths| over |its difference to that from as many before the last|.

    The first term that a polynomial through depths L_i misses is c Π 1/L_i, with one c for both.

    >>> dropped([4, 8, 16], 2)
    0.3333333333333333
    """
    last, before = (float(np.prod(1 / np.asarray(part, float))) for part in (depths[-order:], depths[-order - 1 : -1]))
    return last / (before - last)
