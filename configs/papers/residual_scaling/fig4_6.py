"""Figure 4.6: the best residual scale depends on the angle between inputs, and is much the same over a real data set.

small: 30 seconds on two cores, handwritten digits (0 and 3, 1 and 7).
paper: MNIST, 0 and 3; CIFAR-10, dogs and airplanes. The paper does not say its depth; L = 50 here.
found: 2 of 2 claims hold.
"""

import numpy as np

from configs.papers.residual_scaling.shared import DIGITS, IMAGES, SMALL, elements, inner, matrix, overlaps, samples
from limits.depth import optimal_scale
from train.study.figure import Finding, Settings, jackknife, panels

get_config = Settings("fig4_6", {"tasks": DIGITS, "count": 20, "depth": 50}, {"tasks": IMAGES})


def run(config):
    angles = np.arange(config.count) * np.pi / config.count
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    arrays = {"angles": optimal_scale(overlaps(circle), config.depth, **SMALL), "depth": np.array(config.depth)}
    for dataset, *classes in config.tasks:
        k0 = overlaps(samples(dataset, tuple(classes), config.count, config.seed))
        arrays[f"{dataset} {classes[0]}, {classes[1]}"] = optimal_scale(k0, config.depth, **SMALL)
    return arrays


def by_angle(arrays):
    """(angles between inputs, ρ*) of the first input with the others; the angle is below π."""
    best = arrays["angles"][0, 1:]
    return np.arange(1, len(best) + 1) * np.pi / (len(best) + 1), best


def spread(values):
    return values.std() / values.mean()


def claims(arrays):
    over_angles = spread(by_angle(arrays)[1])
    for name in arrays:
        if name not in ("angles", "depth"):
            best = arrays[name]
            over = elements(best)[1]
            part = jackknife(
                lambda kept, best=best: spread(elements(best[np.ix_(kept, kept)])[1]), np.arange(len(best))
            )
            whole = len(inner(over)) == len(over)
            yield Finding(
                f"Over pairs of {name} ρ* is homogeneous: its relative spread is below half of that over angles",
                part.below(over_angles / 2) if whole else None,
                f"{over.mean():.3f}, spread {part:.0%}, {len(over) - len(inner(over))} of {len(over)} without "
                f"optimum; over angles {over_angles:.0%}",
            )


def figures(arrays):
    names = [name for name in arrays if name != "depth"]
    figure, axes = panels(1, len(names) + 1, 3.9, 3.4)
    shown = {name: np.where(np.isfinite(arrays[name]), arrays[name], np.nan) for name in names}
    for each in shown.values():
        np.fill_diagonal(each, np.nan)
    top = max(np.nanmax(each) for each in shown.values())
    for axis, name in zip(axes[0], names, strict=False):
        title = "angles 0 to π" if name == "angles" else name
        matrix(axis, shown[name], title, figure, "ρ*", vmin=0, vmax=top, cmap="viridis")
        axis.set(xlabel="input", ylabel="input")
    angles, best = by_angle(arrays)
    axes[0, -1].plot(np.rad2deg(angles), best, "o-", ms=4)
    axes[0, -1].set(xlabel="angle between inputs, degrees", ylabel="ρ*", xlim=(0, 180), ylim=(0, None))
    text = f"Covariances, at depth {int(arrays['depth'])}, inputs sorted by class. Variances, which are all equal, are left out."
    return [("Best residual scale over pairs of inputs", text, figure)]
