"""A config in training: its program on a mesh, its data, its folder; from the latest checkpoint to the end.

`launch.train` reads flags and files, and calls `Run` and `conduct`.
"""

import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from train import beside
from train.checkpoints import Checkpoints, log_spaced, steps_in
from train.data import Batches, evaluation_batches, resident
from train.data.content import content_of, made, word_of
from train.data.labels import check_labels, classes_in, some_of
from train.data.normalise import normalisation
from train.data.own import Validation, arrays_of, check_batch, first_of, not_finite
from train.data.sources import split_of
from train.first_step import WAITING, waits, watched
from train.loop import Loop, check_evaluated, one_by_one
from train.mesh import make_mesh, rows_here
from train.preemption import Preemption
from train.progress import training_bar
from train.records import Records, set_aside
from train.schedules import make_schedule
from train.several import Several
from train.step import Program
from train.trainer import Trainer, no_mean
from zoo.abstract import abstract
from zoo.saved import to_json

LOOKED_AT, FEW = 1000, 32  # targets of a source, and of one's own batches, before they are taken for classes


class Run:
    """What a config trains, in a folder.

    experiment: the config's functions (`train.study.Experiment`). fields: its fields, complete. code: a word for what
    its functions do, kept in every checkpoint. pmap: the step under `jax.pmap`.
    """

    def __init__(
        self, experiment: Any, fields: Mapping[str, Any], folder: Any, code: Any = None, pmap: bool = False
    ) -> None:
        self.experiment, self.fields, self.folder, self.code = experiment, fields, folder, code
        self.data = dict(fields.get("data", {}))
        if not self.data and not experiment.has("batches"):
            raise ValueError(f"{experiment.path} needs a field `data`, or a function batches(start).")
        if pmap and self.data.get("on_device"):
            raise ValueError("data.on_device: under --pmap batches are made on the host; leave out one of the two.")
        self.test = self._held_out(fields["evaluate_every"])
        self.source = split_of(self.data, self.data.get("train", "train")) if self.data else None
        named = [name for name in ("schedule", "warmup") if name in experiment.config]
        scheduled = bool(named) and not any(experiment.asks_for(name, ("optimizer",)) for name in named)
        rate = self._schedule(fields["steps"]) if scheduled else fields["learning_rate"]
        self.rates = self._rates(fields["steps"]) if scheduled else None  # None: the optimiser makes its own
        net = experiment.call("make", fields["width"], fields["depth"])
        tx = experiment.call("optimizer", net, learning_rate=rate)
        inputs, targets = self._sample()
        self._shapes = inputs, jax.tree.map(np.asarray, targets)
        if isinstance(self.test, Validation):
            self.test.check_like(*self._shapes)
        if inputs.shape[0] % fields["accumulate"]:
            raise ValueError(
                f"accumulate={fields['accumulate']}: a batch of {inputs.shape[0]} does not divide into so many parts."
            )
        self.program = Program(
            net, tx, lambda f, y: experiment.call("loss", f, y), fields["accumulate"], fields["average"],
            labels=classes_in(self._seen),
        )  # fmt: skip
        mesh, (rules, members, seed) = make_mesh(**fields["mesh"]), (fields[n] for n in ("sharding", "members", "seed"))
        self.trainer = Trainer(self.program, mesh, inputs, rules, members, seed, pmap)
        if self.source is None:
            x, y = self.abstract_batch()
            check_labels(self.program.loss, lambda: self.trainer.outputs(x), y, self._seen, self._batches)
        self.pmap, self.began, whole = pmap, 0, (jax.process_index(), jax.process_count())  # began: at which step
        self.seconds, self.started = (
            0.0,
            time.time(),
        )  # of earlier sessions, to their last checkpoints; this one's start
        self.part = whole if pmap else rows_here(self.trainer.placement.batch, inputs.shape[0])

    def _held_out(self, every: int) -> Any:
        """What it evaluates on: the split data.test; beside batches of its own what the config's `validation` returns."""
        if self.data and self.data.get("test"):
            return split_of(self.data, self.data["test"])
        if every and not self.data and self.experiment.has("validation"):
            return Validation.of(lambda: self.experiment.call("validation"), f"{self.experiment.path}: validation")
        if every:
            give = (
                "name the split in data.test" if self.data else "define validation(), which returns (inputs, targets)"
            )
            raise ValueError(f"evaluate_every={every}, and there are no test data: {give}, or set evaluate_every=0.")
        return None

    def _schedule(self, steps: int) -> Any:
        return make_schedule(self.fields["schedule"], self.fields["learning_rate"], steps, self.fields["warmup"])

    def _rates(self, steps: int) -> np.ndarray:
        rates = jax.jit(jax.vmap(self._schedule(steps)))(jax.numpy.arange(steps))
        return np.asarray(rates * np.ones(steps), float)

    def depends_on_steps(self, steps: int, done: int) -> str:
        """What of the first `done` steps is another in a run of so many steps: "learning rates", "batches", or nothing."""
        if self.rates is not None:
            same = np.allclose(self.rates[:done], self._rates(steps)[:done], rtol=1e-6, atol=0)
        else:
            same = steps == self.fields["steps"] or not self.experiment.asks_for("steps", ("optimizer",))
        if not same:
            return "learning rates"
        return "" if steps == self.fields["steps"] or self._same_batches(steps, done) else "batches"

    def _same_batches(self, steps: int, done: int) -> bool:
        if self.source is not None or not self.experiment.asks_for("steps", ("batches",)):
            return True
        start = max(done - 1, 0) if self.experiment.asks_for("start", ("batches",)) else 0
        pairs = zip(self._own_batches(start, steps=steps), self._own_batches(start), strict=False)
        return all(
            jax.tree.all(jax.tree.map(np.array_equal, tuple(old), tuple(new)))
            for old, new in itertools.islice(pairs, done - start)
        )

    def _sample(self) -> tuple[jax.ShapeDtypeStruct, Any]:
        """A whole batch of inputs, as shape and type, and some targets."""
        if self.source is not None:
            x, targets = first_of(self.source)
            normalise = normalisation(self.data.get("normalise") or self.source.normalise)
            whole = np.issubdtype(normalise(x).dtype, np.integer)
            kind = "int32" if whole else jax.dtypes.canonicalize_dtype(float)
            return jax.ShapeDtypeStruct((self.fields["batch"], *x.shape[1:]), kind), targets
        if (batch := self._next(self._own_batches(0))) is None:
            raise ValueError(f"{self._batches} gives none.")
        self._word = word_of(batch)
        return abstract(batch[0].shape, batch[0].dtype), batch[1]

    @functools.cached_property
    def _seen(self) -> list[Any]:
        """Up to 1,000 targets; of one's own batches, which may take long to make, the first or some."""
        if self.source is not None:
            return some_of(self.source, LOOKED_AT)
        (size, *_), first = self._shapes[0].shape, self._shapes[1]
        found = [first] if isinstance(first, np.ndarray) else []
        if not classes_in(found) or size >= FEW:
            return found
        batches = iter(functools.partial(self._next, self._own_batches(0)), None)
        return [y for _, y in itertools.islice(batches, FEW // size)]

    def abstract_batch(self) -> tuple[jax.ShapeDtypeStruct, Any]:
        """Shapes and types of a whole batch."""
        inputs, targets = self._shapes
        return inputs, jax.tree.map(lambda a: abstract((inputs.shape[0], *a.shape[1:]), a.dtype), targets)

    @property
    def rows(self) -> int:
        """How many samples a batch has."""
        return self._shapes[0].shape[0]

    @property
    def _batches(self) -> str:  # in messages
        return f"{self.experiment.path}: batches"

    def _next(self, own: Iterator[Any]) -> tuple[Any, Any] | None:
        """A batch, which may be made on a device: what the config does is no slip of the loop's."""
        with jax.transfer_guard("allow"):
            batch = next(own, None)
            return None if batch is None else arrays_of(batch, self._batches)

    def not_finite(self, step: int) -> str:
        """What of the config's own batch of a step, or of what it evaluates on, is not finite or no class, in a sentence."""
        own = None if self.source is not None else self._next(self._own_batches(step))
        test = (self.test.inputs, self.test.targets) if isinstance(self.test, Validation) else None
        given = (own, self._batches), (test, "" if test is None else self.test.name)
        return " ".join(filter(None, (not_finite(*each, self.trainer.outputs) for each in given if each[0])))

    def _own_batches(self, start: int, **given: Any) -> Iterator[Any]:
        with jax.transfer_guard("allow"):
            if self.experiment.asks_for("start", ("batches",)):
                return iter(self.experiment.call("batches", start=start, **given))
            return itertools.islice(self.experiment.call("batches", **given), start, None)

    def _stream(self, part: int = 0, parts: int = 1) -> Batches:
        options = {name: self.data.get(name) for name in ("augment", "normalise")}
        return Batches(self.source, self.fields["batch"], self.fields["seed"], part, parts, **options)  # pyright: ignore[reportArgumentType]

    @property
    def from_memory(self) -> bool:
        """Whether samples lie on the devices: what the config's data.on_device says, else where there are not too many."""
        if self.source is None or self.pmap:
            return False
        wanted = self.data.get("on_device")
        return resident.fits(self._stream()) if wanted is None else bool(wanted)

    def advance(self, start: int) -> tuple[Callable[..., Any], int]:
        """(`Loop.advance` from that step on, how many steps it takes at once)."""
        if self.from_memory:
            samples = resident.Resident(self._stream(), self.trainer.placement.mesh)
            return Several(self.trainer, samples), samples.size
        return one_by_one(self.trainer.step, self.batches(start)), 1

    def batches(self, start: int) -> Iterator[Any]:
        """This process's rows of every batch from that step on, made on the host."""
        part, parts = self.part
        if self.source is not None:
            yield from self._stream(part, parts).iterate(start)
            return
        own, mesh = self._own_batches(start), None if self.pmap else self.trainer.placement.mesh
        while (batch := self._next(own)) is not None:
            x, y = check_batch(batch, self._batches, mesh)
            size = len(x) // parts
            yield jax.tree.map(lambda a, size=size: a[part * size : (part + 1) * size], (x, y))
        raise ValueError(f"{self._batches} ended before the run of {self.fields['steps']} steps did.")

    def evaluate(self, state: Any) -> dict[str, Any]:
        """Means over the test samples, by member."""
        if self.test is None:
            return {}
        part, parts = self.part
        batches = evaluation_batches(self.test, self.rows, part, parts, self.data.get("normalise"))
        return self.trainer.evaluate(state, batches)

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """Words for what its data hold: a text; the first batch of others, where it is the same whenever it is made."""
        again = bool(self.folder and steps_in(self.folder / "checkpoints"))
        held_out = "validation" if isinstance(self.test, Validation) else "test"
        given = [("train", self.source, self.fields["seed"]), (held_out, self.test, None)]
        found = {name: content_of(each, self.rows, seed, again) for name, each, seed in given if each is not None}
        if self.source is None:
            found["batches"] = made(self._word, *(word_of(self._next(self._own_batches(0))) for _ in range(again)))
        return {name: word for name, word in found.items() if word}

    def info(self) -> dict[str, Any]:
        """What lies in every checkpoint beside the weights."""
        try:
            definition = to_json(self.program.net)
        except (TypeError, ValueError) as error:
            definition = {"absent": str(error)}
        return {"definition": definition, "content": self.content, "code": self.code, "members": self.fields["members"],
                "config": json.loads(self.experiment.config.to_json_best_effort()),
                "config_file": self.experiment.path.name}  # fmt: skip


def conduct(
    run: Run, screen: Any, preemption: Preemption | None = None, failed: Callable[[Exception], object] = lambda _: None
) -> bool:
    """Trains from the latest checkpoint, or from the start; whether it is finished.

    failed: hears of an error before anything that could wait for other processes.
    """
    preemption = preemption or Preemption()
    fields, trainer = run.fields, run.trainer
    steps, always = fields["steps"], log_spaced(fields["steps"], fields["analysis"])
    checkpoints = Checkpoints(run.folder / "checkpoints", fields["keep"], always, run.info())
    start, state = restored(checkpoints, trainer)
    logs = {name: run.folder / name for name in ("log.jsonl", "test.jsonl")}
    before = checkpoints.info_at(start) if start else {}
    run.began, marks, run.seconds = start, before.get("logs", {}), before.get("seconds", 0.0)
    if not start and checkpoints.damaged and jax.process_index() == 0:  # it begins anew, and the old logs stay too
        screen.print("no checkpoint is whole: the run begins anew")
        for file in logs.values():
            if file.exists():
                set_aside(file)
    if start:
        screen.print(f"continuing from the checkpoint of step {start}")
    if start >= steps:
        return True
    waiting = run.rates is not None and waits(run.program.tx, trainer.one.trained, steps)
    said_of_rates = [WAITING] if waiting else []
    for line in (*trainer.said, *said_of_rates):
        screen.print(line)
    if others := beside.begin(run, start):
        screen.print("test loss of others: " + ", ".join(f"{name} {value:.4g}" for name, value in others.items()))
    advance, at_once = run.advance(start)
    records = Records(logs["log.jsonl"], start, fields["also"], fields["name"], marks.get("log.jsonl"))
    tests = Records(logs["test.jsonl"], start + 1, mark=marks.get("test.jsonl"))
    with training_bar(screen, jax.process_index() != 0) as progress:
        task = progress.add_task("training", total=steps, completed=start, loss="…", left="compiling")

        def write(k: int, numbers: dict[str, Any]) -> None:
            records.write(k, numbers)
            left = f"{numbers['seconds_left']:.0f} s left" if "seconds_left" in numbers else "compiling"
            progress.update(task, completed=k + 1, loss=f"{numbers['loss']:.4g}", left=left)

        said = False

        def evaluate(k: int, state: Any) -> None:
            nonlocal said
            found = run.evaluate(state)
            if found:
                members = {f"{name}_members": value.tolist() for name, value in found.items() if value.ndim}
                tests.write(k, {name: value.mean().item() for name, value in found.items()} | members)
                progress.console.print(f"step {k}: " + ", ".join(f"test {n} {v.mean():.4g}" for n, v in found.items()))
                check_evaluated(k, found)
            if trainer.by_batches and not said:
                progress.console.print(no_mean(run.rows, fields["accumulate"]))
            said = trainer.by_batches

        def save(k: int, state: Any) -> None:
            records.flush()  # the lines before a checkpoint are there when it is
            tests.flush()
            marks = {"log.jsonl": records.mark, "test.jsonl": tests.mark}
            checkpoints.save(k, *parts_of(state), logs=marks, seconds=run.seconds + time.time() - run.started)
            if text := beside.sample(run, k, state):
                progress.console.print(f"step {k}, a sample: {text[:100]!r}", highlight=False, markup=False)

        every = fields["save_every"]
        loop = Loop(
            watched(advance, progress.console.print), start, steps, write, evaluate, fields["evaluate_every"],
            save,
            lambda k: k in always or bool(every and k and k % every == 0),
            preemption.at, at_once, None if said_of_rates else run.rates, tuple(fields["profile"]), run.folder / "profile",
        )  # fmt: skip
        failed_at_once = False
        try:
            return loop.run(state)[1]
        except Exception as error:
            failed(error)
            failed_at_once = not start and not records.mark[0] + tests.mark[0]
            if isinstance(error, FloatingPointError) and (why := run.not_finite(records.mark[0])):
                raise FloatingPointError(f"{error} {why}") from None
            raise
        finally:
            checkpoints.close()
            records.close()
            tests.close()
            if failed_at_once:  # of what is mended it would be another run's
                checkpoints.forget(0)


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
    collections = {name: model[name] for name in abstract.collections}
    trained = {name: part for name, part in model.items() if name not in collections} if collections else model
    return step, abstract.replace(trained=trained, collections=collections, **training)
