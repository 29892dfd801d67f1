"""One measurement of the training loop for `launch.bench --what=train`, without compilation."""

import itertools
import tempfile
import time
from pathlib import Path

import jax

from launch.common import packaged
from launch.experiment import Experiment, load
from launch.train import NEEDED, Run
from train.loop import Loop
from train.preemption import Preemption
from train.records import Records

STEPS = 200


def seconds_a_step(side: str, config: str, part: str) -> dict[str, float]:
    """Against the compiled step alone on one batch that lies on the device ("theirs"): part "loop", the loop with its log, its
    checks and its transfer of a batch that is ready; part "loop and data", also with batches that are made meanwhile; part
    "data", making batches, with nothing else running."""
    path = packaged()[config]
    fields = load(path).get_config()
    fields.steps, fields.warmup = STEPS, 10
    run = Run(Experiment(str(path), fields, NEEDED), Path(tempfile.mkdtemp()))
    trainer, batches = run.trainer, run.batches(0)
    first = next(batches)
    batch = trainer.place(first)
    state, metrics = trainer.compiled_step(trainer.initial(), batch)  # compiled
    jax.block_until_ready(metrics)
    start = time.perf_counter()
    if side == "theirs":
        for _ in range(STEPS):
            state, metrics = trainer.compiled_step(state, batch)
        jax.block_until_ready(state)
    elif part == "data":
        for _ in range(STEPS):
            next(batches)
    else:
        records = Records(run.folder / "log.jsonl")
        ready = run.batches(0) if part == "loop and data" else itertools.repeat(first)
        loop = Loop(trainer.step, ready, 0, STEPS, records.write, stopped=Preemption().at, rates=run.rates)
        loop.run(state)
        records.close()
    return {"seconds": (time.perf_counter() - start) / STEPS}
