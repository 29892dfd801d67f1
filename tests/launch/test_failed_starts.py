"""A run that fails before anything is done leaves its folder free for the mended config; batches that cannot be are said."""

import errno
import re
import resource
from pathlib import Path

import numpy as np
import pytest
from forked import ended
from jax.sharding import AbstractMesh
from rich.console import Console

from launch import common, train
from train.checkpoints import steps_in
from train.data.own import check_batch
from train.study.experiment import Experiment, load

OWN = """
import numpy as np
import optax
from ml_collections import ConfigDict
from zoo import MLP

TASK = {"name": "sphere", "n_train": 3, "n_test": 2, "dim": 3}
ENSEMBLES = {"widths": (8, 16), "depths": (1,), "members": 8, "init_members": 8, "centred": True, "seed": 0, "task": TASK}


def get_config():
    own = {"name": "own", "width": 8, "depth": 1, "steps": 3, "learning_rate": 0.1, "analysis": 2}
    return ConfigDict(own | (ENSEMBLES if COMPARED else {}))


def make(width, depth):
    return MLP(width, depth)


def optimizer(net, learning_rate):
    return optax.sgd(learning_rate)


def loss(outputs, targets):
    return ((outputs - targets) ** 2).mean()


def batches():
    for x in np.random.default_rng(0).normal(size=(9, 4, 3)):
        yield x, x[:, :1]
"""


def conducted(folder: Path, code: str) -> bool:
    """Whether launch.train comes to an end in this folder."""
    file = folder.parent / "own.py"
    file.write_text(code.replace("COMPARED", "False"))
    run = train.prepare(Experiment(str(file), load(file).get_config(), train.FUNCTIONS), folder)
    train.check_folder(run)
    return train.conduct(run, Console(quiet=True))


@pytest.mark.parametrize("wrong", ["outputs.T @ targets.T", pytest.param("missing", marks=pytest.mark.slow)])
def test_training(tmp_path, wrong):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/notes.txt").write_text("mine")
    with pytest.raises((ValueError, NameError)):
        conducted(tmp_path / "run", OWN.replace("outputs - targets", wrong))
    assert conducted(tmp_path / "run", OWN)
    assert steps_in(tmp_path / "run/checkpoints") == [0, 1, 3]
    with pytest.raises(ValueError, match="holds a run with another loss"):
        conducted(tmp_path / "run", OWN.replace("outputs - targets", "outputs + targets"))
    assert (tmp_path / "run/checkpoints/notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ("x, x[:3, :1]", r"own\.py: batches gives 4 inputs with 3 targets: give as many"),
        ("'words', x[:, :1]", r"own\.py: batches gives inputs that are 'words'; they must be an array of numbers"),
        (
            "x, np.array(list('abcd'))",
            r"own\.py: batches gives targets that are an array of <U1; they must be an array",
        ),
        ("{'x': x}, x[:, :1]", r"own\.py: batches gives inputs that are a dict; they must be an array of numbers"),
        ("x[:0], x[:0, :1]", r"own\.py: batches gives no inputs: an array of shape \(0, 3\)"),
        ("x, x[:, :1] * np.nan", r"not finite at step 0.*own\.py: batches gives targets .* 4 of 4 numbers NaN"),
    ],
)
def test_batches_that_cannot_be_trained_on(tmp_path, batch, sentence):
    with pytest.raises((ValueError, FloatingPointError), match=sentence):
        conducted(tmp_path / "run", OWN.replace("yield x, x[:, :1]", f"yield {batch}"))


def test_later_batches_are_looked_at_and_may_be_made_on_the_device(tmp_path):
    later = OWN.replace("yield x, x[:, :1]", "yield jax.numpy.asarray(x), x[:, :1]")
    assert conducted(tmp_path / "run", later.replace("import numpy", "import jax\nimport numpy"))
    late = OWN.replace("x in np.random.default_rng(0).normal(size=(9, 4, 3))", "i in range(9)")
    late = late.replace("yield x, x[:, :1]", "x = np.ones((4, 3))\n        yield x[: 4 - i], x[:, :1]")
    with pytest.raises(ValueError, match="batches gives 3 inputs with 4 targets"):
        conducted(tmp_path / "late", late)
    x = np.ones((6, 3))
    with pytest.raises(ValueError, match=r"gives 6 samples, which do not divide over 4 devices of the data axis"):
        check_batch((x, x), "batches", AbstractMesh((4,), ("data",)))
    with pytest.raises(ValueError, match=r"batches returned 3; batches.* returns an iterator"):
        conducted(tmp_path / "none", OWN.replace("    for x in", "    return 3\n    for x in").replace("yield", "x ="))


@pytest.mark.slow
def test_comparing(tmp_path):
    said = []
    for steps, own in enumerate((OWN.replace("optax.sgd", "missing"), OWN, OWN), 2):
        (tmp_path / "own.py").write_text(own.replace("COMPARED", "True"))
        done = ended("launch.compare", "--config=own.py", "--workdir=out", f"--config.steps={steps}", folder=tmp_path)
        said.append(done.outputs[0])
        assert done.codes == [int(steps != 3)], said
    assert "'missing' is not defined" in said[0]
    assert "holds a comparison with another steps (3, now 4)" in said[2]


def test_where_there_is_no_room_is_said(tmp_path, monkeypatch):
    """By a limit on the size of files, which is refused like a full disk; and of a full one that names its file."""
    monkeypatch.setattr(common, "WORKDIR", type("", (), {"value": str(tmp_path)}))
    before, folder = resource.getrlimit(resource.RLIMIT_FSIZE), common.workdir("name")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as large:
            common.write_whole(folder / "report.json", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "cells/a.npz"))
    for error, place, remedy in (
        (large.value, tmp_path, "allow larger files"),
        (full, tmp_path / "cells", "make room"),
    ):
        said = common.sentence(error)
        assert re.fullmatch(
            rf"There is no room for .* to {re.escape(str(place))} \(.*\): {remedy}.* continues from .*\.", said
        )


def test_what_a_command_that_keeps_nothing_has_no_room_for_does_not_continue(tmp_path, monkeypatch):
    """pack and unpack were said to continue from what is kept."""
    monkeypatch.setattr(common, "_WRITTEN", [])
    for code in (errno.ENOSPC, errno.EACCES, errno.ENOTDIR):
        said = common.sentence(OSError(code, "why", str(tmp_path / "a.zip")))
        assert "(why): " in said
        assert said.endswith("give the same command again.")


def test_a_folder_that_may_no_longer_be_written_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "_WRITTEN", [tmp_path])
    for code, what in ((errno.EROFS, "written"), (errno.EACCES, "read or written")):
        said = common.sentence(OSError(code, "why", str(tmp_path / "a.npz")))
        assert said.startswith(f"{tmp_path / 'a.npz'} cannot be {what} (why): ")
        assert "the same command continues" in said
    assert common.sentence(OSError("The folder is a link.")) == "The folder is a link."


def test_names_with_brackets_are_words_on_the_terminal(tmp_path, capsys):
    """Rich took them for markup: "mine [final]" was printed as "mine ", and "x[/b]" ended a finished program with an error."""
    for name in ("mine [final]", "x[/b]"):
        (tmp_path / name).mkdir(parents=True)
        common.write(tmp_path / name, {"report.json": "{}"}, common.console())
        assert f"{name}/report.json" in capsys.readouterr().out.replace("\n", "")
