"""Weights drawn as N(0, 1) whose code divides by √N: function, kernels and rates of those that start with it."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import Parameterization, Rescaled, in_parameterization, infer_roles
from zoo.by_hand import by_hand
from zoo.in_forward import Stood, stand_for_starts
from zoo.inner import forwards
from zoo.roles import factors

normal = nn.initializers.normal


class DividesByHand(nn.Module):
    """where: "after" products, on the "weights", or on the signals "before" them; "start": in their initialisation."""

    width: int
    where: str = "after"
    zeros: bool = False
    activation: Callable = nn.relu

    def through(self, name, h, outputs, factor=1.0):
        n = h.shape[-1]
        std = factor / n**0.5 if self.where == "start" else 1.0
        w = self.param(name, nn.initializers.zeros if self.zeros and name == "v" else normal(std), (n, outputs))
        if self.where == "before":
            return (h * (factor / np.sqrt(n))) @ w
        if self.where == "weights":
            return h @ (w / jnp.sqrt(n) * factor)
        if self.where == "sum":
            return (h[..., None] * w[None]).sum(-2) * factor / jnp.sqrt(n)
        return h @ w / jnp.sqrt(n) * factor if self.where == "after" else h @ w

    @nn.compact
    def __call__(self, x):
        h = x @ self.param("u", normal(1.0), (x.shape[-1], self.width)) / np.sqrt(x.shape[-1])
        h = self.activation(self.through("w", self.activation(h), self.width, 2**0.5))
        return self.through("v", h, 1)


class LookedUpHead(nn.Module):
    """The readout of each sample is a row of a table."""

    width: int
    by_hand: bool = True
    sums: bool = True

    @nn.compact
    def __call__(self, x):
        h = nn.Embed(5, self.width, embedding_init=normal(1.0), name="words")(x[:, 0])
        h = jnp.tanh(nn.Dense(self.width, name="hidden")(jnp.tanh(h)))
        w = self.param("v", normal(1.0 if self.by_hand else self.width**-0.5), (7, self.width))[x[:, 1]]
        f = (h * w).sum(-1) if self.sums else jnp.einsum("ni,ni->n", h, w)
        return f[:, None] / (jnp.sqrt(self.width) if self.by_hand else 1.0)


class Conditioned(nn.Module):
    """Rows of a table multiply neurons, and matrices follow: no readout."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.Embed(5, self.width, embedding_init=normal(1.0), name="words")(x[:, 0])
        gain = self.param("v", normal(1.0), (7, self.width))[x[:, 1]]
        return nn.Dense(1)(jnp.tanh(nn.Dense(self.width, name="hidden")(h)) * gain)


class ReadOverN(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.tanh(nn.Dense(self.width)(x)) @ self.param("v", normal(1.0), (self.width, 1)) / self.width


class DividesQueries(nn.Module):
    """Fan-in weights: what queries are divided by stands for no initialisation."""

    width: int
    zeros: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, use_bias=False, name="first")(x[..., None])
        start = nn.initializers.zeros if self.zeros else nn.initializers.lecun_normal()
        q = nn.Dense(self.width, kernel_init=start, use_bias=False, name="q")(h) / jnp.sqrt(self.width)
        k, v = (nn.Dense(self.width, use_bias=False, name=name)(h) for name in "kv")
        h = jax.nn.softmax(jnp.einsum("nsd,ntd->nst", q, k)) @ v
        return nn.Dense(1, use_bias=False, name="out")(h.mean(1))


X = jax.ShapeDtypeStruct((2, 3), "float32")


def of(module, form, x=X):
    net = in_parameterization(module, form)
    shapes = jax.eval_shape(net.init, jax.random.key(0), x)["params"]
    return factors(net, shapes, x)


@pytest.mark.parametrize("where", ["after", "weights", "before", "sum"])
@pytest.mark.parametrize("form", ["ntk", "mup", Parameterization.mup.based(width=16)])
def test_rates_are_those_of_weights_that_start_with_it(where, form):
    """ω = √N W: rate N times as large, that of Adam √N times; of a base, by the ratio of widths."""
    one, two = of(DividesByHand(64, where), form), of(DividesByHand(64, "start"), form)
    ratio = 64 if isinstance(form, str) else 4
    std = 2**0.5 if isinstance(form, str) else 1.0  # the √2 is no part of N(0, 1)
    for name, s in (("w", std), ("v", 1.0)):
        np.testing.assert_allclose(one[name].rate, two[name].rate * ratio / s**2, rtol=1e-6)
        np.testing.assert_allclose(one[name].step, two[name].step * ratio**0.5 / s, rtol=1e-6)
    assert one["u"] == two["u"]


