"""Predictions against what was measured at their target, for reports."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from train.evaluate.interval import share
from train.evaluate.report import Part, Table
from train.transfer.checked import Checked
from train.transfer.shift import octaves, percent, words


def parts(found: Mapping[str, Checked], level: float) -> list[Part]:
    """A row a setting; of several settings also how often intervals held, and what is typical."""
    rows, kinds = [], []
    for label, c in found.items():
        kinds.append("good" if all(c.hits) else "bad")
        verdict = ", ".join(name for name, hit in zip(("loss", "optimum"), c.hits, strict=True) if not hit)
        rows.append(
            (label, f"misses {verdict}" if verdict else "holds", words(c.loss, "{:+.2%}".format), words(c.octaves, octaves),
             percent(c.regret), percent(c.plain), percent(c.by_hand), f"{c.loss_by_hand:+.2%}")
        )  # fmt: skip
    columns = (
        "setting", "verdict", "loss off", "octaves off", "its value costs", "plain transfer", "line by hand", "loss by hand off",
    )  # fmt: skip
    title = f"Measured at the target: predicted over measured, {level:.0%} intervals"
    table = Table(columns, rows, kinds, title=title)
    return [table, *([summary(list(found.values()))] if len(found) > 1 else [])]


def summary(found: Sequence[Checked]) -> Table:
    """Of several: how often intervals hold what was measured (with Wilson's 95 % interval), and medians of how far off it is."""
    held = []
    for i in (0, 1):
        hits = sum(each.hits[i] for each in found)
        low, high = (float(end) for end in share(hits / len(found), len(found)).ends[1:])
        held.append(f"{hits} of {len(found)} [{low:.0%}, {high:.0%}]")
    off = np.median([abs(float(each.loss.value)) for each in found])
    hand = [abs(each.loss_by_hand) for each in found if math.isfinite(each.loss_by_hand)]
    away = np.median([abs(float(each.octaves.value)) for each in found])

    def costs(name: str) -> str:
        each = [c for c in (getattr(each, name) for each in found) if not math.isnan(c)]
        return f"{percent(float(np.median(each)))}, {percent(max(each))}" if each else ""

    rows = [
        ("loss", held[0], f"{off:.1%}", "", f"{np.median(hand):.1%}" if hand else ""),
        ("best value", held[1], f"{away:.2f} octaves", "", ""),
        ("what the value costs: median, worst", "", costs("regret"), costs("plain"), costs("by_hand")),
    ]
    columns = ("all settings", "in its interval", "predicted: median off", "plain transfer", "by hand")
    return Table(columns, rows)
