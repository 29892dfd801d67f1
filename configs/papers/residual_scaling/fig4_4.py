"""Figure 4.4: the output's response has one largest value over residual scales, at ρ* ∝ 1/√L.

small: 20 seconds on two cores, no data.
paper: the same setting, on a finer grid of scales.
found: theory alone, tested in tests/limits/depth/test_residual_scale.py.
"""

import numpy as np

from configs.papers.residual_scaling.shared import COVARIANCE, DIAGONAL, K0, SMALL
from limits.depth import deep_scale, estimated_scale, log_response, optimal_scale
from train.study.figure import Settings, panels

KINDS = (DIAGONAL, COVARIANCE)
TESTED = "tests/limits/depth/test_residual_scale.py"
COLOURS = {DIAGONAL: "#0072b2", COVARIANCE: "#009e73"}

get_config = Settings("fig4_4", {"depths": (10, 50, 100, 200), "points": 200}, {"points": 2000})


def run(config):
    rho = np.geomspace(0.01, 3.0, config.points)
    best = np.array([optimal_scale(K0, depth, **SMALL)[0] for depth in config.depths])
    closed = [estimated_scale(K0[0, 0], depth, **SMALL).item() for depth in config.depths]
    heights = np.array([log_response(K0, depth, rho, **SMALL) for depth in config.depths])
    return {
        "depths": np.array(config.depths), "rho": rho, "log_response": heights, "best": best, "estimate": np.array(closed),
        "deep": deep_scale(K0, **SMALL)[0],
    }  # fmt: skip


def figures(arrays):
    figure, axes = panels(1, 3, 4.0, 3.5)
    shades = ("#9ecae1", "#6baed6", "#2171b5", "#08306b")
    for i, kind in enumerate(KINDS):
        axis = axes[0, i]
        for depth, each, best, shade in zip(
            arrays["depths"], arrays["log_response"], arrays["best"], shades, strict=False
        ):
            axis.semilogx(arrays["rho"], np.exp(each[i]), color=shade, label=f"L = {depth}")
            axis.axvline(best[i], color=shade, lw=0.7, ls=":")
        axis.set(xlabel="residual scale ρ", ylabel="response of the output", title=kind)
    axis, depths = axes[0, 2], arrays["depths"]
    for i, kind in enumerate(KINDS):
        axis.loglog(depths, arrays["best"][:, i], "o", color=COLOURS[kind], label=f"ρ*, {kind}")
        axis.loglog(
            depths, arrays["deep"][i] / depths**0.5, color=COLOURS[kind], lw=1, label=f"{arrays['deep'][i]:.3f} / √L"
        )
    axis.loglog(depths, arrays["estimate"], "kx", ms=5, label="closed estimate")
    axis.set(xlabel="depth L", ylabel="ρ*")
    axis.set_xticks(depths, [str(d) for d in depths])
    axis.minorticks_off()
    axes[0, 0].legend(fontsize=8)
    axis.legend(fontsize=7)
    return [("Response of the output and its maximum", "Dotted: ρ*. Lines on the right: the deep limit.", figure)]
