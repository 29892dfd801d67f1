"""Gaussian averages of layers, against sampling and against sums over all four samples."""

import jax.numpy as jnp
import numpy as np
import pytest

from limits.posterior import Draws, contraction, pair_averages
from limits.posterior.averages import roots_of_blocks, symmetric_root

C = np.array([[0.8, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 0.6]])
FORCE = np.array([[1.0, 0.4, -0.3], [0.4, -0.5, 0.2], [-0.3, 0.2, 0.7]])


def normal(samples, size, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, size))


def test_erf_has_the_closed_forms(row):
    mean, own, across = pair_averages("erf", C)
    q = 1 + 2 * np.diagonal(C)
    root = np.sqrt(np.outer(q, q) - 4 * C**2)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(mean, 2 / np.pi * np.arcsin(2 * C / np.sqrt(np.outer(q, q))), rtol=1e-12)
    np.testing.assert_allclose(own[off], (4 / np.pi / root)[off], rtol=1e-12)
    bends = -8 / np.pi * C / (q[:, None] * root)  # <φ_a''φ_b>
    row(17, f"erf averages: {np.abs(across[off] - bends[off] / 2).max():.0e} from the closed forms")
    np.testing.assert_allclose(across[off], bends[off] / 2, rtol=1e-9)
    np.testing.assert_allclose(np.diagonal(own), np.diagonal(4 / np.pi / root + bends), rtol=1e-9)


@pytest.mark.parametrize("activation", ["relu", pytest.param("tanh", marks=pytest.mark.slow)])
def test_derivatives_are_those_of_the_average(activation):
    _, own, across = pair_averages(activation, C)
    for a, b in ((0, 0), (0, 1), (1, 2)):
        change = np.zeros((3, 3))
        change[a, b] = change[b, a] = 1e-5
        slope = (pair_averages(activation, C + change)[0] - pair_averages(activation, C - change)[0]) / 2e-5
        np.testing.assert_allclose(slope[a, b], own[a, b], rtol=1e-6)
        if a == b:
            np.testing.assert_allclose(slope[a, 1:], across[a, 1:], rtol=1e-6, atol=1e-9)


def test_contraction_of_a_linear_network_is_exact(row):
    expected = C @ FORCE @ C * 2  # Σ (C_ac C_bd + C_ad C_bc) C̃_cd
    found = contraction(Draws("linear", np.zeros((1, 3))), C, FORCE)
    row(23, f"contraction with linear φ: {np.abs(found - expected).max():.0e} from C_ac C_bd + C_ad C_bc")
    np.testing.assert_allclose(contraction(Draws("linear", np.zeros((1, 3))), C, FORCE), expected, atol=1e-12)


@pytest.mark.parametrize("activation", ["erf", "relu"])
def test_contraction_is_the_sum_over_four_samples(activation):
    # A reference of 400 blocks of fresh draws, with all P⁴ entries; the estimate's own error is that of 16 point sets.
    draws = Draws(activation, normal(400_000, 3, 1))
    phi = draws.features(draws.signals(C, 3)).reshape(400, 1000, 3)
    products = np.einsum("rsa,rsb->rsab", phi, phi).reshape(400, 1000, 9)
    products -= products.reshape(-1, 9).mean(0)
    whole = np.einsum("rsi,rsj->rij", products, products) / 1000
    each = whole @ FORCE.ravel()
    error = each.std(0) / 20
    found = np.array([contraction(Draws(activation, normal(4000, 3, 2 + i)), C, FORCE).ravel() for i in range(16)])
    spread = np.hypot(error, found.std(0, ddof=1) / 4)
    assert np.all(abs(found.mean(0) - each.mean(0)) < 4 * spread)
    assert np.all(spread < 0.05 * abs(each.mean(0)).max())


def test_linear_part_reduces_the_noise():
    c = 0.05 * C
    with_it = [contraction(Draws("erf", normal(2000, 3, i)), c, FORCE)[0, 0] for i in range(20)]
    features = [Draws("erf", normal(2000, 3, i)) for i in range(20)]
    plain = []
    for draws in features:
        phi = draws.features(draws.signals(c, 3))
        plain.append(np.cov(phi[:, 0] ** 2, np.einsum("sa,ab,sb->s", phi, FORCE, phi))[0, 1])
    assert np.std(with_it) < 0.4 * np.std(plain)


def test_added_points_leave_the_known_ones():
    draws = Draws("erf", normal(500, 3))
    small = contraction(draws, C[:2, :2], FORCE[:2, :2])
    np.testing.assert_allclose(contraction(draws, C, FORCE[:2, :2])[:2, :2], small, atol=1e-14)
    root = roots_of_blocks(C, 2)
    np.testing.assert_allclose(root @ root.T, C, atol=1e-12)
    assert not root[:2, 2:].any()


def test_root_is_continuous_where_eigenvectors_are_not():
    near = np.eye(2) + 1e-9 * np.array([[0, 1], [1, 0]])
    np.testing.assert_allclose(symmetric_root(near), symmetric_root(np.eye(2) - (near - np.eye(2))), atol=1e-8)


@pytest.mark.slow
def test_other_activations():
    mean, own, across = pair_averages(lambda x: jnp.tanh(x) + 0.1, C)
    assert all(np.isfinite(part).all() for part in (mean, own, across))


def test_control_variate_fades_out_with_the_linear_part(monkeypatch):
    """Continuity: what rounding leaves of <φ'> must not matter, and neither must a φ' that is exactly zero."""
    h = Draws("abs", normal(2000, 3))
    features = h.features(h.signals(C, 3))
    plain = np.cov(np.einsum("sa,ab,sb->s", features, FORCE, features), features[:, 0] * features[:, 1], ddof=0)[0, 1]
    assert contraction(h, C, FORCE)[0, 1] == pytest.approx(plain, rel=1e-12)

    for slopes in (np.zeros(3), 1e-17 * np.array([1.0, -3.0, 2.0]), 1e-3 * np.ones(3)):
        monkeypatch.setattr(h, "slopes", lambda c, slopes=slopes: slopes)
        assert contraction(h, C, FORCE)[0, 1] == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("activation", ["erf", "relu", jnp.cos], ids=["erf", "relu", "cos"])
def test_a_point_of_variance_zero_is_the_limit(activation):
    zero, small = np.diag([1.0, 0.0]), np.diag([1.0, 1e-10])
    for found, near in zip(pair_averages(activation, zero)[:2], pair_averages(activation, small)[:2], strict=True):
        np.testing.assert_allclose(found, near, atol=1e-5)
    mean, _, across = pair_averages(activation, zero)
    at_zero = 1.0 if activation is jnp.cos else 0.0  # φ(0), and <cos> = exp(−q/2)
    np.testing.assert_allclose(mean[1], [at_zero * np.exp(-0.5), at_zero], atol=1e-12)
    np.testing.assert_allclose(across[1, 0], -at_zero * np.exp(-0.5) / 2, atol=1e-9)  # ½ <φ_a''φ_b>; 0 at the kink
    np.testing.assert_allclose(across[0, 1], -at_zero * np.exp(-0.5) / 2, atol=1e-12)  # φ(0) ∂<φ_a>/∂C_aa
