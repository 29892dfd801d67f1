"""Figures of data statistics: run from end to end on less."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from configs.papers.beyond_gaussian import mixtures
from launch import reproduce
from train.study.experiment import load

FIGURES = {n.partition("/")[2]: f for n, f in reproduce.papers().items() if n.startswith("beyond_gaussian/")}
GRID = {"widths": (4, 6), "depths": (1, 2), "members": 2, "random": 2, "samples": 100, "shown": 500, "steps": 10}
TABLE = {"train": 300, "test": 100, "drawn": 200, "members": 2, "steps": 10, "stat_steps": 10, "width": 6, "batch": 20}
SMALLER = {
    "fig2_2": {"samples": 100, "shown": 500, "steps": 10, "members": 2},
    "fig2_3": GRID,
    "fig2_4": {"members": 2, "switch": 200, "steps": 200, "samples": 2000},
    "fig2_5": TABLE,
    "fig2_6": {"members": 2, "steps": 10, "samples": 200, "width": 4},
    "fig2_7": TABLE,
    "figA1": {"samples": 100, "shown": 500, "steps": 10, "members": 2},
    "figA2": GRID,
    "figA3": {"width": 20, "networks": 2, "inputs": 50, "depth": 8},
}


def repeat(name: str, folder: Path) -> list:
    module = load(FIGURES[name])
    config = module.get_config("small")
    config.update(SMALLER[name])
    found = reproduce.repeat(f"{FIGURES[name]}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    assert len(json.loads((folder / "report.json").read_text())["claims"]) == len(found[0])
    assert (folder / "figure_1.png").stat().st_size > 10_000
    return found[0]


def test_every_figure_is_there_and_what_they_share_is_none():
    assert set(SMALLER) <= set(FIGURES)
    assert "mixtures" not in FIGURES


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_from_end_to_end(name, tmp_path):
    repeat(name, tmp_path)


def test_labelled_data():
    task = mixtures.labelled("breast_cancer", 20, 10, 0)
    assert task.x_train.shape == (20, 30)
    assert task.y_test.sum(1).tolist() == [1.0] * 10
