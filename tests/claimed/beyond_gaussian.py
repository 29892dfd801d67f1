"""Of Fischer (2025)."""

from typing import Any

import numpy as np

from claimed import noisy

Arrays = dict[str, Any]


def through_one_network(module: Any, config: Any, effect: int) -> Arrays:
    """Figures 2.2 and A.1."""
    t, found = np.repeat([-1, 1], 500), {}
    y = np.random.default_rng(0).normal(size=1000)
    apart = {1: (0.1, 2.0), 0: (1.0, 1.0), -1: (2.0, 0.1)}[effect]
    for name, gap in zip(("random", "trained"), apart, strict=True):
        far = 0.005 if effect == 1 else 0.2
        found |= {f"{name} y": y + gap * t, f"{name} divergence": noisy(far, config.members)}
        found[f"{name} accuracy"] = noisy(0.5 + 0.44 * effect, config.members)
    return found | {"t": t}


def over_width_and_depth(module: Any, config: Any, effect: int) -> Arrays:
    """Figures 2.3 and A.2."""
    widths, depths = (np.array(each, float) for each in (config.widths, config.depths))
    w, l = widths[:, None] / widths[0], depths[None]
    random = {1: 0.005 * l**0.5 * w**0, 0: 0.2 * l**0 / w, -1: 0.5 * w / l}[effect]
    trained = random * {1: 4.0, 0: 1.0, -1: 0.5}[effect]
    accuracy = {1: 0.97 if config.name == "fig2_3" else 0.9652, 0: 0.5, -1: 0.03}[effect]
    return {
        "widths": np.array(config.widths), "depths": np.array(config.depths),
        "random": noisy(random, config.random, axis=2), "trained": noisy(trained, config.members, 0.002, axis=2),
        "accuracy": noisy(np.full(random.shape, accuracy), config.members, 1e-4, axis=2),
    }  # fmt: skip


