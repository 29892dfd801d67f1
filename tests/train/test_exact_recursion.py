"""A network whose whole training is a map of two numbers, at every width.

Two linear layers, one sample with |x|² = D, w_std = 1, no bias, in the mean-field form:

    h = W x/√D,   f = v·h / (γ N),   learning rate η γ² N,   loss ½ (f − y)²,   d = y − f.

The gradients are −d v xᵀ/(γ N √D) and −d h/(γ N), so a step is h ← h + ηγ d v, v ← v + ηγ d h (x·x/D = 1), and the
tangent kernel at that learning rate is K = γ²N · (|h|² + |v|²)/(γN)² = (|h|² + |v|²)/N. Products of the two updates give

    f ← f + η K d + η² γ² f d²,        K ← K + 4 η γ² f d + η² γ² d² K,

exactly: no width appears, no step is small. Only f(0) and K(0) are taken from the network. In the `ntk` form the scale is
γ and the learning rate η γ², that is, γ/√N in the place of γ.
"""

import functools

import jax
import numpy as np
import pytest

from limits import Task
from limits.training import Training
from train.ensemble import run_members
from zoo import MLP, Parameterization

STEPS, RATE, MEMBERS = 30, 0.2, 3
X = np.array([[1.0, 2.0, -2.0, 0.5, 0.5]])
TASK = Task(X * np.sqrt(5 / np.sum(X**2)), [1.5])


@functools.cache
def trained(width, gamma, form="mup", activation="linear"):
    """f and K, [members, steps + 1] each."""
    net = MLP(width, 1, activation=activation, parameterization=form, gamma=gamma)
    with jax.enable_x64(True):
        training = Training.of(TASK, STEPS, RATE)
        (seen,) = run_members(net, TASK, training, MEMBERS, range(STEPS + 1), kernels=("ntk",), chunk=MEMBERS)
    assert seen["f"].dtype == seen["ntk"].dtype == np.float64
    return seen["f"][:, :, 0, 0], seen["ntk"][:, :, 0, 0]


def recursion(f, k, gamma, steps, curvature):
    rows = [(f, k)]
    for _ in range(steps):
        d, e = 1.5 - f, RATE * gamma**2
        f, k = f + RATE * k * d + RATE * e * f * d**2, k + curvature * e * f * d + RATE * e * d**2 * k
        rows.append((f, k))
    return np.moveaxis(np.array(rows), 0, -1)


def error(found, gamma, steps=STEPS, curvature=4.0):
    found = np.stack(found)[:, :, : steps + 1]
    return np.abs(recursion(found[0, :, 0], found[1, :, 0], gamma, steps, curvature) - found).max()


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("width", [3, pytest.param(16, marks=pytest.mark.slow), 50])
@pytest.mark.parametrize("form", ["mup", Parameterization.family(a=0.0, d=0.5)], ids=["a = 1/2", "a = 0"])
def test_training_follows_the_recursion_at_every_width(width, gamma, form):
    found = trained(width, gamma, form)
    assert np.abs(found[0][:, -1] - found[0][:, 0]).min() > 0.1  # it has learned
    assert error(found, gamma) < 1e-10


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_ntk_form_has_gamma_over_the_root_of_the_width(gamma):
    found = trained(16, gamma, "ntk")
    assert error(found, gamma / 4) < 1e-10
    assert error(found, gamma, steps=2) > 1e-2


@pytest.mark.slow
def test_another_recursion_is_told_apart():
    found = trained(16, 1.0)
    assert error(found, 1.01) > 1e-4
    assert error(found, 1.0, curvature=3.9) > 1e-4
    assert error(trained(16, 1.0, Parameterization.mup.replace(c=0.1)), 1.0, steps=2) > 1e-2
    assert error(trained(16, 1.0, activation="erf"), 1.0, steps=2) > 1e-2
