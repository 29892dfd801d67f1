"""Sums, multiples and products of kernels, against networks that are them."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

from limits import AbsentError, Task, empirical_ntk, fit, predict, twin
from zoo import CNN, GPT, MLP, Dense, HeResNet, ViT, in_parameterization, parameterization

X = np.random.default_rng(0).normal(size=(5, 4))
RELU, ERF = MLP(8, 1, activation="relu", b_std=0.1), MLP(8, 1, activation="erf", w_std=1.3)


class Combined(nn.Module):
    """√0.3 f + M^(−1/2) Σ_m f_m g_m, of a network f of relus and one of erf g, M = N outputs each."""

    width: int
    parameterization: str = "ntk"

    @nn.compact
    def __call__(self, x):
        p = parameterization(self.parameterization)

        def network(phi, w, b, readout):
            h = phi(Dense(self.width, "input", self.width, p, w, b)(x))
            return Dense(1 if readout == "readout" else self.width, readout, self.width, p, w, b)(h)

        f = network(nn.relu, 1.0, 0.1, "readout")
        inner = network(nn.relu, 1.0, 0.1, "hidden") * network(erf, 1.3, 0.0, "hidden")
        return 0.3**0.5 * f + inner.sum(-1, keepdims=True) / self.width**0.5


@pytest.mark.slow
def test_a_combination_is_the_limit_of_a_network_that_is_one():
    found = (0.3 * twin(RELU) + twin(RELU) * twin(ERF)).kernels(X)
    parts = twin(RELU).kernels(X), twin(ERF).kernels(X)
    net, keys = Combined(512), jax.random.split(jax.random.key(1), 48)
    with jax.enable_x64(True):
        x = jnp.asarray(X)
        one = jax.jit(lambda key: empirical_ntk(net.apply, net.init(key, x), x))
        each = np.stack([one(key) for key in keys])
    error = each.std(0, ddof=1) / len(each) ** 0.5
    assert (error < 0.02 * found.ntk.diagonal().max()).all()
    z = (each.mean(0) - found.ntk) / error
    assert np.abs(z).max() < 4.5  # of 15 different numbers, 48 networks: chance 0.1 %
    np.testing.assert_allclose(found.nngp, 0.3 * parts[0].nngp + parts[0].nngp * parts[1].nngp, rtol=1e-14)
    assert found.provenance["ntk"].kind == "exact"


@pytest.mark.slow
def test_functions_of_combinations():
    kernel = np.float64(0.3) * twin(RELU) + twin(ERF) * twin(RELU) * 2
    with jax.enable_x64(True):
        k = kernel.kernel_function()
        again = 0.3 * twin(RELU).kernel_function() + 2 * (twin(ERF).kernel_function() * twin(RELU).kernel_function())
        found = [jax.jit(f)(jnp.asarray(X)) for f in (k, again)]
        for which in ("nngp", "ntk"):
            for f in found:
                np.testing.assert_allclose(getattr(f, which), getattr(kernel.kernels(X), which), rtol=1e-7)
        assert k.hyperparameters["scale_2"] == 2.0
        assert k.hyperparameters["w_std_2"] == 1.3
        changed = kernel.with_hyperparameters(scale_1=0.7, w_std_2=0.9, b_std_3=0.4)
        moved = jax.jit(k)(jnp.asarray(X), scale_1=0.7, w_std_2=0.9, b_std_3=0.4)
        np.testing.assert_allclose(moved.ntk, changed.kernels(X).ntk, rtol=1e-7)
        slope = jax.jit(jax.grad(lambda s: k(jnp.asarray(X), scale_2=s).nngp.sum()))(2.0)
        np.testing.assert_allclose(slope, (kernel.kernels(X).nngp - 0.3 * twin(RELU).kernels(X).nngp).sum() / 2)


def test_a_multiple_may_be_a_division():
    whole, half = twin(RELU) + twin(ERF), (twin(RELU) + twin(ERF)) / 2
    np.testing.assert_allclose(half.kernels(X).ntk, whole.kernels(X).ntk / 2, rtol=1e-14)
    assert (twin(RELU) / np.float64(4)).terms == (0.25 * twin(RELU)).terms
    function = twin(RELU).kernel_function() / 2
    np.testing.assert_allclose(function(X).nngp, twin(RELU).kernels(X).nngp / 2, rtol=1e-5)
    for wrong in (0, -1.0, np.nan, np.inf, "2", np.ones(2), twin(ERF)):
        with pytest.raises(ValueError, match="kernel / what must be a number above 0"):
            twin(RELU) / wrong  # pyright: ignore[reportUnusedExpression]
    kernel: Any
    for kernel in (twin(RELU), whole, function):
        for build in (lambda k: k - k, lambda k: 1.0 - k, lambda k: k - 1.0, lambda k: -k):
            with pytest.raises(ValueError, match="difference of kernels may have negative eigenvalues"):
                build(kernel)


def test_a_power_is_a_product_of_as_many():
    k = twin(RELU).kernels(X)
    for kernel in (twin(RELU) ** np.int64(3), (1.0 * twin(RELU)) ** 3):
        cube = kernel.kernels(X)
        np.testing.assert_allclose(cube.nngp, k.nngp**3, rtol=1e-14)
        np.testing.assert_allclose(cube.ntk, 3 * k.nngp**2 * k.ntk, rtol=1e-14)
    square = (twin(RELU).kernel_function() ** 2)(jnp.asarray(X))
    np.testing.assert_allclose(square.ntk, 2 * k.nngp * k.ntk, rtol=1e-5)
    both = (twin(RELU) + 2 * twin(ERF)) ** 2
    np.testing.assert_allclose(both.kernels(X).nngp, (k.nngp + 2 * twin(ERF).kernels(X).nngp) ** 2, rtol=1e-14)
    for wrong in (0, 0.5, True, twin(ERF)):
        with pytest.raises(ValueError, match="whole number of at least 1"):
            twin(RELU) ** wrong  # pyright: ignore[reportUnusedExpression]


def test_what_follows_from_kernels():
    task = Task(X[:3], np.sin(X[:3, 0]), X[3:], np.sin(X[3:, 0]))
    kernel: Any = sum([twin(RELU), 0.5 * twin(ERF)])
    k = kernel.kernels(task.x)
    run = kernel.lazy(task, 20, 0.1)
    mean, cov = predict.mse_ensemble(k.nngp, k.ntk, task.y_train, [20], 0.1)
    np.testing.assert_allclose(run.f_test[-1], mean[0, 3:], rtol=1e-10)
    np.testing.assert_allclose(run.f_test_cov[-1], cov[0, 3:, 3:], rtol=1e-10)
    frozen = kernel.lazy(task, 20, 0.1, trained=("readout", "bias"), kernels=("ntk",))
    of_readouts = [
        twin(net).lazy(task, 0, 0.1, trained=("readout", "bias"), kernels=("ntk",)).ntk[0] for net in (RELU, ERF)
    ]
    np.testing.assert_allclose(frozen.ntk[0], of_readouts[0] + 0.5 * of_readouts[1], rtol=1e-12)
    posterior = kernel.posterior(task, 0.01)
    expected = predict.posterior(k.nngp[:3, :3], task.y_train, k.nngp[3:, :3], k.nngp[3:, 3:], 0.01)
    np.testing.assert_allclose(posterior.f_test, expected.mean, rtol=1e-10)


@pytest.mark.slow
def test_weights_of_kernels_are_fitted():
    """Where data are drawn from 0.5 K + 2 K', both are found, within three standard errors of 5 %."""
    linear, wiggly = MLP(1, 1, 4000, activation="linear"), MLP(1, 1, 4000, activation="erf", b_std=1.0, w_std=2.0)
    x = np.linspace(-2, 2, 24)[:, None]
    truth = 0.5 * twin(linear) + 2.0 * twin(wiggly)
    y = predict.draws(np.zeros((24, 4000)), truth.kernels(x).nngp, count=1, seed=0)[0]
    y += 0.1 * np.random.default_rng(1).normal(size=y.shape)
    found = fit(twin(linear) + twin(wiggly), Task(x, y), over=("scale_1", "scale_2", "noise"), noise=0.02)
    for name, value in (("scale_1", 0.5), ("scale_2", 2.0), ("noise", 0.01)):
        assert found.errors[name] < 0.1 * value
        assert abs(found.values[name] - value) < 3 * found.errors[name]
    np.testing.assert_allclose(found.net.terms[0].scale, found.values["scale_1"])


