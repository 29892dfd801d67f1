"""Kernel functions in tiles, and derivatives by few numbers: as those of whole arrays, and as central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from limits.kernels import traced
from zoo import CNN, MLP

NETS = [
    (MLP(8, 1, activation="erf", w_std=1.3, b_std=0.3), (3,)),
    pytest.param(
        CNN(8, 1, activation="erf", w_std=1.3, b_std=0.3, readout="average"), (4, 4, 1), marks=pytest.mark.slow
    ),
]


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.fixture
def in_tiles(monkeypatch):
    """Tiles of 3 rows (one, where there are positions), also where tests run on several simulated devices."""
    monkeypatch.setattr(traced, "TILE", 3)
    monkeypatch.setattr(traced, "one_processor", lambda: True)


@pytest.mark.parametrize(("net", "shape"), NETS)
def test_values_are_those_of_the_twin(net, shape, in_tiles):
    x, y = draw(7, *shape), draw(2, *shape, seed=1)
    with jax.enable_x64(True):
        k = twin(net).kernel_function()
        text = str(jax.make_jaxpr(k)(x))
        assert "scan" in text  # in tiles
        for pair in ((x,), (x, y), (y, x)):
            found, want = jax.jit(k)(*pair), twin(net).kernels(*pair)
            np.testing.assert_allclose(found.nngp, want.nngp, rtol=1e-12)
            np.testing.assert_allclose(found.ntk, want.ntk, rtol=1e-12)


@pytest.mark.parametrize(("net", "shape"), NETS)
@pytest.mark.slow
def test_gradients_are_central_differences(net, shape, in_tiles):
    """By numbers alone (forward), by inputs, and by both at once (backward); second derivatives by numbers."""
    x, weights = draw(7, *shape), draw(2, 7, 7, seed=1)  # weights that are not symmetric
    with jax.enable_x64(True):
        k = twin(net).kernel_function()

        def loss(numbers, x):
            found = k(x, w_std=numbers[0], b_std=numbers[1])
            return (weights[0] * found.nngp).sum() + (weights[1] * found.ntk).sum()

        at, step = jnp.array([1.1, 0.4]), 1e-5
        compiled = jax.jit(loss)
        of_numbers, of_inputs = jax.jit(jax.grad(loss))(at, x), jax.jit(jax.grad(loss, 1))(at, x)
        by_numbers, by_inputs = jax.jit(jax.grad(loss, (0, 1)))(at, x)
        np.testing.assert_allclose(by_numbers, of_numbers, rtol=1e-10)
        np.testing.assert_allclose(by_inputs, of_inputs, rtol=1e-10, atol=1e-10)
        for e, slope in zip(np.eye(2), of_numbers, strict=True):
            difference = (compiled(at + step * e, x) - compiled(at - step * e, x)) / (2 * step)
            np.testing.assert_allclose(slope, difference, rtol=1e-7)
        direction = draw(*x.shape, seed=2)
        difference = (compiled(at, x + step * direction) - compiled(at, x - step * direction)) / (2 * step)
        np.testing.assert_allclose((of_inputs * direction).sum(), difference, rtol=1e-6)
        slope = jax.jit(jax.grad(loss))
        second = np.stack([(slope(at + step * e, x) - slope(at - step * e, x)) / (2 * step) for e in np.eye(2)])
        np.testing.assert_allclose(jax.jit(jax.jacfwd(jax.grad(loss)))(at, x), second, rtol=1e-6)


def test_more_numbers_go_backward():
    """Of each layer: as many as make a backward pass cheaper, with the same derivatives."""
    net = MLP(8, 1, activation="erf", w_std=(1.3, 1.2), b_std=(0.3, 0.2))
    x = draw(4, 3)
    with jax.enable_x64(True):
        k = twin(net).kernel_function()
        loss = lambda w, b: (k(x, w_std=w, b_std=b).ntk ** 2).sum()  # noqa: E731
        w, b = jnp.array(net.w_std), jnp.array(net.b_std)
        assert w.size + b.size > traced.FEW >= w.size
        by_w, _ = jax.jit(jax.grad(loss, (0, 1)))(w, b)
        np.testing.assert_allclose(by_w, jax.jit(jax.grad(loss))(w, b), rtol=1e-12)
