"""A study's sweeps as an `Outcome`: by setting and size, with what each took and what each is trained and scored on."""

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

from train.study.size import Size, labelled
from train.study.sized import SCORED
from train.transfer.kept import held
from train.transfer.outcome import Outcome
from train.transfer.sweep import Sweep

if TYPE_CHECKING:
    from train.study.study import Study

_OF_LOSSES = ("loss", "validation", "score")


def outcome_of(study: "Study", found: dict[tuple, list[Sweep]], absent: dict[str, str]) -> Outcome:
    """Of the cells that are there, {key of the cell: a sweep for each of the study's settings}."""
    sweeps: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    tuning: dict[str, Any] = {}
    tasks: dict[str, str] = {}
    for cell in study.cells():
        there = held(study.file(cell)) if cell.key in found and math.isfinite(cell.width) else None
        for setting, sweep in zip(study.settings(), found.get(cell.key, []), strict=False):
            label = study.label(cell.label, setting)
            compiled = {name: cell.fields[name] for name in study.axes if name not in study.traced}
            settings[label] = {"setting": cell.variant, **compiled, **setting}
            tasks[label] = task_words(study, cell)
            if math.isinf(cell.width):
                limits.setdefault(label, {})[cell.depth] = sweep
                continue
            sweeps.setdefault(label, {})[cell.width, cell.depth] = sweep
            if there is not None:
                tuning.setdefault(label, {})[cell.width, cell.depth] = there.table(study.dial, setting).tuning
    return Outcome(
        study.dial, sweeps, limits, settings, absent, scored=SCORED[study.scored], tuning=tuning, tasks=tasks
    )


def with_earlier(study: "Study", outcome: Outcome) -> Outcome:
    """With the other sizes that were trained in the folder before: same code, seeds, steps and values."""
    names = [re.search(r"_width_([\d.e+]+)_depth_(\d+)_", file.name) for file in study.rounds.parent.glob("*.npz")]
    sizes = [(int(float(name[1])), int(name[2])) for name in names if name]
    every = study.with_sizes([width for width, _ in sizes], [depth for _, depth in sizes]).kept()
    here, there = ({(label, *size) for label, all in each.sweeps.items() for size in all} for each in (outcome, every))
    return dataclasses.replace(every, absent=outcome.absent) if there > here else outcome


def task_words(study: "Study", cell: Size) -> str:
    """What a setting has of its own that makes its losses others than those of other settings: fields that the loss or the score
    asks for, and those of the batches that are no numbers."""
    losses, data = study.experiment.asked_for(_OF_LOSSES), study.experiment.asked_for(("batches",))
    own = {
        name: value
        for name, value in cell.fields.items()
        if name in losses or (name in data and not isinstance(value, int | float))
    }
    return labelled("", own)
