"""Figure 3.7: a smaller readout drives all layers further from their kernels at infinite width.

γ₀ divides the variance of the readout's weights. The width of panel (b) is not printed: that of (a) is taken.

small: 1 minute on two cores, no data.
paper: 10 data sets, more draws; minutes on two cores, no data.
found: 2 of 3 claims hold; not: the growth is less than linear, ΔCKA at γ₀ = 3 is 1.5 to 2.2 times that at 1.
"""

import numpy as np
from rich.progress import track

from configs.papers.beyond_gaussian import posteriors
from limits.posterior import DivergenceError, prior_kernels, solve
from train.study.figure import Finding, Settings, jackknife, mean, panels

SCALES = (1.0, 2.0, 3.0)

get_config = Settings(
    "fig3_7",
    {"depth": 3, "samples": 12, "width": 200, "weight": 0.5, "sets": 3, "draws": 4000, "weights": (0.5, 0.8, 1.2, 1.6)},
    {"sets": 10, "draws": 100_000, "weights": (0.5, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 2.0)},
)


def run(config, screen):
    shape = (config.sets, len(SCALES), len(config.weights))
    arrays = {"weights": np.array(config.weights), "cka": np.full(shape, np.nan), "prior": np.full(shape, np.nan)}
    arrays["moved"] = np.full((*shape, config.depth), np.nan)
    sample = posteriors.draws(config, config.samples)
    for k in track(range(config.sets), "data sets", console=screen):
        x, y = posteriors.clusters(config.samples, config.seed + k)
        for j, scale in enumerate(SCALES):
            for i, weight in enumerate(config.weights):
                stack = posteriors.layers(x, weight, config.depth, scale)
                arrays["prior"][k, j, i] = posteriors.prior_alignment(stack, y)
                try:
                    found = solve(stack, y, posteriors.NOISE, config.width, sample).kernels
                except DivergenceError as error:
                    screen.print(f"γ₀ = {scale:g}, σ_w² = {weight:g}: {error}")
                    continue
                wide = prior_kernels(stack)
                arrays["cka"][k, j, i] = posteriors.alignment(found[-1], y)
                pairs = zip(found[1:], wide[1:], strict=True)
                arrays["moved"][k, j, i] = [
                    np.linalg.norm(a - b) / np.linalg.norm(b - posteriors.BIAS) for a, b in pairs
                ]
                if k == 0 and weight == config.weight:
                    arrays[f"kernels {scale:g}"] = np.array(found[1:])
                    arrays[f"wide {scale:g}"] = np.array(wide[1:])
    return arrays


def claims(arrays):
    i = int(np.abs(arrays["weights"] - 0.5).argmin())
    moved = arrays["moved"][:, :, i]  # [set, scale, layer]
    gain = arrays["cka"] - arrays["prior"]  # [set, scale, weight]
    solved = np.isfinite(gain).all((0, 1))
    at = ", ".join(f"{w:g}" for w in arrays["weights"][solved]) or "none"
    further, more = mean(np.diff(moved, axis=1)), mean(np.diff(gain, axis=1))
    ratios = jackknife(lambda g: g[:, 2].mean(0) / g[:, 0].mean(0), gain)
    whole = f"solved for all γ₀ at σ_w² = {at}; NaN: not solved"
    yield Finding(
        "At σ_w² = .5 kernels move further, relative to their part from the weights, in all layers the larger γ₀",
        further.above(0),
        "by layer, γ₀ = 1, 2, 3: " + "; ".join(" ".join(f"{m:.3f}" for m in layer) for layer in moved.mean(0).T),
    )
    yield Finding(
        "The alignment of the output kernel with the targets grows with γ₀ at every weight variance",
        more.above(0),
        f"ΔCKA at γ₀ = 1, 2, 3 ({whole}): "
        + "; ".join(" ".join(f"{g:.3f}" for g in column) for column in gain.mean(0).T),
    )
    yield Finding(
        "It grows linearly: ΔCKA at γ₀ = 3 is three times that at 1, within a fifth, at every weight variance",
        ratios.near(3, 0.6),
        f"ratios {ratios:.2f} ({whole})",
    )


def figures(arrays):
    shown = [scale for scale in SCALES if f"kernels {scale:g}" in arrays]
    figure, axes = panels(max(len(shown), 1), 3, 2.8, 2.4)
    for row, scale in zip(axes, shown, strict=False):
        for l, axis in enumerate(row):
            change = arrays[f"kernels {scale:g}"][l] - arrays[f"wide {scale:g}"][l]
            size = np.abs(change).max()
            posteriors.kernel_picture(axis, change, f"γ₀ = {scale:g}, l = {l + 1}", figure, (-size, size), "RdBu_r")
    lines, (axis,) = (lambda f: (f[0], f[1][0]))(panels(1, 1, 5.0, 3.6))
    for j, (scale, colour) in enumerate(zip(SCALES, posteriors.SHADES, strict=False)):
        posteriors.banded(axis, arrays["weights"], arrays["cka"][:, j], fmt="o-", color=colour, label=f"γ₀ = {scale:g}")
        axis.plot(arrays["weights"], arrays["prior"][:, j].mean(0), "--", color=colour, lw=0.8)
    axis.set(xlabel="weight variance σ_w²", ylabel="CKA(C^(L), YYᵀ)")
    axis.legend(fontsize=8)
    text = "C^(l) minus that of infinite width, first data set, σ_w² = .5; inputs sorted by cluster."
    return [
        ("How far kernels move", text, figure),
        (
            "Alignment of the output kernel",
            "Bars: one standard deviation over data sets; dashed: infinite width.",
            lines,
        ),
    ]
