"""Runs that are given up by their curves: what they would have reached is not known, and nothing is made of them."""

import numpy as np

TIMES = 3.0  # the least loss of the size so far: what is above it is given up


def so_far(curves: np.ndarray) -> np.ndarray:
    """The mean over the last tenth of the steps that were done, [run]."""
    return curves[:, -max(curves.shape[1] // 10, 1) :].mean(1)


def hopeless(
    curves: np.ndarray, x: np.ndarray, others: np.ndarray, others_x: np.ndarray, steps: int, reach: float
) -> np.ndarray:
    """Which runs, by curves [run, step so far] at log₂ values x, are given up: from half of the steps on those whose loss is more
    than `TIMES` the least one that any run of the size had then, and that are farther than `reach` from that one, where the
    optimum is looked for. others: curves of runs that are kept.

    Before half of the steps nothing is judged: a large learning rate may be behind at first.

    >>> curves, none = np.array([[2.0, 1.0], [2.0, 1.9], [2.0, 3.1], [2.0, 3.1]]), np.zeros((0, 4))
    >>> hopeless(curves, np.array([0.0, 1.0, 2.0, 3.0]), none, np.zeros(0), 4, 2.0).tolist()
    [False, False, False, True]
    """
    done = curves.shape[1]
    if 2 * done < steps:
        return np.full(len(curves), False)
    now, there = so_far(curves), so_far(others[:, :done]) if len(others) else np.zeros(0)
    every, places = np.concatenate([now, there]), np.concatenate([x, others_x])
    if not np.isfinite(every).any():
        return np.full(len(curves), False)
    best = int(np.argmin(np.where(np.isfinite(every), every, np.inf)))
    far = np.abs(x - places[best]) > reach * (1 + 1e-6)
    return far & (now > TIMES * every[best]) & (every[best] > 0)
