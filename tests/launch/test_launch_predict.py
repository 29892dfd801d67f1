"""launch.predict: from cells that are kept, a report; what is refused, and what was measured at the target."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import ended
from loss_surfaces import runs_of

from train.study.predicted import conduct, forecasts
from train.study.study import study_of
from train.transfer import Sweep
from train.transfer.kept import keep
from train.transfer.predicted_report import report
from train.transfer.written import earlier, written

OWN = '''
import optax
from ml_collections import ConfigDict
from zoo import MLP, Parameterization, scaled

def get_config():
    return ConfigDict({
        "name": "own", "widths": (16, 32, 64), "depths": (2,), "seeds": 4, "steps": 10,
        "values": (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0),
        "variants": {"mup": {"base": 16}, "standard": {"base": 0}}, "target": {"width": 256, "depth": 2},
    })

def make(width, depth, base):
    return MLP(width, depth, parameterization=Parameterization.mup.based(base) if base else "standard")

def optimizer(net, learning_rate):
    return scaled(optax.sgd(learning_rate), net)

def loss(outputs, targets):
    return ((outputs - targets) ** 2).mean()

def batches(steps):
    raise AssertionError("nothing is trained")
'''  # fmt: skip
X = np.log2([0.0625, 0.125, 0.25, 0.5, 1.0, 2.0])


def sweep(width: int, place: float) -> Sweep:
    """Of losses around e^(−1 + 4/width)."""
    noise = 0.02 * np.random.default_rng(width).normal(size=(len(X), 4))
    losses = np.exp(-1 + 4 / width + 0.2 * (X[:, None] - place) ** 2 + noise)
    return Sweep(width, 2, 2.0**X, np.stack([np.full_like(losses, 5.0), *[losses] * 9], axis=-1))


@pytest.fixture
def study(tmp_path: Path) -> Any:
    """A study whose sizes are kept, as if launch.transfer had been there."""
    (tmp_path / "own.py").write_text(OWN)
    space: dict[str, Any] = {}
    exec(compile(OWN, "own", "exec"), space)
    found = study_of(str(tmp_path / "own.py"), space["get_config"](), tmp_path).with_target()
    for cell in found.cells():
        if cell.width < 256:
            keep(found.file(cell), runs_of(sweep(int(cell.width), -1.5), "learning_rate"))
    return found


def test_a_setting_with_too_little_is_refused_and_the_others_are_predicted(study: Any):
    cells = {(cell.variant, cell.width): study.file(cell) for cell in study.cells()}
    for width in (32, 64):
        diverged = sweep(width, -1.5)
        lost = runs_of(Sweep(width, 2, diverged.rates, np.full_like(diverged.curves, np.inf)), "learning_rate")
        keep(cells["mup", width], lost)
    with pytest.raises(ValueError, match="there are 1; at least 2 are needed"):
        forecasts(dataclasses.replace(outcome := study.kept(), sweeps={"mup": outcome.sweeps["mup"]}), (256, 2), 0.9)
    mup, standard = forecasts(outcome, (256, 2), 0.9)
    assert mup.prediction is None
    assert mup.refused.startswith(
        "of sizes below width 256, depth 2 with a value at which no seed diverges there are 1"
    )
    assert standard.prediction is not None
    made = report(outcome, [mup, standard], {}, "").html()
    assert "mup: of sizes below width 256" in made


def test_a_report_from_kept_sweeps_and_the_target_once_it_is_there(study: Any):
    outcome, found, command = conduct(study, 0.9)
    mup, standard = found
    assert mup.prediction is not None
    assert mup.prediction.loss.low < np.exp(-1 + 4 / 256) < mup.prediction.loss.high
    assert mup.prediction.rate.low < 2**-1.5 < mup.prediction.rate.high
    assert mup.checked is None
    assert standard.prediction is None
    assert "parameterization standard" in standard.refused
    assert "--set=width=256" in command
    rate = float(mup.prediction.rate.value)
    assert f"--set=learning_rate={float(f'{rate:.6g}')}" in command
    before = written(found, {}, "at noon")
    report(outcome, found, {}, command, before).write(study.folder, "predicted")
    (cell,) = [cell for cell in study.cells() if cell.width == 256 and cell.variant == "mup"]
    keep(study.file(cell), runs_of(sweep(256, -1.5), "learning_rate"))
    outcome, again, _ = conduct(study, 0.9)
    assert again[0].prediction is not None
    assert again[0].prediction.loss == mup.prediction.loss  # it was not looked at
    assert again[0].checked is not None
    assert again[0].checked.hits == (True, True)
    kept = written(again, earlier(study.folder / "predicted.json"), "at one")
    assert kept == before
    assert list(kept) == ["mup"]
    made = report(outcome, again, {}, command, kept)
    numbers = json.loads(made.json())["predictions"]
    assert numbers[0]["loss"]["value"] == float(mup.prediction.loss.value)
    assert numbers[0]["measured"]["hits"] == [True, True]
    page = made.html()
    assert "Measured at the target" in page
    assert "All were written down before the target was trained, at at noon," in page
    kept["mup"]["loss"][0] *= 1.001
    assert "not the same now: mup" in report(outcome, again, {}, command, kept).html()
    assert "not the same now: mup" in report(outcome, again, {}, command, written(again, {}, "at one")).html()
    assert page.count("<img") == 2


def test_nothing_kept_is_said(study: Any):
    for file in (study.folder / "cells").glob("*.npz"):
        file.unlink()
    with pytest.raises(ValueError, match=r"run launch\.transfer with it first"):
        conduct(study, 0.9)


def test_a_folder_that_cannot_be_written_is_not_exchanged_for_one_without_sweeps(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "file").touch()
    words = f"--config={tmp_path / 'own.py'}", f"--workdir={tmp_path / 'file/sweeps'}"
    (code,), (said,) = ended("launch.predict", *words)
    assert code == 1
    assert "cannot be written (Not a directory): predictions are written beside the sweeps" in said
    assert "choose another" not in said
