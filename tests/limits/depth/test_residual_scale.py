"""Optimal residual scales: the theory's table, an independent recursion, where there is none; the maximum-entropy condition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from limits.depth import (
    deep_scale,
    estimated_scale,
    log_response,
    optimal_scale,
    saturation_variance,
    uniform_divergence,
    uniform_variance,
)

K0 = np.array([[0.05, 0.03], [0.03, 0.05]])
NET = {"w_std": 1.25**0.5, "b_std": 0.05**0.5}


def output_response(rho: float, depth: int, q: float, k: float | None, w: float = 1.25, b: float = 0.05) -> float:
    """χ^out for erf with its closed averages, of variances (k=None) or covariances."""
    chi = 1.0
    for layer in range(depth + 1):
        gain = (
            4 / np.pi / (((1 + 2 * q) ** 2 - 4 * k * k) ** 0.5 if k is not None else (1 + 2 * q) * (1 + 4 * q) ** 0.5)
        )
        if layer == depth:
            break
        chi *= 1 + rho**2 * w * gain
        if k is not None:
            k += rho**2 * (w * 2 / np.pi * np.arcsin(2 * k / (1 + 2 * q)) + b)
        q += rho**2 * (w * (4 / np.pi * np.arctan((1 + 4 * q) ** 0.5) - 1) + b)
    return chi * gain  # pyright: ignore[reportPossiblyUnboundVariable]


def test_the_table():
    table = {
        5: (0.4960, 1.853, 0.4206, 0.5348),
        10: (0.3265, 1.0892, 0.2880, 0.3601),
        100: (0.0972, 0.2926, 0.0886, 0.1091),
    }
    for depth, (own, between, quarter, half) in table.items():
        found = optimal_scale(K0, depth, **NET)
        np.testing.assert_allclose([found[0, 0], found[1, 1], found[0, 1]], [own, own, between], atol=1e-3 * 0.5)
        closed = [estimated_scale(0.05, depth, **NET, target=t).item() for t in (0.25, 0.5)]
        np.testing.assert_allclose(closed, [quarter, half], atol=1e-4)
    own, between = zip(*(optimal_scale(K0, depth, **NET)[0] * depth**0.5 for depth in (10, 50, 100, 200)), strict=True)
    np.testing.assert_allclose(own, [1.033, 0.979, 0.972, 0.969], atol=1e-3)
    np.testing.assert_allclose(between, [3.444, 2.980, 2.926, 2.899], atol=1e-3)


@pytest.mark.parametrize(("depth", "k"), [(1, None), (10, None), (2, 0.03), (50, 0.03)])
def test_against_a_recursion_written_again(depth, k):
    found = optimal_scale(K0, depth, **NET)[0, 0 if k is None else 1]
    again = minimize_scalar(
        lambda rho: -output_response(rho, depth, 0.05, k), bounds=(found / 3, 3 * found), options={"xatol": 1e-9}
    )
    np.testing.assert_allclose(found, again.x, rtol=1e-6)  # pyright: ignore[reportAttributeAccessIssue]
    height = log_response(K0, depth, np.array([0.1, found]), **NET)[0 if k is None else 1]
    expected = [np.log(1.25 * output_response(rho, depth, 0.05, k)) for rho in (0.1, found)]
    np.testing.assert_allclose(height, expected, rtol=1e-12)


def test_hyperparameters_and_angles():
    def best(k0, w: float = 1.25, b: float = 0.05) -> np.ndarray:
        return optimal_scale(k0, 50, w**0.5, b**0.5)[0]

    np.testing.assert_allclose([best(K0, w=w) for w in (0.5, 2.0)], [[0.158, 0.742], [0.119, 0.322]], atol=1e-3)
    np.testing.assert_allclose([best(K0, b=b) for b in (0.0, 0.2)], [[0.173, 0.385], [0.068, 0.509]], atol=1e-3)
    np.testing.assert_allclose(best(K0, b=0.4), [0, 0.590], atol=1e-3)
    angles = [0.05 * np.array([[1, np.cos(t)], [np.cos(t), 1]]) for t in np.deg2rad([30, 90])]
    np.testing.assert_allclose([best(each)[1] for each in angles], [0.561, 0.324], atol=1e-3)


@pytest.mark.slow
def test_the_response_has_one_maximum_and_angles_lower_it():
    for depth in (10, 50):
        heights = log_response(K0, depth, np.geomspace(0.01, 3.0, 100), **NET)
        assert ((np.diff(np.sign(np.diff(heights))) != 0).sum(-1) == 1).all()
    angles = np.arange(6) * np.pi / 10
    best = optimal_scale(0.05 * np.cos(angles[:, None] - angles), 50, **NET)[0, 1:]
    assert (np.diff(best) < 0).all()


def test_where_there_is_no_optimum():
    parallel = optimal_scale(np.full((2, 2), 0.05), 50, **NET)
    np.testing.assert_allclose(parallel, [[0.138, np.inf], [np.inf, 0.138]], atol=1e-3)
    assert optimal_scale(K0, 1, **NET)[0, 1] == np.inf
    assert optimal_scale(10 * K0, 50, **NET)[0, 0] == 0  # the inputs saturate erf
    assert (optimal_scale(K0, 50, **NET, activation="relu") == np.inf).all()
    assert (deep_scale(K0, **NET, activation="relu") == np.inf).all()


def test_the_deep_limit():
    found = deep_scale(K0, **NET)
    assert abs(found[0, 0] - 0.96594) < 1e-5
    # ρ* √L = c + O(1/L): from L and 2L.
    for element in ((0, 0), (0, 1)):
        single, double = (optimal_scale(K0, depth, **NET)[element] * depth**0.5 for depth in (200, 400))
        np.testing.assert_allclose(2 * double - single, found[element], rtol=3e-4)
    cases = {(1.25, 0.05): 0.2511, (0.5, 0.05): 0.181, (2, 0.05): 0.271, (1.25, 0): 0.305, (1.25, 0.2): 0.121}
    for (w, b), expected in cases.items():
        assert abs(saturation_variance(w**0.5, b**0.5) - expected) < 6e-4
    assert saturation_variance(**NET, activation="relu") == np.inf
    closed = estimated_scale(0.05, np.inf, **NET).item()
    np.testing.assert_allclose(closed, estimated_scale(0.05, 10**6, **NET) * 1e3, rtol=1e-5)
    assert 0.88 < closed / found[0, 0] < 0.92


def test_the_entropy_condition_fills_the_range():
    rho = optimal_scale(K0, 10, **NET, condition="entropy")
    q = 0.05
    for _ in range(10):
        q += rho[0, 0] ** 2 * (1.25 * (4 / np.pi * np.arctan((1 + 4 * q) ** 0.5) - 1) + 0.05)
    np.testing.assert_allclose(q, 0.5, rtol=1e-10)
    assert np.isnan(rho[0, 1])
    assert optimal_scale(20 * K0, 10, **NET, condition="entropy")[0, 0] == 0


def test_the_estimate_at_a_kink_takes_both_sides():
    for activation, square in ((jax.nn.relu6, 1 / 2), (lambda x: jnp.sin(jnp.abs(x)), 1.0)):
        rho = estimated_scale(0.05, 10, w_std=1.2, activation=activation).item()
        assert 0.05 * (1 + rho**2 * 1.2**2 * square) ** 10 == pytest.approx(0.25)


def test_mistakes():
    with pytest.raises(ValueError, match="condition"):
        optimal_scale(K0, 10, condition="best")
    with pytest.raises(ValueError, match=r"k0 must be an array \[2, 2\]"):
        log_response([[1.0]], 10, 0.1)
    with pytest.raises(ValueError, match=r"φ'\(0\) = 0"):
        estimated_scale(0.05, 10, activation=lambda x: x**2)
    for arguments in ((0.0, 10), (-1.0, 10), (np.nan, 10), (0.05, 0), (0.05, np.nan)):
        with pytest.raises(ValueError, match=r"estimated_scale: (variance|depth) must be .*> 0"):
            estimated_scale(*arguments)
    assert np.isfinite(estimated_scale(0.0, 10, b_std=0.1))
    with pytest.raises(ValueError, match="optimal_scale: w_std"):
        optimal_scale(K0, 10, w_std=np.nan)
    for wrong in (np.array([0.1, -0.3]), np.nan, np.zeros(0)):
        with pytest.raises(ValueError, match="log_response: rho"):
            log_response(K0, 10, wrong)
    for factor in (1e-17, 1e10):  # neither is an input that saturates erf, nor one that no scale is best for
        with pytest.raises(ValueError, match=r"cannot be worked out.* Scale the inputs"):
            optimal_scale(factor * K0, 10)


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
