"""Figure C.1: the response of a residual network fades more slowly than exponentially, as a power of the layer later on.

small: 1 minute on two cores, no data.
paper: 1000 networks of width 500, 100 inputs; minutes on an accelerator.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np

from configs.papers.residual_scaling.shared import COVARIANCE, DIAGONAL, at_theory, points, rates, simulated, theory
from train.study.figure import Finding, Settings, every, jackknife, panels

KINDS = {DIAGONAL: ((0, 0), "#0072b2"), COVARIANCE: ((0, 1), "#009e73")}
FAR = 2000  # layers of the theory
STRETCH = 5  # layers over which a rate is taken

get_config = Settings(
    "figC1", {"depth": 20, "width": 250, "networks": 1500, "pairs": 20}, {"width": 500, "networks": 1000, "pairs": 50}
)


def run(config, screen):
    drawn, found = simulated(config, config.depth, 1.0, screen), theory(FAR, 1.0)
    arrays = {f"eta {kind}": drawn[f"eta {kind}"] for kind in KINDS}
    return arrays | {f"theory {kind}": found.eta[(slice(1, None), *element)] for kind, (element, _) in KINDS.items()}


def slowing(eta):
    """The last rate −d ln η / dl over the largest, of the mean over networks; not a number where that is not positive."""
    each = rates(eta)
    return each[-STRETCH:].mean() / each[:-STRETCH].max()


def claims(arrays):
    for kind in KINDS:
        measured, expected = arrays[f"eta {kind}"], arrays[f"theory {kind}"]
        yield at_theory(kind, measured, expected[: measured.shape[1]])
        share = jackknife(slowing, measured)
        yield Finding(
            f"{kind}: the decay is slower than exponential: the rate over the last {STRETCH} layers is positive and below "
            "half the largest before",
            every(share.above(0), share.below(0.5)),
            f"{share:.3f} of it",
        )


def figures(arrays):
    figure, axes = panels(1, 2, 4.6, 3.6)
    for axis in axes[0]:
        axis.set(yscale="log")
        for kind, (_, colour) in KINDS.items():
            each = arrays[f"eta {kind}"]
            layers = np.arange(1, each.shape[1] + 1)
            axis.plot(layers, arrays[f"theory {kind}"][: len(layers)], color=colour, label=kind)
            error = 2 * each.std(0, ddof=1) / len(each) ** 0.5
            points(axis, layers, each, error, fmt="o", color=colour)
        axis.set(xlabel="layer l", ylabel="response η")
    axes[0, 1].set(xscale="log")
    for axis, ticks in zip(axes[0], ((1, 5, 10, 15, 20), (1, 2, 5, 10, 20)), strict=True):
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.tick_params(axis="x", which="minor", length=0)
    axes[0, 0].legend(fontsize=8)
    return [("Responses of residual kernels", "Lines: theory. Points: networks, with two standard errors.", figure)]
