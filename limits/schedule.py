"""The learning rate and the training points of every step, the same for finite networks and for their limits."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from zoo import checks

LearningRate = float | Callable[[int], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Schedule:
    """rates [steps] and batches [steps, size] (indices of training points; None: all of them at every step)."""

    rates: np.ndarray
    batches: np.ndarray | None = None

    @classmethod
    def of(cls, steps: int, learning_rate: LearningRate, batches: Any = None, n: int = 1) -> "Schedule":
        """From a number or a function of the step (an Optax schedule), and the order of the points, for n of them.

        >>> Schedule.of(3, lambda step: 0.1 / (1 + step)).rates.round(3).tolist()
        [0.1, 0.05, 0.033]
        """
        if callable(learning_rate):
            try:
                rates = np.array([float(learning_rate(t)) for t in range(steps)])
            except TypeError:
                raise ValueError(
                    "learning_rate, a function of the step, must return one number for each; for step 0 it returns "
                    f"{checks.shown(learning_rate(0))}."
                ) from None
        else:
            rates = np.broadcast_to(float(learning_rate), (steps,))  # of no size, however many steps
        some = rates[:1] if rates.strides == (0,) else rates
        wrong = ~(np.isfinite(some) & (some >= 0))
        if wrong.any():
            step = int(np.argmax(wrong))
            raise ValueError(f"learning_rate is {some[step]:g} at step {step}; it must be finite and at least 0.")
        if batches is None:
            return cls(rates)
        order = np.asarray(batches)
        if (
            order.ndim != 2
            or order.shape[0] < steps
            or not order.shape[1]
            or not np.issubdtype(order.dtype, np.integer)
        ):
            raise ValueError(
                f"batches must be whole numbers [steps, batch size], one row for each of {steps} steps; got {order.dtype} "
                f"{list(order.shape)}. train.data.shuffled_batches makes them."
            )
        if order.min() < 0 or order.max() >= n:
            raise ValueError(
                f"batches must hold numbers of training points, 0 to {n - 1}; got {order.min()} … {order.max()}."
            )
        return cls(rates, order[:steps])

    @property
    def plain(self) -> bool:
        """Whether every step is the same: all points, one rate."""
        return self.batches is None and (self.rates.strides == (0,) or len(set(self.rates.tolist())) <= 1)

    def rows(self, n: int) -> np.ndarray:
        """The training points of every step, [steps, size]."""
        return np.broadcast_to(np.arange(n), (len(self.rates), n)) if self.batches is None else self.batches

    def weights(self, n: int) -> np.ndarray:
        """How much each point counts in the loss's mean, relative to a mean over all n: [steps, n].

        >>> Schedule.of(1, 0.1, [[0, 0]], 2).weights(2).tolist()
        [[2.0, 0.0]]
        """
        rows = self.rows(n)
        counts = np.zeros((len(rows), n))
        for each, row in zip(counts, rows, strict=True):
            np.add.at(each, row, n / len(row))
        return counts
