"""Every kind of kept cell and report, damaged in every way: set aside and computed again, never silently other numbers."""

import io
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import optax
import pytest
from damage import FLIPS, silently_different
from etils import epath
from rich.console import Console

from launch.reproduce import FIGURES
from limits import Task
from limits.kept.store import Store
from train.analysis.runs import TrainedRun, analyse_all
from train.evaluate import grid
from train.evaluate.finding import Finding
from train.progress import parts_bar
from train.study.figure import Figure
from train.study.runs import Job
from train.transfer import Sweep
from train.transfer.cells import transfer
from zoo import MLP
from zoo.saved import to_json

TASK = Task(np.eye(3)[:2], [1.0, -1.0], np.eye(3)[2:], [0.5])
NUMBERS = np.random.default_rng(0).normal(size=(2, 2, 5))
MEASURED: dict[str, Any] = {
    "steps": np.array([0, 3]), "batch_statistics": False, "absent": {"g": "it mixes inputs"},
    "kernels": {"phi": (NUMBERS, NUMBERS[:1].astype(np.float32)), "nngp": None, "drift": {"phi": {"relative": NUMBERS[0]}}},
    "sharpness": {"hessian": {"eigenvalues": np.float64(2.5), "products": 7, "residuals": [0.1, float("nan")]}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda *_: None)  # a thousand writes, and no power cut


def same(one: Any, other: Any) -> bool:
    """Equal in every bit and every type."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


def check(file: Path, compute: Any, right: Any, said: Any) -> None:
    """compute() gives what is right, whatever is done to the file, and says so where it was damaged."""

    def reads() -> Any:
        if not same(compute(), right):
            return False
        return "said" if "set aside" in said() else True

    assert reads() is True
    tried, noticed, wrong = silently_different(file, reads)
    assert noticed == tried > FLIPS
    assert not wrong


def recorded() -> tuple[Console, Any]:
    """A screen, and what was said on it since the last time."""
    screen = Console(record=True, file=io.StringIO(), width=500)
    return screen, lambda: screen.export_text()


def test_a_cell_of_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = {"f": NUMBERS, "loss": NUMBERS[0]}
    monkeypatch.setattr(grid, "measure", lambda *_: right)
    cell = grid.Cell("train", "ntk", MLP(8, 2, activation=lambda x: x**2), 2, 8, 3, 0.1, 0, True)
    (screen, said), limit = recorded(), Mock(spec=grid.Limit)

    def compute() -> Any:
        with parts_bar(screen) as bar:
            results, _ = grid.run_grid([cell], TASK, {("ntk", 2): limit}, tmp_path, screen, bar)
        return results[cell]

    compute()
    (file,) = tmp_path.iterdir()
    check(file, compute, right, said)
    monkeypatch.undo()
    assert same(compute(), right)  # read back
    again = grid.Cell("train", "ntk", MLP(8, 2, activation=lambda x: x**2), 2, 8, 3, 0.1, 0, True)
    other = grid.Cell("train", "ntk", MLP(8, 2, activation=lambda x: x**3), 2, 8, 3, 0.1, 0, True)
    assert cell.key(TASK) == again.key(TASK) != other.key(TASK)


def test_a_size_of_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    sweep = Sweep(8, 1, np.array([0.1, 0.2]), NUMBERS)
    monkeypatch.setattr("train.transfer.cells.curves_of", lambda *_: NUMBERS.reshape(4, 5))

    def compute() -> Any:
        (found,) = transfer(
            lambda width, depth: None, lambda *_: optax.sgd(0.1), lambda *_: 0.0, (NUMBERS, NUMBERS), (8, 16), (1,),
            (0.1, 0.2), 2, tmp_path,
        )  # fmt: skip
        return [(each.width, each.depth, each.rates, each.curves) for each in found.sweeps]

    right = compute()
    assert same(right[0], (8, 1, sweep.rates, NUMBERS))
    (file,) = tmp_path.glob("width_8_*")
    check(file, compute, right, lambda: capsys.readouterr().err)


def test_sizes_that_are_finished_are_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("train.transfer.cells.curves_of", lambda *a: np.ones((len(a[-1]), 5)))

    def compute(seeds: int) -> Any:
        return transfer(
            lambda width, depth: None, lambda *_: optax.sgd(0.1), lambda *_: 0.0, (NUMBERS, NUMBERS), (8, 16), (1,),
            (0.1, 0.2), seeds, tmp_path,
        )  # fmt: skip

    def refused(*_: Any) -> None:
        raise PermissionError

    compute(2)
    monkeypatch.setattr(Store, "lock", refused)
    assert [each.curves.shape for each in compute(2)[0].sweeps] == [(2, 2, 5)] * 2
    with pytest.raises(PermissionError):
        compute(3)


def test_a_network_of_analyze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("train.analysis.runs.analyse", lambda *_, **__: MEASURED)
    monkeypatch.setattr(TrainedRun, "checkpoints", lambda *_: ())
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    run = TrainedRun(epath.Path(tmp_path / "checkpoints"), {"definition": to_json(MLP(8, 2))}, (3,))
    screen, said = recorded()

    def compute(loss: str = "mse") -> Any:
        return analyse_all([Job(run, None)], TASK, tmp_path, {"loss": loss, "parts": ("kernels",)}, screen)[0]

    compute()
    (file,) = (tmp_path / "cells").iterdir()
    assert file.suffix == ".npz"
    check(file, compute, MEASURED, said)
    monkeypatch.setattr("train.analysis.runs.analyse", lambda *_, **__: "measured")
    assert same(compute(), MEASURED)
    assert compute("cross_entropy") == "measured"


def test_the_report_of_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(Figure, "folder", lambda *_: tmp_path)
    figure = FIGURES["depthwise_transfer/fig1"]
    findings = [Finding("one", True, "1"), Finding("two", False, "2")]
    figure.write((findings, []), {"config": {"widths": (8, 16)}}, tmp_path)
    assert figure.status("small") == "holds: 1, does not hold: 1"

    def reads() -> Any:
        found = figure.status("small")
        if "set aside" in capsys.readouterr().err:
            return "said"
        return found == "holds: 1, does not hold: 1"

    tried, noticed, wrong = silently_different(tmp_path / "report.json", reads)
    assert tried > FLIPS
    assert noticed > 0.8 * tried  # what is left is white space
    assert not wrong
    figure.write((findings[:1], []), {"config": {}, "changed": ["members", "widths"]}, tmp_path)
    assert figure.status("small") == "holds: 1 (with another members, widths)"
    old = {"claims": [{"verdict": "holds"}]}  # of a version without checksums
    (tmp_path / "report.json").write_text(json.dumps(old))
    assert figure.status("small") == "holds: 1"
