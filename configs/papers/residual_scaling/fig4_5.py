"""Figure 4.5: whether the best residual scale depends on the depth more than on the variances of weights and biases.

small: 30 seconds on two cores, handwritten digits 0 and 3.
paper: CIFAR-10, dogs and airplanes, on finer grids.
found: 4 of 8 claims hold; not: ρ* of variances falls up to the power −.96 of σ_b² and by a factor of 2.6, of covariances to the
power −.65 of σ_w² and by 2.3; with L to the powers −.67 to −.50.
"""

import numpy as np
from matplotlib.colors import LogNorm
from rich.progress import track

from configs.papers.residual_scaling import shared
from limits.depth import optimal_scale
from train.study.figure import Finding, Settings, exact, panels

AXES = {"weights": "σ_w²", "biases": "σ_b²"}
KINDS = (shared.DIAGONAL, shared.COVARIANCE)

get_config = Settings(
    "fig4_5",
    {
        "dataset": "digits", "classes": (0, 3), "count": 20, "depths": (10, 20, 50, 100, 200),
        "weights": (0.5, 0.75, 1.0, 1.25, 1.5, 2.0), "biases": (0.0, 0.025, 0.05, 0.1, 0.15, 0.2),
    },
    {
        "dataset": "cifar10", "classes": (5, 0), "depths": (10, 20, 35, 50, 75, 100, 150, 200),
        "weights": tuple(np.linspace(0.5, 2, 16).tolist()), "biases": tuple(np.linspace(0, 0.2, 17).tolist()),
    },
)  # fmt: skip


def run(config, screen):
    k0 = shared.overlaps(shared.samples(config.dataset, config.classes, config.count, config.seed))
    arrays = {name: np.array(config[name]) for name in ("depths", *AXES)}
    for name in AXES:
        found = []
        for depth in track(config.depths, name, console=screen):
            pairs = [(v, 0.05) if name == "weights" else (1.25, v) for v in config[name]]
            best = [shared.elements(optimal_scale(k0, depth, w**0.5, b**0.5)) for w, b in pairs]
            found.append(
                [[(shared.inner(part).mean() if len(shared.inner(part)) else np.nan) for part in each] for each in best]
            )
        arrays[f"best {name}"] = np.array(found)  # [depth, value, kind]
    return arrays


def powers(arrays, name, kind):
    """(d ln ρ*/d ln L, d ln ρ*/d ln of a variance) between neighbours of the grid; variances of zero are left out."""
    best, values = np.log(arrays[f"best {name}"][..., kind]), arrays[name]
    by_depth = np.diff(best, axis=0) / np.diff(np.log(arrays["depths"]))[:, None]
    return by_depth, np.diff(best[:, values > 0], axis=1) / np.diff(np.log(values[values > 0]))


def claims(arrays):
    for kind, words in enumerate(KINDS):
        for name, symbol in AXES.items():
            by_depth, by_value = powers(arrays, name, kind)
            least, most = (-by_depth).min(), abs(by_value).max()
            span, middle = arrays[name], arrays[f"best {name}"][len(arrays["depths"]) // 2, :, kind]
            factor = middle.max() / middle.min()
            yield Finding(
                f"ρ* of {words} falls with L more steeply than it changes with {symbol}, at every point of the grid",
                exact(least - most).above(0),
                f"power of L {by_depth.min():.2f} to {by_depth.max():.2f}, of {symbol} {by_value.min():.2f} to "
                f"{by_value.max():.2f}",
            )
            yield Finding(
                f"… and depends weakly on {symbol}: by a factor below 1.5 from {span[0]:g} to {span[-1]:g}",
                exact(factor).below(1.5),
                f"a factor of {factor:.2f} in the middle of the depths",
            )


def figures(arrays):
    figure, axes = panels(2, 2, 4.6, 3.2)
    for row, (kind, words) in zip(axes, enumerate(KINDS), strict=True):
        for axis, (name, symbol) in zip(row, AXES.items(), strict=True):
            limits = [arrays[f"best {each}"][..., kind] for each in AXES]
            norm = LogNorm(min(map(np.nanmin, limits)), max(map(np.nanmax, limits)))
            best = arrays[f"best {name}"][..., kind]
            shared.matrix(
                axis, best, f"{words}", figure, "mean ρ*", norm=norm, aspect="auto", origin="lower", cmap="viridis"
            )
            axis.set_yticks(range(len(best)), [str(d) for d in arrays["depths"]])
            ticks = np.arange(0, best.shape[1], max(1, best.shape[1] // 6))
            axis.set_xticks(ticks, [f"{arrays[name][i]:.3g}" for i in ticks])
            axis.set(xlabel=symbol, ylabel="depth L")
    return [("Mean best residual scale over a data set", "Grey: no element has an inner optimum.", figure)]
