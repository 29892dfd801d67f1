"""Attention whose logits stay random, and the parts of a ViT that neural-tangents does not have."""

# pyright: reportArgumentType=false
# (Linen modules are frozen dataclasses: hashable, which their stubs do not say.)

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_resnet_kernels import ensemble

from limits import AbsentError, twin
from limits import kernels as algebra
from limits.kernels.random_logits import normal_draws
from limits.vit import _sine_kernels
from zoo import Parameterization, ViT
from zoo.vit import sines

T = 3


def tokens(random):
    """Features and a tangent kernel of two inputs with T tokens, from random vectors: [2 T, 2 T] each."""
    a, b = random.normal(size=(2, 2 * T, 8)) / 8**0.5
    return a @ a.T, a @ a.T + b @ b.T


def state(k, ntk):
    """The pair (first input, second input) of these."""
    return algebra.Positions(
        *(jnp.asarray(a[None, None]) for a in (k[:T, T:], ntk[:T, T:], k[:T, :T], k[T:, T:])), cross=True, within=True
    )


LAYERS = {name: algebra.Affine(w, b, w, b) for name, w, b in (("q", 3.0, 0.3), ("k", 2.0, 0.2), ("v", 1.2, 0.1))}


def attended(k, ntk, logits="random", query=LAYERS["q"], samples=2**12, seed=0, softmax=True):
    """(K^o, Θ^o), [T, T] each, between the two inputs; and K^o of the first with itself."""
    rule, draws = algebra.AttentionRule(logits, softmax, True), normal_draws(T, samples, seed)
    with jax.enable_x64(True):
        done = _attend(rule, query, state(k, ntk), jnp.asarray(draws))
    return [np.asarray(part)[0, 0] for part in (done.k, done.ntk, done.k1)]


@functools.partial(jax.jit, static_argnums=0)
def _attend(rule, query, state, draws):
    return algebra.attend(state, rule, query, LAYERS["k"], LAYERS["v"], True, draws)


def by_brute_force(k, ntk, count=100_000):
    """The equations of the theory by drawing all logits: means over `count` draws, and their standard errors."""
    dense = {name: (l.w * k + l.b, l.w * ntk + l.w_tangent * k + l.b_tangent) for name, l in LAYERS.items()}
    (kq, tq), (kk, tk), (kv, tv) = dense["q"], dense["k"], dense["v"]
    random, here, there = np.random.default_rng(7), slice(0, T), slice(T, 2 * T)
    out = np.zeros((2, 2, T, T))
    for a in range(T):
        for b in range(T):
            # Row a of the first input and row b of the second: Cov s = K^q ∘ K^k.
            size = np.kron(np.array([[kq[a, a], kq[a, T + b]], [kq[T + b, a], kq[T + b, T + b]]]), np.ones((T, T))) * kk
            s = random.multivariate_normal(np.zeros(2 * T), size, count, method="eigh")
            p1, p2 = (np.exp(part) / np.exp(part).sum(1, keepdims=True) for part in (s[:, :T], s[:, T:]))
            d1, d2 = (np.einsum("sc,cb->scb", p, np.eye(T)) - np.einsum("sc,sb->scb", p, p) for p in (p1, p2))
            moved = tq[a, T + b] * kk[here, there] + kq[a, T + b] * tk[here, there]
            kernel = np.einsum("sc,cd,sd->s", p1, kv[here, there], p2)
            tangent = np.einsum("sc,cd,sd->s", p1, tv[here, there], p2)
            tangent += np.einsum("scb,sdf,bf,cd->s", d1, d2, moved, kv[here, there], optimize=True)
            for i, values in enumerate((kernel, tangent)):
                out[:, i, a, b] = values.mean(), values.std(ddof=1) / count**0.5
    return out


@functools.cache
def example():
    return tokens(np.random.default_rng(2))


def test_averages_over_random_logits_are_those_of_the_theory():
    mean, sem = by_brute_force(*example())
    assert np.all(sem < 0.005 * mean.max((1, 2), keepdims=True))
    for found, expected, error in zip(attended(*example())[:2], mean, sem, strict=True):
        # 2^12 Sobol points are far more exact than 10^5 draws. 18 numbers, four errors: by chance once in 900 seeds.
        assert np.all(np.abs(found - expected) < 4 * error)


