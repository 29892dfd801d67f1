"""launch.transfer --budget, and grids that grow: made-up surfaces in place of training; then one little study that is real."""

import dataclasses
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import ended
from loss_surfaces import Surface
from own_studies import studies_of
from rich.console import Console

import train.study.study
from launch.transfer import best_of
from train.study.grid import conduct
from train.study.outcomes import with_earlier
from train.study.rounds import Budget, conduct_rounds
from train.study.sized import SCORED
from train.transfer import report
from train.transfer.kept import KeptRuns, held

OWN = '''
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from zoo import MLP, Parameterization, scaled

def get_config():
    return ConfigDict({"name": "own", "widths": (8, 16), "depths": (1,), "values": tuple(2.0**k for k in range(-5, 4)),
                       "seeds": 4, "steps": 20, "target": {"width": 64, "depth": 1}})

def make(width, depth, gamma=1.0):
    return MLP(width, depth, activation="tanh", gamma=gamma, parameterization=Parameterization.mup.based(8))

def optimizer(net, learning_rate, momentum=0.0):
    return scaled(optax.sgd(0.125 * learning_rate, momentum), net)

def loss(outputs, targets):
    return 0.5 * jnp.mean((outputs - targets) ** 2)

def data(seed):
    x = np.random.default_rng(seed).normal(size=(16, 4))
    return x, np.tanh(x[:, :1]) + 0.1

def batches(steps):
    return [data(0)] * steps

def validation():
    return data(1)
'''  # fmt: skip
QUIET = Console(quiet=True)


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """A study of a file on disk, with changed fields."""
    return studies_of(tmp_path, OWN)


