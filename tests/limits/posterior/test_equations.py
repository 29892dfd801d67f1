"""The equations of one layer: forces are derivatives of the evidence, and of nothing else."""

import dataclasses

import numpy as np
import pytest
from bayesian import at_fixed_point, clusters, printed_backward

from limits.depth import edge_of_chaos, phase, response
from limits.posterior import (
    Stack,
    backpropagated,
    equations,
    output_force,
    prior_kernels,
    response_to_output,
)
from limits.predict import posterior

NOISE = 0.1


@pytest.fixture(scope="module")
def problem():
    x, y = clusters(8, 0)
    return Stack(at_fixed_point(x, 1.2, 0.05), [1.2] * 3, [0.05] * 3), np.concatenate([y, 0.5 * y + 1], axis=1)


def log_evidence(stack, y):
    c = prior_kernels(stack)[-1]
    return posterior(c, y, c, c, NOISE).log_marginal_likelihood


def derivative(stack, y, a, b):
    change = np.zeros_like(stack.k0)
    change[a, b] += 5e-6
    change[b, a] += 5e-6
    up, down = (log_evidence(dataclasses.replace(stack, k0=stack.k0 + s * change), y) for s in (1, -1))
    return (up - down) / 2e-5


def test_forces_are_derivatives_of_the_evidence_in_every_kernel(problem, monkeypatch):
    stack, y = problem
    kernels = prior_kernels(stack)
    force = output_force(kernels[-1], y, NOISE)
    for layer in range(3):
        rest = Stack(kernels[layer], stack.weights[layer:], stack.biases[layer:])
        forces = backpropagated(rest, kernels[layer:], force)
        for a, b in ((0, 0), (3, 3), (0, 1), (2, 6)):
            assert forces[0][a, b] == pytest.approx(derivative(rest, y, a, b), rel=1e-5, abs=1e-6)
    monkeypatch.setattr(equations, "force_back", printed_backward)
    printed = backpropagated(stack, kernels, force)[0]
    assert abs(printed[0, 0] / derivative(stack, y, 0, 0) - 1) > 0.1


def test_training_error_identity(problem, row):
    stack, y = problem
    c = prior_kernels(stack)[-1]
    found = posterior(c, y, c, c, NOISE)
    residual = y - found.mean
    second_moment = residual @ residual.T + 2 * found.cov
    expected = 2 * NOISE**2 * output_force(c, y, NOISE) + 2 * NOISE * np.eye(8)
    row(22, f"training-error identity: {np.abs(second_moment - expected).max():.0e} (1e-10)")
    np.testing.assert_allclose(second_moment, expected, atol=1e-10)


def test_no_force_where_the_kernel_is_that_of_the_targets():
    y = np.linalg.cholesky(np.array([[1.0, 0.3], [0.3, 2.0]]))
    c = (y @ y.T) / 2 - NOISE * np.eye(2)
    np.testing.assert_allclose(output_force(c, y, NOISE), 0, atol=1e-13)


def test_responses_against_differences_of_the_recursion(problem, row):
    stack, _ = problem
    small = dataclasses.replace(stack, k0=stack.k0[:3, :3])
    found = response(small.k0, 3, None, 1.2**0.5, 0.05**0.5)
    np.testing.assert_allclose(found.kernels[3], prior_kernels(small)[3], rtol=1e-12)
    backward = response_to_output(small)
    for a, b in ((0, 1), (0, 2), (1, 1)):
        change = np.zeros((3, 3))
        change[a, b] = change[b, a] = 1e-5
        up, down = (prior_kernels(dataclasses.replace(small, k0=small.k0 + s * change)) for s in (1, -1))
        slope = (up[3] - down[3]) / 2e-5
        row(19, f"response of C_{a}{b}: {abs(slope[a, b] / backward[0, a, b] - 1):.0e} from differences (1e-6)")
        assert slope[a, b] == pytest.approx(backward[0, a, b], rel=1e-6)
        assert slope[a, b] == pytest.approx(found.chi[3, a, b], rel=1e-6)
        if a == b:
            assert slope[a, 0] == pytest.approx(found.across[3, a, 0], rel=1e-6)


def test_criticality_map(row):
    assert edge_of_chaos("erf", 0.05**0.5) ** 2 == pytest.approx(1.37584, abs=1e-5)
    row(18, f"critical σ_w² of erf at σ_b² = .05: {edge_of_chaos('erf', 0.05**0.5) ** 2:.5f} (1.3758 ± .001)")
    weights, q = (0.6, 0.825, 1.1, 1.38, 2.2), (0.1288, 0.2049, 0.3440, 0.5200, 1.1186)
    chi = (0.6206, 0.7787, 0.9086, 1.0012, 1.1972)
    for w, variance, slope in zip(weights, q, chi, strict=True):
        found = phase("erf", w**0.5, 0.05**0.5)
        assert (found.q, found.chi) == pytest.approx((variance, slope), abs=6e-5)
    # and the depth over which two inputs forget their angle is −1/log of the factor at c*
    found = phase("erf", 1.1**0.5, 0.05**0.5)
    k0 = found.q * np.array([[1.0, 0.9], [0.9, 1.0]])
    gap = [found.q - k[0, 1] for k in prior_kernels(Stack(k0, [1.1] * 40, [0.05] * 40))]
    xi = -1 / np.polyfit(np.arange(20, 41), np.log(gap[20:]), 1)[0]
    row(18, f"depth scale at σ_w² = 1.1: {xi:.3f} by kernels, {found.depth_scale:.3f} by formula (2 %)")
    assert -1 / np.polyfit(np.arange(20, 41), np.log(gap[20:]), 1)[0] == pytest.approx(found.depth_scale, rel=0.02)


def test_feature_scale_is_linear_without_noise(row):
    x, y = clusters(12, 0)
    sizes = []
    for scale in (1, 2, 4, 8):
        stack = Stack(at_fixed_point(x, 0.5, 0.05), [0.5, 0.5, 0.5 / scale], [0.05] * 3)
        kernels = prior_kernels(stack)
        sizes.append(
            [
                np.linalg.norm(backpropagated(stack, kernels, output_force(kernels[-1], y, noise))[1])
                for noise in (1e-6, 1e-3)
            ]
        )
    slopes = np.polyfit(np.log([1, 2, 4, 8]), np.log(sizes), 1)[0]
    row(33, f"|C̃^(1)| ~ γ₀^{slopes[0]:.3f} at noise 1e-6 (1), γ₀^{slopes[1]:.2f} at 1e-3")
    assert slopes[0] == pytest.approx(1, abs=0.02)
    assert slopes[1] < 0.5  # noise of the size of the kernel's small eigenvalues


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"weights": [-1.0]}, r"weights .*> 0.*got \[-1.0\]"),
        ({"biases": [np.nan]}, r"biases .*≥ 0.*got \[nan\]"),
        ({"k0": [[1.0, 2.0], [2.0, 1.0]]}, "no covariance: .* the lowest is -1"),
        ({"k0": [[1.0, 0.5], [0.0, 1.0]]}, "no covariance: it must be symmetric"),
        ({"k0": np.ones((2, 3))}, r"k0 must be a matrix \[P, P\].* \(2, 3\)"),
    ],
)
def test_layers_that_can_not_be(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        Stack(**{"k0": np.eye(2), "weights": [1.0], "biases": [0.0], **changes})