FUNCTIONS = {  # that take what enters in several pieces, some of them with numbers that the width does not enter
    "leaky_relu": nn.leaky_relu,
    "gelu": nn.gelu,
    "gelu of erf": lambda h: nn.gelu(h, approximate=False),
    "selu": nn.selu,
    "maximum": lambda h: jnp.maximum(h, 0.1 * h),
    "two signs": lambda h: jnp.where(h > 0, h, -0.3 * h),
    "hard_silu": nn.hard_silu,
    "squareplus": jax.nn.squareplus,
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_numbers_of_functions_are_no_part_of_starts(function):
    """Where a function met what weights made twice, as h and .01 h, the numbers were taken for unclear, and weights refused."""
    one, two = (of(DividesByHand(64, where, activation=function), "mup") for where in ("after", "start"))
    np.testing.assert_allclose([one[name].rate for name in "wv"], [two["w"].rate * 32, two["v"].rate * 64], rtol=1e-6)


@pytest.mark.slow
def test_kernels_under_gelu_are_those_of_weights_that_start_with_it():
    nets = (in_parameterization(DividesByHand(32, where, activation=nn.gelu), "ntk") for where in ("after", "start"))
    one, two = (twin(net).kernels(np.random.default_rng(0).normal(size=(3, 4))) for net in nets)
    np.testing.assert_allclose(one.nngp, two.nngp, rtol=1e-6)
    np.testing.assert_allclose(one.ntk, two.ntk, rtol=1e-6)


def test_a_readout_with_several_numbers_is_not_said():
    """Its kernel depends on them: Σ of both, with whatever correlation their features have."""

    def seen(n):
        def f(p, x):
            return x @ p["w"] / n**0.5 + 0.5 * (jnp.tanh(x) @ p["w"]) / n**0.5

        return {name: [each] for name, each in forwards(f, {"w": jnp.ones((n, 1))}, jnp.ones((2, n))).items()}

    found = by_hand(seen(4), seen(8), 2)["w"]
    assert found.power == pytest.approx(-0.5)
    assert np.isnan(found.factor)
    assert not stand_for_starts({"w": Stood("readout", 0.0, found)})


@pytest.mark.parametrize("sums", [True, False])
def test_a_looked_up_head_is_a_readout(sums):
    """(h * w[x]).sum(-1) is the entry x of a product with a matrix; it was taken for an embedding."""
    x = jax.ShapeDtypeStruct((2, 2), "int32")
    one, two = (of(LookedUpHead(64, by_hand, sums), "mup", x) for by_hand in (True, False))
    assert one["v"].role == two["v"].role == "readout"
    np.testing.assert_allclose([one["v"].rate, two["v"].rate], [64, 1], rtol=1e-6)
    assert of(Conditioned(64), "mup", x)["v"].role == "input"


def test_zeros_move_as_if_drawn():
    rates = [of(DividesByHand(64, zeros=zeros), "mup")["v"].rate for zeros in (False, True)]
    assert rates == [64, 64]


def test_kernels_are_those_of_weights_that_start_with_it():
    x = np.random.default_rng(0).normal(size=(3, 4))
    one, two = (twin(in_parameterization(DividesByHand(32, where), "ntk")).kernels(x) for where in ("after", "start"))
    np.testing.assert_allclose(one.nngp, two.nngp, rtol=1e-6)
    np.testing.assert_allclose(one.nngp.diagonal(), (x**2).mean(1) / 2, rtol=1e-6)
    np.testing.assert_allclose(one.ntk, two.ntk, rtol=1e-6)
    np.testing.assert_allclose(one.ntk.diagonal(), 3 * one.nngp.diagonal(), rtol=1e-6)  # a third from each layer


def test_what_divides_queries_stands_for_no_start():
    for zeros in (False, True):
        found = of(DividesQueries(64, zeros), "ntk")
        assert found["q"]["kernel"].rate == pytest.approx(1 / 64, rel=1e-4)


def test_a_readout_over_n_is_divided_twice_by_forms():
    with pytest.raises(ValueError, match="with the N\\^-1 that the code multiplies it by"):
        of(ReadOverN(64), "mup")


def test_infer_roles_leaves_them_as_they_are():
    """Their standard deviation stays, and SGD's rate grows by m as that of zoo's `mup`, whose multipliers are in the code."""
    x = np.ones((2, 3), np.float32)
    net = Rescaled.of(DividesByHand, x, base={"width": 16}, target={"width": 64})
    shapes = jax.eval_shape(lambda key: net.init(key, x), jax.random.key(0))
    found = {name.split(".")[-1]: place for name, place in net.roles.places.items()}
    assert net.roles.init_factor(found["w"]) == pytest.approx(1)
    assert net.roles.init_factor(found["v"]) == pytest.approx(0.5)  # 1/m in all: 1/√m is the code's
    rates = jax.tree.leaves(net.roles.factors(shapes), is_leaf=lambda leaf: hasattr(leaf, "rate"))
    assert {each.role: each.rate for each in rates}["hidden"] == pytest.approx(4)


def test_infer_roles_of_a_readout_over_n():
    roles = infer_roles(
        lambda key, width: ReadOverN(width).init(key, jnp.ones((2, 3))), base={"width": 16}, target={"width": 64}
    )
    assert roles.init_factor(roles.places["params.v"]) == pytest.approx(1)


def test_what_is_not_followed_is_not_said():
    """Used twice, with other numbers."""

    def seen(n):
        def f(p, x):
            return (x @ p["w"] / n**0.5) * jnp.tanh(x @ p["w"])

        found = forwards(f, {"w": jnp.ones((n, n))}, jnp.ones((2, n)))
        return {name: [each] for name, each in found.items()}

    assert by_hand(seen(4), seen(8), 2) == {}
