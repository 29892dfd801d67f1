"""Trains a network, or an ensemble of them, on one device or on every host of a pod.

    python3 -m launch.train --config=configs/train_vit.py [--workdir=DIR] [--config.FIELD=VALUE …] [--set=FIELD=VALUE …]
                            [--distributed=auto|on|off]

The config is any Python file with get_config() and make(width, depth), optimizer(net, learning_rate), loss(outputs,
targets); further arguments of these are filled with the config's fields of that name. `learning_rate` is a schedule, which
Optax takes for a number, or a number where the config has neither `schedule` nor `warmup`, or the optimiser asks for them.
Configs of launch.transfer are such files too: --set gives the fields that they lack (width, depth) or that a setting has.
Fields:
  width, depth, steps, batch, seed
  learning_rate, schedule, warmup   "constant", "cosine", "linear", "inverse_sqrt" (train.schedules)
  data                   {name, train, test, augment, normalise, …} as train.stream.source takes it; or batches(start)
                         in the file, an iterator of (inputs, targets) from that step on (without `start`: from step 0)
  members                train so many networks of seeds seed, seed + 1, … at once (default: one)
  mesh, sharding         {data, model, ensemble}: how many devices; "replicate", "fsdp", "model", "fsdp+model", or
                         ((pattern, rule), …) of parameters by path
  accumulate, average    parts of a batch, one after the other; decay of averaged parameters, with which is evaluated
  evaluate_every, save_every, keep, analysis   steps; how many checkpoints are kept; how many log-spaced ones for launch.analyze
  also                   "tensorboard", "wandb", or both with a comma
  profile                (first, count): steps that are traced into DIR/profile
Ends in DIR/log.jsonl (a line a step), DIR/report.html, DIR/checkpoints, DIR/config.json. The same command continues from the
latest checkpoint that is whole, bit by bit as if it had not stopped; what is damaged is renamed, and never deleted. Where the
code of make, optimizer, loss or batches has changed since, or this package's version, it refuses, unless --accept_changes is
given. Exit codes: 0 finished, 42 preempted (SIGTERM) and saved.
"""

import ast
import itertools
import json
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import flags
from absl import logging as absl_logging
from ml_collections import config_flags
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from launch import common, distributed, exit_codes, resume, watch
from launch.agreement import same_everywhere, what_runs
from launch.experiment import Experiment, plain_fields
from launch.fields import DEFAULTS, checked, unused
from limits.store import folder_inside
from train import curves
from train.checkpoints import Checkpoints, info_of, log_spaced, steps_in
from train.loop import Loop, check_evaluated
from train.memory import keep_freed_memory
from train.mesh import make_mesh, rows_here
from train.preemption import Preemption
from train.records import Records, set_aside
from train.schedules import make_schedule
from train.step import Program
from train.stream import Batches, evaluation_batches, source
from train.trainer import Trainer
from zoo.saved import to_json

_SET = flags.DEFINE_multi_string("set", [], "NAME=VALUE: a field of the config, also one that it does not have.")
_PMAP = flags.DEFINE_boolean("pmap", False, "The step under jax.pmap in place of jax.jit on a mesh (to compare them).")
_ACCEPT = flags.DEFINE_boolean(
    "accept_changes", False, "Continue a run although its code or versions have changed: results do not depend on that."
)
FUNCTIONS = ("make", "optimizer", "loss")


