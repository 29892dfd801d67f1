"""What a paper says of optima over width and depth, as checks of an `Outcome`. Undecided where the grid does not show it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from train.evaluate.claim import Claim
from train.transfer.outcome import Outcome
from train.transfer.shift import Transfer, percent
from train.transfer.sweep import DRAWS, interval


def _judged(check: Callable[[Outcome, str, str, Any], Claim]) -> Callable[..., Claim]:
    """A check of one setting over width or depth; undecided where there are no two such sizes."""

    def judge(outcome: Outcome, label: str, over: str, *more: Any) -> Claim:
        try:
            outcome.over(label, over)
        except ValueError as error:
            return Claim(f"{label}, over {over}", None, str(error))
        return check(outcome, label, over, *more)

    return judge


def moved(series: Transfer) -> tuple[float, float, float]:
    """By how many octaves optima move from that of the smallest size, at most: (distance, low, high), a 95 % interval; infinite
    where a size diverges everywhere, and upwards where an optimum may lie beyond an end of its grid.

    Each end is that of one size, its level divided by their number: the largest of several noisy moves is never small.
    """
    first, *others = series.sweeps
    distance = max(abs(sweep.optimum().log_rate - first.optimum().log_rate) for sweep in others)
    if not all(math.isfinite(sweep.optimum().log_rate) for sweep in series.sweeps):
        return math.inf, math.inf, math.inf
    (low, high), *rest = series.places()
    ends = [
        interval(
            np.maximum(np.maximum(lowest - high, low - highest), 0.0),
            np.maximum(highest - low, high - lowest),
            len(rest),
        )
        for lowest, highest in rest
    ]
    return distance, max(least for least, _ in ends), max(most for _, most in ends)


def lost(series: Transfer) -> bool:
    """Whether the largest size diverges at the optimum of the smallest one."""
    return not math.isfinite(series.regret()[0])


@_judged
def keeps(outcome: Outcome, label: str, over: str, octaves: float = 1.0) -> Claim:
    """Optima move by at most so many octaves, and nothing diverges there. Undecided where the interval of the largest move
    holds more and less, or where the grid ends at an optimum."""
    series = outcome.over(label, over)
    _, low, high = moved(series)
    holds = None if low <= octaves < high else high <= octaves
    if lost(series):
        holds = False
    elif holds and any(sweep.optimum().edge for sweep in series.sweeps):
        holds = None
    text = f"{label}: the best {outcome.dial.replace('_', ' ')} is the same at every {over}, to {octaves:g} octave"
    return Claim(text, holds, f"{series.sentence} {_largest(series)}")


@_judged
def loses(outcome: Outcome, label: str, over: str, octaves: float = 2.0) -> Claim:
    """Optima move by at least so many octaves (undecided where the interval of the largest move holds more and less), or
    what was best for the smallest size diverges at the largest."""
    series = outcome.over(label, over)
    _, low, high = moved(series)
    holds = True if lost(series) else None if low < octaves <= high else low >= octaves
    text = f"{label}: the best {outcome.dial.replace('_', ' ')} moves with the {over}, by {octaves:g} octaves or into divergence"
    return Claim(text, holds, f"{series.sentence} {_largest(series)}")


def _largest(series: Transfer) -> str:
    far, low, high = moved(series)
    return f"Largest move of any size: {far:.2f} [{low:.2f}, {high:.2f}] octaves."


def compared(outcome: Outcome, worse: str, better: str, over: str) -> Claim:
    """What the smallest size's optimum costs the largest is more in one setting, beyond the intervals."""
    text = f"Over {over}, the smallest size's optimum costs the largest more in “{worse}” than in “{better}”"
    try:
        (a, a_low, a_high), (b, b_low, b_high) = (outcome.over(label, over).regret() for label in (worse, better))
    except ValueError as error:
        return Claim(text, None, str(error))
    costs = ((worse, a, a_low, a_high), (better, b, b_low, b_high))
    figures = "; ".join(f"{name}: {percent(x)} [{percent(low)}, {percent(high)}]" for name, x, low, high in costs)
    return Claim(text, True if a_low > b_high else False if b_low > a_high else None, figures)


def _tuned(series: Transfer, until: float) -> tuple[np.ndarray, np.ndarray, int]:
    """(tuned losses by size, the same for seeds drawn with replacement [draw, size], after how many steps)."""
    step = max(int(series.sweeps[0].curves.shape[-1] * until), 1)
    whole, drawn = [], []
    for number, sweep in enumerate(series.sweeps):
        losses = sweep.until(step)
        seeds = np.random.default_rng(number).integers(losses.shape[1], size=(DRAWS, losses.shape[1]))
        whole.append(losses.mean(1).min())
        drawn.append(losses[:, seeds].mean(-1).min(0))
    return np.array(whole), np.stack(drawn, axis=1), step


@_judged
def falls(outcome: Outcome, label: str, over: str, until: float = 1.0, sign: int = -1) -> Claim:
    """The tuned loss after this share of the steps falls (sign −1; rises: 1) from every size to the next, beyond 95 %."""
    losses, drawn, step = _tuned(outcome.over(label, over), until)
    change = sign * np.diff(drawn, axis=1)
    low, high = np.percentile(change, [2.5, 97.5], axis=0)
    holds = True if (low > 0).all() else False if (high < 0).any() else None
    figures = f"after {step} steps: " + ", ".join(f"{loss:.4g}" for loss in losses)
    return Claim(f"{label}: the tuned loss {'falls' if sign < 0 else 'rises'} with the {over}", holds, figures)


def ends_lower(outcome: Outcome, better: str, worse: str, over: str) -> Claim:
    """At the largest size the tuned loss is lower in one setting than in the other, beyond 95 %."""
    text = f"At the largest {over} the tuned loss is lower in “{better}” than in “{worse}”"
    try:
        (a, a_drawn, _), (b, b_drawn, _) = (_tuned(outcome.over(label, over), 1.0) for label in (better, worse))
    except ValueError as error:
        return Claim(text, None, str(error))
    low, high = np.percentile(b_drawn[:, -1] - a_drawn[:, -1], [2.5, 97.5])
    return Claim(text, True if low > 0 else False if high < 0 else None, f"{a[-1]:.4g} and {b[-1]:.4g}")
