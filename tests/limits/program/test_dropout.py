"""Dropout in the forward pass: masks are the same for an input and itself, and independent for two inputs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import GAUSS

from limits import AbsentError, Task, twin
from zoo import in_parameterization, learning_rate_factors

X = np.random.default_rng(0).normal(size=(3, 4))
IMAGES = np.random.default_rng(1).normal(size=(2, 5, 2))


class Masked(nn.Module):
    """Masks on inputs, on features and on a branch."""

    width: int
    rate: float = 0.3
    of_inputs: bool = False

    @nn.compact
    def __call__(self, x):
        drop = lambda a: nn.Dropout(self.rate, deterministic=False)(a)  # noqa: E731
        x = drop(x) if self.of_inputs else x
        h = nn.relu(nn.Dense(self.width, kernel_init=GAUSS)(x))
        h = nn.relu(nn.Dense(self.width, kernel_init=GAUSS)(drop(h)))
        h = h + drop(nn.Dense(self.width, kernel_init=GAUSS)(h))
        return nn.Dense(1, kernel_init=GAUSS)(h)


class MaskedPositions(nn.Module):
    """Masks of every position's own, and masks that all positions share, before means over positions."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, kernel_init=GAUSS)(x))
        h = nn.Dropout(0.4, deterministic=False)(h)
        h = nn.relu(nn.Conv(self.width, (3,), kernel_init=GAUSS)(h))
        h = nn.Dropout(0.2, deterministic=False, broadcast_dims=(1,))(h)
        return nn.Dense(1, kernel_init=GAUSS)(h.mean(1))


