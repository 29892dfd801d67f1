"""Looks into trained networks, from their checkpoints alone: kernels, alignment, spectra, sharpness, distance from the limit.

    python3 -m launch.analyze RUN… [--workdir=DIR] [--points=64] [--test_points=32] [--parts=kernels,ntk,…] [--config=FILE …]

Each RUN is the folder of a run of launch.train (or its folder of checkpoints), of one network or of an ensemble; runs of one
definition are taken together as members. Parts: kernels, ntk, alignment, spectra, sharpness, linearisation. Kernels are of the
first points of the training and test sets. Everything that has a limit at initialisation is compared with the twin. With
--learning_rate=… (of plain full-batch gradient descent on the first --points points, constant, with --momentum) training is held
against the twin's `lazy` and `rich` training too. Ends in DIR/report.html, report.json and a table. What is finished is kept in
DIR/cells, and the same command continues. A RUN is data: nothing in it is executed. Modules and batches of one's own are taken
from the configs that --config names (once, or several times), such as the copy that lies in a RUN: these are executed.
Networks are spread over the devices of this machine.
"""

import html
import itertools
import json
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from launch import common
from launch.runs import Job, jobs_of, task_of
from limits import Kernels, Task
from limits.identity import identity, numerics
from limits.store import Store
from train import curves
from train.analysis import PARTS, against_twin, analyse, edge_of_stability, limits_of, plots
from train.analysis.runs import Points
from train.evaluate.page import heading, page, picture, plain
from train.evaluate.page import table as html_table
from zoo.saved import to_json

_POINTS = flags.DEFINE_integer("points", 64, "How many training points to look at.", lower_bound=1)
_TEST_POINTS = flags.DEFINE_integer("test_points", 32, "How many test points to look at.", lower_bound=0)
_PARTS = flags.DEFINE_list("parts", list(PARTS), "What to measure.")
_LOSS = flags.DEFINE_enum("loss", "cross_entropy", ["cross_entropy", "mse"], "The loss, for sharpness.")
_RATE = flags.DEFINE_float(
    "learning_rate", None, "Of plain gradient descent on these points: compare training with the twin's."
)
_MOMENTUM = flags.DEFINE_float("momentum", 0.0, "Of that gradient descent.")
flags.register_validator(
    "learning_rate", lambda v: v is None or 0 < v < math.inf, "It must be a finite number above 0."
)
flags.register_validator("momentum", lambda v: 0 <= v < 1, "It must be at least 0 and below 1.")
flags.register_validator("parts", lambda v: v and set(v) <= {*PARTS}, f"Give one or more of {', '.join(PARTS)}.")


def conduct(
    jobs: list[Job], task: Task | Points, folder: Path, how: dict[str, Any], screen: Any
) -> list[dict[str, Any]]:
    """What was measured of every network, from DIR/cells where it is there; as many at once as there are devices."""
    nets: dict[str, Any] = {}
    for job in jobs:
        nets.setdefault(json.dumps(job.run.info.get("definition")), job.run.definition())
    devices, store = jax.local_devices(), Store(folder / "cells", screen.print)
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=screen) as progress:
        bar = progress.add_task("networks", total=len(jobs))

        def one(numbered: tuple[int, Job]) -> dict[str, Any]:
            number, job = numbered
            net = nets[json.dumps(job.run.info.get("definition"))]
            dates = [
                (job.run.folder / str(step)).stat().mtime for step in job.run.steps
            ]  # others, where it was trained anew
            run = (str(job.run.folder), job.run.info, job.run.steps, dates, job.member)
            points = (task.x_train, task.y_train, task.x_test, task.y_test)
            name = f"network_{identity(run, net, points, how, numerics())}"
            found = store.get(name)
            if found is None:
                with jax.default_device(devices[number % len(devices)]):
                    found = analyse(
                        net, job.run.checkpoints(job.member), task.x_train, task.y_train, test_inputs=task.x_test, **how
                    )
                store.put(name, found)
            progress.advance(bar)
            return found

        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(one, enumerate(jobs)))


