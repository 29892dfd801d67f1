"""Seconds, device and versions of a report stay those of what was computed, whoever runs the command again."""

import json
import time

import numpy as np
import pytest

from launch.took import Took
from tests.launch import forked

STUDY = """
import jax.numpy as jnp, optax
from ml_collections import ConfigDict
from zoo import MLP, scaled
def get_config(): return ConfigDict({"name": "own", "widths": (4, 8), "depths": (1,), "values": (0.1, 0.2, 0.4), "seeds": 2, "steps": 4, "seed": 0})
def make(width, depth): return MLP(width, depth, parameterization="mup")
def optimizer(net, learning_rate): return scaled(optax.sgd(learning_rate), net)
def loss(f, y): return jnp.mean((f - y) ** 2)
def batches(): yield from [(jnp.eye(4), jnp.ones((4, 1)))] * 4
"""  # noqa: E501
COMPARE = ["--config=mlp", "--config.widths=(8, 16, 32)", "--config.depths=(1,)", "--config.members=8",
           "--config.init_members=8", "--config.steps=2", "--config.task.n_train=6", "--config.task.n_test=4"]  # fmt: skip


def reported(folder, run):
    (folder / "report.json").write_text(json.dumps({"run": run}))
    return run


def test_a_report_of_what_was_there_before_keeps_what_was_said(tmp_path):
    first = {"config": {"steps": 1}, "device": "one", "seconds": 50.0, "command": "first", "seed": 0}
    again = {"config": {"steps": 1}, "device": "two", "command": "again", "seed": 0}
    reported(tmp_path, first)
    assert Took(tmp_path, time.time()).of(again)["device"] == "two"  # nothing is kept: all of it was computed
    assert "earlier" not in Took(tmp_path, time.time()).of(again)
    (tmp_path / "cells").mkdir()
    np.savez(tmp_path / "cells/a.npz", a=1)
    assert Took(tmp_path, time.time()).of(again) == first
    assert Took(tmp_path, time.time()).of(again | {"config": {"steps": 2}})["command"] == "again"
    part = again | {"command": "again --only=mup"}  # of another question to the same cells
    assert Took(tmp_path, time.time()).of(part)["command"] == "again --only=mup"
    took = Took(tmp_path, time.time() - 7)
    np.savez(tmp_path / "cells/b.npz", a=1)
    found = took.of(again)
    assert (found["device"], found["command"]) == ("two", "again")
    assert 7 <= found["seconds"] < 50
    assert found["earlier"].startswith("1 of 2 kept files were there before")
    (tmp_path / "report.json").write_text("{")
    assert Took(tmp_path, time.time()).of(again)["device"] == "two"


def test_an_analysis_is_known_by_its_command(tmp_path):
    (tmp_path / "cells").mkdir()
    np.savez(tmp_path / "cells/a.npz", a=1)
    (tmp_path / "report.json").write_text(json.dumps({"command": "analyze a", "seconds": 9.0, "networks": {}}))
    assert Took(tmp_path, time.time()).of({"command": "analyze a"}) == {"command": "analyze a", "seconds": 9.0}
    assert Took(tmp_path, time.time()).of({"command": "analyze a b"})["seconds"] < 9


@pytest.mark.slow
@pytest.mark.parametrize("command", ["transfer", "compare"])
def test_a_command_that_is_run_again_leaves_what_it_took(tmp_path, command):
    (tmp_path / "own.py").write_text(STUDY)
    given = COMPARE if command == "compare" else ["--config=own.py"]
    seconds = []
    for more in ([], ["--debug"]):
        ended = forked.ended(f"launch.{command}", *given, "--workdir=out", *more, folder=tmp_path)
        assert ended.codes == [0], ended.outputs
        run = json.loads((tmp_path / "out/report.json").read_text())["run"]
        assert "--debug" not in run["command"]
        seconds.append(run["seconds"])
        run["seconds"] = 1234.5
        document = json.loads((tmp_path / "out/report.json").read_text())
        (tmp_path / "out/report.json").write_text(json.dumps(document | {"run": run}))
    assert seconds[1] == 1234.5
