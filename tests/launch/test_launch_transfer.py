"""launch.transfer: any file as a config, cells on disk, parts, axes that are traced, the limit's own curve."""

import dataclasses
import functools
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_studies import studies_of
from rich.console import Console

from launch.shards import shard
from launch.train import with_fields
from limits import twin
from train.records import read_records
from train.study.grid import conduct
from train.study.sized import limit_sweeps
from train.transfer import Outcome, Sweep, report
from train.transfer.outcome import target

HERE = Path(__file__).parent
OWN = '''
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict
from limits import Task
from zoo import MLP, Parameterization, scaled

def get_config():
    return ConfigDict({"name": "own", "widths": (8, 16), "depths": (1,), "values": (0.02, 0.08), "seeds": 2, "steps": 6})

def task():
    x = np.random.default_rng(0).normal(size=(6, 4))
    return Task(x, np.tanh(x[:, :1]))

def make(width, depth, gamma=1.0):
    return MLP(width, depth, activation="tanh", gamma=gamma, parameterization=Parameterization.mup.based(8))

def optimizer(net, learning_rate, momentum=0.0):
    return scaled(optax.sgd(learning_rate, momentum), net)

def loss(outputs, targets):
    return 0.5 * jnp.mean((outputs - targets) ** 2)

def batches(steps):
    return [(task().x_train, task().y_train)] * steps
'''  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """A study of a file on disk, with changed fields."""
    return studies_of(tmp_path, OWN)


def run(study: Any, part: tuple[int, int] = (0, 1)) -> Any:
    return conduct(study, part, Console(quiet=True))


@pytest.mark.slow
def test_a_language_model_from_outside_the_checkout(tmp_path: Path):
    shutil.copy(HERE / "language_model.py", tmp_path / "mine.py")
    program = str(Path(sys.executable).with_name("limit-zoo"))
    how: Any = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False, "timeout": 300}
    done = subprocess.run([program, "transfer", "--config=mine.py", "--workdir=out"], **how)
    assert done.returncode == 0, done.stderr
    assert "Optimum over width" in done.stdout
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert [sweep["width"] for sweep in document["sweeps"]] == [8, 16]
    for sweep in document["sweeps"]:
        assert min(map(min, sweep["losses"])) < 0.9 * np.log(11)  # it learns
    assert document["series"][0]["regret"]["high"] >= document["series"][0]["regret"]["low"]
    page = (tmp_path / "out/report.html").read_text()
    assert all(f"<td>{sweep['optimum']:.3g}" in page for sweep in document["sweeps"])


@pytest.mark.slow
def test_the_printed_command_trains_the_target_size(tmp_path: Path):
    shutil.copy(HERE / "language_model.py", tmp_path / "mine.py")
    program = str(Path(sys.executable).with_name("limit-zoo"))
    how: Any = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False, "timeout": 300}
    subprocess.run([program, "transfer", "--config=mine.py", "--workdir=out"], **how)
    words = shlex.split(json.loads((tmp_path / "out/report.json").read_text())["command"])
    assert words[:3] == ["python3", "-m", "launch.train"]
    done = subprocess.run([program, "train", *words[3:]], **how)
    assert done.returncode == 0, done.stderr
    log = read_records(tmp_path / "out/target/log.jsonl")
    assert [line["step"] for line in log] == list(range(40))
    assert log[-1]["loss"] < 0.9 * np.log(11)


def test_parts_of_a_grid_and_what_is_kept(own: Any):
    alone = run(own("alone", widths=(16,)))
    study = own("parts", depths=(1, 2))
    assert run(study, (0, 2)) is None
    kept = {file.name: file.stat().st_mtime_ns for file in (study.folder / "cells").glob("*.npz")}
    assert len(kept) == 2
    parts = run(study, (1, 2))
    assert len(list((study.folder / "cells").glob("*.npz"))) == 4
    assert all((study.folder / "cells" / name).stat().st_mtime_ns == time for name, time in kept.items())
    np.testing.assert_array_equal(parts.sweeps["own"][16, 1].curves, alone.sweeps["own"][16, 1].curves)
    assert all((sweep.width, sweep.depth) == size for size, sweep in parts.sweeps["own"].items())
    assert [s.over for s in parts.series("own")] == ["width", "width", "depth", "depth"]
    cross = own("cross", depths=(1, 2), grid="cross")
    assert [(cell.width, cell.depth) for cell in cross.cells()] == [(8, 1), (8, 2), (16, 1)]
    assert np.load(study.folder / "arrays.npz")["own/8x1/curves"].shape == (2, 2, 6)


