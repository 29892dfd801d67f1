"""Figure 2.3: how far relu networks' outputs are from the statistical model's mixture, over width and depth, random and trained.

D̂ = D_KL/H in 60 equal bins (the thesis does not give its bins).

small: 100 seconds on two cores, very busy with other work; no data.
paper: 50 networks of every size, up to width 100 and depth 6.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np
from matplotlib.ticker import MaxNLocator

from configs.papers.beyond_gaussian.mixtures import BEST_XOR, divergences, spread, trained_xor, xor_task
from limits.cumulants import sample, xor_mixture
from train.study.figure import COLOURS, Finding, Settings, every, mean, median, panels

PHASES = ("random", "trained")

get_config = Settings(
    "fig2_3",
    {
        "activation": "relu", "widths": (10, 30), "depths": (1, 2, 4), "members": 6, "random": 30, "samples": 10_000,
        "shown": 30_000, "steps": 4000, "bins": 60,
    },
    {
        "widths": (10, 30, 100), "depths": (1, 2, 4, 6), "members": 50, "random": 50, "samples": 100_000, "shown": 100_000,
        "steps": 20_000,
    },
)  # fmt: skip


def run(config, screen):
    task = xor_task(config.samples, config.seed)
    x, t = sample(xor_mixture(), config.shown, config.seed + 2)
    shape = (len(config.widths), len(config.depths))
    arrays = {"widths": np.array(config.widths), "depths": np.array(config.depths)}
    arrays |= {name: np.zeros((*shape, n)) for name, n in zip(PHASES, (config.random, config.members), strict=True)}
    arrays["accuracy"] = np.zeros((*shape, config.members))
    for i, width in enumerate(config.widths):
        for j, depth in enumerate(config.depths):
            screen.print(f"N = {width}, L = {depth}")
            both = trained_xor(
                width, depth, config.activation, task, config.members, config.steps, config.seed, screen, config.random
            )
            for name, trained in zip(PHASES, both, strict=True):
                arrays[name][i, j] = divergences(trained, x, config.bins)
            arrays["accuracy"][i, j] = both[1].accuracy(x, t)
    return arrays


def claims(arrays, small=(0.01, 0.02), accuracy=(0.97, 0.003)):
    """small: bounds of random networks' median D̂ at one layer and at the deepest; accuracy: expected, and how far off."""
    found = {name: median(arrays[name], -1) for name in PHASES}  # [width, depth]
    table = "; ".join(f"{name}: {found[name]}" for name in PHASES)
    depths, widths = arrays["depths"], arrays["widths"]
    shallow, deep = (found["random"].at(slice(None), l) for l in (0, -1))
    rises = {name: each.at(slice(None), -1).log() - each.at(slice(None), 0).log() for name, each in found.items()}
    logs = found["random"].log()
    powers = (logs.at(-1) - logs.at(0)).times(1 / np.log(widths[-1] / widths[0]))
    reached = mean(arrays["accuracy"].mean((0, 1)))
    yield Finding(
        f"Random networks: median D̂ below {small[0]:g} at L = {depths[0]}, below {small[1]:g} at L = {depths[-1]}",
        every(shallow.below(small[0]), deep.below(small[1])),
        f"by width {shallow} and {deep}",
    )
    yield Finding(
        "Deviations grow with depth",
        every(*(each.above(0) for each in rises.values())),
        f"log of D̂ at L = {depths[-1]} over that at L = {depths[0]}, by width: "
        + "; ".join(f"{name} {each:.2f}" for name, each in rises.items()),
    )
    yield Finding(
        "They are larger in trained networks, at every size",
        (found["trained"].log() - found["random"].log()).above(0),
        table,
    )
    yield Finding(
        "… and remain modest: median D̂ of trained networks below 0.1",
        found["trained"].below(0.1),
        f"{found['trained']}",
    )
    yield Finding(
        f"No clear change with width from N = {widths[0]} to {widths[-1]}: the power of N in the median D̂ of random networks "
        "is within 1/4 of none (fluctuations would have −1)",
        powers.near(0, 0.25),
        f"{powers:.2f} at L = {depths.tolist()}",
    )
    yield Finding(
        f"Trained networks reach {accuracy[0]:.2%} ± {accuracy[1]:.2%} on average (best possible {BEST_XOR:.1%})",
        reached.near(*accuracy),
        f"{reached:.2%}; {spread(arrays['accuracy'])} over networks of all sizes",
    )


def figures(arrays):
    figure, axes = panels(1, 2, 4.4, 3.4)
    for axis, name in zip(axes[0], PHASES, strict=True):
        for width, each, colour in zip(arrays["widths"], arrays[name], COLOURS, strict=False):
            low, middle, high = np.quantile(each, (0.25, 0.5, 0.75), axis=-1)
            axis.errorbar(
                arrays["depths"],
                middle,
                [middle - low, high - middle],
                fmt="o-",
                color=colour,
                capsize=3,
                label=f"N = {width}",
            )
        axis.set(xlabel="depth L", ylabel="D̂", yscale="log", title=name)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    limits = [f(axis.get_ylim()[i] for axis in axes[0]) for i, f in enumerate((min, max))]
    for axis in axes[0]:
        axis.set_ylim(limits)
    axes[0, 0].legend(fontsize=8)
    return [("Distance of outputs from the statistical model", "Medians and quartiles over networks.", figure)]