def groups(jobs: list[Job], found: list[dict[str, Any]]) -> list[tuple[Any, str, list[dict[str, Any]]]]:
    """[(definition, in words, what was measured of its members)]: networks of one definition with checkpoints at the same
    steps; the words name the runs where several groups have one definition."""
    together: dict[str, tuple[Any, list, list]] = {}
    for job, each in zip(jobs, found, strict=True):
        net = job.run.definition()
        _, names, members = together.setdefault(
            json.dumps([to_json(net), np.asarray(each["steps"]).tolist()]), (net, [], [])
        )
        names.append(job.run.name)
        members.append(each)
    words = [title(net) for net, _, _ in together.values()]
    return [
        (net, about if words.count(about) == 1 else f"{about} ({', '.join(dict.fromkeys(names))})", members)
        for about, (net, names, members) in zip(words, together.values(), strict=True)
    ]


def against(
    net: Any, members: list[dict[str, Any]], task: Task | Points, rate: float | None, momentum: float
) -> dict[str, Any]:
    """{"kernels" (at the first checkpoint), "lazy", "rich"}: what `against_twin` returns, or {"absent": …}."""
    members, steps = distinct(members), np.asarray(members[0]["steps"])
    which = (*(("kernels",) if steps[0] == 0 else ()), *(() if rate is None else ("lazy", "rich")))
    limits = limits_of(net, task, steps, rate or 0.0, which, momentum)
    start = [at_start(member) for member in members]
    found = {
        name: against_twin(start if isinstance(limit, Kernels) else members, limit) for name, limit in limits.items()
    }
    if steps[0] != 0:
        why = f"the first checkpoint is of step {steps[0]}, and these are the kernels at step 0; train with analysis=8, say"
        found["kernels"] = {"absent": why}
    return found


