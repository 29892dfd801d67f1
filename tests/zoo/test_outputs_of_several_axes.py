"""Layers with outputs of several axes (nn.DenseGeneral((2, 3))) train as those of as many outputs along one."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import Rescaled, factors, in_parameterization

X = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
NORMAL, ZEROS = nn.initializers.lecun_normal(), nn.initializers.zeros


class Outputs(nn.Module):
    """Six outputs, along two axes or one."""

    width: int
    start: Any = NORMAL
    axes: int = 2

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width, name="first")(x))
        of = (2, 3) if self.axes == 2 else 6
        return nn.DenseGeneral(of, kernel_init=self.start, name="layer")(h).reshape(*x.shape[:-1], 6)


class Inside(nn.Module):
    """The six signals act on all neurons."""

    width: int
    start: Any = ZEROS
    axes: int = 2

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width, name="first")(x))
        of = (2, 3) if self.axes == 2 else 6
        few = nn.DenseGeneral(of, kernel_init=self.start, name="layer")(h).reshape(*x.shape[:-1], 6)
        return nn.Dense(1, name="out")(h * nn.sigmoid(nn.Dense(self.width, name="back")(few)))


def _said(tree: Any) -> list[tuple]:
    return [(each.rate, each.size, each.inner) for each in (tree["layer"]["kernel"], tree["layer"]["bias"])]


@pytest.mark.parametrize("form", ["ntk", "mup"])
@pytest.mark.parametrize(("net", "start"), [(Outputs, NORMAL), (Outputs, ZEROS), (Inside, ZEROS)])
def test_they_have_the_rates_of_one_axis(net, start, form):
    """In mup biases of outputs had the rate γ₀², not γ₀² N; kernels that start at zero one over twice their inputs."""
    found = []
    for axes in (1, 2):
        own = in_parameterization(net(64, start, axes), form, gamma=2.0)
        found.append(_said(factors(own, own.init(jax.random.key(0), X)["params"], X)))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


@pytest.mark.parametrize("net", [Outputs, Inside])
def test_inferred_roles_give_them_the_rates_of_one_axis(net):
    """Biases inside had the rate 1, not γ₀²."""
    found = []
    for axes in (1, 2):
        own = Rescaled.of(
            lambda width, axes=axes: net(width, axes=axes), X, base={"width": 16}, target={"width": 64}, gamma=2.0
        )
        found.append(_said(own.factors(own.init(jax.random.key(0), X)["params"])))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
