"""Figures of papers, run from end to end on less, and what their files share."""

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from configs.papers.beyond_gaussian import fig3_5, mixtures, posteriors, sampled
from configs.papers.residual_scaling import shared
from launch.reproduce import FIGURES
from limits import Task
from train.study.figure import Settings, cells

GRID = {"widths": (4, 6), "depths": (1, 2), "members": 2, "random": 2, "samples": 100, "shown": 500, "steps": 10}
TABLE = {"train": 300, "test": 100, "drawn": 200, "members": 2, "steps": 10, "stat_steps": 10, "width": 6, "batch": 20}
CHAINS = {"datasets": 1, "steps": 200, "warmup": 60}
FEW = {"networks": 20, "width": 40, "depth": 4, "pairs": 2}
SMALLER = {
    "beyond_gaussian/fig2_2": {"samples": 100, "shown": 500, "steps": 10, "members": 2},
    "beyond_gaussian/fig2_3": GRID,
    "beyond_gaussian/fig2_4": {"members": 2, "switch": 200, "steps": 200, "samples": 2000},
    "beyond_gaussian/fig2_5": TABLE,
    "beyond_gaussian/fig2_6": {"members": 2, "steps": 10, "samples": 200, "width": 4},
    "beyond_gaussian/fig2_7": TABLE,
    "beyond_gaussian/fig3_4": CHAINS | {"w2": (0.8, 1.2), "width": (250, 500), "points": (4, 12)},
    "beyond_gaussian/fig3_5": CHAINS | {"w2": (0.8, 1.6), "width": 100, "points": 8},
    "beyond_gaussian/fig3_6": {"depth": 6, "samples": 4, "sets": 2, "points": 5},
    "beyond_gaussian/fig3_7": {"samples": 4, "sets": 2, "draws": 500, "weights": (0.5, 1.2)},
    "beyond_gaussian/figA3": {"width": 20, "networks": 2, "inputs": 50, "depth": 8},
    "beyond_gaussian/figB1": {"sets": 10, "draws": 2000, "widths": (20, 40), "inputs": 100},
    "beyond_gaussian/figB2": {"samples": 4, "sets": 2, "draws": 500, "widths": (4000, 1000), "weights": (0.5, 1.0)},
    "curse_of_depth/fig1": {},
    "curse_of_depth/phases": {"grid": (31, 20), "width": 300},
    "curse_of_depth/table1": {"n_train": 100, "n_test": 60, "depths": (3, 30, 300)},
    "curse_of_depth/table1_sgd": {"width": 16, "steps": 20, "members": 2, "depths": (3, 5), "rates": (0.1, 1e9)},
    "curse_of_depth/table2": {"width": 4, "blocks": (1, 2), "epochs": 4, "early": 2, "members": 2},
    "depthwise_transfer/figB7": {"widths": (8, 16), "depths": (3, 5), "members": 16, "steps": 2},
    "depthwise_transfer/figM1": {
        "widths": (8,), "depths": (3, 5), "values": (0.5, 1.0, 2.0), "seeds": 2, "steps": 20,
    },
    "residual_scaling/fig4_2": FEW,
    "residual_scaling/fig4_3": FEW,
    "residual_scaling/fig4_4": {"depths": (10, 20)},
    "residual_scaling/fig4_5": {"count": 4, "depths": (10, 20), "weights": (1.0, 1.25), "biases": (0.0, 0.05, 0.1)},
    "residual_scaling/fig4_6": {"count": 4},
    "residual_scaling/figC1": FEW | {"depth": 8},
}  # fmt: skip
MEANS = {  # of one array of each
    "beyond_gaussian/fig2_2": ("random variance", 0.00403679),
    "beyond_gaussian/fig2_3": ("random", 0.0480587),
    "beyond_gaussian/fig2_4": ("covariance → mean loss", 0.748639),
    "beyond_gaussian/fig2_5": ("data 1 loss", 10.0899),
    "beyond_gaussian/fig2_6": ("order 4 1", 0.3625),
    "beyond_gaussian/fig2_7": ("statistics 2 loss", 4.03767),
    "beyond_gaussian/fig3_4": ("w2 theory", 0.10864),
    "beyond_gaussian/fig3_5": ("theory", 0.970887),
    "beyond_gaussian/fig3_6": ("force", 7509.22),
    "beyond_gaussian/fig3_7": ("moved", 0.0843427),
    "beyond_gaussian/figA3": ("predicted 0.76", 1.1286),
    "beyond_gaussian/figB2": ("cka", 0.181822),
    "curse_of_depth/fig1": ("relu, edge of chaos", 0.0128276),
    "curse_of_depth/phases": ("chi", 1.06712),
    "curse_of_depth/table1_sgd": ("tanh, edge of chaos/3", 0.26058),
    "curse_of_depth/table2": ("standard/1", 0.51002),
    "depthwise_transfer/figB7": ("f_5_16", 0.049212),
    "residual_scaling/fig4_2": ("ResNet theory c variances", 0.950599),
    "residual_scaling/fig4_3": ("1 theory K variances", 3.23163),
    "residual_scaling/fig4_4": ("best", 0.585624),
    "residual_scaling/fig4_6": ("angles", 0.324643),
}


