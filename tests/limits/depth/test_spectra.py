"""Eigenvalues on the sphere against known kernels, a numerical eigenproblem, and the table of the notes."""

import math
from typing import Any

import numpy as np
import pytest

from limits.depth import deep_kernels, edge_of_chaos, sphere_spectrum, zonal_eigenvalues
from limits.depth.spectra import harmonics

ORDERS = [1, 2, 4, 10]


@pytest.mark.parametrize("d", [2, 3, 5, 40])
def test_a_kernel_with_known_eigenvalues(d):
    # c² = 1/d + (1 − 1/d) P₂(c), and P_k has 1/N(d, k) at its own k.
    found = zonal_eigenvalues(lambda gap: (1 - gap) ** 2, d, [0, 1, 2, 3])
    np.testing.assert_allclose(found, [1 / d, 0, (1 - 1 / d) / harmonics(d, 2), 0], atol=1e-13)


def test_exponential_kernel():
    # exp(t c) on the circle: modified Bessel functions; on S², i_k(t).
    from scipy.special import iv, spherical_in

    for d, exact in ((2, iv([0, 1, 5], 2.0)), (3, spherical_in([0, 1, 5], 2.0))):
        found = zonal_eigenvalues(lambda gap: np.exp(2 * (1 - gap)), d, [0, 1, 5])
        np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_trace():
    # g(1) = Σ_k N(d, k) μ_k.
    orders = list(range(60))
    found = zonal_eigenvalues(lambda gap: 1 / (1 + gap), 5, orders)
    assert sum(harmonics(5, k) * mu for k, mu in zip(orders, found, strict=True)) == pytest.approx(1, rel=1e-9)
    assert harmonics(4, 3) == 16


TABLE = {
    "critical relu": (("relu", math.sqrt(2), 0.0), [3, 30, 300],
        [[0.399, 0.115, 0.00983, 5.6e-4], [0.0584, 0.0340, 0.0145, 0.0030], [0.00819, 0.00540, 0.0030, 0.00119]]),
    "critical tanh": (("tanh", None, 0.2), [3, 30, 300],
        [[2.04, 0.0407, 0.0033, 3.3e-6], [0.224, 0.0856, 0.0221, 5.4e-4], [0.048, 0.0312, 0.0178, 0.0045]]),
    "ordered relu": (("relu", 1.0, 1.0), [3, 30],
        [[0.0344, 0.0037, 4.1e-4, 2.9e-5], [2.4e-6, 4.9e-7, 7.7e-8, 5.9e-9]]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_table(name):
    (activation, w_std, b_std), depths, expected = TABLE[name]
    w_std = edge_of_chaos(activation, b_std) if w_std is None else w_std
    found = sphere_spectrum(depths, ORDERS, 3, activation, w_std, b_std)
    # Half of the last printed digit, or 1 %.
    digits = [[0.5 * 10.0 ** (math.floor(math.log10(e)) - (1 if f"{e:.2e}"[3] == "0" or e < 1e-3 else 2)) for e in row]
              for row in expected]  # fmt: skip
    assert (np.abs(found - expected) <= np.maximum(digits, 0.01 * np.array(expected))).all()


def test_ordered_kernels_become_constant():
    found = sphere_spectrum([30], ORDERS, 3, "tanh", 1.0, 1.0)
    assert np.abs(found).max() < 1e-10
    assert np.abs(sphere_spectrum([300], ORDERS, 3, "relu", 1.0, 1.0)).max() < 1e-12


def test_eigenvalues_of_the_kernel_matrix_on_the_sphere():
    rng, n, d = np.random.default_rng(0), 250, 3
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1)[:, None]
    ntk = deep_kernels(x, [3]).ntk[0]
    values = np.linalg.eigvalsh(ntk / n)[::-1]
    mu = sphere_spectrum([3], [1, 2], d)[0]
    for k, start in ((1, 1), (2, 4)):
        block = values[start : start + harmonics(d, k)] / values[0]
        assert block.mean() == pytest.approx(mu[k - 1], rel=0.1)  # of order n^(−1/2) · √multiplicity
        assert np.ptp(block) < 0.35 * block.mean()


def test_mistakes_are_answered():
    with pytest.raises(ValueError, match=r"d must be .* at least 2"):
        zonal_eigenvalues(lambda gap: gap, 1, [0])
    with pytest.raises(ValueError, match=r"orders must be .* at least 0"):
        zonal_eigenvalues(lambda gap: gap, 3, [-1])
    with pytest.raises(ValueError, match="radius must be a finite number > 0, got 0"):
        sphere_spectrum([3], [1], radius=0.0)
    with pytest.raises(ValueError, match="orders must be"):
        sphere_spectrum([3], np.array([1.5]))
    with pytest.raises(ValueError, match=r"d must be .* at least 2"):
        sphere_spectrum([3], [1], d=0)
    wrong: Any
    for wrong in ({"radius": math.nan}, {"w_std": math.nan}, {"b_std": -0.1}):
        with pytest.raises(ValueError, match=f"sphere_spectrum: {next(iter(wrong))}.* must be a finite number"):
            sphere_spectrum([3], [1], **wrong)
    with pytest.raises(ValueError, match=r"d must be .* at least 2"):
        harmonics(1, 1)
    assert harmonics(20, 60) == math.comb(79, 60) - math.comb(77, 58)  # polynomials of degree k less those of k − 2
