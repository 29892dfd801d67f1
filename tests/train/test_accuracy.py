"""Accuracy is reported of targets that are classes, and of no others."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from launch import train
from train.data.labels import check_labels, classes_in
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


LOSSES = {
    "optax": "optax.softmax_cross_entropy_with_integer_labels(f, y).mean()",
    "gathered": "(jax.nn.logsumexp(f, -1) - f[np.arange(len(f)), y]).mean()",
    "one_hot": "optax.softmax_cross_entropy(f, jax.nn.one_hot(y, 3)).mean()",
    "zoo": "cross_entropy(f, y)",
    "ordinal": "((f - (y[:, None] > np.arange(3)[None])) ** 2).mean()",
    "all above": "optax.softmax_cross_entropy_with_integer_labels(f, jax.numpy.minimum(y, 2)).mean()",
    "contrastive": "((f[:, None] - f[None]) ** 2 * (y[:, None] == y[None])[..., None]).mean()",
    "masked": "(optax.softmax_cross_entropy(f, jax.nn.one_hot(y, 3)) * (y != 7)).mean()",
    "whole": "(optax.softmax_cross_entropy(f, jax.nn.one_hot(y, 3)) * np.ones(8)).mean()",
}  # fmt: skip
FROM_0, FROM_1 = CLASS[:8], CLASS[:8] + 1
TAKEN = {
    ("optax", -1): "takes -1 for class 2",
    ("gathered", -1): "takes -1 for class 2",
    ("gathered", 3): "takes 3 for class 2",
    ("all above", -1): "takes -1 for class 2",
    ("gathered", "from 1"): "takes 3 for class 2",
    ("one_hot", "from 1"): "does not depend on outputs where the label is 3",
    ("masked", "from 1"): "does not depend on outputs where the label is 3",
}


@pytest.mark.parametrize("labels", [-1, 3, 7, "from 1"])
@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_have_no_output_are_not_trained_as_others(name, labels, tmp_path, monkeypatch):
    """Losses that are not finite say so at the first step, and a label may leave out a sample, or be one of order."""
    code = CODE.format(outputs=3).replace("return (f ** 2).mean()", f"return {LOSSES[name]}")
    (tmp_path / "own.py").write_text("import jax\nfrom train.losses import cross_entropy\n" + code)
    experiment = Experiment(str(tmp_path / "own.py"), ConfigDict(FIELDS), train.FUNCTIONS)
    given = FROM_1 if labels == "from 1" else np.where(np.arange(8) == 5, labels, FROM_0)
    batches = lambda start: ((X[:8], given) for _ in range(start, 4))  # noqa: E731
    monkeypatch.setattr(experiment.module, "batches", batches, raising=False)
    said = TAKEN.get((name, 3 if labels == 7 and name == "gathered" else labels), "").replace(
        "3 for", f"{max(given)} for"
    )
    with pytest.raises(ValueError, match=f"3 outputs, and the loss {said}") if said else nullcontext():
        train.prepare(experiment, tmp_path)


def test_labels_in_range_cost_nothing():
    """No array of a large vocabulary is made, and of one that is looked at no more than two rows."""
    seen = []

    def loss(f, y):
        seen.append(f.shape)
        return optax.softmax_cross_entropy_with_integer_labels(f, y).mean()

    outputs = lambda: np.broadcast_to(np.float32(0), (64, 512, 10**6))  # noqa: E731
    check_labels(loss, outputs, np.zeros((64, 512), int), [np.array([0, 999_999])], "batches")
    assert not seen
    with pytest.raises(ValueError, match="takes -1 for class 4"):
        check_labels(loss, lambda: np.zeros((64, 3, 5)), np.zeros((64, 3), int), [np.array([0, -1])], "batches")
    assert {*seen} == {(2, 3, 5)}
