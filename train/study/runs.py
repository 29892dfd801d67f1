"""The networks of the runs that launch.analyze was given, and the points to look at."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from limits import Task
from train.analysis.network import Inference
from train.analysis.runs import Points, TrainedRun
from train.data.own import Validation
from train.study.experiment import Experiment, load
from train.study.resume import code_of
from train.variables import initial
from zoo import checks
from zoo.modules import Pair
from zoo.rescaled import within
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
    """All networks of these runs. What runs were trained with that is not of zoo is defined in `configs`, which are executed:
    classes, and what `make` of the config of a run returns where checkpoints cannot say it (NNX modules, pairs of functions)."""
    if not folders:
        raise ValueError("Name at least one run: python3 -m launch.analyze runs/train_mlp")
    for number, config in enumerate(configs):
        _check_alone(config, configs[:number])
        register(load(Path(config)))
    places = {str(folder) if "://" in str(folder) else str(Path(folder).resolve()): str(folder) for folder in folders}
    runs = [_with_net(TrainedRun.read(folder), configs) for folder in places.values()]
    for run in runs:
        run.check_definition()  # before anything is asked for that would be of no use
        _say_changes(run, configs)
    if len({run.name for run in runs}) < len(runs):  # a/run and b/run
        runs = [
            dataclasses.replace(run, label=folder.rstrip("/"))
            for run, folder in zip(runs, places.values(), strict=True)
        ]
    return [Job(run, member) for run in runs for member in (range(run.members) if run.members else [None])]


def _check_alone(config: str, others: Sequence[str]) -> None:
    """Raises where another file has its name and not its content: runs know configs, and modules in them, by that name."""
    for other in (each for each in others if Path(each).name == Path(config).name):
        if Path(other).read_bytes() != Path(config).read_bytes():
            raise ValueError(
                f"--config={other} and --config={config} are different files of one name, by which runs know theirs: analyse the "
                "runs apart, one after the other."
            )


def _say_changes(run: TrainedRun, configs: Sequence[str]) -> None:
    """Warns where what is executed of a config is not what the run was trained with, as far as versions let that be told."""
    file, then = _config_of(run, configs), run.info.get("code")
    if file is None or not then or Path(file).resolve() == (Path(run.place) / Path(file).name).resolve():
        return
    now = code_of(Experiment(file, run.config, ()).functions())
    read = run.says_definition and type(run.definition()).__module__.partition(".")[0] == "zoo"  # `make` is not called
    names = ["make"] * (not read) + ["batches"] * (not run.config.get("data"))
    changed = [name for name in names if then["functions"].get(name) != now["functions"].get(name)]
    if changed and then["versions"] == now["versions"]:
        warnings.warn(
            f"{run.name} was trained with another {' and '.join(changed)} than {file} has (the code, or what it uses, has "
            f"changed since): what is found is of the new one. The run's folder has a copy of its config, "
            f"{run.place / Path(file).name}.",
            stacklevel=3,
        )


def _config_of(run: TrainedRun, configs: Sequence[str]) -> str | None:
    """Which of the files that the user named is the config of this run."""
    return next((each for each in configs if Path(each).name == run.info.get("config_file")), None)


def _with_net(run: TrainedRun, configs: Sequence[str]) -> TrainedRun:
    file = _config_of(run, configs)
    if run.says_definition or file is None:
        return run
    made = Experiment(file, run.config, ("make",)).call("make", run.config.get("width"), run.config.get("depth"))
    net = within(made)
    if isinstance(net, Pair):  # a function shows its outputs, if not its layers
        return dataclasses.replace(run, net=net.apply)
    checks.module(f"{run.name}: what make of {file} returns", net)
    return dataclasses.replace(run, net=net)


def task_of(
    jobs: Sequence[Job], points: int, test_points: int, loss: str, configs: Sequence[str] = ()
) -> Task | Points:
    """The first points of the data that all of these runs were trained on; those of a run with batches of its own come from
    the file among `configs` that has the name of its config. Of runs whose batches are given another seed and else the same, all
    have the points of the first: a seed gives an order, or draws of one kind. Where inputs say that it gives other targets, the
    runs are refused."""
    tasks: dict[str, Task | Points] = {}
    for job in jobs:
        if job.run.name not in tasks:
            tasks[job.run.name] = _task(job.run, points, test_points, loss, configs)
    (name, first), *others = tasks.items()
    for other, task in others:
        its = next(job.run for job in jobs if job.run.name == other)
        fields = _given_otherwise(jobs[0].run, its, configs)
        why, hint = f" (their batches are given another {' and '.join(fields)})" if fields else "", ""
        if fields == ["seed"]:
            both, otherwise = _shared(first, task)
            if not otherwise:
                continue
            seeds = f"{its.config.get('seed')} and {jobs[0].run.config.get('seed')}"
            why = f" (the seed of batches, {seeds}, gives other targets to {otherwise} of {both} inputs that both have)"
        elif all(np.array_equal(a, b) for a, b in ((first.x, task.x), (first.y_train, task.y_train))):
            continue
        elif "seed" in fields:
            hint = " Runs whose batches differ in seed alone are taken together, where targets are the same."
        raise ValueError(
            f"{name} and {other} were trained on different data{why}: analyse them apart, one after the other.{hint}"
        )
    return first


def _task(run: TrainedRun, points: int, test_points: int, loss: str, configs: Sequence[str]) -> Task | Points:
    """The first points of one run."""
    with _mentioning(run, loss):
        if run.config.get("data"):
            return run.task(points, test_points, loss)
        return _own_task(run, points, test_points, loss, _config_of(run, configs))


def _shared(one: Task | Points, other: Task | Points) -> tuple[int, int]:
    """How many inputs are in both samples, and of how many of these no target is."""
    first, second = _targets(one), _targets(other)
    both = first.keys() & second.keys()
    return len(both), sum(first[x].isdisjoint(second[x]) for x in both)


def _targets(task: Task | Points) -> dict[bytes, set[bytes]]:
    """The targets of every input, of points to train and to test on; without classes at the end that have no point, as
    another sample may have fewer."""
    found: dict[bytes, set[bytes]] = {}
    for x, y in zip(task.x, np.concatenate([task.y_train, task.y_test]), strict=True):
        found.setdefault(x.tobytes(), set()).add(np.trim_zeros(np.ravel(y), "b").tobytes())
    return found


def _given_otherwise(run: TrainedRun, other: TrainedRun, configs: Sequence[str]) -> list[str]:
    """Which arguments of `batches`, where both runs have them from one file, are not the same for both."""
    file, config, its = _config_of(run, configs), run.config, other.config
    if file is None or file != _config_of(other, configs) or config.get("data") or its.get("data"):
        return []
    return [name for name in Experiment(file, {}, ()).parameters("batches") if config.get(name) != its.get(name)]


def _own_task(run: TrainedRun, points: int, test_points: int, loss: str, file: str | None) -> Task | Points:
    """The first samples that `batches` of the run's config gives, and that `validation` gives; without it points to test on are
    further ones of batches, as far as these are no training points again."""
    if file is None:
        name = run.info.get("config_file", "its config")
        raise ValueError(
            f"It had batches of its own, which {name} makes: name that file, to be executed, with --config={run.place / name}, "
            "if you trust it."
        )
    experiment = Experiment(file, ConfigDict(run.config), ("batches",))
    start = {"start": 0} if experiment.asks_for("start", ("batches",)) else {}
    held_out = None
    if experiment.has("validation"):
        held_out = Validation.of(lambda: experiment.call("validation"), f"{file}: validation")
    more = test_points if held_out is None else 0
    inputs, targets = _samples(iter(experiment.call("batches", **start)), points + more)
    x, y, x_test, y_test = inputs[:points], targets[:points], inputs[points:], targets[points:]
    if held_out is not None:
        x_test, y_test = held_out.read(np.arange(min(test_points, len(held_out))))
        held_out.check_like(x, y)
    else:
        seen = {each.tobytes() for each in x}
        new = np.array([each.tobytes() not in seen for each in x_test], bool)
        x_test, y_test = x_test[new], y_test[new]
    if np.issubdtype(x.dtype, np.integer) or y.ndim > 2:
        return Points(x, y, x_test, y_test)
    if np.issubdtype(y.dtype, np.integer) and y.ndim == 1:
        rows = np.eye(_outputs(run.definition(), x[:1]))
        y, y_test = rows[y], rows[y_test]
    return Task(x, y, x_test, y_test, loss, name=Path(file).stem)  # pyright: ignore[reportArgumentType]


def _outputs(net: Any, x: np.ndarray) -> int:
    """How many numbers it returns of an input: a sample may lack the last classes."""

    def run(key: Any, x: Any) -> Any:
        trained, state = initial(net, key, x)
        return Inference(net, state).apply(trained, x)

    return jax.eval_shape(run, jax.random.key(0), x).shape[-1]


def untested(jobs: Sequence[Job], task: Task | Points, test_points: int, configs: Sequence[str]) -> list[str]:
    """Where points to test on are no test data, and where all points are those of another run, a sentence for each run."""
    said, first = [], jobs[0].run
    for run in {job.run.name: job.run for job in jobs}.values():
        if _given_otherwise(first, run, configs) == ["seed"]:
            loss = task.loss if isinstance(task, Task) else "cross_entropy"
            both, _ = _shared(task, _task(run, len(task.x_train), test_points, loss, configs))
            labels = "" if both else ", and where it sets the labels too, as a random teacher's, they are not its own"
            said.append(
                f"{run.name} is looked at on the points of {first.name}: their batches differ in the seed alone, "
                f"{run.config.get('seed')} and {first.config.get('seed')}. Where a seed gives other samples, not another order, "
                f"these are no training points of it{labels}."
            )
            continue
        file = None if run.config.get("data") else _config_of(run, configs)
        if file is None or not test_points or Experiment(file, {}, needed=()).has("validation"):
            continue
        what = (
            "points to test on from further batches of training"
            if len(task.x_test)
            else "no points to test on: further batches repeat training points"
        )
        said.append(f"{run.name} has {what}, and {Path(file).name} defines no validation().")
    return said


def _samples(batches: Iterator[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    found: list[tuple[np.ndarray, np.ndarray]] = []
    while sum(len(x) for x, _ in found) < count and (batch := next(batches, None)) is not None:
        found.append((np.array(batch[0]), np.array(batch[1])))
    inputs, targets = (np.concatenate(each)[:count] for each in zip(*found, strict=True))
    return inputs, targets


@contextlib.contextmanager
def _mentioning(run: TrainedRun, loss: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        hint = " Was it trained by squared errors? Then say --loss=mse." if loss == "cross_entropy" else ""
        raise ValueError(f"{run.name}: {error}{hint if 'cross-entropy' in str(error) else ''}") from None
