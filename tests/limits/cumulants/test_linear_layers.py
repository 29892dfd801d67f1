import numpy as np
import pytest

from limits.cumulants import Cumulants, empirical_cumulants, through_linear
from limits.cumulants.cumulants import repeated

pytestmark = pytest.mark.usefixtures("x64")


def exponential(d):
    """Cumulants of independent exponential variables: κ_n = (n − 1)!."""
    third, fourth = np.zeros((d,) * 3), np.zeros((d,) * 4)
    i = np.arange(d)
    third[i, i, i], fourth[i, i, i, i] = 2.0, 6.0
    return Cumulants(np.ones(d), np.eye(d), third, fourth)


W = np.random.default_rng(0).normal(size=(3, 2))
B = np.array([0.3, -1.0, 2.0])


def test_cumulants_of_a_linear_map_are_those_of_its_samples(row):
    # 10⁶ samples in 50 parts, whose spread is the standard error: every entry of all four cumulants.
    x = np.random.default_rng(1).exponential(size=(50, 20_000, 2))
    parts = [empirical_cumulants(part @ W.T + B, order=4) for part in x]
    for found, *seen in zip(through_linear(exponential(2), W, B), *parts, strict=True):
        seen = np.stack(seen)
        z = (seen.mean(0) - np.asarray(found)) / (seen.std(0, ddof=1) / len(seen) ** 0.5)
        row(
            2,
            f"cumulants of order {seen.ndim - 1} of W x, 10⁶ samples: largest of {z.size} {np.abs(z).max():.1f} standard errors",
        )
        assert np.abs(z).max() < 3.5


def test_bias_moves_only_the_mean():
    with_bias, without = through_linear(exponential(2), W, B), through_linear(exponential(2), W)
    np.testing.assert_allclose(with_bias.mean, without.mean + B)
    for a, b in zip(with_bias[1:], without[1:], strict=True):
        np.testing.assert_array_equal(a, b)


def test_repeated_indices_are_entries_of_the_full_arrays():
    z = through_linear(exponential(2), W)
    third, fourth = repeated(exponential(2), W)
    np.testing.assert_allclose(third, np.einsum("iij->ij", z.third), rtol=1e-12)
    np.testing.assert_allclose(fourth, np.einsum("iijj->ij", z.fourth), rtol=1e-12)
    assert repeated(exponential(2).upto(3), W)[1] is None


def test_orders_are_checked():
    with pytest.raises(ValueError, match=r"order .*at least 2 and at most 4, got 5"):
        exponential(2).upto(5)
