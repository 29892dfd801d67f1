"""The numbers of sweeps, and of predictions from them, to be moved through."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from train.evaluate.exploration import Exploration, Series
from train.transfer.outcome import Outcome
from train.transfer.prediction import Prediction
from train.transfer.sweep import Sweep

MOST = 20_000  # points on a page: as many steps as fit
_STEPS = 24


def explored(outcome: Outcome) -> Exploration | None:
    """Losses of all settings and sizes over values and steps: means over seeds, with their standard errors."""
    each = [(label, sweep) for label, sweep in outcome.each() if sweep.curves.size]
    if not each:
        return None
    points = sum(len(sweep.rates) for _, sweep in each)
    curves = [
        _curve(_place(outcome, label, sweep), outcome.dial, sweep, min(max(MOST // points, 1), _STEPS))
        for label, sweep in each
    ]
    finite = [(label, sweep) for label, sweep in each if math.isfinite(sweep.width)] or each
    label, first = finite[-1]
    best = first.optimum().rate
    start = {
        **_place(outcome, label, first),
        outcome.dial: best if math.isfinite(best) else float(first.rates[0]),
        "step": first.curves.shape[-1],
    }
    text = (
        "Means over seeds, and their standard error where they are chosen; a line is broken, and × on top, where a run "
        "diverged. The loss at a step is what it would be had training ended there."
    )
    return Exploration("With sliders", text, "training loss", curves, ("width",), start)


def _place(outcome: Outcome, label: str, sweep: Sweep) -> dict[str, Any]:
    setting = outcome.settings.get(label, {"setting": label})
    return {name: value if type(value) in (int, float, str) else str(value) for name, value in setting.items()} | _size(
        sweep
    )


def _size(sweep: Sweep) -> dict[str, Any]:
    return {"width": int(sweep.width) if math.isfinite(sweep.width) else "limit", "depth": sweep.depth}


def _curve(at: Mapping[str, Any], dial: str, sweep: Sweep, steps: int) -> Series:
    last = sweep.curves.shape[-1]
    grid = np.unique(np.linspace(last / steps, last, steps).astype(int).clip(1))
    ended = np.stack([sweep.until(step) for step in grid.tolist()], axis=-1)  # [rate, seed, step]
    mean, error = _mean(ended.swapaxes(1, 2))
    return Series(at, {dial: sweep.rates, "step": grid}, mean, mean - error, mean + error)


def _mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean over the last axis, its standard error: zero where it is not known)."""
    seeds = values.shape[-1]
    with np.errstate(invalid="ignore"):
        error = values.std(-1, ddof=1) / seeds**0.5 if seeds > 1 else np.zeros(values.shape[:-1])
    return values.mean(-1), np.where(np.isfinite(error), error, 0.0)


def predicted(outcome: Outcome, found: Sequence[tuple[str, Prediction]]) -> Exploration | None:
    """Of all settings the sizes that were measured, and the target that is predicted from them with its interval."""
    if not found:
        return None
    curves, dial = [], outcome.dial
    for label, p in found:
        setting, own = {"setting": label}, outcome.sweeps[label].get(p.size)
        sweeps = [outcome.sweeps[label][s] for s in p.used if s in outcome.sweeps[label]]
        sweeps += [limit for depth, limit in outcome.limits.get(label, {}).items() if (math.inf, depth) in p.used]
        for sweep in [*sweeps, *([own] if own else [])]:
            mean, error = _mean(np.log(np.where(sweep.losses > 0, sweep.losses, np.nan)))
            ends = (np.exp(each) for each in (mean, mean - error, mean + error))
            curves.append(Series({**setting, **_size(sweep), "what": "measured"}, {dial: sweep.rates}, *ends))
        rates, losses = p.curve
        at = {**setting, "width": int(p.size[0]), "depth": int(p.size[1]), "what": "predicted"}
        curves.append(Series(at, {dial: rates}, *losses.ends))
    label, p = found[0]
    start = {"setting": label, "width": p.size[0], "depth": p.size[1], "what": "predicted", dial: float(p.rate.value)}
    text = f"Measured: means over seeds (of logarithms) and their standard error. Predicted: {p.level:.0%} intervals."
    return Exploration("With sliders", text, outcome.scored, curves, ("width", "what"), start)