class Trainer:
    """In place of training: counts what it is asked for, and stops like a process that is killed."""

    def __init__(self, dies: int = 10**6) -> None:
        self.surface, self.calls, self.dies = Surface("quadratic", 1, widths=(8, 16), target=64), [], dies

    def __call__(
        self, study: Any, cell: Any, jobs: Any, seeds: Any, *_: Any, hopeless: Any = None, compiled: Any = None
    ) -> KeptRuns:
        self.calls.append((cell.width, len(seeds)))
        if len(self.calls) > self.dies:
            raise KeyboardInterrupt
        values = jobs["learning_rate"] * (1 + jobs.get("momentum", np.zeros(len(seeds))))
        curves = np.stack(
            [self.surface.run((cell.width, 1), *each) for each in zip(values, seeds.tolist(), strict=True)]
        )
        return KeptRuns.of(jobs, seeds, curves, None, float(cell.width) * len(seeds))


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Takes the place of training."""

    def put(dies: int = 10**6) -> Trainer:
        made = Trainer(dies)
        for module in ("study", "rounds"):
            monkeypatch.setattr(f"train.study.{module}.train_size", made)
        return made

    return put


def rounds(study: Any, budget: str = "90%", precision: float = 0.0, part: tuple[int, int] = (0, 1)) -> Any:
    return conduct_rounds(study, Budget.read(budget, precision), part, QUIET)


def test_more_seeds_and_values_add_to_what_is_there(own, trainer):
    counted = trainer()
    first = conduct(own(), (0, 1), QUIET)
    assert counted.calls == [(8, 36), (16, 36)]
    counted.calls.clear()
    more = conduct(own(seeds=6), (0, 1), QUIET)
    assert counted.calls == [(8, 18), (16, 18)]
    counted.calls.clear()
    finer = conduct(own(seeds=6, values=(0.5, 0.7, 1.0)), (0, 1), QUIET)
    assert counted.calls == [(8, 6), (16, 6)]
    counted.calls.clear()
    assert first is not None and more is not None and finer is not None  # noqa: PT018
    np.testing.assert_array_equal(more.sweeps["own"][8, 1].curves[:, :4], first.sweeps["own"][8, 1].curves)
    np.testing.assert_array_equal(finer.sweeps["own"][8, 1].curves[0], more.sweeps["own"][8, 1].curves[4])
    again = conduct(own(), (0, 1), QUIET)
    assert not counted.calls
    assert again is not None
    np.testing.assert_array_equal(again.sweeps["own"][16, 1].curves, first.sweeps["own"][16, 1].curves)
    conduct(own(axes={"momentum": (0.0,)}), (0, 1), QUIET)
    conduct(own(axes={"momentum": (0.0, 0.5)}), (0, 1), QUIET)  # more of an axis too
    assert counted.calls == [(8, 36), (16, 36)] * 2
    counted.calls.clear()
    for change in ({"steps": 21}, {"code": OWN.replace("+ 0.1", "+ 0.2")}, {"scored": "validation"}, {"seed": 1}):
        conduct(own(**change), (0, 1), QUIET)
        assert counted.calls == [(8, 36), (16, 36)]
        counted.calls.clear()


def test_a_folder_that_is_moved_while_its_sizes_are_trained_is_said(own, trainer, monkeypatch):
    """A run of all sizes ended with code 0, as if other processes had the rest of them."""
    trainer()
    study = own("moved")
    complete = type(study).complete

    def and_away(self, cell, *given):
        runs = complete(self, cell, *given)
        if cell.width == 8:
            self.folder.rename(self.folder.with_name("elsewhere"))
        return runs

    monkeypatch.setattr(type(study), "complete", and_away)
    with pytest.raises(
        FileNotFoundError, match=r"1 of the 2 sizes that were finished are no longer in .*moved: it was moved"
    ):
        conduct(study, (0, 1), QUIET)


def test_processes_in_one_folder_lose_nothing_and_train_nothing_twice(own, trainer, monkeypatch, capfd):
    counted = trainer()
    cell = own().cells()[0]
    assert len(own().complete(cell)) == 36
    assert own().complete(cell) is None  # another process, which found it missing before
    begun, made = threading.Event(), train.study.study.train_size

    def slowly(*args: Any) -> KeptRuns:
        begun.set()
        found = made(*args)
        time.sleep(0.2)
        return found

    monkeypatch.setattr("train.study.study.train_size", slowly)
    first, second = own("both", values=(0.25, 0.5)), own("both", values=(0.5, 1.0))
    thread = threading.Thread(target=first.complete, args=(cell,))
    thread.start()
    begun.wait()
    second.complete(cell)
    thread.join()
    assert counted.calls == [(8, 36), (8, 8), (8, 4)]
    assert first.missing(cell) == second.missing(cell) == 0
    assert "waiting for it to finish" in capfd.readouterr().err


@pytest.mark.slow
def test_sizes_that_were_trained_before_are_in_the_outcome(own, trainer):
    conduct(own(), (0, 1), QUIET)
    alone, others = own(widths=(32,), axes={"gamma": (1.0, 2.0)}), own(widths=(32,), steps=9)
    of_axes, of_steps = (conduct(study, (0, 1), QUIET) for study in (alone, others))
    assert of_axes is not None
    assert of_steps is not None
    assert with_earlier(others, of_steps) is of_steps  # other steps are other runs
    conduct(own(widths=(16,), axes={"gamma": (1.0, 2.0)}), (0, 1), QUIET)
    every = with_earlier(alone, of_axes)
    assert [set(sizes) for sizes in every.sweeps.values()] == [{(16, 1), (32, 1)}] * 2
    assert with_earlier(own(widths=(16, 32), axes={"gamma": (1.0, 2.0)}), every) is every
    study = own(widths=(32,))
    target = conduct(study, (0, 1), QUIET)
    assert target is not None
    assert set(with_earlier(study, target).sweeps["own"]) == {(8, 1), (16, 1), (32, 1)}


@pytest.mark.slow
def test_a_search_that_is_killed_between_programs_goes_on_to_the_same_end(own, trainer):
    counted = trainer()
    outcome, found = rounds(own("whole"), "70%")
    programs = len(counted.calls)
    assert programs > 4
    assert 0.4 < found["own"].share <= 0.7
    for dies in (1, programs - 2):
        trainer(dies)
        with pytest.raises(KeyboardInterrupt):
            rounds(own(f"killed {dies}"), "70%")
        rest = trainer()
        again, same = rounds(own(f"killed {dies}"), "70%")
        assert len(rest.calls) == programs - dies
        assert same["own"].numbers() == found["own"].numbers()
        for size, sweep in outcome.sweeps["own"].items():
            np.testing.assert_array_equal(again.sweeps["own"][size].curves, sweep.curves)


def test_it_stops_at_the_precision_goes_on_with_more_and_takes_what_a_grid_left(own, trainer):
    counted = trainer()
    outcome, found = rounds(own(), precision=2.0)
    assert "as short as asked" in found["own"].end.why
    assert found["own"].share < 0.5
    once = len(counted.calls)
    counted.calls.clear()
    _, more = rounds(own(), precision=1.0)
    assert more["own"].done[: len(found["own"].done)] == found["own"].done
    assert counted.calls
    counted.calls.clear()
    whole = conduct(own(), (0, 1), QUIET)
    assert whole is not None
    assert sum(count for _, count in counted.calls) < 2 * 36  # what rounds have trained is not trained again
    assert whole.sweeps["own"][8, 1].losses.shape == (9, 4)
    trainer()
    conduct(own("grid"), (0, 1), QUIET)
    rest = trainer()
    _, after = rounds(own("grid"), precision=2.0)
    assert len(rest.calls) < once
    assert after["own"].share < found["own"].share
    numbers = json.loads(report.report(outcome, {}, "", "", found).json())["rounds"]["own"]
    assert numbers["log2_optimum"]["high"] - numbers["log2_optimum"]["low"] <= 2.0
    assert [each["round"] for each in numbers["rounds"]] == list(range(1, len(found["own"].done) + 1))
    assert sum(each["cost"] for each in numbers["rounds"]) == pytest.approx(numbers["cost"])
    assert best_of(own(), outcome, found).value == pytest.approx(2 ** numbers["log2_optimum"]["value"])
    none = {"own": dataclasses.replace(found["own"], end=dataclasses.replace(found["own"].end, before=None))}
    reached = dataclasses.replace(outcome, sweeps={"own": {(8, 1): outcome.sweeps["own"][8, 1]}})
    assert best_of(own(target={"width": 8, "depth": 1}), reached, none).width == found["own"].space.target[0] == 64


def test_seconds_settings_and_what_predict_finds(own, trainer):
    trainer()
    _, found = rounds(own(axes={"momentum": (0.0, 1.0)}), "800s")
    slow, fast = found.values()
    assert 400 < slow.seconds + fast.seconds < 900  # one program may be over it: seconds are known from those before
    assert fast.end.before is not None
    assert slow.end.before is not None
    assert float(slow.end.before.value - fast.end.before.value) == pytest.approx(
        1.0, abs=0.6
    )  # twice the rate for the same
    kept = own(axes={"momentum": (0.0, 1.0)}).with_target().kept()
    assert set(kept.sweeps) == {"momentum 0", "momentum 1"}
    assert all(len(sweeps) == 2 for sweeps in kept.sweeps.values())


@pytest.mark.parametrize(("budget", "unit"), [("300s", "s"), ("24%", "%")])
def test_the_budget_that_would_do_is_in_the_unit_of_the_one_given_and_does(own, trainer, budget, unit):
    trainer()
    end = rounds(own("short"), budget)[1]["own"].end.why
    does = re.search(r"does not fit the budget .* --budget=([\d.]+)([%s]) would do for it", end)
    assert does, end
    assert does[2] == unit
    less, more = float(does[1]) - 0.2, float(does[1])
    assert len(rounds(own("short"), f"{less}{unit}")[1]["own"].done) == 1
    assert len(rounds(own("short"), f"{more}{unit}")[1]["own"].done) > 1


def test_processes_that_share_a_folder_train_no_run_twice(own, trainer):
    counted, ends = trainer(), []
    studies = [own("shared") for _ in range(2)]
    threads = [
        threading.Thread(target=lambda i=i: ends.append(rounds(studies[i], "60%", part=(i, 2))[1]["own"].numbers()))
        for i in range(2)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ends[0] == ends[1]
    assert len(counted.surface.trained) == sum(len(held(studies[0].file(cell)) or []) for cell in studies[0].cells())


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "nan%", "infs"])
def test_budgets_that_make_no_sense(text):
    with pytest.raises(ValueError, match="--budget must be a share"):
        Budget.read(text)
    with pytest.raises(ValueError, match="could be 40% of what the grid costs, or 40s"):
        Budget.read("40")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"values": (0.5, 1.0)}, "chooses among values.* got 2"),
        ({"target": {"width": 64, "depth": 4}}, "depth is 4, and config.depths has 1 alone"),
        ({"scored": "accuracy"}, "config.scored must be one of training, validation, score"),
        ({"scored": "score"}, r'config.scored="score" needs a function score\(outputs, targets\)'),
        ({"scored": "validation", "limit": {"samples": 8}}, "The limit has a training loss"),
        ({"precision": 0.0}, "config.precision must be"),
    ],
)
def test_fields_that_make_no_sense(own, fields, message):
    with pytest.raises(ValueError, match=message):
        rounds(own(**fields))


def test_what_is_scored_is_chosen(own):
    how: Any = {"widths": (8,), "values": (0.5, 1.0), "seeds": 2, "steps": 3, "target": {"width": 8}}
    code = OWN + "\ndef score(outputs, targets):\n    return 1.0 + jnp.abs(outputs - targets).max()\n"
    losses = {}
    for scored in ("validation", "score"):
        outcome = conduct(own(scored, code=code, scored=scored, **how), (0, 1), QUIET)
        assert outcome is not None
        losses[scored], curves = outcome.sweeps["own"][8, 1].losses, outcome.sweeps["own"][8, 1].curves
        assert f"The loss is the {SCORED[scored]}" in report.report(outcome, {}, "").html()
    assert (losses["score"] > 1).all()
    assert (losses["validation"] < 1).all()
    assert (losses["validation"] != curves[..., -1]).all()


@pytest.mark.slow
def test_a_little_study_from_the_command_line(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    words = (f"--config={tmp_path / 'own.py'}", f"--workdir={tmp_path / 'out'}", "--budget=80%", "--precision=1.5")
    done = ended("launch.transfer", *words)
    assert done.codes == [0], done.outputs[0]
    numbers = json.loads((tmp_path / "out/report.json").read_text())
    found = numbers["rounds"]["own"]
    assert found["rounds"][0]["runs"][0]["width"] == 8
    assert 0 < found["cost"] <= 0.8
    best = 2 ** found["log2_optimum"]["value"]
    assert f"--set=learning_rate={float(f'{best:.6g}'):.6g}" in numbers["command"]
    assert "Rounds" in (tmp_path / "out/report.html").read_text()
    predicted = ended("launch.predict", *words[:2])
    assert predicted.codes == [0], predicted.outputs[0]


def test_a_budget_that_is_too_small_is_told_what_would_do(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    words = f"--config={tmp_path / 'own.py'}", f"--workdir={tmp_path / 'out'}", "--budget=2%"
    (code,), (said,) = ended("launch.transfer", *words)
    assert code == 1
    does = re.search(r"--budget=2% is not enough for a first round: .* --budget=([\d.]+)% would do for it", said)
    assert does, said
    assert 2 < float(does[1]) < 20


@pytest.mark.slow
def test_a_budget_that_pays_for_the_grid_ends_in_it(tmp_path: Path):
    (tmp_path / "own.py").write_text(OWN)
    small = ("--config.values=(0.5,1.0,2.0)", "--config.seeds=1", "--config.target.width=16", "--config.steps=5")
    words = (f"--config={tmp_path / 'own.py'}", f"--workdir={tmp_path / 'out'}", "--budget=100%", *small)
    (code,), (said,) = ended("launch.transfer", *words)
    assert code == 0, said
    assert "The rounds know no optimum of the target, and --budget=100% pays for the whole grid: it is run." in said
    assert "To train width 16, depth 1 with the best learning rate" in said
