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
    """α = 1/2: 32 blocks are off by O(1/32), the extrapolation from 8 and 16 by less; both within their sampling errors here.

    The loss and Φ of the first and the last layer, 4 standard errors of 24 replicas of 64 samples.
    """
    net = GPT(width=8, depth=2, vocabulary=5, context=3, heads=2, parameterization="mup")
    how = {"samples": 64, "replicas": 24, "times": [0, 2], "kernels": ("phi",)}
    deep = twin(net, depth=math.inf).rich(TASK, 2, 0.5, **how, depths=(4, 8, 16))
    assert "extrapolated to infinite depth from 8, 16" in deep.provenance["loss"].detail
    assert len(deep.phi) == 5
    many = twin(net.clone(depth=32)).rich(TASK, 2, 0.5, **how)
    assert np.all(np.abs(deep.loss - many.loss) < 4 * np.hypot(deep.loss_sem, many.loss_sem) + 1e-6)
    assert deep.loss[1] < deep.loss[0] - 8 * deep.loss_sem[1]
    for layer in (0, -1):
        error = np.hypot(deep.phi_sem[layer], many.phi_sem[layer])
        assert np.all(np.abs(deep.phi[layer] - many.phi[layer]) < 4 * error + 1e-6)
        assert error.max() < 0.1 * np.abs(many.phi[layer]).max()
