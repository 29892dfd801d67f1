"""Thirty steps of a network, as JSON: python3 loss_curves.py '{"net": "vit", "mesh": {"data": 8}, …}' in a process of its own.

Several cases in one process: a list of them. With PROCESSES, PROCESS and PORT in the environment, one of several processes.
"""

import json
import os
import sys
from typing import Any

import jax
import numpy as np
import optax

STEPS, BATCH = 30, 16


def curve(case: dict[str, Any]) -> list[float]:
    from train.data import digits, minibatches
    from train.losses import cross_entropy
    from train.mesh import make_mesh, rows_here
    from train.step import Program
    from train.trainer import Trainer
    from zoo import HeResNet, ViT, scaled

    if case["net"] == "conv":
        net: Any = HeResNet(8, (1, 1), 10, norm="batch", parameterization="mup", w_std=2**0.5)
    else:
        net = ViT(16, 2, 10, patch=4, heads=2, parameterization="mup", dtype=case.get("dtype"))
    options = {name: case[name] for name in ("accumulate", "average") if name in case}
    program = Program(net, scaled(optax.sgd(0.1), net), cross_entropy, **options)
    task = digits(400, 0, classes=range(10), targets="one_hot", loss="cross_entropy")
    options = {name: case[name] for name in ("rules", "members", "pmap") if name in case}
    trainer = Trainer(program, make_mesh(**case.get("mesh", {})), (BATCH, 8, 8, 1), **options)
    state, losses = trainer.initial(), []
    part, parts = rows_here(trainer.placement.batch, BATCH)
    if case.get("pmap"):
        part, parts = jax.process_index(), jax.process_count()
    size = BATCH // parts
    kind = jax.dtypes.canonicalize_dtype(float)
    for x, y in minibatches(task, BATCH, STEPS):
        mine = slice(part * size, (part + 1) * size)
        state, metrics = trainer.step(state, (x[mine].astype(kind), y[mine].astype(kind)))
        losses.append(np.asarray(metrics["loss"], float).tolist())
    return losses


if __name__ == "__main__":
    if "PROCESSES" in os.environ:
        count, index = int(os.environ["PROCESSES"]), int(os.environ["PROCESS"])
        jax.distributed.initialize(f"localhost:{os.environ['PORT']}", count, index)
    cases = json.loads(sys.argv[1])
    curves = [curve(case) for case in cases]
    if jax.process_index() == 0:
        print(json.dumps({"devices": jax.device_count(), "processes": jax.process_count(), "curves": curves}))
