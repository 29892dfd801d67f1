"""Figures of Bayesian networks at finite width: run from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from configs.papers.beyond_gaussian import posteriors
from launch import reproduce
from train.study.experiment import load

SMALLER = {
    "fig3_6": {"depth": 6, "samples": 4, "sets": 2, "points": 5},
    "fig3_7": {"samples": 4, "sets": 2, "draws": 500, "weights": (0.5, 1.2)},
    "figB1": {"sets": 10, "draws": 2000, "widths": (20, 40), "inputs": 100},
    "figB2": {"samples": 4, "sets": 2, "draws": 500, "widths": (4000, 1000), "weights": (0.5, 1.0)},
}


def module(name):
    return load(reproduce.papers()[f"beyond_gaussian/{name}"])


def repeat(name: str, folder: Path) -> list:
    config = module(name).get_config("small")
    config.update(SMALLER[name])
    path = reproduce.papers()[f"beyond_gaussian/{name}"]
    found = reproduce.repeat(f"{path}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    assert len(json.loads((folder / "report.json").read_text())["claims"]) == len(found[0])
    assert (folder / "figure_1.png").stat().st_size > 10_000
    return found[0]


def test_linear_networks_from_end_to_end(tmp_path):
    assert [claim.holds for claim in repeat("figB1", tmp_path)][2:] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig3_6", "fig3_7", "figB2"])
def test_from_end_to_end(name, tmp_path):
    repeat(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [(14, "fig2_5"), (30, "fig3_4"), (31, "fig3_5"), (32, "fig3_6")])
def test_claims_of_the_small_setting(number, name, tmp_path, row):
    file = reproduce.papers()[f"beyond_gaussian/{name}"]
    config = module(name).get_config("small")
    for claim in reproduce.repeat(f"{file}:small", config, tmp_path, Console(quiet=True))[0]:
        row(number, f"{name}, {claim.verdict}: {claim.text}: {claim.figures}")
        if name == "fig3_6":
            assert claim.holds, claim


def test_clusters():
    x, y = posteriors.clusters(12, 0)
    assert (x.shape, y.ravel().tolist()) == ((12, 100), [1.0] * 6 + [-1.0] * 6)
    np.testing.assert_allclose(x.reshape(4, 3, 100).mean(1)[[0, 1, 2, 3], [0, 0, 1, 1]], [10, -10, 10, -10], atol=1.2)
    stack = posteriors.layers(x, 1.2, 3, feature_scale=2.0)
    assert np.diagonal(stack.k0).mean() == pytest.approx(posteriors.phase("erf", 1.2**0.5, 0.05**0.5).q)
    assert stack.weights.tolist() == [1.2, 1.2, 0.6]
    assert posteriors.alignment(y @ y.T, y) == pytest.approx(1)


def test_importance_sampling_of_the_posterior_does_not_depend_on_its_proposal():
    figure = module("figB1")
    config = figure.get_config("small")
    x, y = figure.ising(config, 4, 0)
    stack = figure.Stack(x @ x.T / config.inputs + 0.05, [1.0], [0.05], "linear")
    full = figure.solve(stack, y, 1e-3, 20, figure.Draws("linear", np.zeros((1, 4))), "full").forces[1]
    good, half = (figure.exact(stack, scale * full, y, 20, 40_000, 1) for scale in (1.0, 0.9))
    assert good[1] > 0.9 * 40_000 > 0
    error = np.hypot(*(parts.std(0, ddof=1) / 10**0.5 for parts, _ in (good, half)))
    assert np.all(abs(good[0].mean(0) - half[0].mean(0)) < 5 * error)
