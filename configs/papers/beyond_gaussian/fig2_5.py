"""Figure 2.5: classes' means and covariances account for most of what networks learn of handwritten digits.

Depths are not given in the thesis; one and two hidden layers here.

small: 110 seconds on two cores, busy with other work; scikit-learn's digits in place of MNIST.
paper: MNIST, 100 networks.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np

from configs.papers.beyond_gaussian.mixtures import bars, labelled, network, spread
from limits import Task
from limits.cumulants import gaussian_surrogate, sample
from train.cumulants import train_samples, train_statistics
from train.study.figure import Finding, Settings, every, mean, panels

WAYS = {"data": "trained on the data", "gaussian": "on Gaussian samples", "statistics": "statistical model"}

get_config = Settings(
    "fig2_5",
    {
        "dataset": "digits", "train": 1300, "test": 497, "drawn": 10_000, "members": 5, "steps": 2000, "stat_steps": 1000,
        "depths": (1, 2), "width": 100, "batch": 100, "threshold": 1e-2, "learning_rate": 1e-3,
    },
    {
        "dataset": "mnist", "train": 60_000, "test": 10_000, "drawn": 60_000, "members": 100, "steps": 12_000, "stat_steps": 6000,
    },
)  # fmt: skip


def run(config, screen):
    task = labelled(config.dataset, config.train, config.test, config.seed)
    surrogate = gaussian_surrogate(task.x_train, task.y_train, config.threshold)
    drawn = sample(surrogate.mixture, config.drawn, config.seed)
    arrays = {"depths": np.array(config.depths), "kept": surrogate.kept, "missing": surrogate.missing}
    shape = task.x_train.shape[1:]
    if len(shape) == 2:
        arrays |= {"real": task.x_train[:6], "drawn": drawn[0][:6].reshape(-1, *shape)}
    flat = Task(task.x_train.reshape(len(task.x_train), -1), task.y_train)
    test = task.x_test.reshape(len(task.x_test), -1), task.y_test
    for depth in config.depths:
        net = network(config.width, depth, outputs=task.outputs)
        common = {"members": config.members, "seed": config.seed, "learning_rate": config.learning_rate}
        common["progress"] = not screen.quiet
        screen.print(f"L = {depth}")
        runs = {
            "data": train_samples(net, flat, steps=config.steps, batch=config.batch, **common),
            "gaussian": train_samples(net, Task(*drawn), steps=config.steps, batch=config.batch, **common),
            "statistics": train_statistics(net, surrogate.mixture, steps=config.stat_steps, **common),
        }
        arrays |= {f"{name} {depth}": each.accuracy(*test) for name, each in runs.items()}
        arrays |= {f"{name} {depth} loss": each.loss for name, each in runs.items()}
    return arrays


def gap(first, second):
    """The difference of mean accuracies in points."""
    return (mean(first) - mean(second)).times(100)


def claims(arrays):
    for depth in arrays["depths"]:
        data, gaussian, statistics = (arrays[f"{name} {depth}"] for name in WAYS)
        yield Finding(
            f"L = {depth}: networks trained on the data reach 94 % on average", mean(data).above(0.94), spread(data)
        )
        for loss, top, text in (
            (
                gap(data, gaussian),
                5,
                "Gaussian samples cost accuracy, but little: 0 to 5 points (thesis, MNIST: 2.4 ± 0.7)",
            ),
            (
                gap(gaussian, statistics),
                3,
                "the statistical model costs little more: 0 to 3 points (thesis: 0.9 ± 0.4)",
            ),
            (gap(data, statistics), 6, "… 0 to 6 points below the data together (thesis: 3.3 ± 0.6)"),
        ):
            yield Finding(f"L = {depth}: {text}", every(loss.above(0), loss.below(top)), f"{loss:.1f} points")


def figures(arrays):
    depths = arrays["depths"]
    figure, axes = panels(1, len(depths), 4.4, 3.4)
    for axis, depth in zip(axes[0], depths, strict=True):
        bars(axis, ["data", "Gaussian\nsamples", "statistical\nmodel"], [arrays[f"{name} {depth}"] for name in WAYS])
        axis.set_title(f"L = {depth}")
    text = "Dots: initialisations; always evaluated as networks on test data. Mean and standard deviation beside."
    found = [("What networks learn from", text, figure)]
    if "real" in arrays:
        images, axes = panels(2, 6, 1.1, 1.2, margin=0.6)
        for row, name in zip(axes, ("real", "drawn"), strict=True):
            for axis, image in zip(row, arrays[name], strict=True):
                axis.imshow(image, cmap="gray_r")
                axis.set_axis_off()
        found.append(("Data above, draws from the Gaussian surrogate below", "Not matched in class.", images))
    return found
