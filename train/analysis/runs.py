"""Runs of launch.train, read back: their definition, the points to look at, and their checkpoints, one variable tree a member."""

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from rich.progress import Progress, TimeElapsedColumn

from limits import Task
from limits.kept.identity import identity, numerics
from limits.kept.store import DamagedError, Store
from train.about import read
from train.analysis.analyse import analyse
from train.checkpoints import flaw_of, load_model, steps_in
from train.data import Batches
from train.data.content import of_files
from train.data.labels import absent_classes
from train.data.sources import split_of
from zoo.saved import from_json, to_json

_PATHS = ("path", "data_dir")  # options of data that name files


@dataclasses.dataclass(frozen=True)
class Points:
    """Inputs and targets to look at that are no `Task`: tokens, or targets of several positions."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def x(self) -> np.ndarray:
        """All inputs, train points then test points."""
        return np.concatenate([self.x_train, self.x_test])


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """The folder of a run and what its checkpoints say of it; `net`: its definition, where these cannot say it."""

    folder: Any
    info: dict[str, Any]
    steps: tuple[int, ...]
    label: str = ""
    net: Any = None

    @classmethod
    def read(cls, folder: Any) -> "TrainedRun":
        """The run in this folder, which holds `checkpoints`, or is that folder itself."""
        folder = epath.Path(folder)
        place = folder / "checkpoints" if (folder / "checkpoints").exists() else folder
        flaws = {step: flaw_of(place / str(step), step) for step in steps_in(place)}
        for step, flaw in flaws.items():
            if flaw and (place / str(step)).exists():  # a run that goes on deletes the oldest
                warnings.warn(
                    f"The checkpoint of step {step} in {place} is damaged and left out ({flaw}).", stacklevel=2
                )
        steps = tuple(step for step, flaw in flaws.items() if not flaw)
        for step in steps:
            with contextlib.suppress(DamagedError):
                return cls(place, read(place / str(step))[0], steps)
        raise FileNotFoundError(f"{folder} holds no checkpoints of launch.train that can be read.")

    @property
    def name(self) -> str:
        """Its label, or its folder's name."""
        return self.label or self.place.name

    @property
    def place(self) -> Any:
        """The folder that holds its logs."""
        return self.folder.parent if self.folder.name == "checkpoints" else self.folder

    @property
    def config(self) -> dict[str, Any]:
        """The fields of its config."""
        return self.info.get("config", {})

    @property
    def members(self) -> int:
        """How many networks were trained at once; 0 for one alone."""
        return self.info.get("members") or 0

    @property
    def averaged(self) -> bool:
        """Whether its evaluation, and what is read of it here, is of averaged parameters."""
        return bool(self.config.get("average"))

    @property
    def says_definition(self) -> bool:
        """Whether the checkpoints say what was trained: of NNX modules and functions there are no fields to save."""
        return "absent" not in self.info.get("definition", {"absent": ""})

    @property
    def kind(self) -> str:
        """A word for the definition."""
        return json.dumps(to_json(self.definition())) if self.net is None else identity(self.net)

    def check_definition(self) -> None:
        """Raises where neither the checkpoints nor a config say what was trained."""
        if self.net is None and not self.says_definition:
            saved, file = self.info.get("definition", {"absent": "it was not saved"}), self.info.get("config_file")
            config = f"launch.analyze asks the config's make, if you trust it: --config={self.place}/{file} is executed then. "
            raise ValueError(
                f"{self.folder}: the definition cannot be rebuilt from the checkpoint: {saved['absent'].rstrip('.')}. Programs "
                "rebuild networks from a class and its fields, which NNX modules and pairs (init, apply) do not have. "
                f"{config if file else ''}In Python, with `net` as the config's make returns it: train.analysis.analyse(net, "
                f'train.analysis.runs.TrainedRun.read("{self.folder}").checkpoints({0 if self.members else ""}), inputs, targets)'
                f"{f', 0 or another of its {self.members} members' if self.members else ''}."
            )

    def definition(self) -> Any:
        """The definition that was trained."""
        self.check_definition()
        if self.net is not None:
            return self.net
        return from_json(self.info["definition"])

    def task(self, points: int, test_points: int, loss: str = "cross_entropy") -> Task | Points:
        """The first points of its training and test data, normalised as in training, without augmentation.

        Sequences of tokens with a target at every position, −1 for none, are `Points`."""
        data = dict(self.config.get("data") or {})
        if not data:
            raise ValueError(
                f"{self.folder}: this run had batches of its own; its data cannot be found from the checkpoint."
            )

        def first(split: str, count: int, what: str) -> tuple[np.ndarray, np.ndarray]:
            then = of_files({what: (self.info.get("content") or {}).get(what)})
            found, now = self._split(data, split, what, then)
            if then and now and then != now:
                warnings.warn(
                    f"{self.name}: data.{what} are others than those it was trained with, as their files have changed since: "
                    "what is found is of the new ones.",
                    stacklevel=2,
                )
            count = min(count, len(found))
            batches = Batches(found, len(found), normalise=data.get("normalise"))
            x, y = found.read(np.arange(count))
            if lacks := absent_classes(found, y):
                warnings.warn(f"{self.name}: data.{what}: {lacks}", stacklevel=2)
            return batches.normalise(x), y

        x, y = first(data.get("train", "train"), points, "train")
        x_test, y_test = (
            first(data["test"], test_points, "test") if data.get("test") and test_points else (x[:0], y[:0])
        )
        if np.issubdtype(x.dtype, np.integer):
            return Points(x, y, x_test, y_test)
        return Task(x, y, x_test, y_test, loss, name=data["name"])  # pyright: ignore[reportArgumentType]

    def _split(self, data: dict[str, Any], split: str, what: str, then: dict[str, str]) -> tuple[Any, dict[str, str]]:
        """(the samples of a split, the word for what its files hold). A path relative to the folder that the run was started in
        is looked for here, and then in the folders above the run's own, until the content is that of then."""
        relative = [name for name in _PATHS if isinstance(data.get(name), str) and not Path(data[name]).is_absolute()]
        relative = [name for name in relative if not data[name].startswith("~") and "://" not in data[name]]
        above = [] if "://" in str(self.place) or not relative else Path(self.place).absolute().parents
        at = [each for each in above if all((each / data[name]).exists() for name in relative)]
        found, missing = [], None
        for place in (Path(), *(each for each in at if each.resolve() != Path().resolve())):
            try:
                each = split_of({**data, **{name: str(place / data[name]) for name in relative}}, split)
            except (FileNotFoundError, ValueError) as error:  # another file of that name may be one that cannot be read
                missing = missing or error
                continue
            found.append((each, of_files({what: getattr(each, "content", None)}), place))
            if then and found[-1][1] == then:
                return found[-1][:2]
        if found:
            if not then and any(not word or word != found[0][1] for _, word, _ in found[1:]):
                names = ", ".join(f"data.{name}={data[name]}" for name in relative)
                warnings.warn(
                    f"{self.name}: {names} is there in {' and in '.join(str(each.resolve()) for *_, each in found)}, and the "
                    "checkpoint does not say which it was trained with: the first is taken. Start launch.analyze in the folder "
                    "that launch.train was started in.",
                    stacklevel=2,
                )
            return found[0][:2]
        assert missing is not None
        if not relative or not isinstance(missing, FileNotFoundError):
            raise missing
        given = ", ".join(f"data.{name}={data[name]}" for name in relative)
        raise FileNotFoundError(
            f"{self.name} was trained with {given}, relative to the folder that launch.train was started in, and it is neither "
            f"in {Path.cwd()} nor in a folder above {self.place}: start launch.analyze in that folder."
        ) from missing

    def checkpoints(self, member: int | None = None) -> Iterator[tuple[int, Any]]:
        """(step, variables that evaluation takes) of every checkpoint, of one member where there are several; without those that
        are damaged, or that the run, where it goes on, has deleted since they were listed."""
        for step in self.steps:
            try:
                variables = load_model(self.folder, step)[1]
            except (DamagedError, FileNotFoundError) as error:
                gone = f"The checkpoint of step {step} in {self.folder} was deleted meanwhile."
                said = str(error) if (self.folder / str(step)).exists() else gone
                warnings.warn(f"{said} It is left out.", stacklevel=2)
                continue
            yield step, variables if member is None else jax.tree.map(lambda a: a[member], variables)


