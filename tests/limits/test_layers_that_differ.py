"""Definitions with another w_std, b_std and activation in each layer, and their limits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, fit, twin
from limits.kernels.activations import closed_form
from train import ensemble
from zoo import CNN, MLP, ResNet, activation_function

W, B, PHI = (1.3, 0.8, 1.6), (0.3, 0.0, 0.5), ("relu", "erf")
NET = MLP(64, 2, activation=PHI, w_std=W, b_std=B)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def by_hand(x):
    """The recursion of `limits/mlp.py` with the numbers of each layer, on covariances."""
    k = W[0] ** 2 * x @ x.T / x.shape[1] + B[0] ** 2
    theta = k
    for l, phi in enumerate(PHI, start=1):
        r = np.sqrt(np.diag(k))
        gap = np.clip(1 - k / np.outer(r, r), 0, 2)
        with jax.enable_x64(True):
            dual: Any = closed_form(activation_function(phi))
            s1, s2, bent, slope = map(np.asarray, dual(*map(jnp.asarray, (r[:, None], r[None], gap))))
        k, theta = s1 * s2 * (1 - bent), theta * slope
        theta = W[l] ** 2 * theta + W[l] ** 2 * k + B[l] ** 2
        k = W[l] ** 2 * k + B[l] ** 2
    return k, theta


def test_kernels():
    x = draw(5, 3)
    found, (nngp, ntk) = twin(NET).kernels(x), by_hand(x)
    np.testing.assert_allclose(found.nngp, nngp, rtol=1e-9)
    np.testing.assert_allclose(found.ntk, ntk, rtol=1e-9)
    assert found.provenance["ntk"].kind == "exact"
    same = MLP(64, 2, activation=("erf", "erf"), w_std=[1.3] * 3, b_std=(0.2,) * 3)
    alike = MLP(64, 2, activation="erf", w_std=1.3, b_std=0.2)
    np.testing.assert_allclose(twin(same).kernels(x).ntk, twin(alike).kernels(x).ntk, rtol=1e-11)


def test_convolutions():
    """Tuples of equal numbers are the network without; a second layer of another size is not."""
    x = draw(2, 4, 4, 2)
    net = CNN(8, 2, activation="relu", w_std=1.2, b_std=0.1, readout="average")
    same = net.clone(activation=("relu", "relu"), w_std=(1.2,) * 3, b_std=(0.1,) * 3)
    np.testing.assert_allclose(twin(same).kernels(x).ntk, twin(net).kernels(x).ntk, rtol=1e-10)
    twice = twin(net.clone(w_std=(1.2, 2.4, 1.2), b_std=(0.1, 0.2, 0.1))).kernels(x)  # relu: one layer by a factor 2
    plain = twin(net).kernels(x)
    np.testing.assert_allclose(twice.nngp - 0.01, 4 * (plain.nngp - 0.01), rtol=1e-10)


@pytest.mark.slow
def test_training_and_networks():
    """An ensemble of 256 networks against the kernel regime and feature learning: predictions within 4 errors."""
    task = Task(draw(4, 3), draw(4, 1, seed=1), draw(2, 3, seed=2), draw(2, 1, seed=3))
    lazy = twin(NET).lazy(task, 4, 0.1)
    nets = ensemble(NET.clone(width=512), task, members=256, steps=4, learning_rate=0.1, kernels=())
    assert np.abs(nets.f_test[-1] - lazy.f_test[-1]).max() < 4 * nets.f_test_sem[-1].max()
    mup = NET.clone(parameterization="mup")
    rich = twin(mup).rich(task, 4, 0.2, samples=1024, replicas=8)
    nets = ensemble(mup.clone(width=512), task, members=64, steps=4, learning_rate=0.2, kernels=())
    error = np.hypot(nets.f_test_sem[-1], rich.f_test_sem[-1]).max()
    assert np.abs(nets.f_test[-1] - rich.f_test[-1]).max() < 4 * error < 0.2 * np.abs(rich.f_test[-1]).max()


@pytest.mark.slow
def test_every_number_is_a_hyperparameter():
    x = draw(3, 3)
    net = MLP(64, 2, activation=PHI, w_std=W, b_std=(0.3, 0.4, 0.5))
    with jax.enable_x64(True):
        k = twin(net).kernel_function()
        other = np.array([1.0, 1.1, 1.2])
        want = twin(net.clone(w_std=tuple(other.tolist()))).kernels(x)
        np.testing.assert_allclose(k(x, w_std=other).ntk, want.ntk, rtol=1e-11)
        slope = jax.jit(jax.jacrev(lambda w: k(x, w_std=w).ntk))(other)
        for i, step in enumerate(1e-5 * np.eye(3)):
            difference = (k(x, w_std=other + step).ntk - k(x, w_std=other - step).ntk) / 2e-5
            np.testing.assert_allclose(slope[..., i], difference, atol=1e-7)


def test_what_is_refused():
    wrong: Any = ({"w_std": (1.0, 1.0)}, {"b_std": (0.1,) * 4}, {"activation": ("relu",)})
    for field in wrong:
        with pytest.raises(ValueError, match=f"{next(iter(field))} has"):
            MLP(8, 2, **field)
    with pytest.raises(ValueError, match="w_std"):
        MLP(8, 2, w_std=(1.0, -1.0, 1.0))
    with pytest.raises(ValueError, match="w_std"):
        ResNet(8, 2, w_std=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="activation"):
        ResNet(8, 2, activation=("relu", "relu"))


@pytest.mark.slow
def test_numbers_that_only_scale_together_are_not_fitted():
    with pytest.raises(ValueError, match="do not determine"):  # a relu's numbers only scale its output together
        fit(MLP(8, 1, w_std=(1.0, 1.0)), Task(draw(8, 2), draw(8, 1)), over=("w_std",), noise=0.1)
