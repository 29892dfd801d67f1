"""Runs that are given up by their curves: what they would have reached is not known, and nothing is made of them."""

import numpy as np

from train.transfer.sweep import LOST

TIMES = 3.0  # the least loss of the size so far: what is above it is given up


def so_far(curves: np.ndarray) -> np.ndarray:
    """The mean over the last tenth of the steps that were done, [run]."""
    return curves[:, -max(curves.shape[1] // 10, 1) :].mean(1)


def hopeless(curves: np.ndarray, others: np.ndarray, steps: int) -> np.ndarray:
    """Which runs, by curves [run, step so far], are given up: from half of the steps on those whose loss is above `TIMES` the least
    one that any run of the size had then, or ten times what it was at the start. others: curves of runs that are kept.

    Before half of the steps nothing is judged: a large learning rate may be behind at first.

    >>> curves = np.array([[2.0, 1.0], [2.0, 1.9], [2.0, 3.1]])
    >>> hopeless(curves, np.zeros((0, 4)), 4).tolist()
    [False, False, True]
    """
    done = curves.shape[1]
    if 2 * done < steps:
        return np.full(len(curves), False)
    now, there = so_far(curves), so_far(others[:, :done]) if len(others) else np.zeros(0)
    every = np.concatenate([now, there])
    least = every[np.isfinite(every)].min(initial=np.inf)
    return (now > LOST * np.abs(curves[:, 0])) | ((now > TIMES * least) & (least > 0))
