"""The reports on the curse of depth run from end to end."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from launch import reproduce
from train.study.experiment import load

FIGURES = {name: file for name, file in reproduce.papers().items() if name.startswith("curse_of_depth/")}


def run(name: str, folder: Path, **fields: Any) -> Any:
    file = FIGURES[f"curse_of_depth/{name}"]
    config = load(file).get_config("small")
    config.update(fields)
    found = reproduce.repeat(f"{file}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    return found


@pytest.mark.slow
def test_trained_networks_from_end_to_end(tmp_path: Path):
    found, pictures = run("table1_sgd", tmp_path, width=16, steps=20, members=2, depths=(3, 5), rates=(0.1, 1e9))
    assert len(found) == 4
    assert len(pictures) == 1
    sizes = {"width": 4, "blocks": (1, 2), "epochs": 4, "early": 2, "members": 2}
    found, pictures = run("table2", tmp_path, **sizes)
    assert len(found) == 2
    assert len(pictures) == 1


@pytest.mark.slow
def test_the_table_from_end_to_end(tmp_path: Path):
    found, pictures = run("table1", tmp_path, n_train=100, n_test=60, depths=(3, 30, 300))
    assert [found[i].holds for i in (1, 2)] == [True] * 2
    assert len(pictures) == 1
    assert (tmp_path / "figure_1.png").exists()


@pytest.mark.slow
def test_spectra_and_phases_from_end_to_end(tmp_path: Path):
    found, _ = run("fig1", tmp_path)
    assert found == []
    assert "Theory alone" in (tmp_path / "report.html").read_text()
    found, pictures = run("phases", tmp_path, grid=(31, 20), width=300, networks=4)
    assert len(pictures) == 2
    assert [claim.holds for claim in found][::2] == [True, True, None]
