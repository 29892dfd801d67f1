"""Figure C.1: the response of a residual network fades more slowly than exponentially, as a power of the layer later on.

small: 1 minute on two cores, no data.
paper: 1000 networks of width 500, 100 inputs; minutes on an accelerator.
"""

import numpy as np

from configs.papers.residual_scaling.shared import COVARIANCE, DIAGONAL, agrees, points, settings, simulated, theory
from train.evaluate.claim import Claim
from train.evaluate.page import panels

KINDS = {DIAGONAL: ((0, 0), "#0072b2"), COVARIANCE: ((0, 1), "#009e73")}
FAR = 2000  # layers, for the exponent


def get_config(size="small"):
    small = {"depth": 20, "width": 250, "networks": 1500, "pairs": 20}
    paper = {"depth": 20, "width": 500, "networks": 1000, "pairs": 50}
    return settings("figC1", size, small, paper)


def run(config, folder, screen, part):
    drawn, found = simulated(config, config.depth, 1.0, screen), theory(FAR, 1.0)
    arrays = {f"eta {kind}": drawn[f"eta {kind}"] for kind in KINDS}
    return arrays | {f"theory {kind}": found.eta[(slice(1, None), *element)] for kind, (element, _) in KINDS.items()}


def exponents(eta):
    """d ln η / d ln l between layers."""
    return np.diff(np.log(eta)) / np.diff(np.log(np.arange(1, len(eta) + 1)))


def claims(arrays):
    found = []
    for kind in KINDS:
        measured, expected = arrays[f"eta {kind}"], arrays[f"theory {kind}"]
        holds, figures = agrees(measured, expected[: measured.shape[1]], 0.02)
        found.append(Claim(f"{kind}: networks are at the theory, within 2 % of the largest", holds, figures))
        rates = -np.diff(np.log(expected[: measured.shape[1]]))
        found.append(
            Claim(
                f"{kind}: the decay is slower than exponential: the rate from layer to layer falls to below half its largest",
                bool(rates[-1] < rates.max() / 2),
                f"{rates.max():.3f} to {rates[-1]:.3f}",
            )
        )
    late = np.arange(200, FAR)
    power = np.polyfit(np.log(late), np.log(arrays[f"theory {DIAGONAL}"][late - 1]), 1)[0]
    near = exponents(arrays[f"theory {DIAGONAL}"])[18]
    found.append(
        Claim(
            "Variances: a power law in later layers, l^(−3/2) (exponent −1.52 ± .05 over l = 200 to 2000)",
            bool(abs(power + 1.52) < 0.05),
            f"{power:.3f}; {near:.2f} at l = 20",
        )
    )
    return found


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
