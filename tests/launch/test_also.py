"""The runs of a sweep in TensorBoard and Weights & Biases: what is written, and when. Both are stood in for."""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_studies import studies_of
from rich.console import Console
from test_launch_transfer import OWN

from train.study.grid import conduct
from train.study.rounds import Budget, conduct_rounds


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """{"tensorboard": {tag: {step: value}}, "wandb": [(row, step)]} as it grows."""
    found: dict[str, Any] = {"tensorboard": {}, "wandb": []}

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert Path(folder).is_dir()

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            assert step not in found["tensorboard"].setdefault(tag, {})
            found["tensorboard"][tag][step] = value

        def flush(self) -> None:
            pass

    def init(**given: Any) -> Any:
        assert given["name"] == "own"
        return types.SimpleNamespace(log=lambda row, step: found["wandb"].append((row, step)))

    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return found


@pytest.mark.slow
def test_runs_are_written_as_they_finish_and_once(tmp_path: Path, written: dict[str, Any]):
    study, screen = studies_of(tmp_path, OWN), Console(quiet=True)
    before = study(widths=(8,))
    conduct(before, (0, 1), screen)
    assert not written["wandb"]
    assert not written["tensorboard"]
    also = study(also="tensorboard,wandb", axes={"momentum": (0.0, 0.5)}, folder="axes")
    outcome = conduct(also, (0, 1), screen)
    assert outcome is not None
    assert len(written["tensorboard"]) == 2 * 2 * 2 * 2  # widths, momenta, rates, seeds
    for label, momentum in (("momentum 0", 0.0), ("momentum 0.5", 0.5)):
        sweep = outcome.sweeps[label][16, 1]
        curve = written["tensorboard"][f"{label}/16 × 1/learning rate 0.08/seed 1"]
        np.testing.assert_array_equal([curve[step] for step in range(6)], sweep.curves[1, 1])
        (row,) = [
            row
            for row, _ in written["wandb"]
            if (row["width"], row["momentum"], row["learning_rate"], row["seed"]) == (16, momentum, 0.08, 1)
        ]
        assert row["loss"] == sweep.losses[1, 1]
        assert row["setting"] == label
    steps = [step for _, step in written["wandb"]]
    assert steps == sorted(set(steps))  # W&B drops what goes back
    conduct(also, (0, 1), screen)
    assert len(steps) == len(written["wandb"])
    conduct(study(folder="axes", also="wandb", axes={"momentum": (0.0, 0.5)}, seeds=3), (0, 1), screen)
    assert {row["seed"] for row, _ in written["wandb"][len(steps) :]} == {2}


def test_where_it_is_written_to_is_no_part_of_a_run(tmp_path: Path):
    study = studies_of(tmp_path, OWN)
    assert [study().file(c) for c in study().cells()] == [
        study(also="wandb").file(c) for c in study(also="wandb").cells()
    ]
    with pytest.raises(ValueError, match=r"config\.also must be"):
        study(also="tensorbord")


def test_rounds_write_their_runs(tmp_path: Path, written: dict[str, Any]):
    study = studies_of(tmp_path, OWN)(values=(0.02, 0.04, 0.08), also="wandb")
    conduct_rounds(study, Budget(0.7), (0, 1), Console(quiet=True))
    runs = [(row["width"], row["learning_rate"], row["seed"]) for row, _ in written["wandb"]]
    assert len(runs) == len(set(runs)) > 3
