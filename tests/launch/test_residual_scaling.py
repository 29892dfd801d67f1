"""Figures of residual scaling: run from end to end."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from configs.papers.residual_scaling import shared
from launch import reproduce
from train.study.experiment import load

FIGURES = {name: file for name, file in reproduce.papers().items() if name.startswith("residual_scaling/")}
FEW = {"networks": 20, "width": 40, "depth": 4, "pairs": 2}
SMALLER = {
    "fig4_2": FEW, "fig4_3": FEW, "fig4_4": {"depths": (10, 20)},
    "fig4_5": {"count": 4, "depths": (10, 20), "weights": (1.0, 1.25), "biases": (0.0, 0.05)},
    "fig4_6": {"count": 4}, "figC1": FEW, "figC2": {},
}  # fmt: skip


def repeat(name: str, folder: Path) -> list:
    module = load(FIGURES[f"residual_scaling/{name}"])
    config = module.get_config("small")
    config.update(SMALLER[name])
    found = reproduce.repeat(f"{FIGURES[f'residual_scaling/{name}']}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    assert len(json.loads((folder / "report.json").read_text())["claims"]) == len(found[0])
    assert (folder / "figure_1.png").stat().st_size > 10_000
    return found[0]


def test_every_figure_is_there():
    assert {f"residual_scaling/{name}" for name in SMALLER} == set(FIGURES)


def test_overlaps_from_end_to_end(tmp_path):
    assert [claim.holds for claim in repeat("figC2", tmp_path)] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SMALLER if name != "figC2"])
def test_from_end_to_end(name, tmp_path):
    repeat(name, tmp_path)


def test_networks_are_at_the_theory_or_not():
    rng, expected = np.random.default_rng(0), np.array([1.0, 0.1])
    drawn = expected + 0.1 * rng.normal(size=(1000, 2))
    assert shared.agrees(drawn, expected, 0.02)[0] is True
    assert shared.agrees(drawn, 1.1 * expected, 0.02)[0] is False
    assert shared.agrees(drawn[:20], expected, 0.02)[0] is None


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
