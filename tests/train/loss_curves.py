"""Thirty steps of a network, as JSON: python3 loss_curves.py '{"net": "vit", "mesh": {"data": 8}, …}' in a process of its own.

Several cases in one process: a list of them. Under `launch.local_cluster`, one of several processes.
"""

import itertools
import json
import sys
from typing import Any

import jax
import numpy as np
import optax

from launch.distributed import initialize

STEPS, BATCH = 30, 16


def curve(case: dict[str, Any]) -> list[float]:
    from train.data import Batches, digits, minibatches, source
    from train.data.resident import Resident
    from train.data.sources import Arrays
    from train.losses import cross_entropy
    from train.mesh import make_mesh, rows_here
    from train.step import Program
    from train.trainer import Trainer
    from zoo import GPT, HeResNet, ViT, scaled

    if case["net"] == "conv":
        net: Any = HeResNet(8, (1,), 10, stem="small", norm="batch")
    elif case["net"] == "gpt":
        net = GPT(16, 2, 256, 16, heads=2, norm="rms", positions="rotary", parameterization="standard")
    else:
        net = ViT(16, 1, 10, patch=4, heads=2, parameterization="standard")
    options = {name: case[name] for name in ("accumulate", "average") if name in case}
    rate = {"vit": 0.3, "gpt": 0.3}.get(case["net"], 1.0)
    program = Program(net, scaled(optax.sgd(rate), net), cross_entropy, **options)
    kind: Any = jax.dtypes.canonicalize_dtype(float)
    if case["net"] == "gpt":
        kind, shape = np.dtype("int32"), jax.ShapeDtypeStruct((BATCH, 16), "int32")
        batches: Any = Batches(source("python", "train", context=16), BATCH, seed=0).iterate(threads=0)
    else:
        task, shape = digits(400, 0, classes=range(10), targets="one_hot", loss="cross_entropy"), (BATCH, 8, 8, 1)
        batches = minibatches(task, BATCH, STEPS)
    options = {name: case[name] for name in ("rules", "members", "pmap") if name in case}
    trainer = Trainer(program, make_mesh(**case.get("mesh", {})), shape, least=500, **options)
    state, losses = trainer.initial(), []
    part, parts = rows_here(trainer.placement.batch, BATCH)
    if case.get("pmap"):
        part, parts = jax.process_index(), jax.process_count()
    size = BATCH // parts
    if case.get("memory"):  # a chunk of batches and no more steps, in dispatches of several
        images = Arrays("digits", (task.x_train + 1) / 4, task.y_train.argmax(1), 10, "sphere")
        made = Resident(Batches(images, BATCH, augment=["crop", "affine"]), trainer.placement.mesh)
        for begin, count in ((0, 1), (1, 2), (3, STEPS - 3)):
            state, numbers = trainer.several(state, made.chunk(0), begin, count)
            losses += np.asarray(numbers["loss"], float)[:count].tolist()
    for x, y in () if losses else itertools.islice(batches, STEPS):
        mine = slice(part * size, (part + 1) * size)
        state, numbers = trainer.step(state, (x[mine].astype(kind), y[mine].astype(kind)))
        losses.append(np.asarray(numbers["loss"], float).tolist())
    divided = any(not leaf.is_fully_replicated for leaf in jax.tree.leaves(state.trained))
    assert divided == bool(case.get("rules")), "parameters are divided where they should be, and only there"
    return losses


if __name__ == "__main__":
    initialize("auto")
    cases = json.loads(sys.argv[1])
    curves = []
    for case in cases:
        with jax.enable_x64(case.get("float64", False)):
            curves.append(curve(case))
    if jax.process_index() == 0:
        print(json.dumps({"devices": jax.device_count(), "processes": jax.process_count(), "curves": curves}))