def repeat(name: str, folder: Path) -> tuple[list[bool | None], Any]:
    """A small figure made smaller: (which of its claims hold, its arrays); the report says the same."""
    figure = FIGURES[name]
    config = figure.module.get_config("small")
    config.update(SMALLER.get(name, {}))
    (folder / "cells").mkdir()
    found = figure.repeat(config, folder, Console(quiet=True))
    assert found is not None
    figure.write(found, {"config": {}}, folder)
    rows = json.loads((folder / "report.json").read_text())["claims"]
    assert [(row["claim"], row["verdict"]) for row in rows] == [(each.sentence, each.verdict) for each in found[0]]
    assert all(each.sentence in html.unescape((folder / "report.html").read_text()) for each in found[0])
    with np.load(folder / "arrays.npz") as arrays:
        return [each.holds for each in found[0]], dict(arrays)


def test_kept_ensembles_are_of_the_same_data(tmp_path: Path):
    def measure(config, data, width, depth):
        return data.y_train * width

    def means(data: Task) -> tuple[list[float], int]:
        config = Settings("own", {"widths": (4, 8), "depths": (2,)})()
        found = cells(measure, data, config, tmp_path, Console(quiet=True), (0, 1))
        assert found is not None
        return [float(each.mean()) for each in found.values()], len([*(tmp_path / "cells").glob("*.npz")])

    tasks = [Task(np.ones((2, 3)), np.full((2, 1), y)) for y in (1.0, 2.0)]
    assert means(tasks[0]) == means(tasks[0]) == ([4, 8], 2)
    assert means(tasks[1]) == ([8, 16], 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEANS)
def test_from_end_to_end(name: str, tmp_path: Path):
    _, arrays = repeat(name, tmp_path)
    array, mean = MEANS[name]
    assert np.nanmean(arrays[array]) == pytest.approx(mean, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verdicts"),
    [("curse_of_depth/table1", {1: True, 2: True}), ("curse_of_depth/phases", dict.fromkeys(range(5), True))],
)
def test_verdicts_of_smaller_settings(name: str, verdicts: dict, tmp_path: Path):
    holds, _ = repeat(name, tmp_path)
    assert {number: holds[number] for number in verdicts} == verdicts


@pytest.mark.slow
def test_sweeps_from_end_to_end(tmp_path: Path):
    _, arrays = repeat("depthwise_transfer/figM1", tmp_path)
    assert arrays["α = 1/8x5/curves"].shape == (3, 2, 20)


@pytest.mark.slow
def test_best_scales_fall_with_depth(tmp_path: Path):
    _, arrays = repeat("residual_scaling/fig4_5", tmp_path)
    ratio = arrays["best weights"][0] / arrays["best weights"][1]  # at depths 10 and 20
    assert np.all((ratio > 1.3) & (ratio < 1.7))  # ρ* to the powers −.38 to −.77 of L


@pytest.mark.slow
def test_responses_of_two_figures_are_the_same(tmp_path: Path):
    _, arrays = repeat("residual_scaling/figC1", tmp_path)
    assert arrays["theory variances"][:4].mean() == pytest.approx(0.09552, rel=1e-3)  # as in figure 4.2


def test_linear_networks_from_end_to_end(tmp_path: Path):
    holds, arrays = repeat("beyond_gaussian/figB1", tmp_path)
    assert holds[2:] == [True, True]
    assert arrays["effective"].min() > 0.9


def test_overlaps_from_end_to_end(tmp_path: Path):
    holds, arrays = repeat("residual_scaling/figC2", tmp_path)
    assert holds == [True, True]
    assert arrays["digits 0, 3"].mean() == pytest.approx(0.776493, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), [(14, "fig2_5"), (30, "fig3_4"), (31, "fig3_5"), (32, "fig3_6")])