def test_a_change_of_the_code_is_noticed_and_a_wider_grid_is_not(own: Any):
    names = [own().file(cell).name for cell in own().cells()]
    assert [own(widths=(8, 16, 32)).file(cell).name for cell in own().cells()] == names
    commented = own(code=OWN.replace("def task", "# a comment\ndef task"))
    assert [commented.file(cell).name for cell in commented.cells()] == names
    changes: list[dict] = [
        {"code": OWN.replace("0.5 *", "0.4 *")},
        {"steps": 7},
        {"axes": {"momentum": (0.5,)}},
    ]
    for change in changes:
        study = own(**change)
        assert not {study.file(cell).name for cell in study.cells()} & set(names)
    for change in ({"seeds": 3}, {"values": (0.02, 0.04)}):  # runs that are kept beside those that are there
        study = own(**change)
        assert [study.file(cell).name for cell in study.cells()] == names
    asking = own(code=OWN.replace("def batches(steps)", "def batches(steps, seeds)"))
    other = own(code=OWN.replace("def batches(steps)", "def batches(steps, seeds)"), seeds=3)
    assert not {asking.file(cell).name for cell in asking.cells()} & {other.file(cell).name for cell in other.cells()}


def test_axes_of_numbers_are_arguments_of_one_program(own: Any):
    axes = {"gamma": (0.5, 2.0), "momentum": (0.0, 0.9)}
    study, traced = own("axes", widths=(8,), axes=axes), []
    make = study.experiment.module.make

    @functools.wraps(make)
    def counted(*args: Any, **options: Any) -> Any:
        traced.append(args)
        return make(*args, **options)

    study.experiment.module.make = counted
    outcome = run(study)
    assert (
        len(traced) == 2
    )  # the model is built to count parameters, and when a program is traced: 2 × 2 × 2 values, 2 seeds
    assert outcome.labels == [f"gamma {g}, momentum {m}" for g in ("0.5", "2") for m in ("0", "0.9")]
    for label, fields in (("gamma 2, momentum 0.9", "gamma=2.0"), ("gamma 0.5, momentum 0.9", "gamma=0.5")):
        code = OWN.replace("gamma=1.0", fields).replace("momentum=0.0", "momentum=0.9")
        alone = run(own(fields, code=code, widths=(8,)))
        expected = alone.sweeps["own"][8, 1].curves
        np.testing.assert_allclose(outcome.sweeps[label][8, 1].curves, expected, rtol=1e-4)
    best = {row[1]: row[3] for row in outcome.best_values()}
    assert set(best) == {"gamma", "momentum"}


@pytest.mark.slow
def test_words_as_axes_and_variants(own: Any):
    code = OWN.replace("momentum=0.0", "schedule").replace(
        "optax.sgd(learning_rate, momentum)",
        'optax.sgd(optax.linear_schedule(learning_rate, 0.0, 6) if schedule == "linear" else learning_rate)',
    )
    how = {"axes": {"schedule": ("constant", "linear")}, "variants": {"lazy": {"gamma": 0.1}, "rich": {"gamma": 1.0}}}
    outcome = run(own(code=code, widths=(8,), **how))
    assert outcome.labels == ["lazy, constant", "lazy, linear", "rich, constant", "rich, linear"]
    ends = {label: sizes[8, 1].curves[-1, 0, -1] for label, sizes in outcome.sweeps.items()}
    assert len(set(ends.values())) == 4
    assert [row[0] for row in outcome.best_values()] == ["lazy", "rich"]
    one = dataclasses.replace(own(code=code, **how), only="rich")
    assert [label for _, label, _ in one.variants()] == ["rich, constant", "rich, linear"]
    with pytest.raises(ValueError, match="none of the variants"):
        dataclasses.replace(one, only="reach").variants()


