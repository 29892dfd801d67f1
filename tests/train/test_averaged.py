"""What is read of a checkpoint are the variables of evaluation; training goes on from its own."""

from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train.checkpoints import Checkpoints, load_model
from train.losses import cross_entropy
from train.mesh import make_mesh
from train.run import parts_of, restored
from train.step import Program
from train.trainer import Trainer

X, Y = np.random.default_rng(0).normal(size=(8, 5)).astype("float32"), np.arange(8) % 3


class Normal(nn.Module):
    """With batch statistics, which are not averaged, and numbers of half precision, whose averages are kept in full."""

    @nn.compact
    def __call__(self, x, train=False):
        h = nn.BatchNorm(use_running_average=not train, param_dtype=jnp.bfloat16)(nn.Dense(4)(x))
        return nn.Dense(3)(h)


@pytest.mark.parametrize(("average", "members"), [pytest.param(0.9, 0, marks=pytest.mark.slow), (0.9, 2), (0.0, 0)])
def test_a_checkpoint_is_read_as_it_is_evaluated(tmp_path: Path, average: float, members: int):
    program = Program(Normal(), optax.adam(0.1), cross_entropy, average=average)
    trainer = Trainer(program, make_mesh(), X.shape, members=members)
    state = trainer.initial()
    for _ in range(3):
        state, _ = trainer.step(state, (X, Y))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, *parts_of(state))
    checkpoints.wait()
    raw = {**state.trained, **state.collections}
    for given, wanted in (({}, state.variables), ({"averaged": False}, raw)):
        found = load_model(tmp_path, **given)[1]
        assert jax.tree.all(jax.tree.map(lambda a, b: a.dtype == b.dtype, found, wanted))
        jax.tree.map(np.testing.assert_array_equal, found, wanted)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), state.variables["params"], raw["params"])
    assert jax.tree.all(moved) if average else not any(jax.tree.leaves(moved))
    jax.tree.map(np.testing.assert_array_equal, restored(checkpoints, trainer)[1], state)
    checkpoints.close()
