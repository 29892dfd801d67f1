"""Figures of a trajectory."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure


def plot_trajectory(run: Any, points: int = 6) -> Figure:
    """Loss, predictions (mean ± 2 standard deviations over initialisations), kernels' mean diagonals over time."""
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    loss, outputs, kernels = figure.subplots(1, 3)
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
    for name, label in (("phi", "Φ"), ("g", "G")):
        if run.has(name):
            for l, kernel in enumerate(getattr(run, name), start=1):
                kernels.plot(run.times, np.einsum("tii->t", kernel) / kernel.shape[-1], label=f"{label} {l}")
    if run.has("ntk"):
        kernels.plot(run.times, np.einsum("tii->t", run.ntk) / run.ntk.shape[-1], "k", label="tangent kernel")
    kernels.set(xlabel="step", title="mean diagonal of kernels")
    for axis in (loss, outputs, kernels):
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(run.source, fontsize=10)
    return figure
