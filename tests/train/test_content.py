"""Data of one's own: whole numbers stay such, and a run goes on over the data that it began with."""

from pathlib import Path

import numpy as np
import pytest
from ml_collections import ConfigDict
from rich.console import Console

from launch import train
from train.data.batches import epoch_order
from train.data.content import of_files
from train.data.sources import SOURCES, Arrays
from train.run import Run
from train.study.experiment import Experiment

FIELDS = {"name": "own", "width": 4, "depth": 1, "batch": 4, "learning_rate": 0.1, "evaluate_every": 0}
CODE = """
import numpy as np, optax
from pathlib import Path
from zoo import MLP
def make(width, depth): return MLP(width, depth)
def optimizer(net, learning_rate): return optax.sgd(learning_rate)
def loss(f, y): return ((f - y) ** 2).mean()
"""
READ = """
def batches(start, batch):
    x = np.load(Path(__file__).with_name("x.npy"))
    while True:
        yield x[:batch], x[:batch, :1]
"""
DRAWN = """
def batches(start, batch):
    while True:
        yield np.random.normal(size=(batch, 3)), np.ones((batch, 1))
"""


def prepared(folder: Path, code: str, **fields: object) -> Run:
    (folder / "own.py").write_text(code)
    config = ConfigDict(FIELDS | {"steps": 2, **fields})
    run = train.prepare(Experiment(str(folder / "own.py"), config, train.FUNCTIONS), folder / "run")
    (folder / "run").mkdir(exist_ok=True)
    train.check_folder(run)
    return run


def trained(run: Run) -> None:
    assert train.conduct(run, Console(quiet=True))


def test_a_file_that_batches_read_is_the_same(tmp_path: Path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3))
    trained(prepared(tmp_path, CODE + READ))
    trained(prepared(tmp_path, CODE + READ, steps=3))
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3) + 1)
    with pytest.raises(ValueError, match="holds a run with another first batch"):
        prepared(tmp_path, CODE + READ, steps=4)


def test_samples_of_a_source_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(0).normal(size=(9, 3))
    monkeypatch.setitem(SOURCES, "mine", lambda split: Arrays("mine", x, x[:, :1]))
    data = {"name": "mine", "test": "test"}
    trained(prepared(tmp_path, CODE, data=data))
    prepared(tmp_path, CODE, data=data, steps=3)
    x[:, 0] *= -1
    with pytest.raises(ValueError, match=r"other samples in data\.train .*; other samples in data\.test"):
        prepared(tmp_path, CODE, data=data, steps=3)


@pytest.mark.parametrize(("changed", "labels"), [("x_train", 0), ("x_train", 1), ("y_train", 0), ("x_test", 1)])
def test_all_of_a_file_of_arrays_is_the_same(tmp_path: Path, changed: str, labels: bool):
    x = np.random.default_rng(0).normal(size=(600, 3))
    y = np.arange(600)[:, None] % 2 if labels else x[:, :1]
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    np.savez(tmp_path / "own.npz", **arrays)
    data = {"name": "arrays", "path": str(tmp_path / "own.npz"), "train": "train", "test": "test"}
    trained(prepared(tmp_path, CODE, data=data))
    np.savez_compressed(tmp_path / "own.npz", **arrays)  # the same numbers
    run = prepared(tmp_path, CODE, data=data, steps=3)
    assert set(of_files(run.content)) == {"the content of data.train", "the content of data.test"}
    trained(run)
    rows = {int(row) for step in range(4) for row in epoch_order(600, 0, 0)[4 * step : 4 * step + 4]}
    row = next(
        row for row in range(1, 600) if row not in rows and row % 3
    )  # neither of the first batch nor of 256 of a test set
    arrays[changed] = np.where(np.arange(600)[:, None] == row, 9.0, arrays[changed])
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ValueError, match=f"holds a run with other samples in data.{changed[2:].replace('y_', '')}"):
        prepared(tmp_path, CODE, data=data, steps=4)


def test_batches_that_are_drawn_anew_go_on(tmp_path: Path):
    trained(prepared(tmp_path, CODE + DRAWN))
    trained(prepared(tmp_path, CODE + DRAWN, steps=3))


@pytest.mark.slow
def test_whole_numbers_reach_the_network_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    numbers = np.random.default_rng(0).integers(7, size=(9, 3))
    monkeypatch.setitem(SOURCES, "mine", lambda split: Arrays("mine", numbers, numbers[:, 0], 7, "tokens"))
    code = CODE.replace("from zoo import MLP", "import flax.linen as nn").replace(
        "MLP(width, depth)", "nn.Sequential([nn.Embed(7, width), lambda h: h.mean(1), nn.Dense(7)])"
    )
    for on_device in (True, False):
        data = {"name": "mine", "test": "test", "on_device": on_device}
        (tmp_path / str(on_device)).mkdir()
        trained(prepared(tmp_path / str(on_device), code, data=data, evaluate_every=1))
    tests = [(tmp_path / f"{each}/run/test.jsonl").read_text() for each in (True, False)]
    assert tests[0] == tests[1]
