"""Layers with outputs of several axes (nn.DenseGeneral((2, 3))) train as those of as many outputs along one."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import Rescaled, factors, in_parameterization, scaled

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


class Gained(nn.Module):
    """Outputs of weights w of a module's own, with `t` in front of its branch or of its outputs, or added before a gain."""

    width: int
    kind: str
    axes: tuple[int, ...] = ()
    first: tuple[int, ...] = ()  # axes of w in front of that of neurons

    @nn.compact
    def __call__(self, x):
        width = self.width
        t = self.param(
            "t",
            nn.initializers.zeros if self.kind.endswith("bias") else nn.initializers.ones,
            (*self.first, *self.axes),
        )
        w = self.param("w", nn.initializers.normal(width**-0.5), (*self.first, width, *self.axes))
        h = jnp.tanh(nn.Dense(width)(x))
        if self.kind == "branch":
            h = h + t * jnp.tanh(nn.Dense(width)(h))
        if self.first:  # each of the first has features of its own
            h = jnp.stack([h * sign for sign in np.linspace(-1, 1, self.first[0], dtype="float32")], 1)
            f = jnp.einsum("bkn,knc->bkc", h, w)
        else:
            f = jnp.tensordot(h, w, 1)
        if self.kind == "scaled bias":
            f = f + self.param("gain", nn.initializers.ones, ()) * jnp.mean(h**2) * jnp.expand_dims(t, 0)
        if self.kind == "bias":
            f = (f + jnp.expand_dims(t, 0)) * nn.softplus(self.param("gain", nn.initializers.zeros, ()))
        if self.kind == "gain":
            f = f * jnp.expand_dims(t, 0)
        return f.reshape(len(x), -1)


GAINED = [("branch", (), ()), ("gain", (), ()), ("gain", (6,), ()), ("gain", (2, 3), ()), ("gain", (3,), (4,))]
BIASES = [("scaled bias", (6,), ()), ("bias", (), ()), ("bias", (6,), ()), ("bias", (2, 3), ()), ("bias", (3,), (4,))]


def _moved(kind: str, axes: tuple, first: tuple, width: int) -> tuple[float, float, float]:
    """(rate of t, its step, the change of outputs by it) after four steps of SGD."""
    net = in_parameterization(Gained(width, kind, axes, first), "mup")
    params = net.init(jax.random.key(0), X)["params"]
    begun = net.apply({"params": params}, X)
    y, rule, before = (
        np.sin(np.arange(begun.size)).reshape(begun.shape),
        scaled("sgd", net, X, learning_rate=0.1),
        params,
    )
    state = rule.init(params)
    for _ in range(4):
        grads = jax.grad(lambda p: 0.5 * jnp.mean((net.apply({"params": p}, X) - begun - y) ** 2))(params)
        steps, state = rule.update(grads, state, params)
        params: Any = optax.apply_updates(params, steps)
    without = {**params, "t": before["t"]}
    change = net.apply({"params": params}, X) - net.apply({"params": without}, X)
    rate = factors(net, params, X)["t"].rate
    return rate, float(jnp.abs(params["t"] - before["t"]).mean()), float(jnp.abs(change).mean())


@pytest.mark.parametrize(("kind", "axes", "first"), [*GAINED, *BIASES])
def test_what_multiplies_outputs_is_no_bias(kind, axes, first):
    """Gains and scalars beside weights of one module had the rate γ₀² N; biases of stacked readouts had γ₀²."""
    moved = [_moved(kind, axes, first, width) for width in (64, 1024)]
    power = int(kind in ("bias", "scaled bias"))
    np.testing.assert_allclose([each[0] for each in moved], [64.0**power, 1024.0**power], rtol=1e-9)
    if power:  # by √N, as outputs are over √N
        np.testing.assert_allclose(moved[0][2], moved[1][2], rtol=0.1)
