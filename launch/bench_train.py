"""One measurement of the training loop for `launch.bench --what=train`, without compilation."""

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
    """part "loop": the whole loop with its data, its log and its check for preemption ("ours"), against the compiled step
    alone on one batch that lies on the device. part "data": making batches, with nothing else running, against that step."""
    path = packaged()[config]
    fields = load(path).get_config()
    fields.steps, fields.warmup = STEPS, 10
    run = Run(Experiment(str(path), fields, NEEDED), Path(tempfile.mkdtemp()))
    trainer, batches = run.trainer, run.batches(0)
    batch = trainer.place(next(batches))
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
        loop = Loop(trainer.step, run.batches(0), 0, STEPS, records.write, stopped=Preemption().at, rates=run.rates)
        loop.run(state)
        records.close()
    return {"seconds": (time.perf_counter() - start) / STEPS}
