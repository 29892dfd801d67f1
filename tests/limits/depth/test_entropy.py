"""The maximum-entropy condition: where it is met, and against histograms."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from limits.depth import uniform_divergence, uniform_variance


def test_erf_is_uniform_at_one_half_and_not_at_one_quarter():
    best = minimize_scalar(uniform_divergence, bounds=(0.05, 3))
    assert abs(best.x - 0.5) < 1e-4  # pyright: ignore[reportAttributeAccessIssue]
    assert abs(uniform_variance("erf") - 0.5) < 1e-9
    s2 = np.array([0.25, 0.5, 0.9])
    closed = np.log(2**0.5) + np.log(s2) / 2 + (1 / (2 * s2) - 1) / 2
    np.testing.assert_allclose(uniform_divergence(s2), closed, atol=1e-9)
    assert closed[0] > 0.1


def test_tanh_against_a_histogram():
    s2, bins = 1.3, 50
    z = np.tanh(s2**0.5 * np.random.default_rng(0).normal(size=10**6))
    share = np.histogram(z, bins, (-1, 1))[0] / len(z)
    measured = -np.mean(np.log(share * bins))
    # The end bins hold densities that vary within them; the estimate errs by less than 3 %, the noise is 2e-4.
    np.testing.assert_allclose(uniform_divergence(s2, "tanh"), measured, rtol=0.03)
    best = minimize_scalar(lambda v: uniform_divergence(v, "tanh"), bounds=(0.1, 5))
    np.testing.assert_allclose(best.x, uniform_variance("tanh"), rtol=1e-4)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("activation", ["relu", "gelu", "sin", "linear"])
def test_other_activations_have_no_such_variance(activation):
    with pytest.raises(ValueError, match="two finite limits"):
        uniform_variance(activation)
