"""Accuracy is reported of targets that are classes, and of no others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from launch import train
from train.data.own import classes_in
from train.data.sources import SOURCES, Arrays
from train.study.experiment import Experiment

FIELDS = {"name": "own", "width": 4, "depth": 1, "steps": 4, "batch": 8, "learning_rate": 0.1, "evaluate_every": 0}
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 3)).astype(np.float32)
CLASS = RANDOM.integers(3, size=40)
SEVERAL = RANDOM.integers(2, size=(40, 3)).astype(np.float32)  # labels, of which any number may hold
SEVERAL[0] = [0, 1, 0]
SHARES = RANDOM.random((40, 3))
SHARES[0] = [0.1, 0.2, 0.7]

CODE = """
import flax.linen as nn, numpy as np, optax
class Net(nn.Module):
    @nn.compact
    def __call__(self, x): return nn.Dense({outputs})(x)
def make(width, depth): return Net()
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return (f ** 2).mean()
"""


def names_of_step(folder: Path, outputs: int, targets: Any, monkeypatch: pytest.MonkeyPatch, own: bool) -> Any:
    (folder / "own.py").write_text(CODE.format(outputs=outputs))
    data = {} if own else {"data": {"name": "mine"}}
    monkeypatch.setitem(SOURCES, "mine", lambda split: Arrays("mine", X, targets))
    experiment = Experiment(str(folder / "own.py"), ConfigDict(FIELDS | data), train.FUNCTIONS)
    if own:
        batches = lambda start: ((X[at : at + 8], targets[at : at + 8]) for at in range(8 * start, 40, 8))  # noqa: E731
        monkeypatch.setattr(experiment.module, "batches", batches, raising=False)
    run = train.prepare(experiment, folder)
    return run.trainer.step(run.trainer.initial(), next(run.batches(0)))[1].names


@pytest.mark.parametrize(
    ("outputs", "targets", "own", "reported"),
    [
        (3, CLASS, True, True),
        (3, np.eye(3)[CLASS], True, True),
        (3, np.eye(3)[CLASS], False, True),
        (2, CLASS, True, False),  # counts: a class would have an output
        (1, CLASS % 2, True, False),
        (1, CLASS[:, None], True, False),
        (3, CLASS[:, None], True, False),
        (3, SEVERAL, True, False),
        (3, SEVERAL, False, False),
        (3, SHARES, False, False),
    ],
)
def test_accuracy_is_of_classes(
    tmp_path: Path, outputs: int, targets: Any, own: bool, reported: bool, monkeypatch: pytest.MonkeyPatch
):
    assert ("accuracy" in names_of_step(tmp_path, outputs, targets, monkeypatch, own)) == reported


def test_classes_of_large_batches_are_told_by_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(FIELDS, "batch", 1200)
    x, targets = np.ones((1200, 3), np.float32), np.arange(1200) % 3
    (tmp_path / "own.py").write_text(CODE.format(outputs=3))
    experiment = Experiment(str(tmp_path / "own.py"), ConfigDict(FIELDS), train.FUNCTIONS)
    monkeypatch.setattr(experiment.module, "batches", lambda start: iter([(x, targets)] * 4), raising=False)
    run = train.prepare(experiment, tmp_path)
    assert "accuracy" in run.trainer.step(run.trainer.initial(), next(run.batches(0)))[1].names


def test_classes_are_told_by_every_row():
    assert classes_in([np.eye(4), np.eye(4)[:2]]) == 4
    assert classes_in([np.eye(4), np.full((1, 4), 0.25)]) == 0
    assert classes_in([np.array([[0, -1]]), np.array([[5, 2]])]) == 6
    assert classes_in([np.array([0.0, 1.0])]) == classes_in([]) == 0
