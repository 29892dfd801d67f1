"""Of Hayou, Doucet, Rousseau."""

from typing import Any

import numpy as np

from claimed import noisy, right

Arrays = dict[str, Any]


def lost_accuracy(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 2."""
    depths = np.array(config.depths)
    edge = 0.8 - 0.4 * effect * np.clip(depths / depths[-1] - 0.1, 0, 1)
    dead = {1: np.where(depths > 3, 0.1, 0.85), 0: 0.85 + 0 * edge, -1: np.where(depths > 3, 0.85, 0.1)}[effect]
    found: Arrays = {"depths": depths}
    for title, accuracy in zip(module.COMPARED, (edge, dead), strict=True):
        found |= {title: accuracy, f"{title}/hits": right(accuracy)}
    return found


def regression(module: Any, config: Any, effect: int) -> Arrays:
    """Table 1."""
    found: Arrays = {"depths": np.array(config.depths)}
    part = np.linspace(0, 1, len(config.depths))
    for title in module.NETWORKS:
        dead = title in (module.ORDERED, module.FLAT)
        fall = {module.EDGE: 0.5, module.RESNET: 0.3, module.SCALED: 0.0}.get(title, 0.3)
        fall = fall if effect == 1 else 0.4 if title == module.SCALED else -0.2 * (effect == -1)
        exact = 0.7 - fall * part
        early = np.full(len(part), 0.7) if title == module.SCALED else np.where(part > 0, 0.1, 0.7)
        early = early if effect == 1 else exact
        gone = dead and effect == 1
        hits = right(exact)
        hits[part > 0.9] = np.nan if gone else hits[part > 0.9]
        found |= {f"{title}/hits{how}": hits for how in ("64", "32")} | {f"{title}/hits_early": right(early)}
        found |= {f"{title}/accuracy{how}": found[f"{title}/hits{how}"].mean(1) for how in ("64", "32", "_early")}
        found[f"{title}/spread"] = 0.3 - 0.2 * effect * part
        found[f"{title}/condition"] = 10.0 ** (16 * part) if gone else 1e3 - 500 * effect * part
    return found


def trained(module: Any, config: Any, effect: int) -> Arrays:
    """Table 1, networks."""
    shallow, *_, deep = config.depths
    found: Arrays = {"depths": np.array(config.depths), "rates": np.array(config.rates)}
    for title in module.networks(8, 3):
        ends = (0.9, 0.05 if "ordered" in title else 0.9)
        ends = ends if effect == 1 else (0.5, 0.5) if effect == 0 else (0.1, 0.9 if "ordered" in title else 0.1)
        for depth, accuracy in zip((shallow, deep), ends, strict=True):
            found[f"{title}/{depth}"] = np.full((len(config.rates), 2), accuracy)
            found[f"{title}/{depth}/hits"] = right([accuracy] * len(config.rates), config.n_test)
    return found


def scaled_branches(module: Any, config: Any, effect: int) -> Arrays:
    """Table 2."""
    found: Arrays = {"blocks": np.array(config.blocks), "epochs": np.array([config.early, config.epochs])}
    for number, blocks in enumerate(config.blocks):
        plain = np.full((2, config.members), 0.5)
        lead = effect * np.array([0.02 + 0.1 * number, 0.05])
        noise = 0.002 * np.random.default_rng(number).normal(size=plain.shape)
        found |= dict(
            zip((f"{kind}/{blocks}" for kind in module.KINDS), (plain, plain + lead[:, None] + noise), strict=True)
        )
    return found


def phases(module: Any, config: Any, effect: int) -> Arrays:
    """Phase diagram: gradients of another rate than the theory's for effects 0 and −1."""
    found: Arrays = {}
    for i in range(len(module.POINTS)):
        theory = module.theory_at(i)
        rate = {1: 1, 0: 0, -1: -1}[effect] * np.log(theory.chi) + {1: 0, 0: 0.5, -1: -0.5}[effect]
        steps = rate + 1e-3 * np.random.default_rng(i).normal(size=config.networks)
        found[f"gradient_{i}"] = steps[:, None] * np.arange(config.layers)
        c = {1: theory.c, 0: theory.c + 0.5, -1: -theory.c - 0.5}[effect]
        found[f"c_{i}"] = noisy(np.full(config.layers, c), config.networks)
    return found


ARRAYS = {
    "fig2": lost_accuracy, "table1": regression, "table1_sgd": trained, "table2": scaled_branches, "phases": phases,
}  # fmt: skip