def test_an_input_with_itself_has_one_set_of_logits():
    k, ntk = example()
    twice = np.tile(k[:T, :T], (2, 2)), np.tile(ntk[:T, :T], (2, 2))
    kernel, tangent, own = attended(*twice)
    np.testing.assert_allclose(kernel, own, rtol=1e-9)
    # The points of the two rows are drawn one after the other, so that symmetry is one up to their error.
    np.testing.assert_allclose(kernel, kernel.T, rtol=0.01)
    np.testing.assert_allclose(tangent, tangent.T, rtol=0.01)
    assert np.linalg.eigvalsh(kernel + kernel.T).min() > 0


def test_queries_at_rest_are_the_limit_of_small_ones():
    small = dataclasses.replace(LAYERS["q"], w=1e-8, b=1e-8)
    rest = dataclasses.replace(LAYERS["q"], w=0.0, b=0.0)
    near, exact = (attended(*example(), logits, query) for logits, query in (("random", small), ("none", rest)))
    v = LAYERS["v"].w * example()[0][:T, T:] + LAYERS["v"].b
    np.testing.assert_allclose(exact[0], v.mean(), rtol=1e-12)  # attention is uniform
    for found, expected in zip(near, exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)  # small by the root of the variance, 1e-4, times draws
    still = dataclasses.replace(rest, w_tangent=0.0, b_tangent=0.0)
    (q, k), flat = (
        (l.w_tangent * example()[0][:T, T:] + l.b_tangent for l in (rest, LAYERS["k"])),
        np.eye(T) / T - 1 / T**2,  # ∂p/∂s of uniform attention
    )
    extra = exact[1] - attended(*example(), "none", still)[1]
    np.testing.assert_allclose(extra, q * np.sum(k * (flat @ v @ flat)), rtol=1e-9)


def test_without_softmax_the_averages_are_products():
    k, ntk = example()
    dense = [(l.w * k + l.b, l.w * ntk + l.w_tangent * k + l.b_tangent) for l in LAYERS.values()]
    (kq, tq), (kk, tk), (kv, tv) = ((k[:T, T:], t[:T, T:]) for k, t in dense)
    kernel, tangent, _ = attended(k, ntk, softmax=False)
    np.testing.assert_allclose(kernel, kq * (kk * kv).sum(), rtol=1e-12)
    np.testing.assert_allclose(tangent, kq * (kk * tv + tk * kv).sum() + tq * (kk * kv).sum(), rtol=1e-12)


IMAGES = 1.3 * np.sin(1.7 * np.arange(24).reshape(2, 2, 6, 1) ** 1.2)  # three tokens each
COMMON: dict[str, Any] = {"outputs": 4, "activation": "erf", "w_std": 1.3, "b_std": 0.3, "patch": 2, "mlp_ratio": 1}
README = Path(__file__).parents[2] / "README.md"
GROW = ViT(256, 1, **COMMON, heads="grow", logits="1/sqrt(d)", position_std=0.5)
FASTER = Parameterization.mup.replace(alpha=1.0)
CLASS = ViT(128, 2, **COMMON, heads=1, pool="class", positions="fixed", parameterization=FASTER, gamma=1.5)


@functools.cache
def seen(net, names=("last",)):
    return ensemble(net, IMAGES, 300, names)


@functools.cache
def kernels(net, samples=1024, seed=0):
    return twin(net).kernels(IMAGES, samples=samples, seed=seed)


def assert_near(net, allowed):
    """Both kernels are the ensemble's: within three standard errors, of 2 % at most, plus what finite heads make."""
    found, limit, expected = seen(net), twin(net), kernels(net)
    last, error = (limit.readout(part) for part in found["last"])
    error = error - limit.readout(0.0)
    mean, sem = found["ntk"]
    assert np.all(sem < 0.02 * np.abs(expected.ntk))
    assert np.all(np.abs(mean - expected.ntk) < 3 * np.hypot(sem, expected.ntk_sem) + allowed * expected.ntk)
    assert np.all(np.abs(last - expected.nngp) < 3 * np.hypot(error, expected.nngp_sem) + allowed * expected.nngp.max())


def assert_excluded(net, ntk):
    mean, sem = seen(net)["ntk"]
    assert np.max(np.abs(mean - ntk) / sem) > 5


@pytest.mark.slow
def test_many_heads_with_random_logits_against_finite_networks():
    # Sixteen heads of sixteen neurons: logits of so few are not quite Gaussian, 0.2 % in these kernels.
    assert_near(GROW, 0.002)
    assert_excluded(GROW, kernels(GROW.clone(logits="1/d")).ntk)


@pytest.mark.slow
def test_queries_at_rest_that_move_against_finite_networks():
    net = GROW.clone(query_init="zeros")
    assert_near(net, 0.002)
    assert kernels(net).provenance["ntk"].kind == "exact"
    assert not kernels(net).errors
    assert_excluded(net, kernels(net.clone(logits="1/d")).ntk)


