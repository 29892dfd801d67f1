"""Rates at which finite depths come to infinite depth."""

import numpy as np
import pytest

from limits import Convergence, convergence
from limits.depth.learning import dropped, weights_at_infinity
from zoo import Parameterization, ResNet

X = np.random.default_rng(0).normal(size=(4, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "quantity"), [("relu", "ntk"), ("erf", "nngp")])
def test_kernels_converge_as_one_over_depth(activation, quantity):
    rate = convergence(ResNet(8, 3, activation=activation), X, quantity=quantity)
    assert rate.exponent == pytest.approx(1, abs=0.05)
    assert rate.high - rate.low < 0.1
    assert rate.sentence.startswith(f"{quantity} converges to the infinite-depth twin as L^(−e), e = ")


@pytest.mark.slow
def test_between_the_two_scalings_branches_still_matter():
    """α = 3/4: what the branches do to signals is Σ s² = L^(−1/2)."""
    net = ResNet(8, 3, activation="erf", parameterization=Parameterization.ntk.replace(alpha=0.75))
    assert convergence(net, X, (256, 512, 1024, 2048)).exponent == pytest.approx(0.5, abs=0.02)


def test_what_does_not_converge_is_said():
    rate = Convergence.of("ntk", [4, 8, 16, 32], [2.0, 2.1, 1.9, 2.05], 1.0)
    assert "not seen to converge" in rate.sentence


def test_a_rate_takes_three_depths():
    with pytest.raises(ValueError, match="three depths"):
        Convergence.of("ntk", [4, 8], [1.1, 1.05], 1.0)


def test_extrapolation_is_exact_for_polynomials():
    depths, random = [4, 6, 8, 12], np.random.default_rng(0)
    c = random.normal(size=4)
    values = [c @ (1 / depth) ** np.arange(4) for depth in depths]
    assert weights_at_infinity(depths) @ values == pytest.approx(c[0], rel=1e-9)


def test_the_estimate_of_what_is_dropped_is_exact_to_leading_order():
    depths, cubic = [64, 128, 256], 3.0
    f = [1 + 2 / d + cubic / d**2 for d in depths]
    value, before = weights_at_infinity(depths[-2:]) @ f[-2:], weights_at_infinity(depths[:2]) @ f[:2]
    assert abs(value - 1) == pytest.approx(dropped(depths, 2) * abs(value - before), rel=1e-6)
