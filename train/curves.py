"""The report of a training run: loss and accuracy over the steps, of one run or of several on top of each other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from train.beside import kept_references, kept_samples
from train.evaluate.drawing import colour, legend_beside, log_ticks, panels
from train.evaluate.report import Part, Picture, Report, Table, Text
from train.records import read_records

if TYPE_CHECKING:
    import matplotlib.figure


def column(lines: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values) of the lines that have a number of this name."""
    found = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps), np.array(values, float)


def figure(runs: Mapping[str, Any]) -> "matplotlib.figure.Figure":
    """Loss, accuracy, learning rate and gradient norm of runs by label; thin lines are training batches, dots the test set,
    dotted lines the losses of others on it."""
    kinds = (("loss", "log"), ("accuracy", "linear"), ("learning_rate", "linear"), ("gradient_norm", "log"))
    logs = {label: (read_records(folder / "log.jsonl"), _tests(folder)) for label, folder in runs.items()}
    shown = [(name, scale) for name, scale in kinds if any(len(column(log, name)[0]) for log, _ in logs.values())]
    whole, axes = panels(1, len(shown), 4.2, 3.4, margin=0.0)
    for axis, (name, scale) in zip(axes[0], shown, strict=True):
        every = np.concatenate([column(each, name)[1] for both in logs.values() for each in both])
        scale = scale if (every > 0).any() else "linear"  # no logarithm of what is nowhere above 0
        for number, (label, (log, tests)) in enumerate(logs.items()):
            style = ("-", "--", "-.", ":")[number % 4]  # equal runs lie on top of each other
            axis.plot(*column(log, name), style, lw=0.9 + number % 4 / 2, color=colour(number), alpha=0.75, label=label)
            axis.plot(*column(tests, name), "o-", ms=4, color=colour(number), markeredgecolor="black", lw=1.2)
        if name == "loss":
            for value in {v for folder in runs.values() for v in kept_references(folder).values()}:
                axis.axhline(value, ls=":", lw=0.9, color="0.4")
        axis.set(xlabel="step", ylabel=name.replace("_", " "), yscale=scale)
        if scale == "log":
            log_ticks(axis)
    if len(logs) > 1:
        legend_beside(whole, axes)
    return whole


def differences(runs: Mapping[str, Any]) -> list[str]:
    """A sentence for every run of as many steps as the first: how far its losses are from that one's."""
    logs = {label: column(read_records(folder / "log.jsonl"), "loss") for label, folder in runs.items()}
    found: list[str] = []
    first, *others = logs or [""]
    for other in others:
        (steps, losses), (others_steps, others_losses) = logs[first], logs[other]
        if not np.array_equal(steps, others_steps):
            continue
        away = np.abs(losses - others_losses)
        far = (
            f"differ by at most {away.max():.2g}, at step {steps[away.argmax()]}"
            if away.max()
            else "are equal in every bit"
        )
        found.append(f"The losses of {first} and {other} {far} ({len(steps)} steps).")
    return found


def documents(folder: Any, title: str, run: dict[str, Any], ended: str = "") -> dict[str, str]:
    """{file name: text} of the report of a run, from its logs. ended: why it ended before its last step."""
    log, tests = read_records(folder / "log.jsonl"), _tests(folder)
    names = [name for name in ("loss", "accuracy") if any(name in line for line in [*log, *tests])]
    rows = [["training, last step", *(_number(log[-1], name) for name in names)]] if log else []
    rows += [[f"test, step {line['step']}", *(_number(line, name) for name in names)] for line in tests]
    others = kept_references(folder)
    rows += [[f"test, {name}", f"{value:.4g}", *[""] * (len(names) - 1)] for name, value in others.items()]
    numbers: dict[str, Any] = {"run": run, "steps": len(log), "ended": ended or "finished"}
    for lines, kind in ((log, "train"), (tests, "test")):
        numbers |= {f"{kind}_{name}": lines[-1].get(name) for name in names} if lines else {}
    numbers |= {"references": others} if others else {}
    parts: list[Part] = [Text(f"The run ended early. {ended}")] if ended else []
    parts.append(Table(["", *names], rows))
    if any(len(column(log, name)[0]) for name in names):
        about = "Lines: batches of training, before each step. Dots: the test set."
        about += " Dotted: others on the test set." if others else ""
        parts.append(Picture("Over the steps", about, figure({title: folder})))
    for step, text in kept_samples(folder).items():
        parts += [Text(f"A sample at step {step}", "muted"), Text(text, "code")]
    return Report(title, parts, numbers, run).documents()


def _number(line: Mapping[str, Any], name: str) -> str:
    """As it stands in a log: null where it was not finite."""
    if name not in line:
        return ""
    return f"{line[name]:.4g}" if line[name] is not None else "not finite"


def _tests(folder: Any) -> list[dict[str, Any]]:
    file = folder / "test.jsonl"
    return read_records(file) if file.exists() else []
