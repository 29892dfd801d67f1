"""What the figures of chapter 2 share: networks, tasks given by their statistics, and axes.

The thesis leaves open: the depths of figure 2.5, width and depth of figure 2.6, the width of figure 2.7, the bins of its
divergences. What is used instead stands in each config.
"""

from typing import Any

import numpy as np
import sklearn.datasets

from limits import Task
from limits.cumulants import density, divergence, propagate, sample, xor_mixture
from train.cumulants import train_samples
from train.data.sources import tfds_source
from zoo import MLP
from zoo.activations import Quadratic

STD = 0.75**0.5  # of weights (times √inputs) and biases
BEST_XOR = 0.97497
BLUE, GREEN, GREY = "#0072b2", "#009e73", "0.45"
COLOURS = {1.0: BLUE, -1.0: GREEN}


def network(width, depth, activation: Any = "quadratic", outputs=1, w_std=STD, b_std=STD):
    """A fully connected network with fan-in initialisation."""
    phi = Quadratic(0.5) if activation == "quadratic" else activation
    return MLP(width, depth, outputs, phi, w_std, b_std, parameterization="standard")


def xor_task(count, seed):
    """Samples of the XOR task: as many to train as to test."""
    return Task(*sample(xor_mixture(), count, seed), *sample(xor_mixture(), count, seed + 1))


def labelled(dataset, n_train, n_test, seed):
    """Images (or rows of a table) with one-hot targets: "digits" in [0, 1], "breast_cancer" standardised, or a name of TFDS."""
    if dataset in ("digits", "breast_cancer"):
        bunch: Any = getattr(sklearn.datasets, f"load_{dataset}")()
        x = (
            bunch.images / 16
            if dataset == "digits"
            else (bunch.data - bunch.data.mean(0)) / bunch.data.std(0) / bunch.data.shape[1] ** 0.5
        )
        order = np.random.default_rng(seed).permutation(len(x))[: n_train + n_test]
        x, y = x[order], np.eye(bunch.target.max() + 1)[bunch.target[order]]
        return Task(x[:n_train], y[:n_train], x[n_train:], y[n_train:], name=dataset)
    parts = []
    for split, count in (("train", n_train), ("test", n_test)):
        images, labels = tfds_source(dataset, split).read(np.arange(count))
        parts += [np.asarray(images, np.float64) / 255, labels]
    return Task(*parts, name=dataset)


def spread(values):
    """ "mean ± standard deviation" of shares, in per cent."""
    values = 100 * np.asarray(values)
    return f"{values.mean():.2f} ± {values.std(ddof=1):.2f} %" if values.size > 1 else f"{values.item():.2f} %"


def outputs_and_theory(run, x):
    """([members, n], per member the mixture of its outputs): what networks do with XOR samples and what the model says."""
    f = run.outputs(x)[..., 0]
    return f, [propagate(run.net, run.member(i), xor_mixture())[-1][0] for i in range(run.members)]


def trained_xor(width, depth, activation, task, members, steps, seed, screen, untrained=None):
    """(random networks, networks trained on minibatches of ten XOR samples); untrained: how many of the first, if not as many."""
    net, options = network(width, depth, activation), {"batch": 10, "seed": seed}
    first = train_samples(net, task, untrained or members, 1, learning_rate=0.0, every=1, **options)
    return first, train_samples(net, task, members, steps, progress=not screen.quiet, **options)


def divergences(run, x, bins):
    """D̂ of every member's outputs from the statistical model's mixture."""
    f, theory = outputs_and_theory(run, x)
    return np.array([divergence(y, mixture, bins) for y, mixture in zip(f, theory, strict=True)])


def histogram(axis, y, t, mixture, bins=80):
    """Outputs by class, with the model's mixture: components dashed, classes solid."""
    edges = np.linspace(y.min(), y.max(), bins + 1)
    grid = np.linspace(edges[0], edges[-1], 600)
    for target, colour in COLOURS.items():
        axis.hist(
            y[t == target], edges, density=True, color=colour, alpha=0.3, label=f"networks' outputs, t = {target:+.0f}"
        )
        rows = np.flatnonzero(mixture.target[:, 0] == target)
        share = mixture.probability[rows] / mixture.probability[rows].sum()
        total = np.zeros_like(grid)
        for p, k in zip(share, rows, strict=True):
            one = type(mixture)(
                np.ones(1), mixture.target[[k]], type(mixture.cumulants)(*(c[[k]] for c in mixture.cumulants[:2]))
            )
            total += p * density(one, grid)
            axis.plot(grid, p * density(one, grid), "--", color=colour, lw=0.8)
        axis.plot(grid, total, color=colour, lw=1.6, label=f"statistical model, t = {target:+.0f}")
    axis.axvline(0, color=GREY, lw=0.8)
    axis.set(xlabel="output y", ylabel="density")


def bars(axis, names, values, chance=None):
    """Accuracies in per cent: every network a dot, mean and standard deviation beside."""
    for i, each in enumerate(values):
        each = 100 * np.asarray(each)
        axis.plot(i + np.linspace(-0.15, 0.15, len(each)), each, ".", color=GREY, ms=4)
        axis.errorbar(i + 0.28, each.mean(), each.std(ddof=1), fmt="o", color=BLUE, capsize=3)
        axis.annotate(
            f"{each.mean():.1f}", (i + 0.28, each.mean()), xytext=(5, 0), textcoords="offset points", fontsize=8
        )
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_xlim(-0.5, len(names) - 0.2)
    axis.set(ylabel="accuracy on test data in %")
    if chance is not None:
        axis.axhline(100 * chance, color=GREY, ls=":", lw=1)
