"""Figure A.3: overlaps of a random network's mean activations settle over the depth scale ξ of the ensemble theory.

Widths are not given in the thesis. σ_w = σ_b are standard deviations, near 0.862, beyond which no fixed point exists.

small: 60 seconds on two cores, busy with other work; no data.
paper: width 2000.
found: verdicts were not taken again since claims are judged by intervals.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs.papers.beyond_gaussian.mixtures import network
from limits.cumulants import expected_overlaps, gaussian_mixture, overlap_phase, overlaps, propagate
from train.study.figure import Finding, Settings, exact, mean, panels
from zoo.activations import Quadratic

STDS = (0.76, 0.81, 0.85)
SHADES = ("#56b4e9", "#0072b2", "#003a5d")
PHI = Quadratic(0.1)

get_config = Settings(
    "figA3", {"width": 300, "networks": 10, "inputs": 2000, "depth": 25}, {"width": 2000, "inputs": 10_000}
)


def empirical_overlaps(net, variables, x):
    """Mean over pairs of different inputs of y·y'/N, for every hidden layer."""
    inside = net.apply(variables, x, intermediates=True)[1]["phi"]
    n = len(x)
    return jnp.stack([((y.sum(0) ** 2).mean() - (y**2).sum(0).mean()) / (n * (n - 1)) for y in inside])


def run(config, screen):
    arrays = {"depth": np.array(config.depth)}
    for std in STDS:
        screen.print(f"σ = {std}")
        q = overlap_phase(PHI, std, std).q
        net = network(config.width, config.depth, PHI, w_std=std, b_std=std)
        data = gaussian_mixture([1.0], [1], [np.zeros(config.width)], q * np.eye(config.width))
        seen, predicted = [], []
        with jax.enable_x64(True):
            x = jnp.asarray(q**0.5 * np.random.default_rng(config.seed).normal(size=(config.inputs, config.width)))
            look = jax.jit(lambda variables, net=net, x=x: empirical_overlaps(net, variables, x))
            for key in jax.random.split(jax.random.key(config.seed), config.networks):
                variables = net.init(key, x[:1])
                seen.append(np.asarray(look(variables)))
                predicted.append(overlaps(propagate(net, variables, data)))
        arrays |= {f"seen {std}": np.stack(seen), f"predicted {std}": np.stack(predicted)}
    return arrays


@functools.cache
def theory(std, depth):
    """(overlaps of the ensemble, their fixed point O_0, ξ)."""
    found = overlap_phase(PHI, std, std)
    return expected_overlaps(PHI, std, std, depth), (found.q - std**2) / std**2, found.depth_scale


def claims(arrays):
    depth = int(arrays["depth"])
    for std in STDS:
        expected, end, _ = theory(std, depth)
        seen, predicted = arrays[f"seen {std}"], arrays[f"predicted {std}"]
        off = exact(abs(seen - predicted) / end)
        yield Finding(
            f"σ = {std}: cumulants through one network's weights give its overlaps, within 2 % of O_0 in every layer",
            off.below(0.02),
            f"at most {off.value.max():.2%} of O_0 = {end:.3f}",
        )
        away = mean((predicted - expected) / end)
        worst = int(abs(away.value).argmax())
        yield Finding(
            f"σ = {std}: single networks scatter about the ensemble theory: their mean is within 5 % of O_0 in every layer",
            away.near(0, 0.05),
            f"at most {away.at(worst):.1%} of O_0 off; a network by {(predicted.std(0, ddof=1) / end).max():.1%}",
        )


def figures(arrays):
    figure, axes = panels(1, 2, 5.0, 3.8)
    depth = int(arrays["depth"])
    layers = np.arange(1, depth + 1)
    for std, colour in zip(STDS, SHADES, strict=True):
        expected, end, xi = theory(std, depth)
        axes[0, 0].axhline(end, color=colour, ls="--", lw=0.8)
        axes[0, 0].plot(layers, expected, color=colour, lw=1.2, label=f"σ = {std}, ξ = {xi:.2f}")
        left = end - expected
        axes[0, 1].plot(layers, left, color=colour, lw=1.2)
        middle = depth // 2
        axes[0, 1].plot(layers, left[middle] * np.exp(-(layers - layers[middle]) / xi), ":", color=colour, lw=1)
        axes[0, 0].plot(layers, arrays[f"seen {std}"][0], "o", color=colour, ms=5, mfc="none")
        axes[0, 0].plot(layers, arrays[f"predicted {std}"][0], "^", color=colour, ms=3)
        for marker, name in (("o", "seen"), ("^", "predicted")):
            gap = end - arrays[f"{name} {std}"][0]
            style = {"mfc": "none", "ms": 5} if name == "seen" else {"ms": 3}
            axes[0, 1].plot(layers[gap > 0], gap[gap > 0], marker, color=colour, **style)
    axes[0, 0].set(xlabel="layer l", ylabel="overlap O")
    axes[0, 0].legend(fontsize=7)
    axes[0, 1].set(xlabel="layer l", ylabel="O_0 − O", yscale="log", ylim=(1e-3, None))
    text = "Circles: one network, from inputs. Triangles: the same network, from cumulants. Lines: the ensemble; dashed: its "
    text += (
        "fixed point O_0; dotted: exp(−l/ξ). A network settles at an overlap of its own: on the right it levels off."
    )
    return [("Overlaps over layers", text, figure)]
