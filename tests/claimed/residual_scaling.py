"""Of Fischer, Dahmen, Helias (2023)."""

from typing import Any

import numpy as np

from claimed import noisy

Arrays = dict[str, Any]
MEMBERS, NOISE = 100, 1e-4


def drawn(theory: np.ndarray, effect: int) -> np.ndarray:
    """Networks at the theory; the same in all layers; or growing where the theory falls."""
    return noisy({1: theory, 0: np.full(len(theory), 2 * theory[0]), -1: theory[::-1]}[effect], MEMBERS, NOISE)


def fading(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 4.2."""
    layers, found = np.arange(1, config.depth + 1.0), {"depth": np.array(config.depth)}
    for name in module.NETWORKS:
        theory = layers**-1.5 if name == "ResNet" else 0.5**layers
        for key in ("c", "eta"):
            for kind in (module.DIAGONAL, module.COVARIANCE):
                found |= {f"{name} theory {key} {kind}": theory, f"{name} {key} {kind}": drawn(theory, effect)}
    return found


def rising(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 4.3."""
    found: Arrays = {"scales": np.array(config.scales)}
    for rho in config.scales:
        theory = 1 + rho**2 * np.arange(config.depth + 1.0) if rho == 1 else 1 + np.arange(config.depth + 1.0)
        for name in ("K", "chi"):
            for kind in module.ELEMENTS:
                found |= {f"{rho:g} theory {name} {kind}": theory, f"{rho:g} {name} {kind}": drawn(theory, effect)}
    return found


def best_scales(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 4.5."""
    found = {name: np.array(config[name]) for name in ("depths", *module.AXES)}
    for name in module.AXES:
        by_depth, by_value = {1: (-0.5, -0.05), 0: (0.0, -0.8), -1: (0.5, 0.8)}[effect]
        best = found["depths"][:, None] ** by_depth * (found[name] + 0.01)[None] ** by_value
        found[f"best {name}"] = np.stack([best, best], axis=-1)
    return found


def over_pairs(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 4.6."""
    apart = abs(np.subtract.outer(np.arange(config.count), np.arange(config.count)))
    varied, same = 1 / (1 + 0.2 * apart), 0.5 + 0.001 * apart
    angles, task = {1: (varied, same), 0: (varied, varied), -1: (same, varied)}[effect]
    return {"angles": angles, "depth": np.array(config.depth), **{f"task {i}": task for i in range(len(config.tasks))}}


def powers(module: Any, config: Any, effect: int) -> Arrays:
    """Figure C.1."""
    layers, found = np.arange(1, 41.0), {}
    for kind in module.KINDS:
        theory = layers**-1.5
        found[f"theory {kind}"] = theory
        eta = {1: theory, 0: 0.7**layers, -1: 1.3**layers}[effect][: config.depth]
        found[f"eta {kind}"] = noisy(eta, MEMBERS, NOISE)
    return found


def classes(module: Any, config: Any, effect: int) -> Arrays:
    """Figure C.2."""
    first = np.arange(config.count) < config.count // 2
    kernel = 0.6 + 0.2 * effect * (first[:, None] == first)
    random = 0.01 * np.random.default_rng(0).normal(size=kernel.shape)
    return {" ".join(map(str, task)): kernel + random + random.T for task in config.tasks}


ARRAYS = {
    "fig4_2": fading, "fig4_3": rising, "fig4_5": best_scales, "fig4_6": over_pairs, "figC1": powers, "figC2": classes,
}  # fmt: skip