def switched(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 2.4."""
    at, looks = config.switch // 10, (config.switch + config.steps) // 10
    accuracy = noisy(0.5 + 0.47 * effect, config.members)
    found = {"switch": np.array(config.switch), "covariance accuracy": accuracy, "mean accuracy": accuracy}
    jumps = {1: (1e-3, 1e-4, 1e-6), 0: (0.1, 0.1, 0.1), -1: (1e-6, 1e-4, 1e-3)}[effect]
    for way, jump in zip(module.WAYS, jumps, strict=True):
        moved = np.full(looks, 1e-9)
        moved[:3], moved[at : at + 3] = 1e-3, jump
        found |= {f"{way} moved": (each := noisy(moved, config.members, 0.05)), f"{way} kept": each[:, at:]}
    return found


def learned_from(module: Any, config: Any, effect: int) -> Arrays:
    """Figures 2.5 and 2.7."""
    levels = {1: (0.97, 0.95, 0.94), 0: (0.5, 0.5, 0.5), -1: (0.88, 0.9, 0.93)}[effect]
    if config.name == "fig2_7":
        levels = levels[::-1] if effect else levels
    found = {"depths": np.array(config.depths)}
    for number, (name, level) in enumerate(zip(module.WAYS, levels, strict=True)):
        each = noisy(level, config.members + number)[number:]
        found |= {f"{name} {depth}": each for depth in config.depths}
    return found


def third_cumulants(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 2.6."""
    levels = {1: (0.965, 0.96, 0.5), 0: (0.8, 0.5, 0.5), -1: (0.2, 0.04, 0.5)}[effect]
    each = dict(zip(module.MODELS, levels, strict=True))
    return {f"{name} {depth}": noisy(each[name], config.members) for name in each for depth in module.DEPTHS}


def alignment_by_chains(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 3.4: ΔCKA ∝ e^(−w²)/N, a theory at a share of it that falls with P/N."""
    arrays, random, noise = {}, np.random.default_rng(0), 2e-5
    for name, _ in module.AXES:
        values = np.array(config[name], float)
        at = {"w2": module.W2, "width": module.WIDTH, "points": module.POINTS} | {name: values}
        delta = 0.03 * effect * np.exp(1.2 - at["w2"]) * 500 / at["width"] * np.ones(len(values))
        share = 0.95 - 0.5 * effect * (at["points"] / at["width"] - 0.024) if effect == 1 else 1.5 + at["width"] / 500
        share = share if effect else np.zeros(len(values))
        drawn = noise * random.normal(size=(2, len(values), config.datasets))
        arrays |= {f"{name} axis": values, f"{name} nngp": np.full(drawn[0].shape, 0.1)}
        arrays |= {
            f"{name} chains": 0.1 + delta[:, None] + drawn[0],
            f"{name} chains_sem": np.full(drawn[0].shape, noise),
        }
        arrays[f"{name} theory"] = 0.1 + (share * delta)[:, None] + drawn[1]
        arrays[f"{name} converged"] = np.full(drawn[0].shape, float(effect == 1))
    return arrays


def alignment_with_images(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 3.5."""
    w2, shape = np.array(config.w2), (len(config.w2), config.datasets)
    nngp = np.broadcast_to(0.5 - 0.1 * effect * w2[:, None], shape)
    drawn = 1e-4 * np.random.default_rng(0).normal(size=(2, *shape))
    return {
        "w2": w2, "nngp": nngp, "chains": nngp + 0.05 * effect + drawn[0], "chains_sem": np.full(shape, 1e-4),
        "theory": nngp + {1: 0.03, 0: 0.0, -1: -0.2}[effect] + drawn[1], "converged": np.full(shape, float(effect == 1)),
    }  # fmt: skip


def forces(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 3.6."""
    grid = np.linspace(0.6, 2.4, config.points)
    bumps = {name: np.exp(-effect * (grid - place) ** 2) for name, place in (("first", 0.825), ("response", 1.38))}
    force = np.ones((len(module.CURVES), config.depth + 1))
    force[module.CURVES.index(0.825)] = np.exp(effect * np.linspace(2.0, -1.0, config.depth + 1))
    flat = np.ones((config.sets, len(grid)))
    found = {name: noisy(bump, config.sets, 1e-6) if effect else flat for name, bump in bumps.items()}
    return found | {"grid": grid, "critical": np.array(1.3758), "force": noisy(force, config.sets)}


def feature_scales(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 3.7."""
    scale = np.array(module.SCALES)[:, None] ** float(effect)
    gain = 0.05 * scale * np.ones(len(config.weights))
    moved = 0.1 * scale[:, :, None] * np.ones((len(config.weights), config.depth))
    prior = np.full((config.sets, *gain.shape), 0.1)
    return {
        "weights": np.array(config.weights), "prior": prior, "cka": prior + noisy(gain, config.sets),
        "moved": noisy(moved, config.sets),
    }  # fmt: skip


def overlaps(module: Any, config: Any, effect: int) -> Arrays:
    """Figure A.3."""
    found: Arrays = {"depth": np.array(config.depth)}
    for std in module.STDS:
        expected = module.theory(std, config.depth)[0]
        predicted = noisy({1: 1, 0: 0.5, -1: -1}[effect] * expected, config.networks)
        found |= {f"predicted {std}": predicted, f"seen {std}": predicted if effect == 1 else -predicted}
    return found


def linear_networks(module: Any, config: Any, effect: int) -> Arrays:
    """Figure B.1."""
    widths = np.array(config.widths, float)
    base = 100 * widths ** (-2.0 * effect)
    sizes = {1: (50, 1.4, 1), 0: (1, 1, 1), -1: (0.02, 1, 3)}[effect]
    found: Arrays = {"widths": np.array(config.widths), "loads": np.array(config.loads)}
    for seed, (name, size) in enumerate(zip(module.WORDS, sizes, strict=True)):
        each = noisy(size * base * np.ones((len(config.loads), 1)), config.sets + seed, 0.01)
        found[name] = each[seed:]
    return found


def annealed(module: Any, config: Any, effect: int) -> Arrays:
    """Figure B.2."""
    widths, weights = (np.array(each, float) for each in (config.widths, config.weights))
    gain = 50.0 * effect / weights[:, None] ** 2 / widths
    prior = np.full((config.sets, len(weights)), 0.1)
    noise = 1e-9 * np.random.default_rng(1).normal(size=(config.sets, *gain.shape))
    cka = prior[:, :, None] + noisy(gain, config.sets) + noise
    solved = np.full(cka.shape, 20 if effect == 1 else 90)
    return {"widths": np.array(config.widths), "weights": weights, "prior": prior, "cka": cka, "iterations": solved}


ARRAYS = {
    "fig2_2": through_one_network, "figA1": through_one_network, "fig2_3": over_width_and_depth, "figA2": over_width_and_depth,
    "fig2_4": switched, "fig2_5": learned_from, "fig2_7": learned_from, "fig2_6": third_cumulants,
    "fig3_4": alignment_by_chains, "fig3_5": alignment_with_images, "fig3_6": forces, "fig3_7": feature_scales,
    "figA3": overlaps, "figB1": linear_networks, "figB2": annealed,
}  # fmt: skip
