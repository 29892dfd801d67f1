"""report.html and report.json of a transfer study."""

import html
import json
from typing import Any

from rich.console import Console

from train.evaluate.page import heading, page, picture, plain, table, what_was_run
from train.transfer import plots
from train.transfer.outcome import Outcome, target
from train.transfer.shift import COLUMNS, bounds, rows

NOT_TRANSFERRED = (
    "What is not expected to transfer: another batch size, another number of steps or schedule, other data or more of "
    "them, and regularisation (weight decay, dropout, augmentation) as far as it acts against overfitting, which depends on "
    "the size. Tune these at the target size, or keep them as they were in this sweep."
)
READING = (
    "The optimum is the median of where the logarithm of the loss, averaged over seeds, may be least over log₂ of the value, "
    "as far as noise and the grid's spacing leave it open; intervals hold 95 % of that, and are open where an optimum may lie "
    "beyond an end of the grid. Every seed has its own weights and order of the data. The loss is the training loss, averaged "
    "over the last tenth of the steps. A run has diverged if its loss is infinite or ends above ten times what it was at the "
    "start; a value at which a seed diverged counts as infinite. Settled: the step after which the optimum stays within an "
    "octave of the final one."
)


def print_report(outcome: Outcome, command: str, console: Console, advice: str = "") -> None:
    """On the terminal."""
    for label in outcome.labels:
        for series in outcome.series(label):
            console.print(f"\n{label}", style="bold")
            console.print(series)
    for line in (*_limit_lines(outcome), READING, NOT_TRANSFERRED):
        console.print(f"[dim]{line}[/dim]", highlight=False)
    console.print(f"\n{advice or target(outcome).advice}", highlight=False)
    console.print(f"  {command}", highlight=False, soft_wrap=True)


def documents(outcome: Outcome, run: dict[str, Any], command: str, advice: str = "") -> dict[str, str]:
    """Both files, by name."""
    numbers = json.dumps(as_json(outcome, run, command, advice), indent=1) + "\n"
    return {"report.json": numbers, "report.html": as_html(outcome, run, command, advice)}


def as_json(outcome: Outcome, run: dict[str, Any], command: str, advice: str = "") -> dict[str, Any]:
    """Every number: optima, shifts, regrets with their intervals, and the losses [value, seed]."""
    names = ("value", "low", "high")
    series = [
        {
            "setting": label, "over": s.over, "fixed": s.fixed, "sizes": s.sizes,
            **{name: dict(zip(names, getattr(s, name)(), strict=True)) for name in ("slope", "shift", "regret")},
        }
        for label in outcome.labels for s in outcome.series(label)
    ]  # fmt: skip
    limits = [(label, sweep) for label, depths in outcome.limits.items() for sweep in depths.values()]
    finite = [(label, sweep) for label, sizes in outcome.sweeps.items() for sweep in sizes.values()]
    sweeps = [
        {
            "setting": label, "width": sweep.width, "depth": sweep.depth, outcome.dial: sweep.rates, "losses": sweep.losses,
            "diverged": sweep.diverged, "optimum": sweep.optimum().rate, "interval": sweep.interval(),
            "loss": sweep.optimum().loss, "edge": sweep.optimum().edge, "settled": sweep.settled(),
            "steps": sweep.curves.shape[-1],
        }
        for label, sweep in finite + limits
    ]  # fmt: skip
    found = {"run": run, "series": series, "sweeps": sweeps, "best": outcome.best_values(), "absent": outcome.absent}
    advice = advice or target(outcome).advice
    return plain({**found, "command": command, "advice": advice, "how_to_read": [READING, NOT_TRANSFERRED]})


def as_html(outcome: Outcome, run: dict[str, Any], command: str, advice: str = "") -> str:
    """One self-contained page."""
    dial = outcome.dial.replace("_", " ")
    parts = [heading(f"Does the best {dial} carry over?")]
    for label in outcome.labels:
        parts.append(f"<h2>{html.escape(label)}</h2>")
        for series in outcome.series(label):
            parts.append(f"<p>{html.escape(series.sentence)}</p>{table(COLUMNS, series.rows())}")
        if not outcome.series(label):
            parts += [table(COLUMNS, rows(outcome.sweeps[label].values()))]
    parts += [f"<p>{html.escape(line)}</p>" for line in _limit_lines(outcome)]
    if best := outcome.best_values():
        parts += [
            "<h2>The other hyperparameters</h2><p>The best value of each, everything else tuned, size by size.</p>"
        ]
        parts += [table(("setting", "hyperparameter", "width × depth", "best value", "loss"), best)]
    parts += [picture(*each) for each in figures(outcome)]
    parts += [f"<p class='muted'>{html.escape(line)}</p>" for line in (READING, NOT_TRANSFERRED)]
    parts += [f"<h2>To train the target size</h2><p>{html.escape(advice or target(outcome).advice)}</p>"]
    parts += [f"<pre>{html.escape(command)}</pre>", what_was_run(run)]
    return page(f"transfer of {dial}", "".join(parts))


def figures(outcome: Outcome) -> list[tuple[str, str, Any]]:
    """(title, how to read it, figure)."""
    dial = outcome.dial.replace("_", " ")
    several = any(outcome.series(label) for label in outcome.labels)
    scan = any(len(s.rates) > 2 for sizes in outcome.sweeps.values() for s in sizes.values())
    found = []
    if scan:
        text = "Stars: optima, on bars that are their intervals; crosses on top: values at which a seed diverged."
        found.append((f"Loss against {dial}", text, plots.curves(outcome)))
    if scan and several:
        text = "Level lines mean that the optimum found on a small network is that of a large one; dashed: the limit's."
        found.append(("The optimum against the size", text, plots.optima(outcome)))
    text = "All sizes with the value that is best for the smallest one: where hyperparameters carry over, curves lie together."
    found.append(("Along training", text, plots.training(outcome)))
    if scan:
        text = "How soon the best value can be read off: the optimum had training ended at the step on the horizontal axis."
        found.append(("Early selection", text, plots.early(outcome)))
    return found


def _limit_lines(outcome: Outcome) -> list[str]:
    lines = [
        f"{label}, depth {depth}: the limit's own optimum is {s.optimum().rate:.3g} ({bounds(s)}), its loss there "
        f"{s.optimum().loss:.4g}."
        for label, depths in outcome.limits.items()
        for depth, s in depths.items()
    ]
    return lines + [f"{label} has no curve of its limit: {why}" for label, why in outcome.absent.items()]
