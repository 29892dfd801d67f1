"""Limiting kernels and rates against recursions to great depth."""

import math
from typing import Any

import numpy as np
import pytest
from closed_forms import exact_diagonal

from limits.depth import convergence_rate, deep_pair, edge_of_chaos, limiting_kernel, log_normaliser, phase
from limits.types import AbsentError

DEPTHS = np.array([10_000, 20_000, 50_000, 100_000])


def slope(depths, away):
    """Of L · deviation against log L."""
    return np.polyfit(np.log(depths), depths * away, 1)[0]


def test_relu_comes_to_a_quarter_with_three_eighths():
    ntk = deep_pair(0.5, DEPTHS, q=1.0).ntk / DEPTHS
    assert limiting_kernel("relu", variance=1.0).off_diagonal == 0.25
    assert ntk[0] == pytest.approx(0.25, abs=1.5e-3)
    assert slope(DEPTHS, ntk - 0.25) == pytest.approx(3 / 8, rel=0.03)
    assert convergence_rate("relu", variance=1.0).coefficient == pytest.approx(3 / 8)
    absolute = (
        deep_pair(0.5, DEPTHS, "abs", edge_of_chaos("abs", 0.0), q=1.0).ntk / DEPTHS
    )  # another kink, the same 3/8
    assert slope(DEPTHS, absolute - 0.25) == pytest.approx(3 / 8, rel=0.03)


def test_tanh_comes_to_a_third_from_below():
    b = 0.5
    w, depths = edge_of_chaos("tanh", b), np.array([3000, 5000, 10_000])
    q = phase("tanh", w, b).q
    away = deep_pair(0.5, depths, "tanh", w, b, q=q).ntk / depths / q - 1 / 3
    assert abs(away[-1]) < 1.5e-3
    rate = convergence_rate("tanh", w, b)
    coefficient = float(rate(depths)[0] * depths[0] / np.log(depths[0]))
    assert coefficient / q == pytest.approx(-0.748, abs=5e-4)
    assert slope(depths, away) == pytest.approx(coefficient / q, rel=0.03)


@pytest.mark.slow
def test_tanh_crosses_a_third():
    w = edge_of_chaos("tanh", 0.2)
    q = phase("tanh", w, 0.2).q
    depths = np.array([100, 250, 1000, 10_000, 100_000])
    away = deep_pair(0.5, depths, "tanh", w, 0.2, q=q).ntk / depths / q - 1 / 3
    assert away[0] > 0 > away[2]
    assert away[2] < away[3] < away[4] < 0
    assert abs(away[1]) < 2e-3


@pytest.mark.parametrize(
    ("activation", "w_std", "b_std", "depths", "factor"),
    [
        ("tanh", 1.0, 0.3, (40, 80), 0.70026),
        pytest.param("tanh", 2.5, 0.2, (60, 150), 0.83009, marks=pytest.mark.slow),
        ("relu", 1.0, 1.0, (30, 50), math.sqrt(0.5)),
    ],
)
def test_exponential_rates(activation, w_std, b_std, depths, factor):
    limit, rate = limiting_kernel(activation, w_std, b_std), convergence_rate(activation, w_std, b_std)
    l = np.arange(depths[0], depths[1] + 1, 5)
    away = np.abs(deep_pair(0.5, l, activation, w_std, b_std).ntk - limit.off_diagonal)
    measured = np.exp(np.polyfit(l, np.log(away) - rate.power * np.log(l), 1)[0])
    assert measured == pytest.approx(rate.factor, rel=0.01)
    assert rate.factor == pytest.approx(factor, abs=1e-5)
    with pytest.raises(AbsentError, match="depends on the inputs"):
        rate(l)


@pytest.mark.slow
def test_ordered_and_chaotic_limits():
    assert limiting_kernel("tanh", 1.0, 0.3).diagonal == pytest.approx(0.92179, abs=5e-6)
    assert limiting_kernel("tanh", 2.0, 0.3).off_diagonal == pytest.approx(4.25891, abs=5e-6)
    assert math.isinf(limiting_kernel("tanh", 2.0, 0.3).diagonal)
    assert deep_pair(1.0, [40], "tanh", 2.0, 0.3).ntk[0] == pytest.approx(6.1e5, rel=5e-3)
    limit = limiting_kernel("relu", 1.0, 1.0)
    assert (limit.diagonal, limit.off_diagonal) == (4.0, 4.0)
    found = 4 - deep_pair(0.5, [5, 10, 20, 30, 40], "relu", 1.0, 1.0).ntk
    np.testing.assert_allclose(found, [0.645, 0.102, 3.0e-3, 9.5e-5, 3.0e-6], rtol=0.02)


