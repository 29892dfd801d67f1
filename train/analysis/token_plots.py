"""Pictures of sequences: the loss at every position, and where attention looks."""

from typing import TYPE_CHECKING

import numpy as np

from train.analysis.plots import Runs
from train.evaluate.drawing import colour, legend_beside, panels

if TYPE_CHECKING:
    import matplotlib.figure

_LAYERS, _HEADS = 4, 6  # that a picture has room for


def positions(runs: Runs) -> "matplotlib.figure.Figure":
    """Cross-entropy at every position of training points (left) and test points, at the first (dotted) and last checkpoint."""
    shown = [side for side in ("train", "test") if any(side in run["positions"] for run in runs.values())]
    figure, axes = panels(1, len(shown), 4.2, 3.4)
    for axis, side in zip(axes.flat, shown, strict=True):
        for number, (label, run) in enumerate(runs.items()):
            loss = run["positions"].get(side, np.empty((0, 0)))
            for t, style in ((0, ":"), (-1, "-"))[-min(len(loss), 2) :]:
                at = np.arange(1, loss.shape[1] + 1)
                axis.plot(at, loss[t], style, lw=1.2, color=colour(number), label=label if t else None)
        axis.set(xscale="log", xlabel="position", title=f"{side} points")
    axes[0, 0].set_ylabel("cross-entropy, nats")
    legend_beside(figure, axes, "dotted: first step")
    return figure


def attention(runs: Runs) -> "matplotlib.figure.Figure":
    """Of the first run at its last checkpoint: the mean weight of every position for every query, by layer and head."""
    label, run = next(iter(runs.items()))
    maps = run["attention"]["maps"][-1]
    layers = np.unique(np.linspace(0, len(maps) - 1, min(len(maps), _LAYERS)).astype(int))
    figure, axes = panels(len(layers), min(maps.shape[1], _HEADS), 2.1, 2.1, margin=0.6)
    for row, layer in zip(axes, layers, strict=True):
        for head, axis in enumerate(row):
            size = np.arange(1, maps.shape[-1] + 1)
            own = maps[layer, head] / np.maximum(
                maps[layer, head].max(-1, keepdims=True), 1e-12
            )  # each query by itself
            axis.imshow(own, cmap="viridis", vmin=0, vmax=1, extent=(0.5, size[-1] + 0.5, size[-1] + 0.5, 0.5))
            axis.grid(False)
            axis.set_title(f"block {layer + 1}, head {head + 1}", fontsize=8)
            axis.tick_params(labelsize=7)
        row[0].set_ylabel("query", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("key", fontsize=8)
    figure.suptitle(f"{label}, step {run['steps'][-1]}", fontsize=9)
    return figure


def spread(runs: Runs) -> "matplotlib.figure.Figure":
    """Over steps, mean over heads: entropy of attention (1: all keys alike), and how far back it looks; first and last layer."""
    figure, axes = panels(1, 2, 4.0, 3.2)
    words = {"entropy": "entropy / log of keys", "distance": "positions between query and key"}
    for axis, (name, word) in zip(axes.flat, words.items(), strict=True):
        for number, (label, run) in enumerate(runs.items()):
            values = run["attention"][name].mean(-1)
            for layer, style in {0: "--", values.shape[1] - 1: "-"}.items():
                last = layer == values.shape[1] - 1
                axis.plot(
                    run["steps"], values[:, layer], f"o{style}", ms=3, lw=1.2, color=colour(number),
                    label=label if last else None,
                )  # fmt: skip
        axis.set(xlabel="step", ylabel=word)
        if max(max(run["steps"]) for run in runs.values()) > 0:
            axis.set_xscale("symlog", linthresh=1)
            axis.set_xlim(left=0)
    legend_beside(figure, axes, "dashed: first layer, solid: last")
    return figure
