"""Means and spreads over runs that arrive a chunk at a time."""

from typing import Any

import jax
import numpy as np


class Moments:
    """Running mean and sum of squares about it (Chan's update), of trees of arrays whose first axis is runs.

    >>> m = Moments()
    >>> m.add(np.array([1.0, 2.0])); m.add(np.array([3.0]))
    >>> float(m.mean), float(m.variance)
    (2.0, 1.0)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Any = None
        self._squares: Any = None

    def add(self, values: Any) -> None:
        """Takes in more runs."""
        values = jax.tree.map(lambda a: np.asarray(a, np.float64), values)
        m, mean = len(jax.tree.leaves(values)[0]), jax.tree.map(lambda a: a.mean(0), values)
        squares = jax.tree.map(lambda a, b: ((a - b) ** 2).sum(0), values, mean)
        if not self.count:
            self.count, self.mean, self._squares = m, mean, squares
            return
        total = self.count + m
        away = jax.tree.map(np.subtract, mean, self.mean)
        between = self.count * m / total
        self._squares = jax.tree.map(lambda a, b, d: a + b + d**2 * between, self._squares, squares, away)
        self.mean = jax.tree.map(lambda a, d: a + d * (m / total), self.mean, away)
        self.count = total

    @property
    def variance(self) -> Any:
        """The unbiased variance over runs; NaN for one run."""
        one = self.count == 1
        return jax.tree.map(lambda a: np.full_like(a, np.nan) if one else a / (self.count - 1), self._squares)

    @property
    def sem(self) -> Any:
        """The standard error of the mean."""
        return jax.tree.map(lambda variance: np.sqrt(variance / self.count), self.variance)