def test_claims_of_the_small_setting(number, name, tmp_path, row):
    figure = FIGURES[f"beyond_gaussian/{name}"]
    found = figure.repeat(figure.module.get_config("small"), tmp_path, Console(quiet=True))
    assert found is not None
    for each in found[0]:
        row(number, f"{name}, {each.verdict}: {each.sentence}: {each.figures}")
        if name == "fig3_6":
            assert each.holds, each


# --- what they share


def test_clusters():
    x, y = posteriors.clusters(12, 0)
    assert (x.shape, y.ravel().tolist()) == ((12, 100), [1.0] * 6 + [-1.0] * 6)
    np.testing.assert_allclose(x.reshape(4, 3, 100).mean(1)[[0, 1, 2, 3], [0, 0, 1, 1]], [10, -10, 10, -10], atol=1.2)
    stack = posteriors.layers(x, 1.2, 3, feature_scale=2.0)
    assert np.diagonal(stack.k0).mean() == pytest.approx(posteriors.phase("erf", 1.2**0.5, 0.05**0.5).q)
    assert stack.weights.tolist() == [1.2, 1.2, 0.6]
    assert posteriors.alignment(y @ y.T, y) == pytest.approx(1)


def test_importance_sampling_of_the_posterior_does_not_depend_on_its_proposal():
    figure = FIGURES["beyond_gaussian/figB1"].module
    config = figure.get_config("small")
    x, y = figure.ising(config, 4, 0)
    stack = figure.Stack(x @ x.T / config.inputs + 0.05, [1.0], [0.05], "linear")
    full = figure.solve(stack, y, 1e-3, 20, figure.Draws("linear", np.zeros((1, 4))), "full").forces[1]
    good, half = (figure.exact(stack, scale * full, y, 20, 40_000, 1) for scale in (1.0, 0.9))
    assert good[1] > 0.9 * 40_000 > 0
    error = np.hypot(*(parts.std(0, ddof=1) / 10**0.5 for parts, _ in (good, half)))
    assert np.all(abs(good[0].mean(0) - half[0].mean(0)) < 5 * error)


def test_inputs_sit_at_the_fixed_point():
    # q* of erf networks with w² = .825, b² = .05 is .2049
    x = sampled.at_fixed_point(fig3_5.images("digits", 8, 0), 0.825).x_train
    assert 0.825 * (x**2).mean() + 0.05 == pytest.approx(0.2049, abs=1e-4)


def test_networks_are_at_the_theory_or_not():
    rng, expected = np.random.default_rng(0), np.array([1.0, 0.1])
    drawn = expected + 0.1 * rng.normal(size=(1000, 2))
    assert shared.at_theory("", drawn, expected).holds is True
    assert shared.at_theory("", drawn, 1.1 * expected).holds is False
    assert shared.at_theory("", drawn[:20], expected).holds is None


def test_inputs_of_two_classes():
    x = shared.samples("digits", (0, 3), 6, 0)
    assert x.shape == (6, 64)
    np.testing.assert_allclose(np.diagonal(shared.overlaps(x)), 0.05)
    a, b = shared.orthogonal_pairs(3, 0)
    np.testing.assert_allclose((a * b).sum(1), 0, atol=1e-10)
    np.testing.assert_allclose([(a * a).sum(1), (b * b).sum(1)], 100)
    with pytest.raises(ValueError, match="fewer than 500"):
        shared.samples("digits", (0, 3), 1000, 0)


def test_inputs_of_tfds():
    import tensorflow_datasets as tfds

    for dataset, size in (("mnist", 784), ("cifar10", 3072)):
        with tfds.testing.mock_data(num_examples=120):
            assert shared.samples(dataset, (5, 0), 4, 0).shape == (4, size)


def test_labelled_data():
    task = mixtures.labelled("breast_cancer", 20, 10, 0)
    assert task.x_train.shape == (20, 30)
    assert task.y_test.sum(1).tolist() == [1.0] * 10


def test_settings_of_another_figure():
    get_config = Settings("a", {"width": 1, "depth": 2, "steps": 3}, {"width": 10, "steps": 30})
    other = get_config.but("b", {"width": 4}, {"steps": 5})
    assert (other().name, other().width, other().depth, other().steps) == ("b", 4, 2, 3)
    assert (other("paper").width, other("paper").depth, other("paper").steps) == (4, 2, 5)
    with pytest.raises(ValueError, match=r'b: size .* "small" or "paper".*"large"'):
        other("large")
