"""Responses against finite differences of the recursion, the closed averages, the twins, and the theory's numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from limits.depth import finite_kernels, input_kernel, response
from limits.depth.averages import power_curvature, power_slope, slope_in_variance
from limits.depth.response import pairs, start
from zoo import MLP, ResNet
from zoo.activations import erf

K0 = np.array([[0.5, 0.2, -0.1], [0.2, 0.7, 0.3], [-0.1, 0.3, 0.9]])


def differences(k0: np.ndarray, step: float = 1e-5, **network: Any) -> np.ndarray:
    """∂K^(l) / ∂K^(0) over unordered pairs, by central differences: [L + 1, n, n]; the output's is appended."""
    a, b = pairs(len(k0))
    columns = []
    for i, j in zip(a, b, strict=True):
        change = np.zeros_like(k0)
        change[i, j] = change[j, i] = step
        up, down = (response(k0 + sign * change, **network) for sign in (1, -1))
        both = [np.concatenate([each.kernels, each.output[None]])[:, a, b] for each in (up, down)]
        columns.append((both[0] - both[1]) / (2 * step))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize(
    ("activation", "rho"),
    [
        ("erf", 0.7),
        pytest.param("erf", None, marks=pytest.mark.slow),
        ("relu", 0.7),
        ("tanh", None),
        ("erf", (0.9, 0.1, 0.5)),
    ],
)
def test_the_full_jacobian_is_that_of_the_recursion(activation, rho):
    network = {"depth": 3, "rho": rho, "w_std": 1.1, "b_std": 0.3, "activation": activation}
    found = response(K0, **network)
    whole = np.stack([*(found.jacobian(l) for l in range(4)), found.jacobian()])
    np.testing.assert_allclose(whole, differences(K0, **network), rtol=1e-6, atol=1e-8)
    assert abs(whole[-1, 1, 0]) > 1e-3  # what covariances owe to variances is there


