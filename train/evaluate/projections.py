"""A few numbers that stand for a whole kernel or a whole vector of predictions, fixed by the limit and the labels.

Testing every entry would reject by chance, or average away what matters; so an observable is judged by at most ten
projections chosen before any network is drawn.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from limits import Task


@dataclasses.dataclass(frozen=True)
class Projections:
    """Linear functionals of an observable: names, and weights [projection, *shape of the observable]."""

    names: tuple[str, ...]
    weights: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values [..., *shape] to [..., projection]."""
        kept = values.shape[: values.ndim - self.weights.ndim + 1]
        size = math.prod(self.weights.shape[1:])  # −1 cannot stand for it where there are no projections
        return values.reshape(*kept, size).astype(np.float64) @ self.weights.reshape(len(self.names), size).T


def _directions(kernel: np.ndarray, n: int, count: int = 3) -> np.ndarray:
    """The leading eigenvectors of the training block, largest first, as columns."""
    return np.linalg.eigh(kernel[:n, :n])[1][:, : -count - 1 : -1]


def of_kernel(limit: np.ndarray, task: Task) -> Projections:
    """Trace, label direction, leading eigenvectors of the limit, means over test points and over train-test pairs.

    Of targets at positions, the kernel is one between points, or between samples, a mean over positions as labels then are.
    """
    p, y = len(limit), task.targets
    if p != len(task.at_points(np.empty((len(task.x), *task.positions)))):
        y = task.y_train.mean(1)
    n = len(y)
    named: dict[str, np.ndarray] = {"trace": np.eye(p) / p}

    def on_train(vector: np.ndarray) -> np.ndarray:
        full = np.zeros(p)
        full[:n] = vector / np.linalg.norm(vector)
        return np.outer(full, full)

    named["labels"] = np.mean([on_train(each) for each in y.T if each.any()], axis=0)  # of labels that occur
    for i, vector in enumerate(_directions(limit, n).T):
        named[f"eigenvector {i + 1}"] = on_train(vector)
    if p > n:
        test, cross = np.zeros((p, p)), np.zeros((p, p))
        test[n:, n:], cross[:n, n:] = 1 / (p - n) ** 2, 1 / (n * (p - n))
        named |= {"test mean": test, "train-test mean": cross}
    return Projections(tuple(named), np.stack(list(named.values())))


def of_predictions(limit: np.ndarray, kernel: np.ndarray, task: Task) -> Projections:
    """Of outputs [p, k]: along the labels, along leading eigenvectors of the kernel, and on the test points."""
    n, (p, k) = task.n_train, limit.shape
    y = task.targets
    named: dict[str, np.ndarray] = {}

    def add(name: str, part: slice, weight: np.ndarray) -> None:
        if np.linalg.norm(weight) > 0:
            named[name] = np.zeros((p, k))
            named[name][part] = weight / np.linalg.norm(weight)

    train, test = slice(0, n), slice(n, p)
    add("labels", train, y)
    for i, vector in enumerate(_directions(kernel, n).T):
        add(f"eigenvector {i + 1}", train, np.outer(vector, vector @ y))
    if p > n:
        add("test, limit's direction", test, limit[n:])
        add("test mean", test, np.ones((p - n, 1)) * limit[n:].mean(0))
    return Projections(tuple(named), np.stack(list(named.values())))


def of_path(limit: np.ndarray, times: Sequence[int]) -> Projections:
    """Of outputs [time, p, k] along training: onto the limit's own direction, at every recorded time but the first, 0."""
    size = np.linalg.norm(limit.reshape(len(limit), -1), axis=1)
    moved = [i for i in range(len(limit)) if times[i] > 0 and size[i] > 0]
    weights = np.zeros((len(moved), *limit.shape))
    for j, i in enumerate(moved):
        weights[j, i] = limit[i] / size[i]
    return Projections(tuple(f"step {times[i]}" for i in moved), weights)