def test_residual_limits():
    fixed = limiting_kernel(residual="fixed", w_std=1.2, variance=1.0)
    a = 0.72
    assert fixed.diagonal == pytest.approx(a / (1 + a))  # the paper prints 1
    kernel = deep_pair([1.0, 0.5], DEPTHS, w_std=1.2, residual="fixed", q=1.0)
    ntk = kernel.normalised(log_normaliser(DEPTHS, "fixed", 1.2))
    np.testing.assert_allclose(ntk[:, 0], fixed.diagonal + 1 / (1 + a) / DEPTHS, rtol=1e-9)
    rate = convergence_rate(residual="fixed", w_std=1.2, variance=1.0)
    assert slope(DEPTHS, ntk[:, 1] - fixed.off_diagonal) == pytest.approx(rate.coefficient, rel=0.03)
    assert ntk[0, 1] == pytest.approx(fixed.off_diagonal, abs=1.5e-3)


def test_scaled_residual_limits():
    l = np.array([1e5, 1e8, 1e12])
    limit = limiting_kernel(residual="decreasing", variance=1.0)
    ntk = np.exp(exact_diagonal(l, "decreasing", variance=1.0) - log_normaliser(l, "decreasing"))
    away = ntk - limit.diagonal
    assert limit.diagonal == pytest.approx(0.5)
    np.testing.assert_allclose(away * np.log(l), away[-1] * np.log(l[2]), rtol=1e-2)  # 1/log L
    depths = [10, 100, 1000, 10_000]
    found = deep_pair([0.5, 1.0], depths, residual="decreasing", q=1.0)
    ratio = np.exp(found.log_ntk[:, 0] - found.log_ntk[:, 1])
    np.testing.assert_allclose(ratio, [0.4486, 0.4082, 0.3822, 0.3643], atol=5.1e-5)
    # K grows as L^a log L, not L^(1 + a): of log K − log log L, the slope against log L is a = 1.
    growth = np.polyfit(np.log(depths[2:]), found.log_ntk[2:, 1] - np.log(np.log(depths[2:])), 1)[0]
    assert growth == pytest.approx(1, abs=0.05)
    deep = np.array([10_000, 100_000])
    far = exact_diagonal(deep, "decreasing")
    assert np.diff(far - np.log(np.log(deep)))[0] / math.log(10) == pytest.approx(1, abs=0.02)


def test_correlations_of_the_scaled_network_close_with_log_l():
    depths = np.array([100, 200, 500, 1000])
    gap = deep_pair(0.5, depths, residual="decreasing", q=1.0).gap
    assert np.polyfit(np.log(depths), gap**-0.5, 1)[0] == pytest.approx(
        math.sqrt(2) / (3 * math.pi), rel=0.02
    )  # s σ_w²/4


def test_gap_and_slope_at_the_edge():
    gap = deep_pair(0.5, [100_000], q=1.0).gap[0]
    assert gap * 1e10 / (9 * math.pi**2 / 2) == pytest.approx(0.9995, abs=1e-4)


def test_what_has_no_limit_says_so():
    cases: Any = (
        (("linear", 1.0), "linear"),
        (("relu", 1.0, 0.0), "critical kernel"),
        (("relu", 2.0, 0.1), "critical kernel"),
        (("tanh", 0.5, 0.0), "goes to 0"),
        (("tanh", 1.0, 0.3, "fixed"), "positively homogeneous"),
        (("relu", 1.0, 0.3, "decreasing"), "without bias"),
    )
    for arguments, message in cases:
        with pytest.raises(AbsentError, match=message):
            limiting_kernel(*arguments)
    with pytest.raises(ValueError, match=r'residual must be .*"fixed".* got .fixd'):
        log_normaliser([3], "fixd")
    with pytest.raises(ValueError, match="from 2"):
        log_normaliser([1], "decreasing")
    wrong: Any
    for wrong in ({"b_std": math.nan}, {"w_std": -1.5}, {"variance": -1.0}, {"variance": math.nan}):
        for function in (limiting_kernel, convergence_rate):
            with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a finite number"):
                function("relu", residual="fixed", **wrong)
    for depths in (np.array([math.nan]), np.array([0]), np.array([3, -1])):
        for found in (log_normaliser, convergence_rate("relu")):
            with pytest.raises(ValueError, match="count from 1"):
                found(depths)
