"""What a paper says of optima over width and depth, as checks of an `Outcome`. Undecided where the grid does not show it."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from train.evaluate.finding import Finding
from train.evaluate.interval import Interval
from train.transfer.outcome import Outcome
from train.transfer.shift import Transfer
from train.transfer.sweep import DRAWS, interval


def _finding(
    text: str, outcome: Outcome, labels: Sequence[str], over: str, judge: Callable[..., tuple[bool | None, str]]
) -> Finding:
    """(whether it holds, figures) by `judge` of the series of these settings; undecided where one has no two such sizes."""
    try:
        series = [outcome.over(label, over) for label in labels]
    except ValueError as error:
        return Finding(text, None, str(error))
    return Finding(text, *judge(*series))


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


def keeps(outcome: Outcome, label: str, over: str, octaves: float = 1.0) -> Finding:
    """Optima move by at most so many octaves, and nothing diverges there. Undecided where the interval of the largest move
    holds more and less, or where the grid ends at an optimum."""

    def judge(series: Transfer) -> tuple[bool | None, str]:
        far, low, high = moved(series)
        holds = None if low <= octaves < high else high <= octaves
        if lost(series):
            holds = False
        elif holds and any(sweep.optimum().edge for sweep in series.sweeps):
            holds = None
        return holds, _largest(series, far, low, high)

    text = f"{label}: the best {outcome.dial.replace('_', ' ')} is the same at every {over}, to {octaves:g} octave"
    return _finding(text, outcome, [label], over, judge)


def loses(outcome: Outcome, label: str, over: str, octaves: float = 2.0) -> Finding:
    """Optima move by at least so many octaves (undecided where the interval of the largest move holds more and less), or
    what was best for the smallest size diverges at the largest."""

    def judge(series: Transfer) -> tuple[bool | None, str]:
        far, low, high = moved(series)
        holds = True if lost(series) else None if low < octaves <= high else low >= octaves
        return holds, _largest(series, far, low, high)

    text = f"{label}: the best {outcome.dial.replace('_', ' ')} moves with the {over}, by {octaves:g} octaves or into divergence"
    return _finding(text, outcome, [label], over, judge)


def _largest(series: Transfer, far: float, low: float, high: float) -> str:
    return f"{series.sentence} Largest move of any size: {far:.2f} [{low:.2f}, {high:.2f}] octaves."


def compared(outcome: Outcome, worse: str, better: str, over: str) -> Finding:
    """What the smallest size's optimum costs the largest is more in one setting, beyond the intervals."""

    def judge(*both: Transfer) -> tuple[bool | None, str]:
        (_, a_low, a_high), (_, b_low, b_high) = (series.regret() for series in both)
        words = [series.cost for series in both]
        if both[0].positive != both[1].positive:
            return None, f"{worse}: {words[0]}; {better}: {words[1]}: a ratio and a difference cannot be compared"
        more = Interval(math.nan, a_low - b_high, a_high - b_low)
        return more.above(), f"{worse}: {words[0]}; {better}: {words[1]}"

    text = f"Over {over}, the smallest size's optimum costs the largest more in “{worse}” than in “{better}”"
    return _finding(text, outcome, [worse, better], over, judge)


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


def _drawn(draws: np.ndarray) -> Interval:
    """95 % of draws [draw, …]."""
    return Interval(draws.mean(0), *np.percentile(draws, [2.5, 97.5], axis=0))


def falls(outcome: Outcome, label: str, over: str, until: float = 1.0, sign: int = -1) -> Finding:
    """The tuned loss after this share of the steps falls (sign −1; rises: 1) from every size to the next, beyond 95 %."""

    def judge(series: Transfer) -> tuple[bool | None, str]:
        losses, drawn, step = _tuned(series, until)
        words = ", ".join(f"{loss:.4g}" for loss in losses)
        return _drawn(sign * np.diff(drawn, axis=1)).above(), f"after {step} steps: {words}"

    text = f"{label}: the tuned loss {'falls' if sign < 0 else 'rises'} with the {over}"
    return _finding(text, outcome, [label], over, judge)


def ends_lower(outcome: Outcome, better: str, worse: str, over: str) -> Finding:
    """At the largest size the tuned loss is lower in one setting than in the other, beyond 95 %."""

    def judge(*both: Transfer) -> tuple[bool | None, str]:
        (a, a_drawn, _), (b, b_drawn, _) = (_tuned(series, 1.0) for series in both)
        return _drawn(b_drawn[:, -1] - a_drawn[:, -1]).above(), f"{a[-1]:.4g} and {b[-1]:.4g}"

    text = f"At the largest {over} the tuned loss is lower in “{better}” than in “{worse}”"
    return _finding(text, outcome, [better, worse], over, judge)