@pytest.mark.slow
def test_the_curve_of_the_limit(own: Any):
    how = {"widths": (8, 64, 512), "values": (0.05, 0.2), "seeds": 16, "steps": 4}
    limit = {"samples": 512, "replicas": 8}
    outcome = run(own(limit=limit, **how))
    expected = outcome.limits["own"][1]
    away = [
        np.abs(outcome.sweeps["own"][width, 1].curves.mean(1) - expected.curves.mean(1)).max() for width in (8, 64, 512)
    ]
    # Networks that start with f(0) ≠ 0 are O(1/N) off: 16 seeds at width 512 to within 1 % of the loss, .17.
    assert away[2] < 0.003 < away[0]
    page = report.report(outcome, {}, "command").html()
    assert "the limit&#x27;s own optimum" in page
    lazy = own("lazy", code=OWN.replace("Parameterization.mup.based(8)", '"ntk"'), limit=limit, **how)
    outcome = run(lazy)
    assert not outcome.limits
    assert "features stay where they are" in outcome.absent[""]


def test_labels_with_brackets_are_words_beside_the_bar(own: Any):
    """Rich took "[/b]" for the end of markup, and the program ended before anything was trained."""
    study = own(widths=(8,), steps=1, variants={"a [/b]": {"gamma": 0.5}})
    assert run(study).labels == ["a [/b]"]


def test_labels_that_differ_by_their_signs_only_stay_apart(own: Any):
    study = own(widths=(8,), variants={"w+": {"gamma": 0.5}, "w-": {"gamma": 2.0}})
    outcome = run(study)
    plus, minus = (outcome.sweeps[label][8, 1].curves for label in ("w+", "w-"))
    assert abs(plus - minus).max() > 1e-3


def test_flags_words_and_whole_numbers_for_shapes_are_compiled(own: Any):
    code = OWN.replace("gamma=1.0", "gamma=1.0, tied=False, layers=1").replace("MLP(width, depth", "MLP(width, layers")
    axes = {"tied": (False, True), "layers": (1, 2), "momentum": (0.0, 0.9)}
    study = own(code=code, widths=(8,), axes=axes)
    assert list(study.traced) == ["momentum"]
    assert [label for _, label, _ in study.variants()] == [
        f"layers {n}, tied {flag}" for n in (1, 2) for flag in (False, True)
    ]


def test_the_command_for_the_target_keeps_what_was_asked_for(own: Any):
    variants = {"a b": {"gamma": 1.0}}
    study = own(depths=(1, 2), grid="cross", variants=variants, axes={"momentum": (0.0, 0.9)}, steps=3)
    given = ["--config=own.py", "--config.steps", "3", "--config.widths", "(8,16)", "--config.valuesless=1"]
    words = shlex.split(study.command(run(study), given))
    kept = ["--config.steps=3", "--config.valuesless=1"]
    assert words[2:6] == ["launch.train", f"--config={study.experiment.given}", *kept]
    assert not [word for word in words if "widths" in word]
    fields = with_fields(study.config.copy_and_resolve_references(), [w[6:] for w in words if w.startswith("--set=")])
    assert (fields.width, fields.depth, fields.gamma) == (16, 2, 1.0)
    assert fields.momentum in (0.0, 0.9)
    assert 0 < fields.learning_rate < 1


@pytest.mark.slow
def test_the_limit_is_trained_by_the_optimiser_of_the_config(own: Any):
    study = own(momentum=0.9, limit={"samples": 32}, values=(0.08,))
    cell = next(cell for cell in study.cells() if cell.width == np.inf)
    (found,) = limit_sweeps(study, cell, lambda _: None)
    net, task = study.call("make", 8, 1), study.call("task")
    run = twin(net).rich(task, 6, 0.08, momentum=0.9, samples=32, times=range(6), kernels=())
    np.testing.assert_allclose(found.curves[0].mean(0), run.loss, rtol=1e-5)
    plain = twin(net).rich(task, 6, 0.08, samples=32, times=range(6), kernels=())
    assert np.abs(plain.loss - run.loss).max() > 1e-3


@pytest.mark.slow
def test_the_curve_of_the_limit_under_adam(own: Any):
    code = OWN.replace("optax.sgd(learning_rate, momentum)", "optax.adam(learning_rate)")
    how = {"widths": (8, 512), "values": (0.02,), "seeds": 16, "steps": 4}
    outcome = run(own(code=code, limit={"samples": 128, "replicas": 16}, **how))
    expected = outcome.limits["own"][1].curves.mean(1)
    away = [np.abs(outcome.sweeps["own"][width, 1].curves.mean(1) - expected).max() for width in (8, 512)]
    assert away[1] < 0.004 < away[0]  # of a loss of .17; 16 seeds at width 512 to within 2 %


