"""The networks of the runs that launch.analyze was given, and the points to look at."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from limits import Task
from train.analysis.runs import Points, TrainedRun
from train.study.experiment import Experiment, load
from zoo.saved import register


@dataclasses.dataclass(frozen=True)
class Job:
    """One network of a run."""

    run: TrainedRun
    member: int | None

    @property
    def label(self) -> str:
        """The run's name, with the member's number."""
        return self.run.name if self.member is None else f"{self.run.name} [{self.member}]"


def jobs_of(folders: Sequence[str], configs: Sequence[str] = ()) -> list[Job]:
    """All networks of these runs. What runs were trained with that is not of zoo is defined in `configs`, which are executed."""
    if not folders:
        raise ValueError("Name at least one run: python3 -m launch.analyze runs/train_mlp")
    for config in configs:
        register(load(Path(config)))
    places = {str(folder) if "://" in str(folder) else str(Path(folder).resolve()): str(folder) for folder in folders}
    runs = [TrainedRun.read(folder) for folder in places.values()]
    for run in runs:
        run.check_definition()  # before anything is asked for that would be of no use
    if len({run.name for run in runs}) < len(runs):  # a/run and b/run
        runs = [
            dataclasses.replace(run, label=folder.rstrip("/"))
            for run, folder in zip(runs, places.values(), strict=True)
        ]
    return [Job(run, member) for run in runs for member in (range(run.members) if run.members else [None])]


def _config_of(run: TrainedRun, configs: Sequence[str]) -> str | None:
    """Which of the files that the user named is the config of this run."""
    return next((each for each in configs if Path(each).name == run.info.get("config_file")), None)


def task_of(
    jobs: Sequence[Job], points: int, test_points: int, loss: str, configs: Sequence[str] = ()
) -> Task | Points:
    """The first points of the data that all of these runs were trained on; those of a run with batches of its own come from
    the file among `configs` that has the name of its config."""
    tasks: dict[str, Task | Points] = {}
    for job in jobs:
        if job.run.name not in tasks:
            with _mentioning(job.run, loss):
                tasks[job.run.name] = (
                    job.run.task(points, test_points, loss)
                    if job.run.config.get("data")
                    else _own_task(job.run, points, test_points, loss, _config_of(job.run, configs))
                )
    (name, first), *others = tasks.items()
    for other, task in others:
        pairs = ((first.x, task.x), (first.y_train, task.y_train))
        if not all(np.array_equal(a, b) for a, b in pairs):
            raise ValueError(
                f"{name} and {other} were trained on different data: analyse them apart, one after the other."
            )
    return first


def _own_task(run: TrainedRun, points: int, test_points: int, loss: str, file: str | None) -> Task | Points:
    """The first samples that `batches` of the run's config gives: training points, then points to test on."""
    if file is None:
        name = run.info.get("config_file", "its config")
        raise ValueError(
            f"It had batches of its own, which {name} makes: name that file, to be executed, with --config={run.place / name}, "
            "if you trust it."
        )
    experiment = Experiment(file, ConfigDict(run.config), ("batches",))
    start = {"start": 0} if experiment.asks_for("start", ("batches",)) else {}
    inputs, targets = _samples(iter(experiment.call("batches", **start)), points + test_points)
    if np.issubdtype(inputs.dtype, np.integer) or targets.ndim > 2:
        return Points(inputs[:points], targets[:points], inputs[points:], targets[points:])
    if np.issubdtype(targets.dtype, np.integer) and targets.ndim == 1:
        targets = np.eye(getattr(run.definition(), "outputs", targets.max() + 1))[targets]
    parts = (inputs[:points], targets[:points], inputs[points:], targets[points:])
    return Task(*parts, loss, name=Path(file).stem)  # pyright: ignore[reportArgumentType]


def _samples(batches: Iterator[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while sum(len(x) for x, _ in found) < count and (batch := next(batches, None)) is not None:
        found.append((np.asarray(batch[0]), np.asarray(batch[1])))
    inputs, targets = (np.concatenate(each)[:count] for each in zip(*found, strict=True))
    return inputs, targets


@contextlib.contextmanager
def _mentioning(run: TrainedRun, loss: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        hint = " Was it trained by squared errors? Then say --loss=mse." if loss == "cross_entropy" else ""
        raise ValueError(f"{run.name}: {error}{hint if 'cross-entropy' in str(error) else ''}") from None
