"""Arrays of figures' own shapes in which all that a figure claims is so (effect 1), absent (0), or the other way round (−1).

ARRAYS of every source: {figure: function(its module, its config, effect)}, which gives what `claims` takes.
"""

from typing import Any

import numpy as np


def noisy(values: Any, members: int, scale: float = 1e-3, axis: int = 0) -> np.ndarray:
    """So many members, each value times one plus noise."""
    values = np.expand_dims(np.asarray(values, float), axis)
    shape = [*values.shape]
    shape[axis] = members
    return values * (1 + scale * np.random.default_rng(0).normal(size=shape))


def right(accuracies: Any, points: int = 300) -> np.ndarray:
    """Which of the points are right, [setting, point]: the first so many."""
    return np.array([np.arange(points) < round(each * points) for each in accuracies], float)
