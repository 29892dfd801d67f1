"""Averages over tilted Gaussians, against quadrature, closed forms, and the expansion that they complete."""

import numpy as np
import pytest
from bayesian import at_fixed_point, clusters
from scipy.special import erf

from limits.posterior import Draws, Stack, solve
from limits.posterior.averages import pair_averages
from limits.posterior.equations import force_back, kernel_ahead
from limits.posterior.linear import linear_backward, linear_forward
from limits.posterior.tilted import tilted, tilted_force, tilted_kernel
from limits.types import AbsentError

C = np.array([[0.8, 0.3], [0.3, 0.5]])
FORCE = np.array([[3.0, -2.0], [-2.0, 1.0]])
W, B, N = 1.3, 0.05, 10.0


def draws(activation, samples=200_000, seed=0, size=2):
    return Draws(activation, np.random.default_rng(seed).normal(size=(samples, size)))


def cumulants(c, force, nodes=80):
    """N log <exp((w/N) φᵀC̃φ)> and its tilted <φφᵀ>, for erf, by quadrature in two dimensions."""
    x, p = np.polynomial.hermite_e.hermegauss(nodes)
    p = p / p.sum()
    a, b = np.meshgrid(x, x, indexing="ij")
    phi = erf(np.stack([a, b], -1) @ np.linalg.cholesky(c).T)
    tilt = np.outer(p, p) * np.exp(W / N * np.einsum("ija,ab,ijb->ij", phi, force, phi))
    return N * np.log(tilt.sum()), np.einsum("ij,ija,ijb->ab", tilt, phi, phi) / tilt.sum()


def test_forward_is_the_tilted_average():
    found = tilted_kernel(pair_averages("erf", C)[0], draws("erf"), C, FORCE, W, B, N)
    np.testing.assert_allclose(found, W * cumulants(C, FORCE)[1] + B, atol=1e-3)
    leading = kernel_ahead(pair_averages("erf", C)[0], draws("erf"), C, FORCE, W, B, N)
    assert abs(leading - W * cumulants(C, FORCE)[1] - B).max() > 0.006


def test_backward_is_the_derivative_of_the_generating_function():
    leading = force_back(FORCE, *pair_averages("erf", C)[1:], W)
    found = tilted_force(leading, draws("erf"), C, FORCE, W, N)
    for a, b in ((0, 0), (1, 1), (0, 1)):
        change = np.zeros((2, 2))
        change[a, b] += 5e-5
        change[b, a] += 5e-5
        slope = (cumulants(C + change, FORCE)[0] - cumulants(C - change, FORCE)[0]) / 2e-4
        assert found[a, b] == pytest.approx(slope, rel=0.02)
        assert abs(leading[a, b] / slope - 1) > 0.05


def test_weights_of_a_linear_network_give_its_closed_form():
    force, by_weights = 0.3 * FORCE, draws("linear")
    by_weights.linear = False
    found = tilted_kernel(C, by_weights, C, force, W, B, N)
    np.testing.assert_allclose(found, linear_forward(C, force, W, B, N), rtol=0.01)
    np.testing.assert_allclose(
        tilted_kernel(C, draws("linear", 1), C, force, W, B, N), linear_forward(C, force, W, B, N)
    )
    back = tilted_force(np.zeros((2, 2)), draws("linear", 1), C, force, W, N)
    np.testing.assert_allclose(back, linear_backward(C, force, W, N))
    assert tilted(by_weights, C, force, W, N).effective > 1e5


def test_difference_to_the_expansion_falls_with_the_square_of_the_width(row):
    mean, off = pair_averages("erf", C)[0], []
    for width in (20.0, 40.0):
        parts = [f(mean, draws("erf"), C, FORCE, W, B, width) for f in (kernel_ahead, tilted_kernel)]
        off.append(np.abs(parts[0] - parts[1]).max())
    row(26, f"full less leading order at N = 20 over N = 40: {off[0] / off[1]:.2f} (4)")
    assert off[0] / off[1] == pytest.approx(4, rel=0.25)


def test_tilts_that_are_not_integrable():
    with pytest.raises(AbsentError, match="outgrows the Gaussian"):
        tilted_kernel(pair_averages("relu", C)[0], draws("relu", 1000), C, 50 * np.eye(2), W, B, N)
    with pytest.raises(AbsentError, match="outgrows the Gaussian"):
        tilted_kernel(pair_averages("quadratic", C)[0], draws("quadratic", 1000), C, 0.01 * np.eye(2), W, B, N)
    tilted_kernel(pair_averages("erf", C)[0], draws("erf", 1000), C, 50 * np.eye(2), W, B, N)
    with pytest.raises(AbsentError, match="has a kink"):
        tilted_force(C, draws("relu", 1000), C, 0.1 * FORCE, W, N)


@pytest.mark.slow
def test_full_order_is_nearer_to_leading_order_the_wider():
    x, y = clusters(4, 0)
    stack = Stack(at_fixed_point(x, 1.2, B), [1.2] * 2, [B] * 2)
    sample, off = draws("erf", 4000, size=4), []
    for width in (200, 400):
        full, leading = (solve(stack, y, 0.05, width, sample, order) for order in ("full", "leading"))
        assert full.residual < 1e-7
        off.append(np.linalg.norm(full.kernels[2] - leading.kernels[2]))
    assert off[0] / off[1] == pytest.approx(4, rel=0.3)
