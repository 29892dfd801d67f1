"""Figures 3.4 and 3.5: run from end to end."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from configs.papers.beyond_gaussian import fig3_5, sampled
from launch import reproduce
from train.study.experiment import load

SMALLER = {
    "fig3_4": {"w2": (0.8, 1.2), "width": (250, 500), "points": (4, 12), "datasets": 1},
    "fig3_5": {"w2": (0.8, 1.6), "width": 100, "points": 8, "datasets": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_from_end_to_end(name: str, tmp_path: Path):
    file = reproduce.papers()[f"beyond_gaussian/{name}"]
    config = load(file).get_config("small")
    config.update(SMALLER[name] | {"steps": 200, "warmup": 60})
    found = reproduce.repeat(f"{file}:small", config, tmp_path, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, tmp_path)
    assert len(json.loads((tmp_path / "report.json").read_text())["claims"]) == len(found[0])
    assert (tmp_path / "figure_1.png").stat().st_size > 10_000


def test_inputs_sit_at_the_fixed_point():
    # q* of erf networks with w² = .825, b² = .05 is .2049
    x = sampled.at_fixed_point(fig3_5.images("digits", 8, 0), 0.825).x_train
    assert 0.825 * (x**2).mean() + 0.05 == pytest.approx(0.2049, abs=1e-4)
