"""What a state is said to take on each device is what its arrays take there."""

import jax
import numpy as np
import optax

from train.footprint import described, footprint
from train.losses import cross_entropy
from train.mesh import make_mesh
from train.step import Program
from train.trainer import Trainer
from zoo import GPT, scaled


def test_bytes_are_those_of_the_arrays():
    net = GPT(width=16, depth=2, vocabulary=8, context=4)
    program = Program(net, scaled(optax.adam(0.1), net), cross_entropy, average=0.9)
    mesh, inputs = make_mesh(data=1, devices=jax.devices()[:1]), jax.ShapeDtypeStruct((2, 4), "int32")
    trainer = Trainer(program, mesh, inputs, "fsdp")
    state, found = trainer.initial(), footprint(trainer)

    def held(tree):
        return sum(shard.data.nbytes for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards)

    assert found["parameters"] == found["gradients"] == found["averaged parameters"] == held(state.trained)
    assert found["optimiser"] == held(state.memory) > 2 * held(state.trained)
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(state.trained))
    assert f"{count:,} parameters" in described(trainer, (inputs, inputs))
