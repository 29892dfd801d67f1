"""From what single runs saw, finite or infinite, to the means over them, with standard errors."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from limits.losses import losses
from limits.trajectory import KERNELS, Trajectory
from limits.types import Provenance, Task

Reduce = Callable[[Trajectory], Mapping[str, Any]]


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


@dataclasses.dataclass
class Runs:
    """Independent runs of one kind, taken in a chunk at a time, of which only means, spreads and what `reduce` makes stay.

    `reduce` is called with every chunk, a `Trajectory` whose arrays have a first axis of runs; it returns a dictionary of
    arrays with that axis, which are put together in `Trajectory.reduced`.
    """

    task: Task
    times: np.ndarray
    absent: dict[str, Any]  # why kernels do not exist
    kernel_times: np.ndarray | None = None
    reduce: Reduce | None = None
    moments: Moments = dataclasses.field(default_factory=Moments)
    _reduced: list[dict[str, np.ndarray]] = dataclasses.field(default_factory=list)

    def values(self, seen: Mapping[str, Any]) -> dict[str, Any]:
        """Of `seen`, f [run, time, n, …, outputs] and kernels (train points, then test points): outputs, losses, kernels."""
        n, f, task = self.task.n_train, self.task.at_points(np.asarray(seen["f"], np.float64), 2), self.task
        values = {"f_train": f[:, :, :n], "f_test": f[:, :, n:], "loss": losses(task, f[:, :, :n], task.targets)}
        if task.test_targets is not None and task.scored:
            values["test_loss"] = losses(task, f[:, :, n:], task.test_targets)
        return values | {name: seen[name] for name in KERNELS if name in seen}

    def add(self, seen: Mapping[str, Any], observed: Mapping[str, Any]) -> None:
        """Takes in runs."""
        self.add_values(self.values(seen), observed)

    def add_values(self, values: Mapping[str, Any], observed: Mapping[str, Any]) -> None:
        """Takes in what `values` says of runs."""
        self.moments.add((values, observed))
        if self.reduce is not None:
            runs = len(values["f_train"])
            how = {"observed": dict(observed), "kernel_times": self.kernel_times, "runs": runs}
            chunk = Trajectory(self.times, **values, **self.absent, **how, source="single runs")
            self._reduced.append(_checked(self.reduce(chunk), runs))

    def mean(
        self,
        how: Provenance,
        source: str,
        spread: Mapping[str, Any],
        errors: Mapping[str, Any] | None = None,
        observed: Mapping[str, Any] | None = None,
        exact: Mapping[str, Provenance] | None = None,
    ) -> Trajectory:
        """The means, with standard errors unless one run is all there is.

        spread: the covariances over initialisations, with their `errors`; observed: what is no mean over runs; exact: what
        comes from elsewhere.
        """
        values, watched = self.moments.mean
        of_values, of_watched = self.moments.sem if how.kind == "monte_carlo" else ({}, {})
        return Trajectory(
            times=self.times,
            **values,
            **spread,
            **self.absent,
            kernel_times=self.kernel_times,
            errors={**of_values, **of_watched, **(errors or {})},
            observed={**watched, **(observed or {})},
            provenance=dict.fromkeys([*values, *spread], how) | self.absent | dict(exact or {}),
            reduced=jax.tree.map(lambda *parts: np.concatenate(parts), *self._reduced) if self._reduced else {},
            source=source,
        )


def _checked(found: Any, runs: int) -> dict[str, np.ndarray]:
    if not isinstance(found, Mapping) or any(np.shape(value)[:1] != (runs,) for value in found.values()):
        shapes = {n: np.shape(v) for n, v in found.items()} if isinstance(found, Mapping) else type(found).__name__
        raise ValueError(
            f"reduce must return a dictionary of arrays whose first axis is the runs, {runs} of them in this chunk; got {shapes}."
        )
    return {name: np.asarray(value) for name, value in found.items()}