@pytest.mark.parametrize(
    ("code", "fields", "message"),
    [
        (OWN.replace("def loss", "def los"), {}, "lacks functions: loss"),
        (OWN.replace("gamma=1.0", "gama"), {"gamma": 1.0}, 'asks for "gama".*Did you mean "gamma"'),
        (OWN, {"axes": {"decay": (0.1,)}}, "config.axes.decay is not read: no function of own.py"),
        (OWN, {"dial": "steps"}, '"steps" is swept, but neither make nor optimizer'),
        (
            OWN,
            {"dial": "depth"},
            "config.dial: depth would not be read: make has its width and depth from config.widths",
        ),
        (OWN, {"axes": {"width": (8, 16)}}, "config.axes: width would not be read: make has .*give sizes there"),
        (
            OWN,
            {"variants": {"a": {"net": 1}}},
            r"config.variants.a: net would not be read: the first argument of optimizer \(here net\) is for net",
        ),
        (
            OWN.replace("def optimizer(net, ", "def optimizer("),
            {},
            r"config.dial: learning_rate .*\(here learning_rate\) is for net.* write def optimizer\(net, learning_rate\)",
        ),
        (OWN, {"values": (0.0, 0.1)}, "config.values must be .* finite number > 0; got .0.0, 0.1"),
        (OWN, {"grid": "corner"}, '"product" or "cross"'),
        (OWN.replace("* steps", "* 2"), {}, "end after 2 of 6 steps"),
        (OWN, {"seeds": 0}, "config.seeds must be an integer of at least 1, got 0"),
        (OWN, {"steps": 0}, "config.steps must be an integer of at least 1, got 0"),
        (OWN, {"values": (0.02, 0.02)}, "config.values must be .* each once.* got .0.02, 0.02"),
        (OWN, {"values": ()}, "config.values must be .* one or more of them"),
        (OWN, {"values": (0.1, float("nan"))}, "config.values must be .* finite number > 0; got .0.1, nan"),
        (OWN, {"values": (0.1, float("inf"))}, "config.values must be .* finite number > 0; got .0.1, inf"),
        (OWN, {"values": (0.1, -0.2)}, "config.values must be .* finite number > 0; got .0.1, -0.2"),
        (OWN, {"widths": (8, 8)}, "config.widths must be .* each once.* got .8, 8"),
        (OWN, {"widths": ()}, "config.widths must be .* one or more of them"),
        (OWN, {"depths": (1, 0)}, "config.depths must be .* integer of at least 1; got .1, 0"),
        (OWN, {"target": {"width": 0}}, "config.target.width must be an integer of at least 1, got 0"),
        (OWN, {"target": {"widht": 8}}, "config.target has a width and a depth, and no widht"),
        (OWN, {"axes": {"momentum": (0.5, 0.5)}}, "config.axes.momentum must be .* each once"),
        (OWN, {"axes": {"momentum": ()}}, "config.axes.momentum must be .* one or more of them"),
        (
            OWN,
            {"axes": {"momentum": (0.9, 0.12345671, 0.12345672)}},
            '2 settings would be called "momentum 0.123457", and one be taken for the other',
        ),
        (OWN, {"together": -1}, "config.together must be an integer of at least 0, got -1"),
        (OWN, {"seed": -1}, "config.seed must be an integer of at least 0, got -1"),
    ],
)
def test_mistakes(own: Any, code: str, fields: dict, message: str):
    with pytest.raises(ValueError, match=message):
        run(own(code=code, **fields))


def simulated(best: dict[tuple[int, int], float], count: int = 13, seeds: int = 4) -> Outcome:
    """Sweeps over rates 2^-12 … whose loss rises by 0.3 octaves² from 2^best, with a little noise."""
    x, random = np.arange(-12.0, -12.0 + count), np.random.default_rng(0)
    sizes: Any = {}
    for (width, depth), place in best.items():
        losses = np.exp(0.3 * (x[:, None] - place) ** 2 + 0.03 * random.normal(size=(count, seeds)))
        sizes[width, depth] = Sweep(width, depth, 2.0**x, np.repeat(losses[..., None], 10, axis=2))
    return Outcome("learning_rate", {"all": sizes}, {}, {"all": {"setting": ""}}, {})