def test_numbers_of_the_theory():
    found = response([[1.4, 0.2], [0.2, 1.4]], 5, rho=1.0, w_std=1.2**0.5, b_std=0.2**0.5)
    np.testing.assert_allclose(found.eta[1:, 0, 0], [0.1565, 0.1026, 0.0711, 0.0519, 0.0397], atol=6e-5)
    np.testing.assert_allclose(found.eta[1:, 0, 1], [0.4043, 0.3988, 0.3857, 0.3711, 0.3570], atol=5e-5)
    np.testing.assert_allclose(found.chi, np.cumsum(found.eta, axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.kernels, np.cumsum(found.increments, axis=0), rtol=1e-13)


@pytest.mark.usefixtures("x64")
def test_averages_of_second_derivatives():
    q, k = np.array([0.4, 1.3]), 0.35
    delta = (1 + 2 * q[0]) * (1 + 2 * q[1]) - 4 * k * k  # ½ <φ_a'' φ_b> in closed form
    found = jax.jit(slope_in_variance, static_argnums=(0, 1))(erf, 0, start(*(jnp.array([each]) for each in (*q, k))))
    np.testing.assert_allclose(found, -4 / np.pi * k / ((1 + 2 * q[0]) * delta**0.5), rtol=1e-12)
    x = jnp.array([0.05, 0.8])
    first = 4 / np.pi / ((1 + 2 * x) * jnp.sqrt(1 + 4 * x))
    np.testing.assert_allclose(jax.jit(power_slope, static_argnums=(0, 1))(erf, 0, x), first, rtol=1e-12)
    second = jax.jit(power_curvature, static_argnums=(0, 1))(erf, 0, x)
    np.testing.assert_allclose(second, first * (-2 / (1 + 2 * x) - 2 / (1 + 4 * x)), rtol=1e-11)


def test_kernels_are_those_of_the_twins():
    x = np.random.default_rng(0).normal(size=(3, 5))
    kernel = input_kernel(x, 1.2, 0.3)
    deep = ResNet(8, 3, activation="erf", w_std=1.2, b_std=0.3, residual="fixed", beta=0.4)
    found = response(kernel, 3, 0.4, 1.2, 0.3)
    np.testing.assert_allclose(found.output, twin(deep).kernels(x).nngp, rtol=1e-10)
    plain = response(kernel, 3, None, 1.2, 0.3)
    np.testing.assert_allclose(plain.output, twin(MLP(8, 4, 1, "erf", 1.2, 0.3)).kernels(x).nngp, rtol=1e-10)


def test_responses_fade_exponentially_without_skips_and_as_a_power_with_them():
    network = {"w_std": 1.2**0.5, "b_std": 0.2**0.5}
    plain = response([[1.0]], 60, **network).eta[:, 0, 0]
    rates = np.diff(np.log(plain))
    np.testing.assert_allclose(rates[30:], rates[-1], rtol=1e-6)
    residual = response([[1.0]], 2000, rho=1.0, **network).eta[:, 0, 0]
    at_1000, at_2000 = (np.log2(residual[l] / residual[l // 2]) for l in (1000, 2000))
    assert -1.53 < at_1000 < at_2000 < -1.5  # tends to −3/2 as l^(−1/2)
    assert at_2000 + (at_2000 - at_1000) / (2**0.5 - 1) == pytest.approx(-1.5, abs=0.002)


def test_the_first_layer_adds_the_square_of_the_scale():
    full, tenth = (response(K0, 3, rho, 1.2**0.5, 0.2**0.5) for rho in (1.0, 0.1))
    for name in ("eta", "increments"):
        np.testing.assert_allclose(getattr(tenth, name)[1], 0.01 * getattr(full, name)[1], rtol=1e-12)


def test_averages_by_brute_force():
    """tanh has no closed form: two dimensions of quadrature against the series in the correlation."""
    network = {"depth": 3, "w_std": 1.1, "b_std": 0.3, "activation": "tanh"}
    found = response(K0, **network).kernels[1]
    z, weight = np.polynomial.hermite_e.hermegauss(120)
    root = np.linalg.cholesky(K0[:2, :2])
    u, v = root[0, 0] * z[:, None], root[1, 0] * z[:, None] + root[1, 1] * z
    expected = 1.21 * np.sum(weight[:, None] * weight * np.tanh(u) * np.tanh(v)) / weight.sum() ** 2 + 0.09
    np.testing.assert_allclose(found[0, 1], expected, rtol=1e-9)


def test_what_cannot_be_computed_is_said():
    with pytest.raises(ValueError, match="symmetric"):
        response([[1.0, 0.5], [0.2, 1.0]], 2)
    with pytest.raises(ValueError, match="variances > 0"):
        response([[0.0]], 2)
    with pytest.raises(ValueError, match="one for each of the 3 layers"):
        response([[1.0]], 3, rho=(0.1, 0.2))
    wrong: Any = (0, 2.5, True)
    for depth in wrong:
        with pytest.raises(ValueError, match=r"depth must be an integer of at least 1, got"):
            response([[1.0]], depth)
    with pytest.raises(ValueError, match="response: w_std must be a finite number > 0, got -1"):
        response([[1.0]], 1, w_std=-1.0)


def test_kernels_that_are_no_covariance_are_refused():
    with pytest.raises(ValueError, match=r"\|k0\[0, 1\]\| = 2 is larger than .* = 1, so that the correlation is 2"):
        response([[1.0, 2.0], [2.0, 1.0]], 3)
    with pytest.raises(ValueError, match=r"correlation is -1.5"):
        response([[1.0, -3.0], [-3.0, 4.0]], 3)
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"k0 must be an array .* of finite numbers"):
            response([[wrong]], 3)
    with pytest.raises(ValueError, match=r"k0 must be .* shape \(0, 0\)"):
        response(np.zeros((0, 0)), 3)
    equal = np.full((2, 2), 0.3, np.float32) * np.array([[1, 1 + 1e-7], [1 + 1e-7, 1]], np.float32)
    once = 2 / np.pi * np.arcsin(0.6 / 1.6)  # rounding passes
    np.testing.assert_allclose(response(equal, 1).kernels[1], once, rtol=1e-6)


def test_networks_of_finite_width_need_neurons_members_and_a_covariance():
    with pytest.raises(ValueError, match="width must be an integer of at least 1, got 0"):
        finite_kernels([[1.0]], 3, 0, 4)
    with pytest.raises(ValueError, match="members must be an integer of at least 1, got 0"):
        finite_kernels([[1.0]], 3, 5, 0)
    pairwise = [[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]
    with pytest.raises(ValueError, match=r"eigenvalues go from -0\.8"):
        finite_kernels(pairwise, 3, 5, 2)


def test_what_is_too_large_or_no_input_is_said():
    with pytest.raises(OverflowError, match="too large for a float within 400 layers"):
        response([[1.0]], 400, rho=10.0, w_std=10.0, activation="relu")
    with pytest.raises(OverflowError, match="too large for a float within 3 layers"):
        finite_kernels([[1e300]], 3, 5, 2, rho=1e10, activation="relu")
    for wrong in ([[np.nan]], np.zeros((2, 0))):
        with pytest.raises(ValueError, match="input_kernel: x must be an array with at least 1 axes"):
            input_kernel(wrong)
