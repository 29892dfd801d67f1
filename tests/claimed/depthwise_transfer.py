"""Of Bordelon, Noci, Li, Hanin, Pehlevan (2023): arrays of ensembles, and outcomes of studies."""

from collections.abc import Callable
from typing import Any

import numpy as np

from train.transfer import Outcome, Sweep

Arrays = dict[str, Any]
POINTS, STEPS = 8, 40


def surface(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 5: scatter ½/N and a mean that is 1/L off."""
    random, limit = np.random.default_rng(0), np.ones((1, POINTS))
    found: Arrays = {"widths": np.array(config.widths), "depths": np.array(config.depths), "limit": limit}
    for n in config.widths:
        for l in config.depths:
            off, scatter = {1: (1 / l, 0.5 / n), 0: (0.3, 0.1), -1: (0.1 * l, 1e-3 * n)}[effect]
            found[f"f_{n}_{l}"] = limit + off + scatter**0.5 * random.normal(size=(256, 1, POINTS))
    return found


def tangent_kernels(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 6."""
    random, at, depths = np.random.default_rng(0), np.ones(3), np.array(config.depths)
    found: Arrays = {
        "depths": depths,
        "widths": np.array(config.widths),
        "finite_depths": np.array(config.finite_depths),
    }
    found |= {"at": at, "wide": at + 0.5 / depths[:, None]}
    for d in config.finite_depths:
        for w in config.widths:
            off, scatter = {1: (0.5 / d, 0.02 / w), 0: (0.0, 1e-4), -1: (0.1 * d, 1e-6 * w)}[effect]
            found[f"k_{d}_{w}"] = at + off + scatter**0.5 * random.normal(size=(config.members, 3))
    return found


def profiles(module: Any, config: Any, effect: int) -> Arrays:
    """Figure 7: kernels at theory; as they begin; of the other sign."""
    found: Arrays = {"depths": np.array(config.depths), "limit": np.linspace(1, 5.8, 101)}
    for d in config.depths:
        before, after = (1 + 1 / d) ** np.arange(d), 5.8 * (1 - 0.5 / d) * np.linspace(0.2, 1, d)
        found[f"wide_{d}"] = after
        h = np.stack([before, after], axis=1)
        found |= {f"h_{d}": h if effect == 1 else effect * h + (effect == 0), f"sem_{d}": 0.005 * h}
    return found


def ensembles(module: Any, config: Any, effect: int) -> Arrays:
    """Figure B.7."""
    random, found = np.random.default_rng(0), {"widths": np.array(config.widths), "depths": np.array(config.depths)}
    for i, d in enumerate(config.depths):
        for w in config.widths:
            middle, scatter = {1: (0.35 / d, 1 / w), 0: ((-1) ** i, 1e-6 * d**2), -1: (d, 1e-6 * w * d**2)}[effect]
            found[f"f_{d}_{w}"] = middle + scatter**0.5 * random.normal(size=(2000, POINTS))
    return found


def moving(moves: dict[str, tuple[float, float]], level: Callable[..., float] = lambda label, depth, early: 1.0) -> Any:
    """Outcomes where optima of these settings move by so many octaves over width and depth; `level`: least losses.

    The other way round: those that moved stay, and those that stayed move. Absent: no rate is better than another, and losses
    go up and down with size.
    """

    def made(study: Any, config: Any, effect: int) -> Outcome:
        return outcome(study, config, effect, moves, level)

    return made


def outcome(study: Any, config: Any, effect: int, moves: Any, level: Any) -> Outcome:
    """A sweep for every size of the study."""
    x, sweeps, random = np.log2(study.values), {}, np.random.default_rng(0)
    for cell in study.cells():
        parts = [
            _part(size, getattr(config, f"{name}s")) for size, name in ((cell.width, "width"), (cell.depth, "depth"))
        ]
        far = moves.get(cell.label, (0.0, 0.0))
        far = far if effect == 1 else tuple(0.0 if each else 4.0 for each in far)
        place = x.mean() + sum(move * (part - 0.5 * (move > 0)) for move, part in zip(far, parts, strict=True))
        shape = (1 + 0.1 * (x - place) ** 2)[:, None, None]
        early = np.arange(STEPS) < STEPS // 2
        low = np.where(early, *(level(cell.label, cell.depth**effect, each) for each in (True, False)))
        if effect == 0:
            shape, low = np.ones((len(x), 1, 1)), 1 + np.abs(np.sin(7.0 * cell.depth)) + 0 * low
        noise = 1 + 1e-3 * random.normal(size=(1, config.seeds, 1))
        sweeps.setdefault(cell.label, {})[cell.width, cell.depth] = Sweep(
            cell.width, cell.depth, study.values, shape * low * noise
        )
    return Outcome(study.dial, sweeps)


def _part(size: float, sizes: tuple) -> float:
    """How far on the way from the smallest to the largest size."""
    return float(np.log(size / min(sizes)) / np.log(max(sizes) / min(sizes))) if len(sizes) > 1 else 0.0


def between(study: Any, config: Any, effect: int) -> Outcome:
    """Figure B.1: tuned losses over the depth have a minimum; are the same; have a maximum."""
    x, sweeps, random = np.log2(study.values), {}, np.random.default_rng(0)
    for cell in study.cells():
        bend = (np.log(cell.depth) - np.mean(np.log(config.depths))) ** 2
        losses = np.exp(0.3 * effect * bend) * (1 + 0.1 * (x - x.mean()) ** 2)[:, None, None]
        noise = 1 + 1e-3 * random.normal(size=(1, config.seeds, 1)) + np.zeros(STEPS)
        sweeps.setdefault(cell.label, {})[cell.width, cell.depth] = Sweep(
            cell.width, cell.depth, study.values, losses * noise
        )
    return Outcome(study.dial, sweeps)


def settled(study: Any, config: Any, effect: int) -> Outcome:
    """Figure B.3: optima stay; there are none; they move until the end."""
    x, sweeps, random = np.log2(study.values), {}, np.random.default_rng(0)
    for cell in study.cells():
        place = x.mean() + (0.0 if effect == 1 else np.linspace(-3, 0, STEPS))
        losses = 1 + 0.1 * abs(effect) * (x[:, None, None] - place) ** 2
        noise = 1 + 1e-3 * random.normal(size=(1, config.seeds, 1)) + np.zeros(STEPS)
        sweeps.setdefault(cell.label, {})[cell.width, cell.depth] = Sweep(
            cell.width, cell.depth, study.values, losses * noise
        )
    return Outcome(study.dial, sweeps)


def apart(study: Any, config: Any, effect: int) -> Outcome:
    """Figure B.8 has no optimum: curves are the same; other at every size; and of the other order."""
    return outcome(
        study, config, 1, {}, lambda label, depth, early: 1.0 if effect == 1 else depth ** (0.5 * (effect or 2))
    )


def vit_levels(label: str, depth: float, early: bool) -> float:
    """Figure 3: losses fall with depth, and are lower with branches scaled."""
    return depth**-0.2 * (1.5 if label.startswith("c ") and depth > 1 else 1.0)


def early_levels(label: str, depth: float, early: bool) -> float:
    """Figure M.1: with α = 1 losses fall with depth, with 1/2 they rise early."""
    return depth**0.2 if early and label == "α = 1/2" else depth**-0.2


MUP, OURS = "muP, branches not scaled", "muP, branches times 1/√L"
ARRAYS = {
    "fig1": moving({MUP: (0.0, 4.0)}),
    "fig2": moving({"normalised": (0.0, 4.0)}),
    "fig3": moving({"no norm, branches not scaled": (0.0, 4.0)}, vit_levels),
    "fig4": moving({}),
    "fig5": surface,
    "fig6": tangent_kernels,
    "fig7": profiles,
    "figB1": between,
    "figB2": moving({"standard": (4.0, 4.0), "standard, branches times 1/√L": (4.0, 4.0)}),
    "figB3": settled,
    "figB4": moving({"normalised": (0.0, 4.0)}),
    "figB5": moving({"normalised": (0.0, 4.0)}),
    "figB6": moving({}),
    "figB7": ensembles,
    "figB8": apart,
    "figM1": moving({}, early_levels),
}
