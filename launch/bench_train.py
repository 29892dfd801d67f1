"""What the training loop costs over its compiled step, for `launch.bench --what=train`: all in one process, in turn."""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from launch.common import packaged
from launch.experiment import Experiment, load
from launch.train import FUNCTIONS, prepare
from train.loop import Loop
from train.memory import keep_freed_memory
from train.preemption import Preemption
from train.records import Records

SECONDS = 1.5  # of one turn
LONGEST = 1_000_000  # steps that the run is told it has


def turns(config: str, rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each turn: "step", the compiled step alone on one batch that lies on the device; "loop", with the log,
    the checks and the transfer of a batch that is ready; "loop and data", also with batches that are made meanwhile; "data",
    making a batch with nothing else running."""
    keep_freed_memory()
    path = packaged()["training"]
    fields = load(path).get_config(config)
    fields.steps, fields.warmup = LONGEST, 10
    run = prepare(Experiment(str(path), fields, FUNCTIONS), Path(tempfile.mkdtemp()))
    trainer, made = run.trainer, run.batches(0)
    first = next(made)
    batch, state = trainer.place(first), trainer.initial()
    records, stopped = Records(run.folder / "log.jsonl"), Preemption().at

    def step(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state, _ = trainer.compiled_step(state, batch)
        jax.block_until_ready(state)

    def loop(count: int, batches: Iterator[Any]) -> None:
        nonlocal state
        state, _ = Loop(trainer.step, batches, 0, count, records.write, stopped=stopped, rates=run.rates).run(state)
        jax.block_until_ready(state)

    sides: dict[str, Callable[[int], object]] = {
        "step": step,
        "loop": lambda count: loop(count, itertools.repeat(first)),
        "loop and data": lambda count: loop(count, made),
        "data": lambda count: list(itertools.islice(made, count)),
    }
    for compiled in sides.values():
        compiled(2)
    count = max(10, round(SECONDS / _timed(step, 10)))
    found: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in list(sides)[:: 1 if turn % 2 else -1]:  # a drift of the machine falls on all alike
            found[side].append(_timed(sides[side], count))
    return found


def _timed(side: Callable[[int], object], count: int) -> float:
    start = time.perf_counter()
    side(count)
    return (time.perf_counter() - start) / count


def row(config: str, found: dict[str, list[float]]) -> list[str]:
    """A line of the table: medians, and the mean ratio to the step of the same round with its standard error."""
    middle = {side: f"{1e3 * float(np.median(seconds)):.2f} ms" for side, seconds in found.items()}

    def ratio(side: str) -> str:
        ratios = np.array(found[side]) / np.array(found["step"])
        return f"{ratios.mean():.3f} ± {ratios.std(ddof=1) / len(ratios) ** 0.5:.3f}"

    return [config, middle["step"], ratio("loop"), ratio("loop and data"), middle["data"]]
