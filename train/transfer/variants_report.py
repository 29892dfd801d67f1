"""Variants of a study against each other, for reports: at the target, each with its own best setting and value."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from train.evaluate.report import Part, Table, Text
from train.transfer.expansion import Size, order
from train.transfer.outcome import Outcome
from train.transfer.shift import words
from train.transfer.tuning import Tuning
from train.transfer.variants import Compared, Stated, compared, signed

LEVEL = 0.9
FLOOR = "floor of the valley"  # what is said of a loss that is fitted, in tables
READING = (
    "Variants: each at its own best value (and, of the other hyperparameters, at their best), measured at the target or "
    "predicted from what is smaller. “Above the first” are {level:.0%} intervals of paired differences: seeds of one number have "
    "the same initial keys and order of the data in every variant, and what they have in common falls out; noise and the choice "
    "of the model do not. Ahead: better than all others; behind: worse than the first; open: neither. Tuning: the runs that this "
    "rests on, parameters times steps of all of them, and the seconds that they took where they ran."
)


@dataclasses.dataclass(frozen=True)
class Contest:
    """Variants `compared`, by the labels of their best settings, and what tuning each of these took."""

    compared: Compared
    tuning: dict[str, Tuning | None]
    task: str = ""  # what they share, where a study has several

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        target: Size,
        stated: Mapping[str, Stated],
        refused: Mapping[str, str],
        level: float = LEVEL,
    ) -> "list[Contest]":
        """Of what is known of each setting: one for each task that has two variants or more."""
        tasks: dict[str, dict[str, list[str]]] = {}
        for label in (*stated, *refused):
            variants = tasks.setdefault(outcome.tasks.get(label, ""), {})
            variants.setdefault(outcome.settings.get(label, {"setting": label})["setting"], []).append(label)
        found = []
        for task, variants in tasks.items():
            chosen, lost, tuning = {}, {}, {}
            for labels in variants.values():
                there = {label: stated[label] for label in labels if label in stated}
                if not there:
                    lost |= {label: refused[label] for label in labels}
                    continue
                best = min(there, key=lambda label: there[label].floor.median)
                chosen[best], tuning[best] = there[best], _tuning(outcome, labels, target, there[best].measured)
            if len(variants) > 1:
                found.append(cls(compared(chosen, lost, target, level), tuning, task if len(tasks) > 1 else ""))
        return found

    @classmethod
    def at(cls, outcome: Outcome, wanted: Mapping[str, int]) -> "list[Contest]":
        """At the size that is asked for, by default the largest one; none where there is nothing to be compared."""
        sizes = [size for sweeps in outcome.sweeps.values() for size in sweeps]
        if len(outcome.labels) < 2 or not sizes:
            return []
        width, depth = max(sizes, key=order)
        if wanted:
            width, depth = wanted.get("width", max(w for w, _ in sizes)), wanted.get("depth", max(d for _, d in sizes))
        stated, refused = {}, {}
        for label, sweeps in outcome.sweeps.items():
            if any(len(each.rates) < 3 for each in sweeps.values()):
                return []
            try:
                if (width, depth) not in sweeps and label in outcome.unbounded:
                    raise ValueError(outcome.unbounded[label])
                stated[label] = Stated.of(sweeps, (width, depth), outcome.limits.get(label), LEVEL)
            except ValueError as error:
                refused[label] = str(error)
        return cls.of(outcome, (width, depth), stated, refused)

    def parts(self, dial: str) -> list[Part]:
        """A table under its sentence, why some are not in it, and what speaks against others."""
        found, rows, kinds = self.compared, [], []
        for name in found.loss:
            first = name == found.best
            verdict = ("ahead" if found.ahead else "open") if first else "open" if name in found.open else "behind"
            kinds.append({"ahead": "good", "behind": "bad", "open": "unsure"}[verdict])
            above = "" if first else words(found.above[name], signed)
            how = "measured" if found.stated[name].measured else "predicted"
            loss, rate = words(found.loss[name]), words(found.rate[name])
            rows.append((name, verdict, how, loss, above, rate, *_took(self.tuning.get(name))))
        rows += [(name, "refused", "", "", "", "", "", "", "") for name in found.refused]
        kinds += ["bad"] * len(found.refused)
        columns = (
            "variant", "verdict", "how", f"loss ({FLOOR})", "above the first", f"best {dial}", "runs",
            "parameters × steps", "seconds",
        )  # fmt: skip
        among = f", {self.task}" if self.task else ""
        title = f"Variants at width {found.size[0]:g}, depth {found.size[1]}{among}, each at its own best {dial}"
        table = Table(columns, rows, kinds, title=title, caption=found.sentence)
        return [table, *(Text(f"{name}: {reason}") for name, reason in found.refused.items())]

    def doubts(self) -> list[Part]:
        """What speaks against predictions, where they are not said elsewhere."""
        return [Text(f"{name}: {doubt}") for name, each in self.compared.stated.items() for doubt in each.doubts]

    def numbers(self) -> dict[str, Any]:
        """For the file of JSON."""
        found = self.compared
        variants = [
            {
                "setting": name, "loss": dataclasses.asdict(found.loss[name]), "best": dataclasses.asdict(found.rate[name]),
                "above_first": dataclasses.asdict(found.above[name]), "measured": found.stated[name].measured,
                "doubts": list(found.stated[name].doubts),
                "tuning": None if (took := self.tuning.get(name)) is None else dataclasses.asdict(took),
            }
            for name in found.loss
        ]  # fmt: skip
        return {
            "width": found.size[0], "depth": found.size[1], "level": found.level, "sentence": found.sentence,
            "ahead": found.ahead, "open": found.open, "variants": variants, "refused": found.refused,
        }  # fmt: skip


def parts_of(contests: Sequence[Contest], dial: str, doubts: bool = False) -> list[Part]:
    """Of all tasks, and how to read them."""
    found = [part for each in contests for part in (*each.parts(dial), *(each.doubts() if doubts else ()))]
    return [*found, Text(READING.format(level=contests[0].compared.level), "muted")] if found else []


def _tuning(outcome: Outcome, labels: list[str], target: Size, measured: bool) -> Tuning | None:
    """Of all settings of a variant: at the target, where it was measured; else of what is smaller."""
    parts = [
        took
        for label in labels
        for size, took in outcome.tuning.get(label, {}).items()
        if (size == target if measured else size != target and size[0] <= target[0] and size[1] <= target[1])
    ]
    return Tuning.of(parts) if parts else None


def _took(took: Tuning | None) -> tuple[str, str, str]:
    if took is None:
        return "", "", ""
    work, seconds = (f"{each:.3g}" if math.isfinite(each) else "" for each in (took.work, took.seconds))
    return str(took.runs), work, seconds
