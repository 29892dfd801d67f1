"""Figures of a trajectory."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from limits.finite.observables import OBSERVABLES


def plot_trajectory(run: Any, points: int = 6) -> Figure:
    """Loss, predictions (mean ± 2 standard deviations over initialisations), kernels' mean diagonals over time."""
    named = _kernels(run)
    figure = Figure(figsize=(13 if named else 9, 3.6), layout="constrained")
    loss, outputs, *others = axes = figure.subplots(1, 2 + bool(named))
    for name, style in (("loss", "-"), ("test_loss", "--")):
        if run.has(name):
            value, sem = getattr(run, name), getattr(run, f"{name}_sem")
            loss.plot(run.times, value, style, label=name.replace("_", " "))
            loss.fill_between(run.times, value - 2 * sem, value + 2 * sem, alpha=0.25)
    loss.set(xlabel="step", title="loss")
    if run.has("f_train"):
        f = run.f_train[:, :points, 0]
        spread = np.zeros_like(f)
        if run.has("f_train_cov"):
            spread = np.sqrt(np.maximum(np.diagonal(run.f_train_cov, axis1=1, axis2=2)[:, :points], 0))
        for i in range(f.shape[1]):
            (line,) = outputs.plot(run.times, f[:, i], label=f"point {i}")
            outputs.fill_between(
                run.times, f[:, i] - 2 * spread[:, i], f[:, i] + 2 * spread[:, i], alpha=0.08, color=line.get_color()
            )
        outputs.set(xlabel="step", title="training outputs, ± 2 standard deviations")
    for label, kernel in named:
        style = {"color": "k"} if label == OBSERVABLES["ntk"].symbol else {}
        others[0].plot(run.times_of_kernels, np.einsum("tii->t", kernel) / kernel.shape[-1], label=label, **style)
        others[0].set(xlabel="step", title="mean diagonal of kernels")
    for axis in axes:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(run.source, fontsize=10)
    return figure


def plot_fields(run: Any, point: int = 0) -> Figure:
    """Histograms over neurons of the signals h and the gradients g of one input, at the first and the last recorded time.

    For runs of `rich` with record=("fields",). Dashed: a Gaussian of the same variance as at the first time.
    """
    if "h" not in run.observed:
        raise ValueError('This run has no samples of fields: ask for them with rich(…, record=("fields",)).')
    rows = [("h", run.observed["h"]), ("g", run.observed["g_fields"])]
    layers = len(rows[0][1])
    figure = Figure(figsize=(1 + 3.2 * layers, 5.2), layout="constrained")
    for line, (name, fields) in zip(figure.subplots(2, layers, squeeze=False), rows, strict=True):
        for l, (axis, field) in enumerate(zip(line, fields, strict=True), start=1):
            first, last = (field[t, point].ravel() for t in (0, -1))
            largest = 1.05 * max(np.abs(first).max(), np.abs(last).max(), 1e-12)
            edges = np.linspace(-largest, largest, 41)
            for values, time in ((first, run.times[0]), (last, run.times[-1])):
                axis.hist(values, edges, density=True, alpha=0.5, label=f"step {time}")
            grid, width = np.linspace(-largest, largest, 200), max(first.std(), 1e-12)
            axis.plot(grid, np.exp(-((grid / width) ** 2) / 2) / (width * (2 * np.pi) ** 0.5), "k--", lw=1)
            axis.set(title=f"{name}, layer {l}", yticks=[])
            axis.spines[["top", "right", "left"]].set_visible(False)
    figure.axes[0].legend(fontsize=8)
    figure.suptitle(f"{run.source}: fields of point {point} over neurons", fontsize=10)
    return figure


def plot_kernels(run: Any) -> Figure:
    """Φ^l, G^l and the tangent kernel as pictures, at the first and the last recorded time."""
    named = _kernels(run)
    if not named:
        raise ValueError('This run has no kernels: ask for them with kernels=("phi", "g", "ntk").')
    figure = Figure(figsize=(1 + 2.1 * len(named), 4.6), layout="constrained")
    first, last = run.times_of_kernels[[0, -1]]
    for column, (title, kernel) in zip(figure.subplots(2, len(named), squeeze=False).T, named, strict=True):
        largest = max(np.quantile(np.abs(kernel[[0, -1]]), 0.97), 1e-12)  # one point far out does not hide the rest
        for axis, t in zip(column, (0, -1), strict=True):
            image = axis.imshow(kernel[t], cmap="RdBu_r", vmin=-largest, vmax=largest)
            axis.set(xticks=[], yticks=[], title=f"step {last}" if t else f"{title}\nstep {first}")
            axis.title.set_fontsize(9)
        figure.colorbar(image, ax=column, shrink=0.6)
    figure.suptitle(run.source, fontsize=10)
    return figure


def _kernels(run: Any) -> list[tuple[str, Any]]:
    """(name, kernel [time, n, n]) of all kernels that the run holds, layer by layer."""
    found: list[tuple[str, Any]] = []
    for name, each in OBSERVABLES.items():
        if run.has(name):
            value = getattr(run, name)
            layers = (
                [(f"{each.symbol}, layer {l}", kernel) for l, kernel in enumerate(value, start=1)]
                if each.layered
                else []
            )
            found += layers or [(each.symbol, value)]
    return [(name, value) for name, value in found if np.ndim(value) == 3]