class Run:
    """A config, read: its program on a mesh, its data, its folder."""

    def __init__(self, experiment: Experiment, folder: Any, pmap: bool = False) -> None:
        self.experiment, self.folder = experiment, folder
        self.fields = checked(plain_fields(dict(experiment.config.items())))
        self.data = dict(self.fields.get("data", {}))
        if not self.data and not experiment.has("batches"):
            raise ValueError(f"{experiment.path} needs a field `data`, or a function batches(start).")
        kept = ("name", "train", "test", "augment", "normalise")
        options = {name: value for name, value in self.data.items() if name not in kept}
        self.source = source(self.data["name"], self.data.get("train", "train"), **options) if self.data else None
        test = self.data.get("test")
        if self.data and self.fields["evaluate_every"] and not test:
            raise ValueError(
                f"evaluate_every={self.fields['evaluate_every']}, and there are no test data: name the split in data.test, or "
                "set evaluate_every=0."
            )
        self.test = source(self.data["name"], test, **options) if test else None
        rate = self._rate()
        net = experiment.call("make", self.fields["width"], self.fields["depth"])
        tx = experiment.call("optimizer", net, learning_rate=rate)
        how = {name: self.fields[name] for name in ("accumulate", "average")}
        inputs, targets = self._sample()
        self.program = Program(
            net, tx, lambda f, y: experiment.call("loss", f, y), **how, labels=are_labels(np.asarray(targets))
        )
        self.trainer = Trainer(
            self.program, make_mesh(**self.fields["mesh"]), inputs, self.fields["sharding"],
            self.fields["members"], self.fields["seed"], pmap,
        )  # fmt: skip
        self.part = rows_here(self.trainer.placement.batch, inputs.shape[0])
        if pmap:
            self.part = jax.process_index(), jax.process_count()

    def _rate(self) -> Any:
        """The schedule, or the number where the optimiser makes a schedule of its own."""
        rate, steps = self.fields["learning_rate"], self.fields["steps"]
        named = [name for name in ("schedule", "warmup") if name in self.experiment.config]
        if not named or any(self.experiment.asks_for(name, ("optimizer",)) for name in named):
            self.rates = None
            return rate
        self.rates = self._rates(steps)
        return self._schedule(steps)

    def _schedule(self, steps: int) -> Any:
        return make_schedule(self.fields["schedule"], self.fields["learning_rate"], steps, self.fields["warmup"])

    def _rates(self, steps: int) -> np.ndarray:
        return np.asarray(jax.vmap(self._schedule(steps))(jax.numpy.arange(steps)) * np.ones(steps), float)

    def same_rates(self, steps: int, done: int) -> bool:
        """Whether a run of so many steps has the same learning rates until `done`."""
        if self.rates is None:
            return steps == self.fields["steps"] or not self.experiment.asks_for("steps", ("optimizer",))
        return np.array_equal(self.rates[:done], self._rates(steps)[:done])

    def _sample(self) -> tuple[jax.ShapeDtypeStruct, Any]:
        """A whole batch of inputs, as shape and type, and some targets."""
        if self.source is not None:
            shape, targets = (self.fields["batch"], *self.source.shape), self.source.read(np.arange(1))[1]
            return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(float)), targets
        batch = next(self._own_batches(0), None)
        if batch is None:
            raise ValueError(f"{self.experiment.path}: batches gives none.")
        first = np.asarray(batch[0])
        return jax.ShapeDtypeStruct(first.shape, jax.dtypes.canonicalize_dtype(first.dtype)), batch[1]

    def _own_batches(self, start: int) -> Iterator[Any]:
        if self.experiment.asks_for("start", ("batches",)):
            return iter(self.experiment.call("batches", start=start))
        return itertools.islice(self.experiment.call("batches"), start, None)

    def batches(self, start: int) -> Iterator[Any]:
        """This process's rows of every batch from that step on."""
        part, parts = self.part
        if self.source is not None:
            options = {name: self.data.get(name) for name in ("augment", "normalise")}
            stream = Batches(self.source, self.fields["batch"], self.fields["seed"], part, parts, **options)
            yield from stream.iterate(start)
        else:
            for batch in self._own_batches(start):
                x, y = (jax.tree.map(np.asarray, each, is_leaf=lambda a: isinstance(a, list)) for each in batch)
                size = len(jax.tree.leaves(x)[0]) // parts
                yield jax.tree.map(lambda a, size=size: a[part * size : (part + 1) * size], (x, y))
            raise ValueError(
                f"{self.experiment.path}: batches ended before the run of {self.fields['steps']} steps did."
            )

    def evaluate(self, state: Any) -> dict[str, np.ndarray]:
        """Means over the test samples, by member."""
        if self.test is None:
            return {}
        part, parts = self.part
        batches = evaluation_batches(self.test, self.fields["batch"], part, parts, self.data.get("normalise"))
        return self.trainer.evaluate(state, batches)

    def check_folder(self, accept: bool = False) -> None:
        """Raises where the folder holds another run, or one of other code, if that is not accepted."""
        then = info_of(self.folder / "checkpoints")
        resume.check_same(self.folder, then, self.info(), DEFAULTS, self.same_rates, accept)

    def info(self) -> dict[str, Any]:
        """What lies in every checkpoint beside the weights."""
        try:
            definition = to_json(self.program.net)
        except (TypeError, ValueError) as error:
            definition = {"absent": str(error)}
        return {"definition": definition, "config": json.loads(self.experiment.config.to_json_best_effort()),
                "config_file": self.experiment.path.name, "members": self.fields["members"],
                "code": resume.code_of(self.experiment.functions())}  # fmt: skip


