"""GPTs on tokens: an engine of S samples and networks of width S are of one law."""

import numpy as np
import pytest
from same_law import deviations, values

from limits import Task
from zoo import GPT

pytestmark = pytest.mark.slow
S, VOCABULARY, CONTEXT, SEEDS = 32, 8, 6, 1000


def test_the_engine_is_in_law_a_gpt_of_its_width():
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=(2, CONTEXT + 1))
    mask = np.ones((2, CONTEXT), bool)
    mask[1, -2:] = False  # padding
    task = Task(tokens[:, :-1], tokens[:, 1:], loss="cross_entropy", mask_train=mask, classes=VOCABULARY)
    net = GPT(S, 2, VOCABULARY, CONTEXT, heads=2, mlp_ratio=2, parameterization="mup")
    # Four such numbers: one beyond 3.5 once in 500 runs by chance.
    assert np.abs(deviations(*values(net, task, 0.5, "phi", SEEDS))).max() < 3.5
