"""Figure C.2: overlaps between the inputs of the tasks.

small: 10 seconds on two cores, handwritten digits (0 and 3, 1 and 7).
paper: MNIST, 0 and 3; CIFAR-10, dogs and airplanes.
"""

import numpy as np

from configs.papers.residual_scaling.shared import matrix, samples, settings
from train.evaluate.claim import Claim
from train.evaluate.page import panels


def get_config(size="small"):
    small = {"tasks": (("digits", 0, 3), ("digits", 1, 7))}
    paper = {"tasks": (("mnist", 0, 3), ("cifar10", 5, 0))}
    return settings("figC2", size, small | {"count": 20}, paper | {"count": 20})


def run(config, folder, screen, part):
    arrays = {}
    for dataset, *classes in config.tasks:
        x = samples(dataset, tuple(classes), config.count, config.seed)
        arrays[f"{dataset} {classes[0]}, {classes[1]}"] = x @ x.T / (x @ x.T).max()
    return arrays


def claims(arrays):
    found = []
    for name, kernel in arrays.items():
        half = len(kernel) // 2
        inside = np.concatenate(
            [kernel[:half, :half][np.triu_indices(half, 1)], kernel[half:, half:][np.triu_indices(half, 1)]]
        )
        between = kernel[:half, half:].ravel()
        found.append(
            Claim(
                f"{name}: inputs of one class overlap more than those of two",
                bool(inside.mean() > between.mean()),
                f"{inside.mean():.3f} on average within a class, {between.mean():.3f} between",
            )
        )
    return found


def figures(arrays):
    figure, axes = panels(1, len(arrays), 4.2, 3.6)
    for axis, (name, kernel) in zip(axes[0], arrays.items(), strict=True):
        matrix(axis, kernel, name, figure, "overlap / largest", vmin=min(0.0, kernel.min()), vmax=1, cmap="viridis")
        axis.set(xlabel="input", ylabel="input")
    return [("Overlaps of inputs", "Inputs sorted by class.", figure)]
