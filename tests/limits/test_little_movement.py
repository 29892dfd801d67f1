"""Features that move by little: what float32 loses of it is said."""

import warnings

import numpy as np
import pytest

from limits import Task, twin
from zoo import MLP

TASK = Task(np.eye(2), np.ones((2, 1)), np.eye(2), np.ones((2, 1)))


@pytest.mark.parametrize(("gamma", "said"), [(1e-5, True), (1.0, False)])
def test_movement_that_float32_loses_is_said(gamma, said):
    """Outputs after three steps were 13 standard errors off with γ = 1e-5 (−0.105 ± .003, in float64 −0.158 ± .004)."""
    net = MLP(width=16, depth=1, activation="tanh", parameterization="mup", gamma=gamma)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        twin(net).rich(TASK, 0, 0.1, samples=16, replicas=2, kernels=())
    assert any("does not tell well from rounding" in str(each.message) for each in caught) == said
