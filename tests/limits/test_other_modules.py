"""Modules of other kinds are told what is supported."""

from typing import Any

import pytest
from flax import nnx

from limits import Task, twin
from train import ensemble

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
