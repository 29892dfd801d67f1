"""Deep linear networks in coordinates: the notes' numbers, and the general engine."""

from typing import Any

import numpy as np
import pytest

from limits import Task
from limits.depth import linear
from limits.fields.sweeps import Plan, sweeps
from limits.training import Training
from zoo import Parameterization, ResNet

ONE = Task([[1.0]], [1.0])
NET = ResNet(8, 4, activation="linear", parameterization="mup")
# Theory notes, fixtures F1 (all layers) and F1b (branches alone): L = 4, η₀ = .1.
F1 = (0, 0.507812, 0.787651, 0.927029, 0.978755, 0.994250)
PHI1 = (1.953125, 2.111206, 2.463497, 2.689824, 2.781005, 2.809024)
F1B = (0, 0.117188, 0.221186, 0.314186, 0.397635, 0.472540)
PHI1B = (1.953125, 1.969604, 2.020872, 2.095643, 2.185672, 2.284675)


@pytest.mark.parametrize(("trained", "f", "phi"), [(None, F1, PHI1), (("branch",), F1B, PHI1B)])
def test_the_fixtures_of_the_notes(trained, f, phi):
    plan = Plan(NET, ONE, Training.of(ONE, 5, 0.1, trained=trained), np.arange(6), ("phi",))
    found = linear.run(plan, 4)
    np.testing.assert_allclose(found["f"][0, :, 0, 0], f, atol=1e-6)
    np.testing.assert_allclose(found["phi"][-1][0, :, 0, 0], phi, atol=1e-6)


@pytest.mark.slow
def test_agrees_with_the_general_engine_under_every_option():
    random = np.random.default_rng(0)
    one_hot = np.eye(2)
    task = Task(
        random.normal(size=(3, 4)), one_hot[[0, 1, 1]], random.normal(size=(2, 4)), one_hot[[1, 0]], "cross_entropy"
    )
    net = NET.clone(
        depth=3, outputs=2, w_std=1.2, beta=0.8, gamma=0.7, parameterization=Parameterization.mup.replace(alpha=1.0)
    )
    roles, rows = ("branch", "readout"), [[0, 1], [2, 2], [0, 2]]
    training = Training.of(task, 3, lambda t: 0.3 / (1 + t), 0.5, 0.2, trained=roles, batches=rows)
    plan = Plan(net, task, training, np.array([0, 3]), ("phi", "g", "ntk"))
    found, (expected, how) = linear.run(plan, 3), sweeps(plan, 2, 2)
    assert how.kind == "exact"
    for name, value in expected.items():
        mine = found[name]
        np.testing.assert_allclose(np.stack(mine) if isinstance(mine, tuple) else mine, np.stack(value), atol=1e-12)


def test_branches_that_start_at_zero():
    """After one step W = (η₀/√L) r xᵀ in every block, and <x, r> = 0: each adds η₀/L of r, whatever the depth before it."""
    rate, depth = 0.5, 8
    plan = Plan(NET.clone(zero_init=True), ONE, Training.of(ONE, 1, rate, trained=("branch",)), np.arange(2))
    assert linear.run(plan, depth)["f"][0, 1, 0, 0] == pytest.approx(rate * (depth - 1) / depth, rel=1e-12)


def test_where_it_applies():
    assert linear.applies(NET)
    others: tuple[dict[str, Any], ...] = (
        {"activation": "relu"},
        {"b_std": 0.1},
        {"branch_layers": 2},
        {"form": "conv"},
    )
    assert not any(linear.applies(NET.clone(**options)) for options in others)