def conduct(run: Run, screen: Any, preemption: Preemption | None = None) -> bool:
    """Trains from the latest checkpoint, or from the start; whether it is finished."""
    preemption = preemption or Preemption()
    fields, trainer = run.fields, run.trainer
    steps, always = fields["steps"], log_spaced(fields["steps"], fields["analysis"])
    checkpoints = Checkpoints(run.folder / "checkpoints", fields["keep"], always, run.info())
    start, state = restored(checkpoints, trainer)
    logs = {name: run.folder / name for name in ("log.jsonl", "test.jsonl")}
    marks = checkpoints.info_at(start).get("logs", {}) if start else {}
    if not start and checkpoints.damaged and jax.process_index() == 0:  # it begins anew, and the old logs stay too
        screen.print("no checkpoint is whole: the run begins anew")
        for file in logs.values():
            if file.exists():
                set_aside(file)
    if start:
        screen.print(f"continuing from the checkpoint of step {start}")
    if start >= steps:
        return True
    if left := unused(fields, run.experiment.asked_for()):
        screen.print(f"fields of the config that nothing reads: {', '.join(left)}")
    for line in trainer.placement.log:
        screen.print(f"not sharded: {line}")
    records = Records(logs["log.jsonl"], start, fields["also"], run.fields["name"], marks.get("log.jsonl"))
    tests = Records(logs["test.jsonl"], start + 1, mark=marks.get("test.jsonl"))
    with _progress(screen) as progress:
        task = progress.add_task("training", total=steps, completed=start, loss="…", left="compiling")

        def write(k: int, numbers: dict[str, Any]) -> None:
            records.write(k, numbers)
            left = f"{numbers['seconds_left']:.0f} s left" if "seconds_left" in numbers else "compiling"
            progress.update(task, completed=k + 1, loss=f"{numbers['loss']:.4g}", left=left)

        def evaluate(k: int, state: Any) -> None:
            found = run.evaluate(state)
            if found:
                tests.write(k, {name: value.mean().item() for name, value in found.items()} | _by_member(found))
                progress.console.print(f"step {k}: " + ", ".join(f"test {n} {v.mean():.4g}" for n, v in found.items()))
                check_evaluated(k, found)

        def save(k: int, state: Any) -> None:
            records.flush()  # the lines before a checkpoint are there when it is
            tests.flush()
            checkpoints.save(k, *parts_of(state), logs={"log.jsonl": records.mark, "test.jsonl": tests.mark})

        every = fields["save_every"]
        loop = Loop(
            trainer.step, run.batches(start), start, steps, write, evaluate, fields["evaluate_every"],
            save,
            lambda k: k in always or bool(every and k and k % every == 0),
            preemption.at, run.rates, tuple(fields["profile"]), run.folder / "profile",
        )  # fmt: skip
        try:
            state, finished = loop.run(state)
        except Exception as error:
            watch.announce(error)  # the others must not wait for this process, nor it for them
            raise
        finally:
            checkpoints.close()
            records.close()
            tests.close()
    return finished


def conduct_and_report(run: Run, screen: Any, preemption: Preemption | None, started: float) -> bool:
    """`conduct`, and a report where the run is finished, or ended by a number that is not finite."""
    try:
        finished = conduct(run, screen, preemption)
    except FloatingPointError as error:
        report(run, screen, started, str(error))
        raise
    if finished:
        report(run, screen, started)
    return finished


def report(run: Run, screen: Any, started: float, ended: str = "") -> None:
    """Writes the report of a run that is finished, or that ended with this sentence."""
    if jax.process_index() != 0:
        return
    config = run.experiment.config
    provenance = common.provenance(config) | {"seconds": round(time.time() - started, 1)}
    for name, text in curves.documents(run.folder, config.name, provenance, ended).items():
        screen.print(f"wrote {common.write_whole(run.folder / name, text)}", highlight=False)


