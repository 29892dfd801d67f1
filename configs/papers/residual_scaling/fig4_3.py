"""Figure 4.3: the residual scale sets how fast kernels and responses rise over layers.

small: 1 minute on two cores, no data.
paper: 1000 networks of width 500, 100 inputs; minutes on an accelerator.
found: verdicts were not taken again since claims are judged by intervals.
"""

import numpy as np

from configs.papers.residual_scaling.shared import ELEMENTS, at_theory, simulated, theory
from train.study.figure import Settings, panels

SHADES = ("#08306b", "#2171b5", "#6baed6")

get_config = Settings(
    "fig4_3",
    {"depth": 10, "width": 300, "networks": 100, "pairs": 10, "scales": (1.0, 0.3, 0.1)},
    {"width": 500, "networks": 1000, "pairs": 50},
)


def run(config, screen):
    arrays = {"scales": np.array(config.scales)}
    for rho in config.scales:
        found, drawn = theory(config.depth, rho), simulated(config, config.depth, rho, screen)
        for kind, element in ELEMENTS.items():
            kernel, response = found.kernels[(slice(None), *element)], found.chi[(slice(None), *element)]
            arrays |= {f"{rho:g} theory K {kind}": kernel, f"{rho:g} theory chi {kind}": response}
            for key, name, start in (("c", "K", kernel[0]), ("eta", "chi", 1.0)):
                grown = np.pad(drawn[f"{key} {kind}"].cumsum(1), ((0, 0), (1, 0)))
                arrays[f"{rho:g} {name} {kind}"] = start + grown
    return arrays


def claims(arrays):
    for rho in arrays["scales"]:
        for kind in ELEMENTS:
            for name, words in (("K", "kernels"), ("chi", "responses")):
                measured, expected = (arrays[f"{rho:g} {which}{name} {kind}"] for which in ("", "theory "))
                yield at_theory(f"ρ = {rho:g}, {words}, {kind}", measured, expected)


def figures(arrays):
    figure, axes = panels(2, 2, 4.4, 3.0)
    for row, kind in zip(axes, ELEMENTS, strict=True):
        for axis, name, words in zip(row, ("K", "chi"), ("kernel K", "response χ"), strict=True):
            for rho, colour in zip(arrays["scales"], SHADES, strict=False):
                each = arrays[f"{rho:g} {name} {kind}"]
                layers = np.arange(each.shape[1])
                axis.plot(layers, arrays[f"{rho:g} theory {name} {kind}"], color=colour, label=f"ρ = {rho:g}")
                axis.errorbar(layers, each.mean(0), each.std(0), fmt="o", ms=3, color=colour, lw=0.8, capsize=2)
            axis.set(xlabel="layer l", ylabel=f"{words}, {kind}")
    axes[0, 0].legend(fontsize=8)
    text = "Lines: theory. Points: networks; bars: one standard deviation."
    return [("Kernels and responses over layers", text, figure)]
