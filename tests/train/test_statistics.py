"""The judges judged: they accept what agrees and reject what does not, at the rates they claim."""

import numpy as np
import pytest

from train.evaluate.statistics import (
    absolute_bias,
    extrapolate,
    extrapolate_curved,
    hotelling,
    power_law,
    relative_variance,
)

WIDTHS = (32, 64, 128, 256, 512)


def members(rng, limit, members=128, slope=0.0, bend=0.0, spread=1.0):
    """Correlated projections with mean limit + slope/N + bend/N² and variance spread/N."""
    mix = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.1, 0.2, 1.0]])
    return [
        limit + slope / n + bend / n**2 + rng.normal(size=(members, 3)) @ mix.T * (spread / n) ** 0.5 for n in WIDTHS
    ]


def test_a_true_limit_is_rejected_as_often_as_the_level_says():
    limit, level, runs = np.array([1.0, 2.0, 3.0]), 0.05, 400
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(runs):
        fit = extrapolate(WIDTHS, members(rng, limit, slope=2.0))
        rejected += hotelling(fit.a - limit, fit.cov, fit.dof)[1] < level
    # Binomial(400, .05) has standard deviation 4.4; the 1/N² term, added by chance in 1 % of runs, changes nothing.
    assert abs(rejected - runs * level) < 4 * 4.4


@pytest.mark.parametrize("shift", [0.02, 0.05])
def test_a_wrong_limit_is_rejected(shift):
    limit = np.array([1.0, 2.0, 3.0])
    fit = extrapolate(WIDTHS, members(np.random.default_rng(1), limit, slope=2.0))
    # The extrapolated standard error is about 0.005 here, so a shift of 0.02 is four of them.
    assert hotelling(fit.a - limit * (1 + shift), fit.cov, fit.dof)[1] < 1e-4


@pytest.mark.parametrize(("dof", "power"), [(3, 0.05), (5, 0.7), (12, 0.95)])
def test_few_networks_still_reject(dof, power):
    """10 projections; on all of them 5 degrees of freedom rejected .5 % of shifts by two deviations of a network in each."""
    rng = np.random.default_rng(4)
    mix = rng.normal(size=(10, 10))
    root = np.linalg.cholesky(mix @ mix.T + 0.1 * np.eye(10))
    right, wrong = [], []
    for _ in range(500):
        each = root @ rng.normal(size=(10, dof + 1))
        mean, cov = each.mean(1), np.cov(each) / (dof + 1)
        right.append(hotelling(mean, cov, dof)[1])
        wrong.append(hotelling(mean + root @ np.full(10, 2.0), cov, dof)[1])
    assert np.mean(np.array(right) < 0.05) < 0.05 + 4 * 0.01  # Binomial(500, .05)
    assert np.mean(np.array(wrong) < 0.05) > power


def test_residuals_demand_a_second_order_term():
    rng = np.random.default_rng(2)
    straight = extrapolate(WIDTHS, members(rng, np.ones(3), slope=3.0))
    bent = extrapolate(WIDTHS, members(rng, np.ones(3), slope=3.0, bend=400.0))
    assert (straight.order, bent.order) == (1, 2)
    assert np.all(np.abs(bent.a - 1) < 4 * bent.sem)


def test_a_curve_that_residuals_do_not_show_is_found_before_a_rejection():
    """A bend of two of its standard errors: residuals accept a straight line, a test of the bend alone does not."""
    limit, found, runs = np.ones(3), 0, 40
    rng = np.random.default_rng(3)
    for _ in range(runs):
        data = members(rng, limit, members=256, slope=3.0, bend=60.0)
        curved = extrapolate_curved(WIDTHS, data)
        found += curved is not None and extrapolate(WIDTHS, data).order == 1
        if curved is not None:
            assert hotelling(curved.a - limit, curved.cov, curved.dof)[1] > 1e-4
    assert found > runs / 4
    straight = [extrapolate_curved(WIDTHS, members(rng, limit, slope=3.0)) is not None for _ in range(200)]
    assert sum(straight) < 10 + 4 * 3.1  # Binomial(200, .05)
    assert extrapolate_curved(WIDTHS[:3], members(rng, limit)[:3]) is None


def test_extrapolation_needs_two_widths():
    with pytest.raises(ValueError, match="at least two widths"):
        extrapolate((32,), [np.ones((8, 2))])


@pytest.mark.parametrize(("power", "meets"), [(1.0, True), (0.5, False)])
def test_variance_exponent(power, meets):
    rng = np.random.default_rng(3)
    samples = [1 + rng.normal(size=(256, 2)) / n ** (power / 2) for n in WIDTHS]
    law = power_law(WIDTHS, samples, relative_variance(1.0))
    # log-variance has standard error sqrt(2/512) = .06 a width; the slope over these widths a fortieth of .06/.98·…: .03.
    assert abs(law.exponent + power) < 0.12
    assert law.low < -power < law.high
    assert law.meets(-1.0, 0.15) is meets


def test_bias_exponent():
    rng = np.random.default_rng(4)
    samples = [3 + 20 / n + 0.05 * rng.normal(size=500) for n in WIDTHS]
    law = power_law(WIDTHS, samples, absolute_bias(3.0))
    assert law.meets(-1.0, 0.05)


def test_projections_that_repeat_each_other_count_once():
    cov = np.array([[1.0, 1.0], [1.0, 1.0]])
    t2, p, dimensions = hotelling(np.array([2.0, 2.0]), cov, dof=1e6)
    assert dimensions == 1
    assert t2 == pytest.approx(4.0)
    assert p == pytest.approx(0.0455, abs=1e-3)