def trained_with(study: Any, outcome: Outcome) -> tuple[float, str]:
    """(log₂ of the learning rate of the printed command, what is said of it)."""
    words = shlex.split(study.command(outcome))
    (rate,) = [word.partition("=")[2] for word in words if word.startswith("--set=learning_rate=")]
    return float(np.log2(float(rate.partition("=")[2] or rate))), study.target(outcome).advice


def test_the_command_follows_a_drift_that_was_measured(own: Any):
    rate, said = trained_with(own(), simulated({(8, 1): -5.0, (16, 1): -5.0, (32, 1): -5.0}))
    assert rate == pytest.approx(-5.0, abs=0.15)
    assert "which may be none" in said
    assert "Warning" not in said
    drift = {(8, 1): -4.0, (16, 1): -4.9, (32, 1): -5.8}
    rate, said = trained_with(own(), simulated(drift))  # −1.8 octaves to the largest size, which was measured
    assert rate == pytest.approx(-5.8, abs=0.2)
    assert "Warning: it does not carry over from width 8 to 32: it moves by -1." in said
    rate, said = trained_with(own(target={"width": 128, "depth": 1}), simulated(drift))  # two doublings more
    assert rate == pytest.approx(-7.6, abs=0.5)
    assert "That is extrapolated: no width of 128 was swept" in said
    rate, said = trained_with(own(target={"width": 8, "depth": 4}), simulated(drift))
    assert rate == pytest.approx(-4.0, abs=0.15)
    assert "Warning: whether the optimum moves with depth was not measured" in said
    both = {(8, 1): -4.0, (16, 1): -5.0, (8, 2): -4.5, (8, 4): -5.0}
    rate, said = trained_with(own(), simulated(both))  # over width and over depth
    assert rate == pytest.approx(-6.0, abs=0.3)


def test_an_optimum_at_the_end_of_the_grid_is_said_of_two_rates_too(own: Any):
    for count, best in ((2, -5.0), (5, -5.0), (2, -20.0)):
        outcome = simulated({(8, 1): best, (16, 1): best}, count=count)
        series = outcome.over("all", "width")
        assert "At width 8, 16 the optimum is at an end of the grid: try values beyond it" in series.sentence
        assert [row[2].endswith("(end of the grid)") for row in series.rows()] == [True, True]
        assert series.rows()[0][3].startswith("above" if best > -12 else "below")
        assert np.isinf(series.shift()[1:]).all()  # nothing bounds how far it moved
        _, said = trained_with(own(), outcome)
        assert "Warning" in said
        assert "at an end of the grid" in report.tables(outcome)[0]._repr_html_()
    inside = simulated({(8, 1): -6.0, (16, 1): -6.0}).over("all", "width")
    assert "end of the grid" not in inside.sentence


def test_the_command_takes_the_smallest_size_that_has_an_optimum(own: Any):
    study = own()
    rates, curves = study.values, np.ones((2, 2, 6))
    sizes: Any = {(8, 1): Sweep(8, 1, rates, curves * np.inf), (16, 1): Sweep(16, 1, rates, curves)}
    outcome = Outcome("learning_rate", {"": sizes}, {}, {"": {"setting": ""}}, {})
    assert "--set=learning_rate=0.02" in study.command(outcome)


def test_that_losses_of_several_tasks_are_not_compared_is_said():
    one = simulated({(8, 1): -6.0, (16, 1): -6.0}).sweeps["all"]
    lower = {size: dataclasses.replace(each, curves=each.curves / 2) for size, each in one.items()}
    settings = {"sgd, digits": {"setting": "sgd"}, "sgd, parity": {"setting": "sgd"}}
    tasks = {"sgd, digits": "digits", "sgd, parity": "parity"}
    outcome = Outcome("learning_rate", {"sgd, digits": one, "sgd, parity": lower}, {}, settings, tasks=tasks)
    found = target(outcome)
    assert found.label == "sgd, parity"
    assert "Of 2 kinds of losses (digits, parity), which are not compared, this setting has the least" in found.advice
    assert "kinds of losses" not in target(dataclasses.replace(outcome, tasks=dict.fromkeys(tasks, "digits"))).advice


@pytest.mark.parametrize("text", ["2/2", "1", "a/b", "-1/2"])
def test_parts_that_do_not_exist(text: str):
    with pytest.raises(ValueError, match="i from 0"):
        shard(text)