@pytest.mark.slow
def test_errors_of_drawn_kernels_are_carried():
    images = np.random.default_rng(1).normal(size=(2, 4, 4, 1))
    drawn, exact = twin(ViT(8, 1, patch=2, logits="1/sqrt(d)", heads="grow")), twin(ViT(8, 1, patch=2))
    part, other = drawn.kernels(images, samples=64), exact.kernels(images)
    whole = (2.0 * drawn * exact).kernels(images, samples=64)
    np.testing.assert_allclose(whole.nngp_sem, 2 * part.nngp_sem * abs(other.nngp), rtol=1e-10)
    bound = 2 * (part.ntk_sem * abs(other.nngp) + part.nngp_sem * abs(other.ntk))
    np.testing.assert_allclose(whole.ntk_sem, bound, rtol=1e-10)
    assert whole.provenance["ntk"].kind == "monte_carlo"
    assert whole.provenance["ntk"].detail.startswith("ViT")


@pytest.mark.slow
def test_kernels_of_networks_that_are_drawn_whole_are_added():
    """A part whose `kernels` take neither blocks nor samples."""
    images = np.random.default_rng(1).normal(size=(3, 2, 2, 1))
    drawn, exact = twin(HeResNet(2, (1,), norm=None, order="post", parameterization="ntk")), twin(CNN(8, 1))
    part, other, kernel = drawn.kernels(images, seed=1), exact.kernels(images), drawn + 0.5 * exact
    whole = kernel.kernels(images, seed=1)
    np.testing.assert_allclose(whole.ntk, part.ntk + 0.5 * other.ntk, rtol=1e-10)
    np.testing.assert_allclose(whole.ntk_sem, part.ntk_sem, rtol=1e-10)
    found = kernel.posterior(Task(images[:2], np.array([1.0, -1.0]), images[2:]), noise=0.1)
    assert found.provenance["f_test"].kind == "approximate"
    assert found.errors["kernels"][0].any()


