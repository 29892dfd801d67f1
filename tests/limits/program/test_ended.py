"""Networks whose output is a sum over neurons, with no weights behind it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(4, 5))


class Dense(nn.Dense):
    kernel_init: nn.initializers.Initializer = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Towers(nn.Module):
    """Two towers, of the first three inputs and of the others, and what becomes of their outputs."""

    width: int
    end: str = "sum"
    act: str = "relu"

    @nn.compact
    def __call__(self, x):
        act = getattr(jnp if self.act == "tanh" else nn, self.act)
        a, b = (Dense(self.width)(act(Dense(self.width)(part))) for part in (x[:, :3], x[:, 3:]))
        if self.end == "sum":
            return (a * b).sum(-1, keepdims=True) / self.width**0.5
        if self.end == "einsum":
            bias = self.param("bias", nn.initializers.zeros, (1,))
            return jnp.einsum("ni,ni->n", a, b)[:, None] / jnp.sqrt(self.width) + bias[None]
        if self.end == "grows":
            return (a * b).sum(-1, keepdims=True)
        if self.end == "without its mean":
            return nn.LayerNorm()(a * b).sum(-1, keepdims=True) / self.width**0.5
        return jnp.tanh(a).sum(-1, keepdims=True) / self.width**0.5


class Shared(nn.Module):
    """Both factors of the product see one trunk, and the second the first."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        a = Dense(self.width)(h)
        return -jnp.mean(a * Dense(self.width)(jnp.tanh(a) + h), -1, keepdims=True) * self.width**0.5


class Twins(nn.Module):
    """One matrix makes both factors: a row of it is in each, and signs of rows change nothing."""

    width: int
    after: bool  # of another, or of the first factor itself

    @nn.compact
    def __call__(self, x):
        last, first = Dense(self.width), Dense(self.width)(x[:, :3])
        a = last(first)
        b = last(jnp.tanh(a) if self.after else Dense(self.width)(x[:, 3:]))
        return (a * b).sum(-1, keepdims=True) / self.width**0.5


def relu_kernels(x):
    """NNGP and NTK of two layers of weights with relu between them, weights of variance 1/fan-in; biases that start at zero."""
    k = x @ x.T / x.shape[1]
    size = np.sqrt(np.outer(np.diag(k), np.diag(k)))
    angle = np.arccos(np.clip(k / size, -1, 1))
    nngp = size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    return nngp, nngp + 1 + (k + 1) * (np.pi - angle) / (2 * np.pi)


def test_two_towers_have_the_product_rule_of_their_kernels():
    (k_a, t_a), (k_b, t_b) = relu_kernels(X[:, :3]), relu_kernels(X[:, 3:])
    for end, bias in (("sum", 0), ("einsum", 1)):
        found = twin(in_parameterization(Towers(32, end), "ntk")).kernels(X)
        np.testing.assert_allclose(found.nngp, k_a * k_b, rtol=1e-12)
        np.testing.assert_allclose(found.ntk, k_a * t_b + t_a * k_b + bias, rtol=1e-12)
        assert found.provenance["ntk"].kind == "exact"


@pytest.mark.slow
@pytest.mark.parametrize("make", [Shared, lambda n: Towers(n, act="tanh")])
def test_they_are_those_of_wide_networks(make):
    """Means over 64 networks of width 512, within 4.5 standard errors: of 20 numbers, chance .02 %."""
    found = twin(in_parameterization(make(32), "ntk")).kernels(X)
    net = make(512)  # Flax's own parameterization: a rate of the width's inverse where inputs are neurons

    @jax.jit
    def one(key):
        variables = net.init(key, X)
        f = net.apply(variables, X)
        rates = jax.tree.map(lambda w: 1.0 if w.ndim == 1 else 1 / w.shape[0], variables["params"])
        jacobian = jax.jacobian(lambda p: net.apply({"params": p}, X)[:, 0])(variables["params"])
        parts = jax.tree.map(lambda j, r: r * jnp.einsum("i...,j...->ij", j, j), jacobian, rates)
        return f @ f.T, sum(jax.tree.leaves(parts))

    with jax.enable_x64(True):
        each = [np.stack(parts) for parts in zip(*map(one, jax.random.split(jax.random.key(1), 64)), strict=True)]
    for mine, theirs in zip((found.nngp, found.ntk), each, strict=True):
        error = theirs.std(0, ddof=1) / 8
        assert (error < (0.03 if mine is found.ntk else 0.2) * mine.max()).all()
        assert (np.abs(theirs.mean(0) - mine) < 4.5 * error).all()


@pytest.mark.parametrize("end", ["without its mean", pytest.param("of one", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_sums_of_other_terms_have_no_kernels(end):
    """Terms that are not odd in weights of their own; the second is zero at every width."""
    with pytest.raises(ValueError, match="sum over neurons"):
        twin(in_parameterization(Towers(16, end), "ntk")).kernels(X)


@pytest.mark.parametrize("after", [False, True])
def test_a_matrix_that_makes_both_factors_gives_another_law(after):
    """h·AᵀA g has twice the variance of Ah·Bg on the diagonal."""
    with pytest.raises(ValueError, match="sum over neurons"):
        twin(in_parameterization(Twins(16, after), "ntk")).kernels(X)


def test_a_sum_that_is_not_divided_is_told_by_what():
    with pytest.raises(ValueError, match=r"(?s)Towers.*N\^0\.5.*divide.*square root"):
        twin(in_parameterization(Towers(16, "grows"), "ntk")).kernels(X)
