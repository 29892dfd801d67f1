"""Modules of other kinds are told what is supported."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

from limits import Task, twin
from train import ensemble
from zoo import explain, in_parameterization

TASK = Task([[1.0, 0.0]], [1.0])


class Linear(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(2, 1, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


def test_nnx():
    net = Linear(nnx.Rngs(0))
    with pytest.raises(ValueError, match=r"twin: net must be a Flax Linen module, .*NNX.*; got a Linear") as told:
        twin(net)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert len(str(told.value)) < 300  # not all its parameters
    with pytest.raises(ValueError, match=r"ensemble: net must be a Flax Linen module, such as zoo.MLP.*; got a Linear"):
        ensemble(net, TASK, 2, 1, 0.1)


class Shown(nn.Module):
    width: int
    show: bool = True

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x))
        if self.show:
            jax.debug.print("{}", h.mean())
            jax.debug.callback(lambda _: None, self.variables["params"]["Dense_0"]["kernel"], ordered=True)
        return nn.Dense(1)(h)


@pytest.mark.slow
def test_what_a_module_prints_does_not_matter(capfd):
    """Every reading ended in an IndexError."""
    shown, silent = (in_parameterization(Shown(16, show), "mup") for show in (True, False))
    x, task = np.eye(2, dtype="float32"), Task([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]])
    a, b = (explain(net, "adam", x=x, show=False) for net in (shown, silent))
    assert a.rows == b.rows
    np.testing.assert_array_equal(*(twin(net).kernels(x).ntk for net in (shown, silent)))
    how: Any = {"steps": 1, "learning_rate": 0.1}
    np.testing.assert_allclose(*(twin(net).rich(task, **how, samples=16, replicas=2).loss for net in (shown, silent)))
    np.testing.assert_allclose(*(ensemble(net, task, 2, **how, kernels=()).loss for net in (shown, silent)))
    capfd.readouterr()


def test_misspelt_and_missing_arguments():
    from zoo import MLP

    limit: Any = twin(MLP(8, 1))
    with pytest.raises(TypeError, match=r'lazy has no argument "stpes"\. Did you mean "steps"'):
        limit.lazy(TASK, steps=1, learning_rate=0.1, stpes=3)
    with pytest.raises(TypeError, match="lazy needs steps; its arguments are"):
        limit.lazy(TASK)
    with pytest.raises(TypeError, match="learning_rate is missing: give one, or an optimizer"):
        limit.lazy(TASK, 3)
    with pytest.raises(TypeError, match="MLP needs depth"):
        MLP(8)  # pyright: ignore[reportCallIssue]
