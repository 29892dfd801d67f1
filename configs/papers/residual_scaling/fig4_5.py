"""Figure 4.5: the best residual scale depends on the depth much more than on the variances of weights and biases.

small: 30 seconds on two cores, handwritten digits 0 and 3.
paper: CIFAR-10, dogs and airplanes, on finer grids.
"""

import numpy as np
from matplotlib.colors import LogNorm
from rich.progress import track

from configs.papers.residual_scaling.shared import (
    COVARIANCE,
    DIAGONAL,
    elements,
    inner,
    matrix,
    overlaps,
    samples,
    settings,
)
from limits.depth import optimal_scale
from train.evaluate.claim import Claim
from train.evaluate.page import panels

AXES = {"weights": "σ_w²", "biases": "σ_b²"}
KINDS = (DIAGONAL, COVARIANCE)


def get_config(size="small"):
    small = {
        "dataset": "digits", "classes": (0, 3), "count": 20, "depths": (10, 20, 50, 100, 200),
        "weights": (0.5, 0.75, 1.0, 1.25, 1.5, 2.0), "biases": (0.0, 0.025, 0.05, 0.1, 0.15, 0.2),
    }  # fmt: skip
    paper = {
        "dataset": "cifar10", "classes": (5, 0), "count": 20, "depths": (10, 20, 35, 50, 75, 100, 150, 200),
        "weights": tuple(np.linspace(0.5, 2, 16).tolist()), "biases": tuple(np.linspace(0, 0.2, 17).tolist()),
    }  # fmt: skip
    return settings("fig4_5", size, small, paper)


def run(config, folder, screen, part):
    k0 = overlaps(samples(config.dataset, config.classes, config.count, config.seed))
    arrays = {name: np.array(config[name]) for name in ("depths", *AXES)}
    for name in AXES:
        found = []
        for depth in track(config.depths, name, console=screen):
            pairs = [(v, 0.05) if name == "weights" else (1.25, v) for v in config[name]]
            best = [elements(optimal_scale(k0, depth, w**0.5, b**0.5)) for w, b in pairs]
            found.append([[(inner(part).mean() if len(inner(part)) else np.nan) for part in each] for each in best])
        arrays[f"best {name}"] = np.array(found)  # [depth, value, kind]
    return arrays


def factors(arrays, name, kind):
    """Largest over smallest ρ*: over depths, and over the values of a variance; the middle of each other axis."""
    best = arrays[f"best {name}"][..., kind]
    over_depth, over_value = best[:, best.shape[1] // 2], best[len(best) // 2]
    return [np.nanmax(each) / np.nanmin(each) for each in (over_depth, over_value)]


def claims(arrays):
    found, depths = [], arrays["depths"]
    for kind, words in enumerate(KINDS):
        for name, symbol in AXES.items():
            by_depth, by_value = factors(arrays, name, kind)
            span = arrays[name]
            found.append(
                Claim(
                    f"ρ* of {words} depends on L more than on {symbol}",
                    bool(by_depth > by_value),
                    f"a factor of {by_depth:.2f} over L = {depths[0]} to {depths[-1]}, of {by_value:.2f} over {symbol} = "
                    f"{span[0]:g} to {span[-1]:g}",
                )
            )
            found.append(
                Claim(
                    f"… and on {symbol} weakly: by a factor below 1.5",
                    bool(by_value < 1.5),
                    f"a factor of {by_value:.2f}",
                )
            )
    return found


def figures(arrays):
    figure, axes = panels(2, 2, 4.6, 3.2)
    for row, (kind, words) in zip(axes, enumerate(KINDS), strict=True):
        for axis, (name, symbol) in zip(row, AXES.items(), strict=True):
            limits = [arrays[f"best {each}"][..., kind] for each in AXES]
            norm = LogNorm(min(map(np.nanmin, limits)), max(map(np.nanmax, limits)))
            best = arrays[f"best {name}"][..., kind]
            matrix(axis, best, f"{words}", figure, "mean ρ*", norm=norm, aspect="auto", origin="lower", cmap="viridis")
            axis.set_yticks(range(len(best)), [str(d) for d in arrays["depths"]])
            ticks = np.arange(0, best.shape[1], max(1, best.shape[1] // 6))
            axis.set_xticks(ticks, [f"{arrays[name][i]:.3g}" for i in ticks])
            axis.set(xlabel=symbol, ylabel="depth L")
    return [("Mean best residual scale over a data set", "Grey: no element has an inner optimum.", figure)]
