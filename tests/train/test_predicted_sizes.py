"""Simulated studies: how often 90 % intervals of a predicted size hold its loss and its optimum; what must be refused.

A study: widths 16 to 128, nine rates an octave apart, four seeds; the target has width 1024. With u = 16/N, the logarithm of the loss is
m + b u + c u² + f((log₂ rate − x − a u − d u²)(1 + s u)), with b, c, a, d, s drawn and f none of the shapes that are fitted; seeds have
offsets, half of their variance in common at all widths (the order of data), and noise of their own.
"""

from typing import Any

import numpy as np
import pytest

from train.transfer import NotPredictableError, Sweep, predict

WIDTHS, TARGET, SEEDS = (16, 32, 64, 128), 1024, 4
X = np.arange(-5.0, 4.0)
CURVES: dict[str, Any] = {
    "skewed": lambda t: 0.3 * (np.exp(0.8 * t) - 0.8 * t - 1) + 0.02 * t**2,
    "kinked": lambda t: np.where(t < 0, -0.2 * t, 0.9 * t) + 0.03 * t**2,
    "diverging": lambda t: np.where(t < 0, 0.12 * t**2, 0.5 * t**2),
    "flat": lambda t: 0.15 * t**2 / (1 + 0.1 * np.abs(t)),
}


def sweep(width: int, losses: np.ndarray) -> Sweep:
    """Of losses [rate, seed] at the end, from a loss of 5 on."""
    return Sweep(width, 2, 2.0**X, np.stack([np.full_like(losses, 5.0), losses], axis=-1))


def study(kind: str, random: np.random.Generator) -> tuple[float, float, dict[tuple[float, int], Sweep]]:
    """(logarithm of the target's loss, log₂ of its best rate, sweeps)."""
    best, b, a = random.uniform(-1, 1), 0.5 * random.normal(), 0.5 * random.normal()
    c, d, s = 0.5 * b * random.uniform(-1, 1), 0.5 * a * random.uniform(-1, 1), random.uniform(-0.2, 0.2)
    common, found = random.normal(size=SEEDS) * 0.04, {}
    for width in WIDTHS:
        u = WIDTHS[0] / width
        t = ((X - best - a * u - d * u**2) * (1 + s * u))[:, None]
        noise = 0.04 * random.normal(size=(len(X), SEEDS)) * (np.clip(2.0 ** (t + 0.5), 1, 4) if kind == "diverging" else 1)
        values = -1 + b * u + c * u**2 + CURVES[kind](t) + common + 0.04 * random.normal(size=SEEDS) + noise
        lost = (t > 1.4 + 0.2 * random.normal(size=noise.shape)) & (kind in ("diverging", "kinked"))
        found[width, 2] = sweep(width, np.where(lost, np.inf, np.exp(values)))
    u = WIDTHS[0] / TARGET
    return -1 + b * u + c * u**2, best + a * u + d * u**2, found


def coverage(kind: str, studies: int, seed: int = 0) -> dict[str, Any]:
    """Shares of intervals that hold the truth, their median widths, median errors, and how many were refused or doubted."""
    random, rows, refused = np.random.default_rng(seed), [], []
    for _ in range(studies):
        loss, place, sweeps = study(kind, random)
        try:
            found = predict(sweeps, TARGET)
        except NotPredictableError as error:
            refused.append(str(error))
            continue
        ends = np.log([found.loss.low, found.loss.value, found.loss.high]) - loss
        places = np.log2([found.rate.low, found.rate.value, found.rate.high]) - place
        rows.append([*ends, *places, found.trusted])
    low, off, high, left, away, right, trusted = np.array(rows, float).T
    return {
        "loss": np.mean((low <= 0) & (high >= 0)), "rate": np.mean((left <= 0) & (right >= 0)), "refused": refused,
        "width": np.median(high - low), "octaves": np.median(right - left), "error": np.median(abs(off)),
        "away": np.median(abs(away)), "trusted": trusted.mean(),
    }  # fmt: skip
