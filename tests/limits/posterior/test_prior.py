"""Kernels of finite networks before they see data."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from limits.depth import fluctuations, response
from limits.posterior import Stack, draw_kernels, log_evidence, output_force, prior_kernels

W, B, N = 1.3, 0.05, 200
K0 = np.array([[0.7, 0.35], [0.35, 0.7]])


@pytest.fixture(scope="module")
def drawn():
    return draw_kernels(Stack(K0, [W] * 3, [B] * 3), N, 20_000, seed=1)


@pytest.mark.slow
def test_mean_is_that_of_infinite_width_up_to_1_over_n(drawn, row):
    stack = Stack(K0, [W] * 3, [B] * 3)
    wide = np.array(prior_kernels(stack))
    error = drawn.std(0) / len(drawn) ** 0.5
    assert error[0].max() < 1e-12
    assert np.all(abs(drawn.mean(0) - wide)[1] < 4 * error[1])  # of the first layer exactly
    assert np.all(abs(drawn.mean(0) - wide)[2:] < 4 * error[2:] + 0.2 / N)
    shifts, errors = [], []
    for width in (8, 16):
        narrow = draw_kernels(stack, width, 20_000, seed=2)[:, 3, 0, 0]
        shifts.append(narrow.mean() - wide[3, 0, 0])
        errors.append(narrow.std() / len(narrow) ** 0.5)
    assert shifts[0] < -10 * errors[0]
    row(21, f"shift of the prior mean at N = 8 over that at N = 16: {shifts[0] / shifts[1]:.2f} (2)")
    assert shifts[0] / shifts[1] == pytest.approx(2, rel=0.25)


def test_fluctuations_need_the_whole_jacobian(drawn, row):
    found = fluctuations(K0, 3, None, W**0.5, B**0.5)
    empirical = drawn[:, 3].var(0, ddof=1)
    np.testing.assert_allclose(found.std(N)[3] ** 2, empirical, rtol=0.03)
    # the printed form: responses of an element to itself alone
    path = response(K0, 3, None, W**0.5, B**0.5)
    blocks = [fluctuations(path.kernels[l], 1, None, W**0.5, B**0.5).kernels[1, 1, 1, 1] / N for l in range(3)]
    gains = path.gains[:, 0, 1]
    printed = blocks[2] + gains[2] ** 2 * (blocks[1] + gains[1] ** 2 * blocks[0])
    row(
        20,
        "Var C_12 over that of 20,000 networks: "
        f"theory {found.std(N)[3][0, 1] ** 2 / empirical[0, 1]:.3f}, printed {printed / empirical[0, 1]:.3f}",
    )
    assert printed / empirical[0, 1] > 1.06


def test_readout_of_another_scale():
    plain, scaled = (draw_kernels(Stack(K0, [W, w], [B, b]), 20, 5) for w, b in ((W, B), (W / 4, 0.2)))
    np.testing.assert_allclose(scaled[:, :2], plain[:, :2])
    np.testing.assert_allclose(scaled[:, 2], (plain[:, 2] - B) / 4 + 0.2)
    with pytest.raises(ValueError, match="one variance"):
        draw_kernels(Stack(K0, [1.0, 2.0, 1.0], [B] * 3), 20, 5)


def test_evidence_of_one_linear_layer():
    # One sample: C = w k χ²_N / N.
    y, noise, width = np.array([[1.7]]), 0.3, 12

    def density(t):
        return scipy.stats.chi2.pdf(t, width) * scipy.stats.norm.pdf(1.7, scale=(0.5 * t / width + noise) ** 0.5)

    exact = np.log(scipy.integrate.quad(density, 0, 100)[0])
    found = log_evidence(Stack(np.eye(1), [0.5], [0.0], "linear"), y, noise, width, members=4000)
    assert abs(found.value - exact) < 4 * found.sem
    assert found.sem < 0.02
    assert found.effective > 1000
    with pytest.raises(ValueError, match="at least 50"):
        log_evidence(Stack(np.eye(1), [0.5], [0.0], "linear"), 30 * y, 0.01, width, members=200)


def test_targets_of_one_output_need_no_second_axis():
    y = np.array([1.0, -0.5])
    np.testing.assert_array_equal(output_force(np.eye(2), y, 0.1), output_force(np.eye(2), y[:, None], 0.1))
    stack = Stack(np.eye(2), [1.0], [0.0], "linear")
    one, other = (log_evidence(stack, t, 1e14, width=100, members=100) for t in (y, y[:, None]))
    assert one == other
    assert one.sem == pytest.approx(0, abs=1e-6)  # noise that drowns the kernels: all networks are alike
