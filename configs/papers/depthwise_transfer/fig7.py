"""Figure 7: features of a linear residual network before and after one step converge in depth to the layer-time profiles.

small: 30 seconds on two cores, no data. paper: width 1000, depths to 500.

The profile drawn is the corrected one; `limits.depth.one_step_profile` says what is printed.
"""

import math

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from ml_collections import ConfigDict
from rich.progress import track

from limits import Task
from limits.depth import one_step_profile, one_step_recursion
from train import ensemble
from train.evaluate.claim import Claim
from zoo import ResNet

DEEP = (200, 400, 800, 1600)  # at which the rate is read off


def get_config(size="small"):
    if size not in ("small", "paper"):
        raise ValueError(f'fig7: size must be "small" or "paper", got "{size}".')
    large = size == "paper"
    return ConfigDict(
        {
            "name": "fig7", "size": size, "seed": 0, "learning_rate": 0.5, "members": 32 if large else 128,
            "width": 1000 if large else 200, "depths": (5, 10, 20, 50, 100, 300, 500) if large else (5, 10, 20, 50),
        }
    )  # fmt: skip


def run(config, folder, screen, part):
    del folder, part
    task, found = Task(np.ones((1, 1)), np.ones((1, 1))), {"depths": np.array(config.depths)}
    how = {"trained": ("branch",), "centred": True, "kernels": ("phi",), "seed": config.seed}
    for depth in track(config.depths, "ensembles", console=screen):
        net = ResNet(config.width, depth, activation="linear", parameterization="mup")
        one = ensemble(net, task, config.members, 1, config.learning_rate, **how)
        found[f"h_{depth}"] = np.array([phi[:, 0, 0] for phi in one.phi])  # [layer, time]
        found[f"sem_{depth}"] = np.array([sem[:, 0, 0] for sem in one.phi_sem])
        found[f"wide_{depth}"] = one_step_recursion(depth, config.learning_rate)
    found["deep"] = np.array([one_step_recursion(depth, config.learning_rate)[-1] for depth in DEEP])
    tau = np.linspace(0, 1, 101)
    return found | {"tau": tau, "limit": one_step_profile(tau, config.learning_rate)}


def printed(c):
    """H_1(1) as the paper prints it, at y = 1."""
    inner = 1 / 2 + 1 / 3 + (1 + math.exp(-1)) * (math.e - 1)
    return math.e * (1 + 2 * c**2 * inner)


def claims(arrays):
    depths, limit = arrays["depths"], arrays["limit"][-1]
    before = {d: (1 + 1 / d) ** np.arange(d) for d in depths}
    start = {d: np.abs((arrays[f"h_{d}"][:, 0] - before[d]) / arrays[f"sem_{d}"][:, 0])[-1] for d in depths}
    after = {d: (arrays[f"h_{d}"][-1, 1] - arrays[f"wide_{d}"][-1]) / arrays[f"sem_{d}"][-1, 1] for d in depths}
    rest = limit - arrays["deep"]
    falls = float(np.polyfit(np.log(DEEP), np.log(np.abs(rest)), 1)[0])
    last, c = depths[-1], math.sqrt((limit - math.e) / (2 * math.e**2 * 5 / 6))
    wrong = (printed(c) - arrays[f"h_{last}"][-1, 1] - (limit - arrays[f"wide_{last}"][-1])) / arrays[f"sem_{last}"][
        -1, 1
    ]
    return [
        Claim(
            "Before the step H(1) = (1 + 1/L)^(L − 1), on the way to e, within 3 standard errors",
            bool(max(start.values()) < 3),
            ", ".join(f"L = {d}: {arrays[f'h_{d}'][-1, 0]:.3f} ({z:.1f})" for d, z in start.items()),
        ),
        Claim(
            "After it networks have the kernel of the recursion in depth, within 3 standard errors",
            bool(max(abs(z) for z in after.values()) < 3),
            ", ".join(
                f"L = {d}: {arrays[f'h_{d}'][-1, 1]:.3f} ± {arrays[f'sem_{d}'][-1, 1]:.3f} ({arrays[f'wide_{d}'][-1]:.3f})"
                for d in depths
            ),
        ),
        Claim(
            "That recursion comes to the corrected profile as 1/L (exponent −1 ± 0.05)",
            bool(abs(falls + 1) < 0.05),
            f"{falls:.3f} over L = {DEEP[0]} … {DEEP[-1]}, at which it is {arrays['deep'][-1]:.3f}; in the limit {limit:.3f}",
        ),
        Claim(
            "The printed profile is more than 5 standard errors from networks of the largest depth and what is left to L = ∞",
            bool(abs(wrong) > 5),
            f"printed {printed(c):.3f}, {wrong:.1f} standard errors",
        ),
    ]


def figures(arrays):
    figure, colours = Figure(figsize=(10, 3.8), layout="constrained"), mpl.colormaps["viridis"]
    left, right = figure.subplots(1, 2)
    tau, limit = arrays["tau"], arrays["limit"]
    for number, depth in enumerate(arrays["depths"]):
        h, sem = arrays[f"h_{depth}"], arrays[f"sem_{depth}"]
        at, colour = np.arange(1, depth + 1) / depth, colours(0.9 - 0.8 * number / len(arrays["depths"]))
        for axis, y, error in ((left, h[:, 0], sem[:, 0]), (right, h[:, 1] - h[:, 0], sem[:, 1])):
            axis.plot(at, y, color=colour, lw=1.2, label=f"L = {depth}")
            axis.fill_between(at, y - error, y + error, color=colour, alpha=0.25)
    left.plot(tau, np.exp(tau), "k--", lw=1.5, label="L = ∞")
    right.plot(tau, limit - np.exp(tau), "k--", lw=1.5, label="L = ∞")
    left.set(xlabel="layer time l/L", ylabel="H before the step")
    right.set(xlabel="layer time l/L", ylabel="what the step adds")
    for axis in (left, right):
        axis.legend(fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return [("Profiles of feature kernels", "Bands: one standard error of the mean over networks.", figure)]
