"""Layers whose weights start at zero, as heads and the last layers of branches often do: kernels and `rich`."""

import flax.linen as nn
import numpy as np
import pytest

from limits import Task, twin
from train import ensemble
from zoo import in_parameterization

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 5))
TASK = Task(X[:4], np.sign(X[:4, :1]), X[4:])
MEMBERS, WIDTH = 24, 128
ZEROS, NORMAL = nn.initializers.zeros, nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Head(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(self.width, kernel_init=NORMAL)(x))
        h = nn.tanh(nn.Dense(self.width)(h))
        return nn.Dense(1, kernel_init=ZEROS)(h)


class Branch(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, kernel_init=NORMAL)(x)
        h = h + nn.Dense(self.width, kernel_init=ZEROS)(nn.tanh(nn.Dense(self.width)(nn.tanh(h))))
        return nn.Dense(1)(nn.tanh(h))


class Images(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Conv(self.width, (3,), kernel_init=NORMAL)(x.reshape(len(x), 5, 1)))
        h = h + nn.Conv(self.width, (3,), kernel_init=ZEROS)(h)
        return nn.Dense(1, kernel_init=ZEROS)(h.mean(1))


@pytest.mark.slow
@pytest.mark.parametrize("module", [Head, Branch, Images])
def test_kernels_are_means_over_wide_networks(module) -> None:
    """21 pairs that share networks: |z| above 4 once in a thousand; 1/N of N = 1024 is a third of a standard error."""
    net = in_parameterization(module(1024), "ntk")
    k, run = twin(net).kernels(X), ensemble(net, TASK, 16, 0, 0.1, kernels=("ntk",))
    assert k.provenance["ntk"].kind != "monte-carlo"
    if module is not Branch:
        assert not np.any(k.nngp)
    np.testing.assert_array_less(np.abs(run.ntk[0] - k.ntk), 4 * run.ntk_sem[0])
    assert np.linalg.norm(run.ntk_sem[0]) < 0.01 * np.linalg.norm(k.ntk)


@pytest.mark.slow
@pytest.mark.parametrize("module", [Head, Branch, Images])
def test_samples_are_in_law_networks_of_that_width(module) -> None:
    """At 5 times, 4 training points each: |z| above 3.7 of 20 numbers once in 200."""
    net = in_parameterization(module(64), "mup")
    mine = twin(net).rich(TASK, 5, 0.3, samples=WIDTH, replicas=MEMBERS, kernels=(), progress=False)
    run = ensemble(net.clone(width=WIDTH), TASK, MEMBERS, 5, 0.3, kernels=())
    error = np.sqrt(run.f_train_sem**2 + mine.f_train_sem**2)[1:]
    np.testing.assert_array_less(np.abs(run.f_train - mine.f_train)[1:], 3.7 * error)
    assert np.abs(mine.f_train[-1]).max() > 20 * error[-1].max()  # it learns