def _date(place: Any) -> float:
    with contextlib.suppress(FileNotFoundError):
        return place.stat().mtime
    return 0.0


def analyse_all(jobs: Sequence[Any], task: Task | Points, folder: Path, how: dict[str, Any], screen: Any) -> list[Any]:
    """What `analyse` finds of every network, from DIR/cells where it is there; as many at once as there are devices.

    jobs: each with a `run` and the `member` to take of it. how: options of `analyse`.
    """
    nets: dict[str, Any] = {}
    for job in jobs:
        nets.setdefault(job.run.kind, job.run.definition())
    devices, store = jax.local_devices(), Store(folder / "cells", screen.print)
    points = (task.x_train, task.y_train, task.x_test, task.y_test)
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=screen) as progress:
        bar = progress.add_task("networks", total=len(jobs))

        def one(number: int, job: Any) -> Any:
            run, net = job.run, nets[job.run.kind]
            dates = [_date(run.folder / str(step)) for step in run.steps]  # others, where it was trained anew
            which = (str(run.folder), run.info, run.steps, dates, job.member, *(("averaged",) if run.averaged else ()))
            name = f"network_{identity(which, net, points, how, numerics())}"
            found = store.get(name)
            if found is None:
                with jax.default_device(devices[number % len(devices)]):
                    tested = {"test_inputs": task.x_test, "test_targets": task.y_test}
                    found = analyse(net, run.checkpoints(job.member), *points[:2], **tested, **how)
                if not isinstance(task, Task):  # samples × positions × vocabulary numbers
                    found["outputs"] = {"loss": found["outputs"]["loss"]}
                store.put(name, found)
            progress.advance(bar)
            return found

        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(one, range(len(jobs)), jobs))
