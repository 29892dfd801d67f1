"""Figure 7: features of a linear residual network before and after one step converge in depth to the layer-time profiles.

small: 30 seconds on two cores, no data. paper: width 1000, depths to 500.

The profile drawn is the corrected one; `limits.depth.one_step_profile` says what is printed.
found: 2 of 3 claims hold; undecided: after the step within 5 % (intervals reach 7 %).
"""

import math

import matplotlib as mpl
import numpy as np
from rich.progress import track

from limits import Task
from limits.depth import one_step_profile, one_step_recursion
from train import ensemble
from train.study.figure import Finding, Interval, Settings, panels
from zoo import ResNet

DEEP = (200, 400, 800, 1600)  # at which the rate is read off

get_config = Settings(
    "fig7",
    {"learning_rate": 0.5, "members": 128, "width": 200, "depths": (5, 10, 20, 50)},
    {"members": 32, "width": 1000, "depths": (5, 10, 20, 50, 100, 300, 500)},
)


def run(config, screen):
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
    last = [(arrays[f"h_{d}"][-1], arrays[f"sem_{d}"][-1]) for d in depths]
    h, sem = (np.array(each) for each in zip(*last, strict=True))  # [depth, time]
    before, wide = (1 + 1 / depths) ** (depths - 1.0), np.array([arrays[f"wide_{d}"][-1] for d in depths])
    start, after = (Interval.around(h[:, t] / theory, sem[:, t] / theory) for t, theory in ((0, before), (1, wide)))
    c = math.sqrt(max((limit - math.e) / (2 * math.e**2 * 5 / 6), 0))
    reached = Interval.around(h[-1, 1] + limit - wide[-1], sem[-1, 1])  # what is left to L = ∞ by the recursion
    words = [", ".join(f"L = {d}: {each.at(i):.3f}" for i, d in enumerate(depths)) for each in (start, after)]
    yield Finding(
        "Before the step H(1) = (1 + 1/L)^(L − 1), on the way to e, within 5 %",
        start.near(1, 0.05),
        f"networks over theory: {words[0]}",
    )
    yield Finding(
        "After it networks have the kernel of the recursion in depth, within 5 %",
        after.near(1, 0.05),
        f"networks over theory: {words[1]}",
    )
    yield Finding(
        "The limit is the corrected profile, not the printed one: networks of the largest depth, with what is left to L = ∞, "
        "are less than half of the way to the printed one off it",
        reached.near(limit, abs(printed(c) - limit) / 2),
        f"{reached:.3f}; corrected {limit:.3f}, printed {printed(c):.3f}",
    )


def figures(arrays):
    figure, ((left, right),) = panels(1, 2, 5, 3.8, margin=0)
    colours = mpl.colormaps["viridis"]
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
    return [("Profiles of feature kernels", "Bands: one standard error of the mean over networks.", figure)]
