"""Primitives without a rule, of inputs alone: kernels are those of a network that is fed with what they make."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(4, 6))


def blurred(x):
    kernel = jnp.array([0.25, 0.5, 0.25])[:, None, None]
    return jax.lax.conv_general_dilated(x[..., None], kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))[
        ..., 0
    ]


FIRST: dict[str, Callable] = {
    "sort": lambda x: jnp.sort(x, -1)[:, :3],
    "sort of columns": lambda x: jnp.sort(x.T, 0).T,
    "argsort": lambda x: 1.0 * jnp.argsort(x, -1),
    "argmax": lambda x: jax.nn.one_hot(jnp.argmax(x, -1), 6),
    "cummax": lambda x: jax.lax.cummax(x, 1),
    "cumprod": lambda x: jnp.cumprod(x, 1),
    "largest": lambda x: jax.lax.top_k(x, 2)[0],
    "median": lambda x: x - jnp.median(x, -1, keepdims=True),
    "max pool": lambda x: nn.max_pool(x[..., None], (2,), (1,))[..., 0],
    "conv": blurred,
    "set": lambda x: x.at[:, jnp.array([0, 2])].set(jnp.array([1.0, 2.0])),
    "add": lambda x: x.at[:, 1:3].add(x[:, 3:5]),
    "update": lambda x: jax.lax.dynamic_update_slice(x, 2 * x[:, :2], (0, 2)),
    "whole numbers": lambda x: jnp.sort(jnp.round(3 * x).astype(int), -1) / 2,
    "table": lambda x: jnp.arange(12.0).reshape(6, 2)[jnp.argmax(x, -1)],
    "middle": lambda x: jax.lax.top_k(x, 4)[0][:, jnp.array([1, 2])],
    "taken": lambda x: jnp.take_along_axis(x, jnp.argsort(-x, -1)[:, :2], -1),
}


class Fed(nn.Module):
    width: int
    first: Callable = lambda x: x

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, kernel_init=nn.initializers.normal(0.7))(self.first(x))
        return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(nn.relu(h))


def kernels_of(first, x):
    return twin(in_parameterization(Fed(16, first), "ntk")).kernels(x)


@pytest.mark.parametrize("name", FIRST)
def test_kernels_are_those_of_what_is_made_of_inputs(name, x64):
    found, expected = kernels_of(FIRST[name], X), kernels_of(Fed.first, np.asarray(FIRST[name](jnp.asarray(X)), float))
    assert found.provenance["ntk"].kind == "exact"
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-12)
    np.testing.assert_allclose(kernels_of(FIRST[name], X[1:2]).ntk, found.ntk[1:2, 1:2], rtol=1e-12)


def test_images_and_their_positions(x64):
    class Sharpened(nn.Module):
        width: int
        sharpens: bool = True

        @nn.compact
        def __call__(self, x):
            x = x.at[:, 0].set(0.0) if self.sharpens else x
            kernel = jnp.ones((3, 3, 1, 1)) / 9
            x = x - jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = nn.relu(nn.Conv(self.width, (2, 2), kernel_init=nn.initializers.normal(0.6))(x))
            return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(h.mean((1, 2)))

    x = np.random.default_rng(1).normal(size=(3, 4, 5, 1))
    found = twin(in_parameterization(Sharpened(8), "ntk")).kernels(x)
    x[:, 0] = 0
    expected = twin(in_parameterization(Sharpened(8, False), "ntk")).kernels(x)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-12)


@pytest.mark.parametrize(
    "first",
    [
        lambda x: jnp.sort(x, 0),
        lambda x: jax.lax.cummax(x, 0),
        lambda x: x.at[0].set(0.0),
        lambda x: x + jnp.sort(x, 0)[-1:],
    ],
)
@pytest.mark.slow
def test_inputs_that_are_mixed_are_refused(first):
    with pytest.raises(ValueError, match=r"depend on the other inputs|no tangent kernel"):
        kernels_of(first, X)


@pytest.mark.slow
def test_slopes_by_inputs(x64):
    """Of a kernel function, against central differences."""
    kernel = twin(in_parameterization(Fed(16, lambda x: jnp.sort(blurred(x), -1)), "ntk")).kernel_function()
    x, along = jnp.asarray(X[:2]), jnp.asarray(X[2:])
    slope = jax.jvp(lambda x: kernel(x).ntk, (x,), (along,))[1]
    difference = (kernel(x + 1e-5 * along).ntk - kernel(x - 1e-5 * along).ntk) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_as_many_as_there_are_neurons_are_drawn():
    class Largest(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            x = jax.lax.top_k(x, self.width // 8)[0]
            h = nn.relu(nn.Dense(self.width, kernel_init=nn.initializers.lecun_normal())(x))
            return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(h)

    x = np.random.default_rng(0).normal(size=(3, 1200))
    assert twin(in_parameterization(Largest(16), "ntk")).kernels(x).provenance["nngp"].kind == "monte_carlo"
