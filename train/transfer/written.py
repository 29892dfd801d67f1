"""Predictions as they were written down before their target was trained, and whether they are still the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.evaluate.report import numbers_in

if TYPE_CHECKING:
    from train.transfer.predicted_report import Forecast

_NUMBERS = ("loss", "rate")


def earlier(file: Path) -> dict[str, Any]:
    """What an earlier report of predictions (predicted.json) had written down, {setting: numbers}; without one, nothing."""
    found = numbers_in(file).get("written", {})
    return found if isinstance(found, dict) else {}


def written(found: "Sequence[Forecast]", before: Mapping[str, Any], now: str) -> dict[str, Any]:
    """{setting: when, loss, best value}: of targets that were trained since, what was written before."""
    kept = {}
    for each in found:
        if each.checked is not None:
            kept |= {each.label: before[each.label]} if each.label in before else {}
        elif each.prediction is not None:
            ends = {name: [float(end) for end in getattr(each.prediction, name).ends] for name in _NUMBERS}
            kept[each.label] = {"when": now, **ends}
    return kept


def sentence(found: "Sequence[Forecast]", kept: Mapping[str, Any]) -> str:
    """Of predictions that are checked: which were written down before."""
    seen = {each.label: each.prediction for each in found if each.checked is not None and each.prediction is not None}
    times, same, other = [], [], []
    for label, prediction in seen.items():
        then = kept.get(label)
        ends = [float(end) for name in _NUMBERS for end in getattr(prediction, name).ends]
        if then is None or str(ends) != str([end for name in _NUMBERS for end in then[name]]):
            other.append(label)
        else:
            same.append(label)
            times.append(then["when"])
    if not seen:
        return ""
    if not other:
        when = f"from {min(times)} to {max(times)}" if min(times) < max(times) else f"at {times[0]}"
        return f"All were written down before the target was trained, {when}, and are the same now."
    return f"Not written down before the target was trained, or not the same now: {', '.join(other)}; of {len(seen)}."
