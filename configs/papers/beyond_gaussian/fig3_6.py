"""Figure 3.6: feature learning trades the response, largest near criticality, against the error signal of small weights.

Kernels are those of infinite width and forces follow from them in one backward pass, as in the source. Not repeated: panel (e),
the alignment of trained networks 20 layers deep.

small: half a minute on two cores, no data.
paper: 10 data sets and a finer grid; minutes on two cores, no data.
found: 3 of 3 claims hold.
"""

import numpy as np
from rich.progress import track

from configs.papers.beyond_gaussian.posteriors import BIAS, NOISE, SHADES, away, banded, clusters, layers
from limits.depth import edge_of_chaos, response
from limits.posterior import backpropagated, output_force, prior_kernels, response_to_output
from train.study.figure import Finding, Settings, every, jackknife, mean, panels

CURVES = (0.6, 0.825, 1.1, 1.38, 2.2)

get_config = Settings("fig3_6", {"depth": 20, "samples": 12, "sets": 3, "points": 31}, {"sets": 10, "points": 91})


def run(config, screen):
    grid = np.linspace(0.6, 2.4, config.points)
    seeds = range(config.seed, config.seed + config.sets)
    curves = {name: np.zeros((config.sets, len(CURVES), config.depth + 1)) for name in ("force", "backward", "forward")}
    slices = {name: np.zeros((config.sets, config.points)) for name in ("first", "response", "error")}
    for i in track(seeds, "data sets", console=screen):
        x, y = clusters(config.samples, i)
        k = i - config.seed
        for j, weight in enumerate(CURVES):
            stack = layers(x, weight, config.depth)
            ahead = response(stack.k0, config.depth, None, weight**0.5, BIAS**0.5)
            curves["forward"][k, j] = [away(each) for each in ahead.chi]
            curves["backward"][k, j] = [away(each) for each in response_to_output(stack)]
            curves["force"][k, j] = [away(each) for each in forces(stack, y)]
        for j, weight in enumerate(grid):
            stack = layers(x, weight, config.depth)
            found = forces(stack, y)
            slices["first"][k, j], slices["error"][k, j] = away(found[1]), away(found[-1])
            slices["response"][k, j] = away(response_to_output(stack)[1])
    return curves | slices | {"grid": grid, "critical": np.array(edge_of_chaos("erf", BIAS**0.5) ** 2)}


def forces(stack, y):
    """C̃^(l) of all layers at infinite width."""
    kernels = prior_kernels(stack)
    return backpropagated(stack, kernels, output_force(kernels[-1], y, NOISE))


def peak(grid, values):
    """Where the mean over data sets is largest, by a parabola through the highest point and its neighbours; NaN at an end."""
    log = np.log(values.mean(0))
    i = int(log.argmax())
    below, at, above = log[i - 1 : i + 2] if 0 < i < len(grid) - 1 else 3 * [np.nan]
    return grid[i] + 0.5 * (below - above) / (below - 2 * at + above) * (grid[1] - grid[0])


def claims(arrays):
    grid, critical = arrays["grid"], float(arrays["critical"])
    most, furthest = (jackknife(lambda each: peak(grid, each), arrays[name]) for name in ("first", "response"))
    force = np.log(arrays["force"])
    smallest, middle = CURVES.index(0.6), CURVES.index(0.825)
    first, last = (mean(force[:, middle, l] - force[:, smallest, l]) for l in (1, -1))
    yield Finding(
        "The response reaches furthest near the critical point: its largest value is within .3 of it",
        furthest.near(critical, 0.3),
        f"largest at {furthest}, the critical point at {critical:.4f}",
    )
    yield Finding(
        "The force on the first layer is largest at a variance near .825 (± .035), below the critical one",
        every(most.near(0.825, 0.035), most.below(critical)),
        f"at {most}",
    )
    yield Finding(
        "Curves of the force over layers cross: at the output that of variance .6 is above that of .825, at layer 1 below",
        every(first.above(0), last.below(0)),
        f"log of the force at .825 over that at .6: {first:.2f} at layer 1, {last:.2f} at the output",
    )


def figures(arrays):
    figure, axes = panels(2, 2, 4.6, 3.2)
    depth = np.arange(arrays["force"].shape[2])
    words = {"forward": "forward response χ→", "backward": "response to the output χ←", "force": "force |C̃|"}
    for axis, (name, text) in zip(axes.flat, words.items(), strict=False):
        for j, (weight, colour) in enumerate(zip(CURVES, SHADES, strict=True)):
            axis.plot(depth, arrays[name][:, j].mean(0), color=colour, label=f"σ_w² = {weight:g}")
        axis.set(yscale="log", xlabel="layer l", ylabel=text, xticks=range(0, len(depth), 5))
    axes[0, 0].legend(fontsize=7)
    axis, grid = axes[1, 1], arrays["grid"]
    for name, text, colour in (("first", "force at l = 1", SHADES[0]), ("error", "error signal, l = L", SHADES[3]),
                               ("response", "response at l = 1", SHADES[2])):  # fmt: skip
        top = arrays[name].mean(0).max()
        banded(axis, grid, arrays[name] / top, color=colour, label=f"{text} / {top:.2g}")
    axis.axvline(float(arrays["critical"]), color="0.4", lw=0.8, ls=":")
    axis.set(xlabel="weight variance σ_w²", ylabel="over the largest mean", yscale="log", ylim=(1e-6, 3))
    axis.legend(fontsize=7)
    text = (
        "Means over entries off the diagonal and data sets; bars: one standard deviation; dotted: the critical point."
    )
    return [("Responses and forces over layers, and over the weight variance", text, figure)]
