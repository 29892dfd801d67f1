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
    """α = 1/2: the loss of the sweeps of 8 and 16 blocks, from which it is extrapolated, is off by O(1/L); of 32 by half of that.

    Within 4 standard errors and a quarter of what the extrapolation moves: 64 samples, 24 replicas.
    """
    net = GPT(width=8, depth=2, vocabulary=5, context=3, heads=2, parameterization="mup")
    how = {"samples": 64, "replicas": 24, "times": [0, 2], "kernels": ("phi",)}
    deep = twin(net, depth=math.inf).rich(TASK, 2, 0.5, **how, depths=(4, 8, 16))
    assert "extrapolated to infinite depth from 8, 16" in deep.provenance["loss"].detail
    assert len(deep.phi) == 5
    last = twin(net.clone(depth=32)).rich(TASK, 2, 0.5, **how)
    for name in ("loss", "phi"):
        mine, theirs = getattr(deep, name), getattr(last, name)
        mine, theirs = (mine, theirs) if name == "loss" else (mine[-1], theirs[-1])
        error = np.hypot(deep.loss_sem, last.loss_sem) if name == "loss" else 0.05 * np.abs(theirs)
        assert np.all(np.abs(mine - theirs) < 4 * error + 1e-6)