def distinct(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without networks that start as another one does, such as that of the same seed in an ensemble."""
    seen: dict[bytes, dict[str, Any]] = {}
    for member in members:
        start = at_start(member)
        parts = [jax.tree.leaves(start[part]) for part in ("outputs", "kernels", "ntk") if part in start]
        seen.setdefault(b"".join(np.asarray(leaf).tobytes() for leaves in parts for leaf in leaves), member)
    return list(seen.values())


def at_start(member: dict[str, Any]) -> dict[str, Any]:
    """The first checkpoint alone."""

    def first(value: Any) -> Any:
        return tuple(each[:1] for each in value) if isinstance(value, tuple) else value[:1]

    parts = {part: {name: first(value) for name, value in member[part].items() if name != "drift"}
             for part in ("kernels", "ntk", "outputs") if part in member}  # fmt: skip
    return {**member, **parts, "steps": np.asarray(member["steps"])[:1]}


def title(net: Any) -> str:
    """A definition in few words."""
    sizes = [f"{name} {getattr(net, name)}" for name in ("width", "depth") if hasattr(net, name)]
    return ", ".join([type(net).__name__, *sizes])


def rows_of(about: str, compared: dict[str, Any]) -> list[list[str]]:
    """(definition, limit, quantity, distance) of what was compared, at the last step that both have."""
    rows = []
    for limit, quantities in compared.items():
        for name, found in quantities.items():
            if name == "absent" or "absent" in found:
                reason = found if name == "absent" else found["absent"]
                rows.append([about, limit, name, "absent", "", str(reason)])
                continue
            mean, sem = (np.atleast_2d(np.asarray(found[part]))[-1, -1] for part in ("mean", "sem"))
            error, count = f"± {2 * sem:.1%}" if np.isfinite(sem) else "", len(found["each"])
            rows.append([about, limit, name, f"{mean:.1%}", error, f"{count} network{'s' if count > 1 else ''}"])
    return rows


def pictures(labelled: dict[str, dict[str, Any]], parts: Sequence[str], rates: dict[str, float]) -> list[tuple]:
    """(title, how to read it, figure) of everything that was measured."""
    found = []
    if {"kernels", "ntk"} & set(parts):
        found.append(
            ("Drift of kernels", "Relative change from the first checkpoint, and 1 − cosine.", plots.drift(labelled))
        )
    if "alignment" in parts:
        found.append(("Alignment with labels", "Centred kernel alignment with y yᵀ.", plots.alignment(labelled)))
    if "spectra" in parts:
        found.append(("Spectra of kernels", "Dashed: first checkpoint; solid: last.", plots.spectra(labelled)))
        found.append(("Spectra of weights", "Over the edge of a random matrix of that size.", plots.weights(labelled)))
    if "sharpness" in parts:
        edges = {label: edge_of_stability(rate) for label, rate in rates.items()}
        text = "Largest eigenvalue of the loss's Hessian; dotted: 2 over the learning rate, where plain descent becomes unstable."
        found.append(("Sharpness", text, plots.sharpness(labelled, edges)))
    if "linearisation" in parts:
        found.append(
            ("Distance from linearisation", "Relative to how far outputs moved.", plots.linearisation(labelled))
        )
    return found


def named_configs(arguments: Sequence[str]) -> list[str]:
    """What all --config=… of a command line name (absl keeps the last).

    >>> named_configs(["analyze", "runs/a", "--config=a.py", "--config", "b.py:small"])
    ['a.py', 'b.py:small']
    """
    flag = ("--config", "-config")
    given = [text.split("=", 1)[1] for text in arguments if text.startswith(tuple(f"{each}=" for each in flag))]
    return given + [text for before, text in itertools.pairwise(arguments) if before in flag]


def main() -> None:
    """Analyses the runs that were named."""
    started, screen = time.time(), common.console()
    configs = [common.find_config(each).partition(":")[0] for each in named_configs(sys.argv)]
    jobs = jobs_of(common.NAMED, configs)
    folder = common.workdir("analysis")
    task = task_of(jobs, _POINTS.value, _TEST_POINTS.value, _LOSS.value, configs)
    how = {"loss": _LOSS.value, "parts": tuple(_PARTS.value)}
    found = conduct(jobs, task, folder, how, screen)
    labelled = {job.label: each for job, each in zip(jobs, found, strict=True)}
    shown = dict(list(labelled.items())[:12])  # more curves than that cannot be told apart
    rates = {job.label: float(job.run.config["learning_rate"]) for job in jobs if "learning_rate" in job.run.config}
    compared = [
        (net, about, against(net, members, task, _RATE.value, _MOMENTUM.value))
        for net, about, members in groups(jobs, found)
    ]
    rows = [row for _, about, each in compared for row in rows_of(about, each)]
    for job in jobs:
        if len(job.run.steps) == 1 and job.member in (None, 0):
            screen.print(
                f"{job.run.name} has one checkpoint, and nothing can have drifted: train with analysis=8, say."
            )
    head = ("definition", "limit", "quantity", "distance", "2 standard errors", "")
    listing = Table(*head, title="Distance from the twin")
    for row in rows:
        listing.add_row(*row)
    screen.print(listing)
    logs = {job.run.name: job.run.place for job in jobs if (job.run.place / "log.jsonl").exists()}
    text = " ".join(["Lines: batches of training. Dots: the test set.", *curves.differences(logs)])
    images = [("Loss", text, curves.figure(logs))] if logs else []
    images += pictures(shown, _PARTS.value, {label: rates[label] for label in shown if label in rates})
    names = ", ".join(dict.fromkeys(job.run.name for job in jobs))
    body = f"{heading(f'Analysis: {names}')}<h2>Distance from the twin</h2>{html_table(head, rows, wrap=True)}"
    body += "".join(picture(*image) for image in images)
    body += f"<h2>Command</h2><pre>{html.escape(common.command_line())}</pre>"
    numbers = {"command": common.command_line(), "seconds": round(time.time() - started, 1), "networks": labelled,
               "against": [{"definition": to_json(net), "distances": each} for net, _, each in compared]}  # fmt: skip
    for name, text in (
        ("report.html", page("analysis", body)),
        ("report.json", json.dumps(plain(numbers), default=str) + "\n"),
    ):
        screen.print(f"wrote {common.write_whole(folder / name, text)}", highlight=False)
    screen.print(f"{time.time() - started:.0f} s", highlight=False)


def run() -> None:
    """Entry point."""
    common.start(main, __doc__, names=True)


if __name__ == "__main__":
    run()
