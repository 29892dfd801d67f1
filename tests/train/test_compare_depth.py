"""A comparison over depths of residual networks ends in how they come to infinite depth."""

import sys
import types

import numpy as np
import pytest

from limits import Task, twin
from train.evaluate.compare import compare, to_infinite_depth
from train.evaluate.compare_report import numbers, reading
from zoo import MLP, ResNet

X = np.random.default_rng(0).normal(size=(3, 4))
TASK = Task(X, np.ones(3))
FAMILIES = {"res": lambda n, l: ResNet(n, l, parameterization="mup"), "mlp": lambda n, l: MLP(n, l)}


def test_rates_of_families_that_have_infinite_depth(monkeypatch):
    depths = (16, 32, 64)
    kernels = types.SimpleNamespace(nngp=X @ X.T + 1, ntk=2 * X @ X.T + 1)

    class Known:  # those of infinite depth take many seconds to compute
        @staticmethod
        def kernels(x):
            np.testing.assert_array_equal(x, X)
            return kernels

    module = sys.modules["train.evaluate.compare"]
    monkeypatch.setattr(module, "twin", lambda net, depth: Known if isinstance(net, ResNet) else twin(net, depth=depth))
    # Twins that are off by 1/L, so that the rate is known.
    limits = {
        (label, depth): types.SimpleNamespace(nngp=kernels.nngp * (1 + 1 / depth), ntk=kernels.ntk * (1 - 2 / depth))
        for label in FAMILIES
        for depth in depths
    }
    rates = to_infinite_depth(FAMILIES, 8, depths, limits, TASK)
    assert set(rates) == {"nngp, res", "ntk, res"}
    assert all(rate.exponent == pytest.approx(1, abs=1e-6) for rate in rates.values())
    assert not to_infinite_depth(FAMILIES, 8, depths[:2], limits, TASK)


@pytest.mark.slow
def test_the_report_says_so():
    result = compare({"res": FAMILIES["res"]}, (8, 16), (8, 16, 32), TASK, 1, 0.1, members=8, init_members=8)
    assert "converges to the infinite-depth twin as L^(−e), e = " in reading(result)[-1]
    assert result.to_infinite_depth["ntk, res"].exponent == pytest.approx(1, abs=0.1)
    assert "ntk, res" in numbers(result, {})["to_infinite_depth"]
