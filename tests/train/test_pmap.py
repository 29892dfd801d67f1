"""Under pmap devices drop out differently, and batch statistics of each alone are said."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train.mesh import make_mesh
from train.step import Program
from train.trainer import Trainer
from zoo import HeResNet

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3, 3, 1)), jnp.float32)
Y = jnp.ones((4, 1))


def squares(f: Any, y: Any) -> Any:
    return jnp.mean((f - y) ** 2)


class Net(nn.Module):
    rate: float = 0.0
    norm: bool = False
    axis: str | None = None

    @nn.compact
    def __call__(self, x, train=False):
        h = nn.Dense(16)(x.reshape(len(x), -1))
        h = nn.BatchNorm(use_running_average=not train, axis_name=self.axis)(h) if self.norm else h
        return nn.Dense(1)(nn.Dropout(self.rate, deterministic=not train)(h))


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_devices_drop_out_differently(accumulate):
    """Two devices with the same samples have the loss of one where nothing is dropped, and another where something is."""
    for rate in (0.0, 0.5):
        one = Program(Net(rate), optax.sgd(0.1), squares, accumulate)
        state = one.initial(0, X)
        mapped = jax.jit(jax.vmap(dataclasses.replace(one, mapped="d").step, axis_name="d", in_axes=(None, 0)))
        both = mapped(state, (jnp.stack([X, X]), jnp.stack([Y, Y])))[1]["loss"]
        same = jnp.allclose(both, jax.jit(one.step)(state, (X, Y))[1]["loss"], rtol=1e-6)
        assert bool(same) == (rate == 0)
    halves = jax.jit(jax.vmap(dataclasses.replace(one, mapped="d").step, axis_name="d", in_axes=(None, 0), axis_size=1))
    assert float(halves(state, (X[None], Y[None]))[1]["loss"][0]) != float(both[0])


@pytest.mark.parametrize(
    ("net", "apart"),
    [(Net(), False), (Net(norm=True), True), (Net(norm=True, axis="devices"), False), (HeResNet(4, (1,), 1), False)],
)
def test_batch_statistics_of_each_device_are_said(net: Any, apart: bool, monkeypatch: pytest.MonkeyPatch):
    trainer = Trainer(Program(net, optax.sgd(0.1), squares), make_mesh(data=1), (4, 3, 3, 1), pmap=True)
    assert not trainer.said
    del trainer.said
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert ("batch statistics are of each device's 2 samples" in " ".join(trainer.said)) == apart
