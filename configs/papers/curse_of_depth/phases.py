"""Phase diagram (no figure of the paper): which w_std and b_std train at which depth, with finite networks to check it.

small: 80 seconds on two cores that did other work beside, no data. paper: a finer grid and wider networks, no data.
found: all 5 claims hold (with 8 networks 2, the others undecided).
"""

import functools

import numpy as np

from limits.depth import PhaseDiagram, edge_of_chaos, phase, phase_diagram, plot_phase_diagram
from train.study.figure import Finding, Settings, mean, panels

PARTS = ("w_std", "b_std", "variance", "chi", "depth_scale", "ratio", "gap", "edge")
POINTS = (
    (1.0, 0.3),
    (edge_of_chaos("tanh", 0.3), 0.3),
    (2.0, 0.3),
    (2.5, 0.2),
)  # (w_std, b_std): ordered, critical, chaotic

get_config = Settings(
    "phases",
    {"activation": "tanh", "grid": (121, 60), "depth": 100, "width": 400, "layers": 40, "networks": 32},
    {"grid": (241, 160), "width": 2000},
)


def finite(config, w_std, b_std, activation, derivative):
    """(log gradient norm² by layers from the output [network, layer], c^l [network, layer]) of finite networks."""
    rng, width, layers = np.random.default_rng(config.seed), config.width, config.layers
    q, gradients, correlations = phase(config.activation, w_std, b_std).q, [], []
    for _ in range(config.networks):
        z = rng.normal(size=(width, 2))
        h = np.sqrt(q) * np.stack([z[:, 0], 0.5 * z[:, 0] + np.sqrt(0.75) * z[:, 1]], axis=1)
        weights, slopes, cs = [], [], []
        for _ in range(layers):
            cs.append(h[:, 0] @ h[:, 1] / np.sqrt((h[:, 0] @ h[:, 0]) * (h[:, 1] @ h[:, 1])))
            weights.append(rng.normal(size=(width, width)) * w_std / np.sqrt(width))
            slopes.append(derivative(h[:, 0]))
            h = weights[-1] @ activation(h) + b_std * rng.normal(size=(width, 1))
        g, norms = rng.normal(size=width), []
        for w, slope in zip(weights[::-1], slopes[::-1], strict=True):
            g = slope * (w.T @ g)
            norms.append(np.log(g @ g))
        gradients.append(norms)
        correlations.append(cs)
    return np.array(gradients), np.array(correlations)


def run(config, screen):
    if config.activation != "tanh":
        raise ValueError(
            "The finite networks of this report are tanh networks; limits.depth.phase_diagram takes any activation."
        )
    w, b = (np.linspace(*ends, n) for ends, n in zip(((0.5, 3.0), (0.025, 1.0)), config.grid, strict=True))
    screen.print("phase diagram …", highlight=False)
    diagram = phase_diagram(config.activation, w, b, config.depth)
    found = {name: getattr(diagram, name) for name in PARTS}
    found |= {"depth": np.array(config.depth), "c": np.array(diagram.c)}
    for i, (w_std, b_std) in enumerate(POINTS):
        screen.print(f"finite networks at w_std {w_std:g}, b_std {b_std:g} …", highlight=False)
        found[f"gradient_{i}"], found[f"c_{i}"] = finite(config, w_std, b_std, np.tanh, lambda h: np.cosh(h) ** -2.0)
    return found


theory_at = functools.cache(lambda i: phase("tanh", *POINTS[i]))


def claims(arrays):
    for i, (w_std, b_std) in enumerate(POINTS):
        theory, gradient = theory_at(i), arrays[f"gradient_{i}"]
        steps = mean((gradient[:, -1] - gradient[:, 0]) / (gradient.shape[1] - 1))
        rate = np.log(theory.chi) + 0.0
        yield Finding(
            f"Gradients at {w_std:.4g}, {b_std:g} ({theory.name}) change by log χ = {rate:.3f} a layer (± 0.02)",
            steps.near(rate, 0.02),
            f"{steps:.4f}",
        )
    theory, c = theory_at(2), mean(arrays["c_2"][:, -10:].mean(1))
    yield Finding(
        f"In the chaotic phase two inputs end at c* = {theory.c:.3f} (± 0.05)", c.near(theory.c, 0.05), f"{c:.3f}"
    )


def figures(arrays):
    named = {name: arrays[name] for name in PARTS}
    diagram = PhaseDiagram(activation="tanh", depth=int(arrays["depth"]), c=float(arrays["c"]), **named)
    figure, ((left, right),) = panels(1, 2, 5.5, 3.8, margin=0)
    for i, (w_std, b_std) in enumerate(POINTS):
        theory, gradient, c = theory_at(i), arrays[f"gradient_{i}"], arrays[f"c_{i}"]
        back = np.arange(1, gradient.shape[1] + 1)
        (line,) = left.plot(
            back, gradient.mean(0) - gradient.mean(0)[0], label=f"w {w_std:.4g}, b {b_std:g}: {theory.name}"
        )
        left.plot(back, np.log(theory.chi) * (back - 1), "--", lw=1, color=line.get_color())
        right.plot(np.arange(c.shape[1]), c.mean(0), color=line.get_color())
        right.axhline(theory.c, ls="--", lw=1, color=line.get_color())
    left.set(xlabel="layers from the output", ylabel="log of the squared gradient", title="dashed: log χ a layer")
    right.set(xlabel="layer", ylabel="correlation of two inputs", title="dashed: c*")
    left.legend(fontsize=8)
    text = "Left: over how many layers a signal lives. Right: what is left of the tangent kernel."
    return [
        ("Phase diagram", text, plot_phase_diagram(diagram)),
        ("Finite networks", "Means over networks of finite width.", figure),
    ]