@pytest.mark.slow
def test_kernels_at_positions_have_no_sum_with_those_of_whole_inputs():
    # As many inputs as positions: the arrays could be added.
    tokens = np.random.default_rng(0).integers(0, 5, size=(3, 3))
    decoder = GPT(16, 1, vocabulary=5, context=3, norm=None, mlp="relu")
    added, multiplied = twin(decoder) + twin(RELU), twin(RELU) * twin(decoder)
    for kernels in (added.kernels, functools.partial(added.kernels, diagonal=True), multiplied.kernel_function()):
        with pytest.raises(ValueError, match=r"GPT.* \[3, 3, 3.*at the same positions"):
            kernels(tokens)
    assert (twin(decoder) + twin(decoder)).kernels(tokens).nngp.shape == (3, 3, 3, 3)


class Words(nn.Module):
    """A mean of embeddings, which takes whole numbers alone."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.Embed(5, self.width, embedding_init=nn.initializers.normal(1.0))(x).mean(1)
        return nn.Dense(1)(nn.relu(h))


@pytest.mark.slow
def test_words_stay_words_whichever_part_comes_first():
    words, numbers = twin(in_parameterization(Words(8), "ntk")), twin(RELU)
    x = np.random.default_rng(0).integers(0, 5, size=(5, 3))
    task = Task(x[:4], np.arange(4.0)[:, None], x[4:])
    k = words.kernels(x).nngp + numbers.kernels(x).nngp
    expected = k[4:, :4] @ np.linalg.solve(k[:4, :4] + 0.1 * np.eye(4), task.y_train)
    for kernel in (words + numbers, numbers + words):
        np.testing.assert_allclose(kernel.posterior(task, noise=0.1).f_test, expected, rtol=1e-9)


def test_combinations_that_are_refused(tmp_path):
    kernel = twin(RELU) + twin(ERF)
    task = Task(X, X[:, 0])
    for build in (lambda: kernel + 1.0, lambda: -1 * kernel, lambda: kernel * "3", lambda: kernel * np.nan):
        with pytest.raises(ValueError, match="must be a kernel"):
            build()
    for what in (
        lambda: kernel.rich(task, 3, 0.1),
        lambda: kernel.posterior(task, 0.1, width=30),
        lambda: kernel.lazy(task, 3, 0.1, optimizer="adam"),
    ):
        with pytest.raises(AbsentError, match="of no single network"):
            what()
    for scale in (-1.0, 0, np.nan, [1.0, 2.0]):  # posteriors had negative variances
        for what in (kernel.with_hyperparameters, functools.partial(kernel.kernel_function(), jnp.asarray(X))):
            with pytest.raises(ValueError, match="scale_1 must be a number above 0"):
                what(scale_1=scale)
    mup = twin(MLP(8, 1, parameterization="mup"))
    with pytest.raises(ValueError, match=r"random in some .*ntk, mup"):
        kernel + mup  # pyright: ignore
    with pytest.raises(AbsentError, match=r"f\(0\) = 0"):
        mup * mup  # pyright: ignore
    with pytest.raises(ValueError, match="w_std_1"):
        kernel.kernel_function()(jnp.asarray(X), w_std=1.0)
    standard = (kernel + twin(MLP(8, 1, parameterization="standard"))).kernels(X)
    with pytest.raises(AbsentError, match="no limit"):
        standard.ntk  # noqa: B018
    kept = kernel.kernels(X, folder=tmp_path)
    np.testing.assert_array_equal(kept.ntk, kernel.kernels(X).ntk)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["part_1", "part_2"]
