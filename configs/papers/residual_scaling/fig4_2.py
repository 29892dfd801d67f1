"""Figure 4.2: residual kernels and responses fade exponentially in feed-forward networks, and slowly with skip connections.

small: 1 minute on two cores, no data.
paper: 1000 networks of width 500, 100 inputs; minutes on an accelerator.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np

from configs.papers.residual_scaling.shared import (
    COVARIANCE,
    DIAGONAL,
    ELEMENTS,
    at_theory,
    points,
    rates,
    simulated,
    theory,
)
from train.study.figure import Finding, Settings, every, jackknife, panels

NETWORKS = {"ResNet": 1.0, "FFNet": None}
COLOURS = {"ResNet": "#0072b2", "FFNet": "#009e73"}

get_config = Settings("fig4_2", {"depth": 10, "width": 300, "networks": 1000, "pairs": 10}, {"width": 500, "pairs": 50})


def run(config, screen):
    arrays = {"depth": np.array(config.depth)}
    for name, rho in NETWORKS.items():
        found = theory(config.depth, rho)
        arrays |= {f"{name} {key}": value for key, value in simulated(config, config.depth, rho, screen).items()}
        for kind, element in ELEMENTS.items():
            arrays[f"{name} theory c {kind}"] = found.increments[(slice(1, None), *element)]
            arrays[f"{name} theory eta {kind}"] = found.eta[(slice(1, None), *element)]
    return arrays


def claims(arrays):
    for name in NETWORKS:
        for kind in ELEMENTS:
            for key, words in (("c", "residual kernels"), ("eta", "responses")):
                measured, expected = (arrays[f"{name} {which}{key} {kind}"] for which in ("", "theory "))
                yield at_theory(f"{name}, {words}, {kind}", measured, expected)
    steady, slow = (jackknife(rates, arrays[f"{name} eta {DIAGONAL}"]) for name in ("FFNet", "ResNet"))
    slower = jackknife(lambda eta: np.diff(rates(eta)), arrays[f"ResNet eta {DIAGONAL}"])
    later = steady.at(slice(len(steady.value) // 2, None))
    yield Finding(
        "The response of FFNets fades exponentially: at one rate, within 5 %, in the later layers",
        every(later.above(0), later.alike(1.05)),
        f"rates {later:.3f} a layer",
    )
    yield Finding(
        "That of ResNets fades ever more slowly: its rate falls from layer to layer and ends below a third of the FFNets'",
        every(slow.above(0), slower.below(0), (slow.at(-1) - steady.at(len(steady.value) // 2).times(1 / 3)).below(0)),
        f"rates {slow:.3f} a layer",
    )


def figures(arrays):
    figure, axes = panels(1, 2, 4.6, 3.8)
    axes[0, 1].set(yscale="log")
    layers = np.arange(1, int(arrays["depth"]) + 1)
    for axis, key, words in zip(axes[0], ("c", "eta"), ("residual kernel C", "response η"), strict=True):
        for name, colour in COLOURS.items():
            for kind, marker, line in ((DIAGONAL, "o", "-"), (COVARIANCE, "s", "--")):
                each = arrays[f"{name} {key} {kind}"]
                axis.plot(
                    layers, arrays[f"{name} theory {key} {kind}"], line, color=colour, lw=1.3, label=f"{name}, {kind}"
                )
                bars = each.std(0) if key == "c" else 2 * each.std(0) / len(each) ** 0.5
                points(axis, layers, each, bars, fmt=marker, color=colour)
        axis.set(xlabel="layer l", ylabel=words)
    axes[0, 1].legend(fontsize=7)
    text = "Lines: theory. Points: networks with weights; bars: one standard deviation (left), two standard errors (right; "
    text += "points within two of zero are left out)."
    return [("Residual kernels and responses over layers", text, figure)]