def are_labels(targets: np.ndarray) -> bool:
    """Whether these are classes: whole numbers, or probabilities.

    >>> are_labels(np.eye(3)), are_labels(np.array([2, 0])), are_labels(np.array([[0.3, -1.2]]))
    (True, True, False)
    """
    if np.issubdtype(targets.dtype, np.integer):
        return True
    return targets.ndim > 1 and bool((targets >= 0).all() and np.allclose(targets.sum(-1), 1, atol=1e-3))


def parts_of(state: Any) -> tuple[Any, Any]:
    """(what a model is, what its training needs besides) of a state."""
    model = {**state.trained, **state.collections} if state.collections else state.trained
    return model, {"step": state.step, "memory": state.memory, "average": state.average, "key": state.key}


def restored(checkpoints: Checkpoints, trainer: Trainer) -> tuple[int, Any]:
    """(step, state) of the latest checkpoint, or the initial ones."""
    abstract: Any = trainer.abstract
    found = checkpoints.latest(*parts_of(abstract))
    if found is None:
        return 0, trainer.initial()
    step, model, training = found
    if not abstract.collections:
        return step, abstract.replace(trained=model, **training)
    collections = {name: model[name] for name in abstract.collections}
    trained = {name: part for name, part in model.items() if name not in collections}
    return step, abstract.replace(trained=trained, collections=collections, **training)


def with_fields(config: Any, given: list[str]) -> Any:
    """The config with "NAME=VALUE" set, as a Python value or a word; names it does not have are new fields.

    >>> from ml_collections import ConfigDict
    >>> changed = with_fields(ConfigDict({"width": 8}).lock(), ["width=16", "norm=layer"])
    >>> changed.width, changed.norm
    (16, 'layer')
    """
    for each in given:
        name, _, value = each.partition("=")
        with config.unlocked(), config.ignore_type():
            try:
                config[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                config[name] = value
    return config


def _are_settings(given: list[str]) -> bool:
    names = [name if equal else "" for name, equal, _ in (each.partition("=") for each in given)]
    return all(map(str.isidentifier, names))


flags.register_validator("set", _are_settings, "It takes NAME=VALUE, such as --set=width=512.")


def _by_member(found: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {f"{name}_members": value.tolist() for name, value in found.items() if value.ndim}


def _progress(screen: Any) -> Progress:
    text = "{task.completed} of {task.total}, loss {task.fields[loss]}, {task.fields[left]}"
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(text), TimeElapsedColumn())
    return Progress(*columns, console=screen, disable=jax.process_index() != 0)


def _said_once(record: logging.LogRecord) -> bool:
    """Orbax logs what goes wrong in its threads with a traceback each, and then raises it."""
    return not (record.exc_info and "orbax" in record.pathname)


def main() -> None:
    """Runs the config."""
    absl_logging.get_absl_handler().addFilter(_said_once)
    keep_freed_memory()
    distributed.initialize_from_flags()
    preemption = Preemption()  # early: a signal that comes while the program is compiled must not be lost
    started, config, screen = time.time(), with_fields(common.config(), _SET.value), common.console()
    if jax.process_index() != 0:
        screen.quiet = True
    folder = common.run_folder(config.name)
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    experiment = Experiment(path, config, FUNCTIONS)
    at = steps_in(folder / "checkpoints")
    same_everywhere(what_runs(experiment.path, config, pmap=_PMAP.value, workdir=str(folder), checkpoints=at))
    run = Run(experiment, folder, _PMAP.value)
    held = resume.lock(folder) if jax.process_index() == 0 else None
    run.check_folder(_ACCEPT.value)
    if jax.process_index() == 0:
        if "://" not in str(folder):
            folder_inside(folder, "checkpoints")
        common.write_whole(folder / "config.json", json.dumps(common.provenance(config), indent=2) + "\n")
        common.write_whole(folder / experiment.path.name, experiment.path.read_text())
    finished = conduct_and_report(run, screen, preemption, started)
    screen.print(f"{'finished' if finished else 'preempted and saved'}, {time.time() - started:.0f} s", highlight=False)
    if held:
        held.close()
    if not finished:
        sys.exit(exit_codes.PREEMPTED)


def run() -> None:
    """Entry point."""
    with distributed.telling_of_an_early_end():
        common.start(main, __doc__)


if __name__ == "__main__":
    run()
