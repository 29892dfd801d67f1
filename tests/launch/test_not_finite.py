"""launch.train where the test set, or training, is not finite: a sentence, and a report that can be read."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from launch import train
from train import run
from train.study.experiment import Experiment, load

CONFIG = Path(__file__).resolve().parent / "training_config.py"


@pytest.mark.parametrize(
    ("changes", "from_step", "said"),
    [
        ({}, 6, "The test loss is not finite at step 6"),
        pytest.param(
            {"members": 2, "average": 0.0},
            12,
            "The test loss of 2 of 2 members (the first: 0) is not finite at step 12",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"learning_rate": 1e30, "warmup": 0, "average": 0.0}, 99, "is not finite at step", marks=pytest.mark.slow
        ),
    ],
)
def test_it_ends_in_a_sentence_and_a_report(tmp_path, monkeypatch, changes, from_step, said):
    evaluated = []

    def spoilt(*arguments):
        evaluated.append(6 * len(evaluated) + 6)
        for x, y, mask in genuine(*arguments):
            yield np.where(evaluated[-1] >= from_step, np.nan, x).astype(x.dtype), y, mask

    genuine = run.evaluation_batches
    monkeypatch.setattr(run, "evaluation_batches", spoilt)
    config = load(CONFIG).get_config()
    config.update(changes)
    spoilt_run = train.prepare(Experiment(str(CONFIG), config, train.FUNCTIONS), tmp_path)
    with pytest.raises(FloatingPointError) as error:
        train.conduct_and_report(spoilt_run, Console(quiet=True), None, time.time())
    assert said in str(error.value)
    assert "Usual causes: a learning rate that is too large" in str(error.value)
    page, document = (tmp_path / "report.html").read_text(), json.loads((tmp_path / "report.json").read_text())
    assert document["ended"] == str(error.value)
    assert f"The run ended early. {error.value}" in page
    assert ("not finite</td>" in page) == (from_step < 99)
    if from_step < 99:
        assert document["test_loss"] is None
        assert document["train_loss"] > 0
