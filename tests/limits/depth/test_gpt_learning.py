"""Feature learning of a GPT at infinite depth."""

import math

import numpy as np
import pytest

from limits import Task, twin
from zoo import GPT

X = np.random.default_rng(0).integers(0, 5, (2, 3))
TASK = Task(X, np.roll(X, 1, axis=1), loss="cross_entropy")


@pytest.mark.slow
def test_it_is_the_limit_of_deep_ones():
    """α = 1/2: what the sweeps of 8 and 16 blocks see, from which it is extrapolated, is off by O(1/L); of 32 by half of that.

    The loss within 4 standard errors of that of 32 blocks; Φ of the last layer nearer to theirs than that of 4 blocks, by half.
    """
    net = GPT(width=8, depth=2, vocabulary=5, context=3, heads=2, parameterization="mup")
    how = {"samples": 64, "replicas": 24, "times": [0, 2], "kernels": ("phi",)}
    deep = twin(net, depth=math.inf).rich(TASK, 2, 0.5, **how, depths=(4, 8, 16))
    assert "extrapolated to infinite depth from 8, 16" in deep.provenance["loss"].detail
    assert len(deep.phi) == 5
    few, many = (twin(net.clone(depth=depth)).rich(TASK, 2, 0.5, **how) for depth in (4, 32))
    assert np.all(np.abs(deep.loss - many.loss) < 4 * np.hypot(deep.loss_sem, many.loss_sem) + 1e-6)
    near, far = (np.abs(run.phi[-1] - many.phi[-1]).max() for run in (deep, few))
    assert near < far / 2
