"""What a transfer study reports."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from train.evaluate.report import Picture, Report, Table, Text, notes
from train.transfer import plots
from train.transfer.explored import explored
from train.transfer.numbers import numbers
from train.transfer.outcome import Outcome, target
from train.transfer.searched import Searched
from train.transfer.searched import parts as rounds_parts
from train.transfer.shift import COLUMNS, LEAST, bounds, rows
from train.transfer.variants_report import Contest, parts_of

NOT_TRANSFERRED = (
    "What is not expected to transfer: another batch size, another number of steps or schedule, other data or more of "
    "them, and regularisation (weight decay, dropout, augmentation) as far as it acts against overfitting, which depends on "
    "the size. Tune these at the target size, or keep them as they were in this sweep."
)
READING = (
    "The optimum is the median of where the logarithm of the loss (where one is not positive, the loss), averaged over seeds, "
    "may be least over log₂ of the value, as far as noise and the grid's spacing leave it open; intervals hold 95 % of that, and "
    "are open where an optimum may lie beyond an end of the grid, and of a single seed there are none. Every seed has its own "
    "weights and order of the data. The loss is the {scored}; a training loss is averaged over the last tenth of the steps. "
    "In tables of optima it is the mean over seeds at the value of the grid where that is least; between variants, and in "
    "launch.predict, the floor of a valley that is fitted around it to the mean of the logarithm. "
    "A run has diverged if its loss is infinite or ends above ten times what it was at the start; a value at "
    "which a seed diverged counts as infinite. Settled: the step after which the optimum stays within an octave of the final one."
)


def report(
    outcome: Outcome,
    run: dict[str, Any],
    command: str,
    advice: str = "",
    searched: Mapping[str, Searched] | None = None,
) -> Report:
    """Tables by setting, pictures, the command that trains the target size and the advice on it, and every number; of a study in
    rounds also these."""
    advice, dial = advice or target(outcome).advice, outcome.dial.replace("_", " ")
    best, reading = outcome.best_values(), READING.format(scored=outcome.scored)
    wanted = run.get("config", {}).get("target", {})
    contests = Contest.at(outcome, wanted)
    other = Table(
        ("setting", "hyperparameter", "width × depth", "best value", LEAST),
        best,
        title="The other hyperparameters",
        caption="The best value of each, everything else tuned, size by size.",
    )
    parts = [
        *(rounds_parts(searched, dial) if searched else []),
        *tables(outcome),
        *map(Text, _limit_lines(outcome)),
        *parts_of(contests, dial, doubts=True),
        *([other] if best else []),
        *([found] if (found := explored(outcome)) else []),
        *figures(outcome),
        *notes([reading, NOT_TRANSFERRED]),
        Text("To train the target size", "title"),
        Text(advice),
        Text(command, "code"),
    ]
    document = numbers(outcome, wanted) | {"how_to_read": [reading, NOT_TRANSFERRED]}
    document |= {"variants": [each.numbers() for each in contests]}
    document |= {"rounds": {label: each.numbers() for label, each in searched.items()}} if searched else {}
    document |= {"run": run, "command": command, "advice": advice}
    return Report(f"Does the best {dial} carry over?", parts, document, run, tab=f"transfer of {dial}")


def so_far(outcome: Outcome, words: str) -> Report:
    """What the sizes say that are there: tables and sliders, no pictures; words: how much that is."""
    shown = explored(outcome)
    parts = [Text(words), *tables(outcome), *([shown] if shown else [])]
    return Report(f"Does the best {outcome.dial.replace('_', ' ')} carry over?", parts, numbers(outcome, {}))


def tables(outcome: Outcome) -> list[Table]:
    """The optima of every setting: a table for each series of sizes, or one where there is none."""
    found = []
    for label in outcome.labels:
        series = [each.table for each in outcome.series(label)] or [
            Table(COLUMNS, rows(outcome.sweeps[label].values()))
        ]
        found += [dataclasses.replace(each, title=": ".join(filter(None, (label, each.title)))) for each in series]
    return found


def figures(outcome: Outcome) -> list[Picture]:
    """What there is to see of a grid, or of a single value."""
    dial = outcome.dial.replace("_", " ")
    several = any(outcome.series(label) for label in outcome.labels)
    scan = any(len(s.rates) > 2 for sizes in outcome.sweeps.values() for s in sizes.values())
    found = []
    if scan:
        text = (
            "Stars: optima, on bars that are their intervals, with arrows at open ends (none: nothing bounds the optimum); "
            "crosses on top: values at which a seed diverged."
        )
        found.append(Picture(f"Loss against {dial}", text, plots.curves(outcome)))
    if scan and several:
        limit = "; dashed: the limit's" if any(outcome.limits.values()) else ""
        text = (
            f"Level lines mean that the optimum found on a small network is that of a large one{limit}. Bars as above."
        )
        found.append(Picture("The optimum against the size", text, plots.optima(outcome)))
    text = "All sizes with the value that is best for the smallest one: where hyperparameters carry over, curves lie together."
    found.append(Picture("Along training", text, plots.training(outcome)))
    if scan:
        text = "How soon the best value can be read off: the optimum had training ended at the step on the horizontal axis."
        found.append(Picture("Early selection", text, plots.early(outcome)))
    return found


def _limit_lines(outcome: Outcome) -> list[str]:
    lines = [
        f"{label}, depth {depth}: the limit's own optimum is {s.optimum().rate:.3g} ({bounds(s)}), its loss there "
        f"{s.optimum().loss:.4g}."
        for label, depths in outcome.limits.items()
        for depth, s in depths.items()
    ]
    return lines + [f"{label} has no curve of its limit: {why}" for label, why in outcome.absent.items()]
