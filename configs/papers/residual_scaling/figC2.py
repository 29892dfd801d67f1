"""Figure C.2: overlaps between the inputs of the tasks.

small: 10 seconds on two cores, handwritten digits (0 and 3, 1 and 7).
paper: MNIST, 0 and 3; CIFAR-10, dogs and airplanes.
found: 2 of 2 claims hold.
"""

import numpy as np

from configs.papers.residual_scaling.shared import DIGITS, IMAGES, matrix, samples
from train.study.figure import Finding, Settings, jackknife, panels

get_config = Settings("figC2", {"tasks": DIGITS, "count": 20}, {"tasks": IMAGES})


def run(config):
    arrays = {}
    for dataset, *classes in config.tasks:
        x = samples(dataset, tuple(classes), config.count, config.seed)
        arrays[f"{dataset} {classes[0]}, {classes[1]}"] = x @ x.T / (x @ x.T).max()
    return arrays


def gap(kernel):
    """((mean overlap of different inputs of one class, of two classes), the difference), for inputs sorted by class."""

    def both(kept):
        part, first = kernel[np.ix_(kept, kept)], kept < len(kernel) / 2
        same = first[:, None] == first
        return np.array([part[same & ~np.eye(len(kept), dtype=bool)].mean(), part[~same].mean()])

    inputs = np.arange(len(kernel))
    return both(inputs), jackknife(lambda kept: np.subtract(*both(kept)), inputs)


def claims(arrays):
    for name, kernel in arrays.items():
        (inside, between), more = gap(kernel)
        yield Finding(
            f"{name}: inputs of one class overlap more than those of two",
            more.above(0),
            f"{inside:.3f} on average within a class, {between:.3f} between: more by {more:.3f}",
        )


def figures(arrays):
    figure, axes = panels(1, len(arrays), 4.2, 3.6)
    for axis, (name, kernel) in zip(axes[0], arrays.items(), strict=True):
        matrix(axis, kernel, name, figure, "overlap / largest", vmin=min(0.0, kernel.min()), vmax=1, cmap="viridis")
        axis.set(xlabel="input", ylabel="input")
    return [("Overlaps of inputs", "Inputs sorted by class.", figure)]
