"""Definitions with another w_std, b_std and activation in each layer, and their limits."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, fit, twin
from limits.kernels.activations import closed_form
from train import ensemble
from zoo import CNN, GPT, MLP, ResNet, ViT, activation_function

W, B, PHI = (1.3, 0.8, 1.6), (0.3, 0.0, 0.5), ("relu", "erf")
NET = MLP(64, 2, activation=PHI, w_std=W, b_std=B)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def moments(k, phi):
    """E φφ′ and E φ̇φ̇′ of fields of covariance k."""
    r = np.sqrt(np.diag(k))
    gap = np.clip(1 - k / np.outer(r, r), 0, 2)
    with jax.enable_x64(True):
        s1, s2, bent, slope = map(np.asarray, dual(phi)(*map(jnp.asarray, (r[:, None], r[None], gap))))
    return s1 * s2 * (1 - bent), slope


@functools.cache
def dual(phi):
    found: Any = closed_form(activation_function(phi))
    return jax.jit(found)


def by_hand(x):
    """The recursion of `limits/mlp.py` with the numbers of each layer, on covariances."""
    k = W[0] ** 2 * x @ x.T / x.shape[1] + B[0] ** 2
    theta = k
    for l, phi in enumerate(PHI, start=1):
        inner, slope = moments(k, phi)
        k, theta = inner, theta * slope
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


def residual_by_hand(x, w, b, phis, scale):
    """NNGP and NTK of h ← h + s (W φ(h) + b), with the numbers of each layer and the activation of each h."""
    k = w[0] ** 2 * x @ x.T / x.shape[1] + b[0] ** 2
    theta = k
    for l, phi in enumerate(phis, start=1):
        inner, slope = moments(k, phi)
        stream, s = l < len(phis), scale if l < len(phis) else 1.0
        through = s**2 * (w[l] ** 2 * inner + b[l] ** 2)
        theta = stream * theta + s**2 * w[l] ** 2 * theta * slope + through
        k = stream * k + through
    return k, theta


def test_residual_networks():
    x, w, b = draw(4, 3), (1.3, 0.8, 1.6, 0.9), (0.3, 0.1, 0.5, 0.2)
    net = ResNet(8, 3, activation=("relu", "erf", "gelu"), w_std=w, b_std=b, beta=0.7)
    found, (nngp, ntk) = twin(net).kernels(x), residual_by_hand(x, w, b, net.activation, float(net.branch_scale))
    np.testing.assert_allclose(found.nngp, nngp, rtol=1e-9)
    np.testing.assert_allclose(found.ntk, ntk, rtol=1e-9)
    with pytest.raises(ValueError, match="infinite depth is for layers that are alike"):
        twin(net, depth=np.inf)


ENTRIES = [  # where names of layers begin, and their entry
    pytest.param(
        ResNet(4, 2, residual="fixed", branch_layers=2),
        4,
        {"read_in": 0, "block_1": 1, "block_2": 2, "readout": 3},
        marks=pytest.mark.slow,
    ),
    (
        ResNet(4, 3, form="conv", stages=2),
        5,
        {"read_in": 0, "block_1": 1, "double_1": 2, "block_2": 3, "readout": 4},
    ),
    (ViT(4, 2, patch=2, heads=2), 4, {"embedding": 0, "block_1": 1, "block_2": 2, "readout": 3}),
]


@pytest.mark.usefixtures("full_products")
@pytest.mark.parametrize(("net", "count", "entries"), ENTRIES, ids=lambda each: type(each).__name__)
def test_every_layer_has_its_entry(net, count, entries):
    """A network with w_std by layer is the one with w_std = 1 whose weights are so many times as large."""
    x, w = jnp.asarray(draw(2, 4, 4, 1), "float32"), np.linspace(0.5, 1.7, count)
    params = jax.jit(net.init)(jax.random.key(0), x)["params"]

    def scaled(path, leaf):
        layer = path[0].key
        at = [i for name, i in entries.items() if layer.startswith(name)]
        return leaf * w[at[0]] if path[-1].key == "kernel" and at else leaf

    apply = jax.jit(net.apply)
    want = apply({"params": jax.tree_util.tree_map_with_path(scaled, params)}, x)
    found = jax.jit(net.clone(w_std=tuple(w.tolist())).apply)({"params": params}, x)
    np.testing.assert_allclose(found, want, rtol=2e-5)
    assert np.abs(found - apply({"params": params}, x)).max() > 0.01


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
    with pytest.raises(ValueError, match="w_std has 3 entries for depth 2; give 4"):
        ViT(8, 2, patch=2, w_std=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="activation has 3"):
        ResNet(8, 2, activation=("relu", "relu", "erf"))
    with pytest.raises(ValueError, match="w_std"):
        GPT(8, 2, vocabulary=4, context=4, w_std=(1.0, 1.0, 1.0))


@pytest.mark.slow
def test_one_number_of_several_may_be_traced():
    net = MLP(8, 2, activation=("erf", "relu"), w_std=(1.2, 1.0, 0.9))
    x, k = draw(3, 4), twin(net).kernel_function()
    value = lambda w: k(x, w_std=(1.2, w, 0.9)).nngp.sum()  # noqa: E731
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.grad(value)(1.0), (value(1.0 + 1e-5) - value(1.0 - 1e-5)) / 2e-5, rtol=1e-7)
    with pytest.raises(ValueError, match=r"x1 is traced by jax .*kernel_function"):
        jax.jit(lambda x: twin(net).kernels(x).ntk)(x)


@pytest.mark.slow
def test_numbers_that_only_scale_together_are_not_fitted():
    with pytest.raises(ValueError, match="do not determine"):  # a relu's numbers only scale its output together
        fit(MLP(8, 1, w_std=(1.0, 1.0)), Task(draw(8, 2), draw(8, 1)), over=("w_std",), noise=0.1)


@pytest.mark.slow
def test_vision_transformers_of_drawn_kernels_have_an_nngp_where_the_readout_has_a_bias():
    """With equal numbers in all layers it is the closed form, and readouts scale it: to 8 standard errors of 4 × 512 samples."""
    net = ViT(16, 1, patch=2, logits="1/sqrt(d)", heads="grow", query_init="zeros", w_std=1.2, b_std=0.3)
    x = draw(2, 4, 4, 1)
    exact = twin(net).kernels(x).nngp
    limit: Any = twin(net.clone(w_std=(1.2, 1.2, 2.4), b_std=(0.3, 0.3, 0.5)))
    drawn = limit.kernels(x, samples=512, replicas=4)
    assert drawn.provenance["nngp"].kind == "monte_carlo"
    assert np.all(abs(drawn.nngp - 0.25 - 4 * (exact - 0.09)) < 8 * drawn.nngp_sem)