class BeforeActivation(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.Dropout(0.5, deterministic=False)(nn.Dense(self.width)(x))
        return nn.Dense(1)(jnp.tanh(h))


class OneKeyTwice(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        key, h = self.make_rng("dropout"), nn.relu(nn.Dense(self.width)(x))
        a, b = (jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h, 0) for _ in range(2))
        return nn.Dense(1)(a + b)


def closed(module):
    return twin(in_parameterization(module, "ntk"))


def by_hand(x, keep):
    """NNGP and NTK of two hidden layers of relu, each masked, by arc-cosine kernels: masks divide variances by p."""
    nngp = ntk = x @ x.T / x.shape[1]
    ones = np.eye(len(x)) / keep + 1 - np.eye(len(x))
    for _ in range(2):
        r = np.sqrt(np.diag(nngp))
        c = np.clip(nngp / np.outer(r, r), -1, 1)
        np.fill_diagonal(c, 1.0)
        angle = np.arccos(c)
        value = np.outer(r, r) * (np.sin(angle) + (np.pi - angle) * c) / (2 * np.pi)
        nngp, ntk = value * ones, ntk * (np.pi - angle) / (2 * np.pi) * ones
        ntk = nngp + ntk
    return nngp, ntk


class TwoMasked(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.Dropout(0.25, deterministic=False)(
                nn.relu(nn.Dense(self.width, kernel_init=GAUSS, use_bias=False)(x))
            )
        return nn.Dense(1, kernel_init=GAUSS, use_bias=False)(x)


def test_masks_divide_the_variance_of_an_input_by_what_is_kept():
    k, (nngp, ntk) = closed(TwoMasked(8)).kernels(X), by_hand(X, 0.75)
    np.testing.assert_allclose(k.nngp, nngp, rtol=1e-12)
    np.testing.assert_allclose(k.ntk, ntk, rtol=1e-12)
    assert k.provenance["ntk"].kind == "exact"


class Factors(nn.Module):
    """Masks that are multiplied with: one of every input's own, or one for all."""

    width: int
    shared: bool

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.relu(nn.Dense(self.width, kernel_init=GAUSS, use_bias=False)(x))
            shape = (1, self.width) if self.shared else x.shape
            x = x * jax.random.bernoulli(self.make_rng("dropout"), 0.75, shape) / 0.75
        return nn.Dense(1, kernel_init=GAUSS, use_bias=False)(x)


@pytest.mark.parametrize("shared", [False, True])
def test_masks_that_are_multiplied_with_are_masks(shared):
    """They were said to stand before a function. One for all inputs divides the covariance of two inputs, too."""
    k, (nngp, ntk) = closed(Factors(8, shared)).kernels(X), by_hand(X, 0.75)
    if shared:
        of_two = 1 - np.eye(len(X))
        plain, whole = by_hand(X, 1.0), [np.diag(np.diag(each)) for each in (nngp, ntk)]
        nngp, ntk = (d + each / 0.75**2 * of_two for d, each in zip(whole, plain, strict=True))
    np.testing.assert_allclose(k.nngp, nngp, rtol=1e-12)
    if not shared:
        np.testing.assert_allclose(k.ntk, ntk, rtol=1e-12)
    assert k.provenance["ntk"].kind == "exact"


def drawn(net, x, members, tangent=True):
    """Second moments and tangent kernels of networks, each with masks of its own: means and standard errors."""
    rates = {"params": learning_rate_factors(net, jax.ShapeDtypeStruct(x.shape, "float32"))}

    def one(key):
        start, masks = jax.random.split(key)
        params = net.init(start, x)
        f = lambda p: net.apply(p, x, rngs={"dropout": masks})[:, 0]  # noqa: E731
        out = f(params)
        if not tangent:
            return jnp.outer(out, out), jnp.zeros((len(x), len(x)))
        parts = jax.tree.map(lambda j, r: r * jnp.einsum("i...,j...->ij", j, j), jax.jacobian(f)(params), rates)
        return jnp.outer(out, out), sum(jax.tree.leaves(parts))

    found = jax.lax.map(one, jax.random.split(jax.random.key(0), members))
    return [(np.mean(a, 0), np.std(a, 0) / members**0.5) for a in found]


def test_masks_of_inputs_are_refused():
    """Of four inputs some are left: averages over masks are none of a Gaussian."""
    with pytest.raises(AbsentError, match="equally many at every width"):
        twin(in_parameterization(Masked(64, of_inputs=True), "ntk")).kernels(X)


@pytest.mark.slow
def test_masked_networks_have_these_kernels():
    """400 networks of width 512: tangent kernels within 1 %."""
    net = in_parameterization(Masked(512), "ntk")
    k = twin(net).kernels(X)
    (nngp, e), (ntk, s) = drawn(net, X.astype(np.float32), 400)
    assert (np.abs(k.nngp - nngp) < 4 * e).all()
    assert (np.abs(k.ntk - ntk) < 4 * s).all()
    assert (s < 0.02 * k.ntk.max()).all()
    # another mask, or the same for two inputs, would be seen
    assert np.abs(closed(Masked(512, 0.2)).kernels(X).ntk - ntk).max() > 5 * s.max()


@pytest.mark.slow
def test_masks_of_positions_and_masks_that_positions_share():
    """4,000 networks of width 128, standard errors of 2 to 3 %; the same masks at all positions give 1.3 times as much."""
    net = in_parameterization(MaskedPositions(128), "ntk")
    k = twin(net).kernels(IMAGES)
    (nngp, e), _ = drawn(net, IMAGES.astype(np.float32), 4000, tangent=False)
    assert (np.abs(k.nngp - nngp) < 4 * e).all()
    assert e.max() < 0.04 * nngp.max()


@pytest.mark.slow
def test_an_input_and_itself_share_masks_and_two_inputs_do_not():
    limit = closed(TwoMasked(8))
    own, pairs = limit.kernels(X), limit.kernels(X, X.copy())
    off = ~np.eye(len(X), dtype=bool)
    np.testing.assert_allclose(own.ntk[off], pairs.ntk[off], rtol=1e-13)
    assert (np.diag(own.nngp) > 1.5 * np.diag(pairs.nngp)).all()
    np.testing.assert_allclose(limit.kernels(X, diagonal=True).ntk, np.diag(own.ntk), rtol=1e-13)
    function, x = jax.jit(limit.kernel_function()), jnp.asarray(X)
    np.testing.assert_allclose(function(x).ntk, own.ntk, rtol=1e-5)
    np.testing.assert_allclose(function(x, x).ntk, pairs.ntk, rtol=1e-5)
    np.testing.assert_allclose(jax.jit((limit + limit).kernel_function())(x).nngp, 2 * own.nngp, rtol=1e-5)


def test_training_with_masks_is_refused_and_regression_is_not():
    task = Task(X, X[:, 0], X, X[:, 1])
    for train in (closed(TwoMasked(8)).lazy, twin(in_parameterization(TwoMasked(8), "mup")).rich):
        with pytest.raises(AbsentError, match=r"Dropout_0.*switch dropout off"):
            train(task, steps=1, learning_rate=0.1)
    assert np.isfinite(closed(TwoMasked(8)).posterior(task, noise=0.1).f_test).all()


@pytest.mark.parametrize(
    ("module", "why"), [(BeforeActivation(8), "after the function"), (OneKeyTwice(8), "random numbers")]
)
def test_masks_that_have_no_closed_form_are_refused(module, why):
    with pytest.raises((AbsentError, ValueError), match=why):
        closed(module).kernels(X)
