"""Means and spreads over members that arrive a chunk at a time."""

from typing import Any

import numpy as np


class Moments:
    """Running mean and sum of squares about it (Chan's update), of arrays whose first axis is members.

    >>> m = Moments()
    >>> m.add(np.array([1.0, 2.0])); m.add(np.array([3.0]))
    >>> float(m.mean), float(m.variance)
    (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = 0.0
        self._squares: Any = 0.0

    def add(self, values: Any) -> None:
        """Takes in more members."""
        values = np.asarray(values, np.float64)
        m, mean = len(values), values.mean(0)
        total = self.count + m
        away = mean - self.mean
        self._squares = self._squares + ((values - mean) ** 2).sum(0) + away**2 * (self.count * m / total)
        self.mean = self.mean + away * (m / total)
        self.count = total

    @property
    def variance(self) -> Any:
        """The unbiased variance over members; NaN for one member."""
        return self._squares / (self.count - 1) if self.count > 1 else np.full_like(self.mean, np.nan)

    @property
    def sem(self) -> Any:
        """The standard error of the mean."""
        return np.sqrt(self.variance / self.count)