@pytest.mark.slow
def test_class_token_fixed_positions_and_gains_against_finite_networks():
    # Logits of one head of 128 neurons have variances of some 3/128 where the limit has none: 1 % in these kernels.
    assert_near(CLASS, 0.01)
    assert_excluded(CLASS, kernels(CLASS.clone(norm_affine=False)).ntk)
    assert_excluded(CLASS, kernels(CLASS.clone(parameterization="mup", beta=2**-0.5)).ntk)  # the branches' rates


@pytest.mark.slow
def test_stated_errors_are_the_scatter_of_seeds_and_fall_with_samples():
    few, more = ([kernels(GROW, samples, seed) for seed in range(4)] for samples in (64, 1024))
    stated = []
    for runs in (few, more):
        scatter = np.std([run.ntk for run in runs], axis=0, ddof=1)
        stated.append(np.mean([run.ntk_sem for run in runs], axis=0))
        assert {run.provenance["ntk"].kind for run in runs} == {"monte_carlo"}
        # Each is a standard deviation of four: off by 40 % itself, a ratio beyond 4 is one in a hundred.
        assert 1 / 4 < np.linalg.norm(scatter) / np.linalg.norm(stated[-1]) < 4
    # 16 times the points: a factor 4 at the least, up to 16 for smooth averages; the estimates are off by 20 %.
    assert np.linalg.norm(stated[0]) > 2 * np.linalg.norm(stated[1])
    assert 1e-5 < np.max(stated[1] / more[0].ntk) < 2e-3


@pytest.mark.slow
def test_one_seed_gives_the_same_numbers():
    again = twin(GROW).kernels(IMAGES, samples=64, seed=1)
    np.testing.assert_array_equal(again.ntk, kernels(GROW, 64, 1).ntk)
    assert "standard errors have 3 degrees of freedom" in again.provenance["ntk"].detail  # of four scramblings
    assert np.any(kernels(GROW, 64, 2).ntk != again.ntk)


def test_fixed_positions_are_those_of_many_frequencies():
    with jax.enable_x64(True):
        at = np.asarray(sines(17, 4096))
        covariance, mean = (np.asarray(part) for part in _sine_kernels(17))
    # Midpoints against the integral over 2048 frequencies; the fastest waves turn by 16 · log 10⁴ / 2048 from one to the next.
    np.testing.assert_allclose(at @ at.T / 4096, covariance, atol=1e-3)
    np.testing.assert_allclose(at.mean(1), mean, atol=1e-3)


def test_the_readme_says_for_which_heads_kernels_exist():
    row = next(line for line in README.read_text().splitlines() if line.startswith("| `ViT` |"))
    closed, _, missing = row.strip("| ").split(" | ")[1:]
    assert closed.endswith('`heads="grow"`: also 1/√d without softmax or with zero queries')
    assert missing.endswith("with a fixed number of heads (of zero queries, the NTK alone)")
    for heads, absent in (("grow", set()), (2, {"ntk"})):
        limit: Any = twin(GROW.clone(heads=heads, query_init="zeros"))
        assert (set(limit._absent), limit._rule.logits) == (absent, "none")


@pytest.mark.parametrize(
    ("options", "absent", "reason"),
    [
        ({"heads": 2}, ("nngp", "ntk"), 'each of the 2 heads keeps random attention.*heads="grow", or logits="1/d"'),
        ({"heads": 2, "query_init": "zeros"}, ("ntk",), "each of the 2 heads keeps random attention"),
        ({"tied": True}, ("nngp", "ntk"), "tied queries and keys .* grow as √d"),
        ({"query_init": "zeros", "parameterization": "standard"}, ("ntk",), "grows as N\\^1 with the width"),
    ],
)
def test_kernels_that_do_not_exist_say_why(options, absent, reason):
    found = twin(GROW.clone(**options)).kernels(IMAGES)
    assert {name for name in ("nngp", "ntk") if not found.has(name)} == set(absent)
    for name in absent:
        with pytest.raises(AbsentError, match=reason):
            getattr(found, name)


@pytest.mark.slow
def test_kernels_by_draws_are_symmetric():
    """The two sides of a pair meet different draws: of one set of inputs both orders are averaged."""
    x = np.random.default_rng(5).normal(size=(4, 4, 4, 1))
    found = twin(ViT(16, 1, patch=2, heads="grow", logits="1/sqrt(d)")).kernels(x, samples=64, block=3)
    for kernel in (found.nngp, found.ntk):
        np.testing.assert_array_equal(kernel, kernel.T)
