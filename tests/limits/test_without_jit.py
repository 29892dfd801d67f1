"""Whoever turns compilation off, to look into a network of their own, gets the same limits."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from limits import Task, twin
from train import ensemble
from zoo import MLP, in_parameterization


class Plain(nn.Module):
    width: int = 16

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(nn.relu(nn.Dense(self.width)(x)))))


def test_limits_and_networks_are_the_same():
    x = np.random.default_rng(0).normal(size=(3, 4))
    task = Task(x, np.ones(3))

    def found():
        own, zoo = in_parameterization(Plain(), "ntk"), MLP(16, 1, activation="erf")
        function = twin(zoo).kernel_function()
        return (
            twin(own).kernels(x).ntk,
            function(jnp.asarray(x), w_std=1.2).ntk,
            ensemble(zoo, task, 2, 1, 0.1, kernels=()).loss,
        )

    expected = found()
    with jax.disable_jit():
        for one, other in zip(expected, found(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
