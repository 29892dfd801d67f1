"""Outputs of several axes, made one: their limit is that of outputs along one."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from limits import Task, twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
TASK = Task(X, np.ones((3, 4)), X[:1], np.ones((1, 4)))


class Along(nn.Module):
    """Four outputs."""

    width: int
    of: int | tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width)(x))
        return nn.DenseGeneral(self.of)(h).reshape(*x.shape[:-1], 4)


def test_training_is_that_of_outputs_along_one_axis():
    """In mup its biases stood still: of six outputs the loss after three steps was 4.5 times as large."""
    runs = [
        twin(in_parameterization(Along(64, of), "mup", gamma=2.0)).rich(
            TASK, steps=2, learning_rate=0.2, samples=64, replicas=2, kernels=()
        )
        for of in (4, (2, 2))
    ]
    np.testing.assert_allclose(runs[1].loss, runs[0].loss, rtol=1e-5)
