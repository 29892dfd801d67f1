"""A small comparison from end to end: right twins agree, wrong ones are found out, an interrupted run goes on."""

import ast
import dataclasses
import functools
import inspect
import json
import sys
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from rich.console import Console

import limits.mlp
from train import data
from train.evaluate import compare, compare_report, grid, plots
from train.evaluate.compare import Comparison, Design, Diverged, _squared_error, cells_of
from train.evaluate.grid import Limit
from zoo import MLP

WIDTHS = (32, 64, 128)
TASK = data.digits(6, 4)


def build(parameterization, activation, width, depth):
    return MLP(width, depth, activation=activation, w_std=1.3, b_std=0.2, parameterization=parameterization)


def run(families=("ntk", "mup"), folder=None, depth: Any = 1, **options):
    makers = {p: functools.partial(build, p, "erf") for p in families}
    settings = {"steps": 6, "learning_rate": 0.3, "members": 64, "init_members": 192} | options
    return compare(makers, WIDTHS, (depth,), TASK, folder=folder, **settings)


def test_a_comparison_from_end_to_end(tmp_path):
    """One test, so that one worker computes it once."""
    (tmp_path / "cells").mkdir()
    result = run(folder=tmp_path / "cells")
    kernels_and_lazy_training_agree_and_feature_learning_does_not(result)
    variance_falls_as_one_over_width(result)
    report_is_self_contained_and_complete(result, tmp_path)
    curves_are_those_of_the_lazy_limit_in_ntk(result)


def kernels_and_lazy_training_agree_and_feature_learning_does_not(result):
    assert result.find("nngp", "ntk, mup", 1).verdict == "agrees"
    assert result.find("ntk", "ntk, mup", 1).verdict == "agrees"
    assert result.find("f", "ntk", 1).verdict == "agrees"
    assert result.find("f", "mup", 1).verdict == "does not converge"


def test_families_that_learn_are_trained_at_the_depths_of_their_limit():
    makers = {p: functools.partial(build, p, "erf") for p in ("mup", "ntk")}
    rich = {"samples": 64, "replicas": 4, "depths": (2,)}
    design = Design(makers, WIDTHS, (1, 2), None, 1, 0.1, 8, 8, rich=rich)
    groups, sharing = cells_of(design)
    assert sharing == {"mup": ["mup", "ntk"]}
    assert {*groups} == {
        ("init", "mup", 1),
        ("init", "mup", 2),
        *(("train", *at) for at in (("mup", 2), ("ntk", 1), ("ntk", 2))),
    }
    assert [cell.waits for cell in groups["train", "mup", 2]] == [True] * 3
    assert not any(cell.waits for key, group in groups.items() if key != ("train", "mup", 2) for cell in group)
    with pytest.raises(ValueError, match=r"rich: .*depths.*\[1\].*\[2\]"):
        _ = dataclasses.replace(design, depths=(1,)).rich_by_depth


def test_pictures_tell_what_diverged_from_what_was_not_asked_for():
    result = Mock(spec=Comparison, depths=(1, 2, 4), diverged=(Diverged("mup", 2, None, "too fast"),))
    draw = lambda axis, label, depth: axis.set(title=f"{label} at {depth}")  # noqa: E731
    _, axes = plots._by_family(result, ["mup"], {("mup", 4)}, draw, "loss")
    assert [axis.get_title() for axis in axes[0]] == ["", "mup, depth 2: diverged", "mup at 4"]
    assert [axis.axison for axis in axes[0]] == [False, True, True]
    assert [axis.get_ylabel() for axis in axes[0]] == ["", "loss", ""]


@pytest.mark.slow
def test_networks_that_learn_features_agree_with_the_limit_that_does():
    result = run(families=("mup",), depth=2, rich={"samples": 2048, "replicas": 8})
    assert result.find("f", "mup", 2).verdict == "agrees"
    assert result.find("f", "mup", 2).against == "feature learning"
    assert result.find("path", "mup", 2).verdict == "agrees"
    products = result.products["mup", 2]
    assert max(products) < 2 * min(products)
    assert any("largest over smallest" in line for line in compare_report.reading(result))


def variance_falls_as_one_over_width(result):
    for observable in ("nngp", "ntk"):
        law = result.find(observable, "ntk, mup", 1).variance
        # 192 members: standard error of a log-variance about .1, of the slope over two octaves about .07
        assert abs(law.exponent + 1) < 0.25


def test_a_wrong_twin_is_found_out(monkeypatch):
    right = limits.mlp.MLPTwin.kernels

    def wrong(self, *args, **kwargs):
        k = right(self, *args, **kwargs)
        return dataclasses.replace(k, nngp=1.12 * k.nngp, ntk=1.12 * k.ntk)  # about 7 standard errors

    monkeypatch.setattr(limits.mlp.MLPTwin, "kernels", wrong)
    result = run(families=("ntk",), steps=1)
    assert result.find("nngp", "ntk", 1).verdict == "does not converge"
    assert result.find("ntk", "ntk", 1).verdict == "does not converge"


@pytest.mark.slow
def test_an_interrupted_run_continues_and_few_members_leave_it_undecided(tmp_path, monkeypatch):
    measure, done = grid.measure, []

    def breaks(cell, *args):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell)
        return measure(cell, *args)

    small: dict = {"families": ("ntk",), "folder": tmp_path, "members": 8, "init_members": 8, "steps": 1}
    monkeypatch.setattr(grid, "measure", breaks)
    with pytest.raises(KeyboardInterrupt):
        run(**small)
    kept = len(list(tmp_path.glob("*.npz")))
    assert kept == 2

    def counts(cell, *args):
        done.append(cell)
        return measure(cell, *args)

    done.clear()
    monkeypatch.setattr(grid, "measure", counts)
    result = run(**small)
    assert len(done) == 2 * len(WIDTHS) - kept
    assert result.find("nngp", "ntk", 1).verdict == "undecided"  # so few members
    done.clear()
    run(**small)
    assert not done
    run(**(small | {"learning_rate": 0.2}))  # other settings are other cells
    assert len(done) == len(WIDTHS)


def drawn(figure: Any, panel: int) -> np.ndarray:
    """The first line in a panel."""
    return np.asarray(figure.axes[panel].lines[0].get_ydata())


def report_is_self_contained_and_complete(result, tmp_path):
    json_path, html_path = compare_report.report(result, {"seed": 0}).write(tmp_path)
    document = json.loads(json_path.read_text())
    assert len(document["verdicts"]) == 6
    assert all(part["sem"] > 0 for v in document["verdicts"] for part in v["projections"].values())
    page = html_path.read_text()
    first = result.verdicts[0]
    np.testing.assert_allclose(drawn(plots.variances(result), 0), first.variance.values)
    projection, *_ = first.projections.values()
    means = np.array(projection["means"]) / abs(projection["limit"])
    np.testing.assert_allclose(drawn(plots.convergence(result, first.observable), 0), means)
    assert "http" not in page.replace("http-equiv", "")
    for verdict in result.verdicts:
        assert f"{verdict.relative_error:.1%} ± {verdict.relative_sem:.1%}" in page
        assert verdict.name in page


def curves_are_those_of_the_lazy_limit_in_ntk(result):
    run = result.limits["ntk", 1]
    wide = next(c for c in result.curves if c.label == "ntk" and c.width == 128)
    away = np.abs(wide.loss - run.loss)
    assert np.all(away <= 5 * wide.loss_sem + 0.03 * run.loss)  # noise, and the bias of O(1/128)


@pytest.mark.parametrize(
    ("options", "message"), [({"members": 4}, "at least 8 members"), ({"learning_rate": 50.0}, "diverge|too large")]
)
def test_mistakes(options, message):
    with pytest.raises((ValueError, FloatingPointError, UserWarning), match=message):
        run(families=("ntk",), **options)


def test_an_ensemble_that_diverges_is_marked_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    measure, random = grid.measure, np.random.default_rng(0)

    def measured(cell, task, limit):
        """Only what diverges is trained: the others are their limits, and noise."""
        if (cell.label, cell.net.width) == ("wild", 4):
            return measure(cell, task, limit)
        names = ("nngp", "ntk") if cell.kind == "init" else ("f", "path", "ntk_end")
        exact = {name: limit.projections[name](limit.estimates(name)) for name in names}
        found = {name: value + 0.01 * random.normal(size=(8, value.shape[1])) for name, value in exact.items()}
        run = limit.run
        return found | {"loss": run.loss, "loss_sem": 0 * run.loss, "f_mean": run.f, "f_sem": 0.01 + 0 * run.f}

    monkeypatch.setattr(grid, "measure", measured)

    def wild(width, depth):  # at width 4 its outputs are beyond float32
        return MLP(width, depth, w_std=1e30 if width == 4 else 1.2)

    def tame(width, depth):
        return MLP(width, depth, w_std=1.3)

    small = data.sphere(2, 1, dim=3)
    found = compare({"wild": wild, "tame": tame}, (4, 8), (1,), small, 1, 0.1, 8, 8, folder=tmp_path)
    assert {(d.label, d.depth, d.width) for d in found.diverged} == {("wild", 1, 4)}
    assert {v.label for v in found.verdicts} == {"tame"}
    assert [c.width for c in found.curves if c.label == "wild"] == [8]
    report = compare_report.report(found, {})  # its pictures are made, and not drawn: that takes most of the time
    numbers = json.loads(report.json())
    assert all("infinite or NaN outputs at step 0" in each["why"] for each in numbers["diverged"])
    assert "diverged at width 4" in compare_report.verdicts(found)._repr_html_()
    report.print(Console(width=200))
    assert "diverged" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:learning_rate 1 is beyond")
def test_a_limit_that_diverges_is_said():
    def fast(width, depth):  # the tangent kernel is 1e4 times that of w_std = 1
        return MLP(width, depth, w_std=10.0)

    with pytest.raises(
        FloatingPointError, match=r"nothing is left to judge, everything diverged\. Training diverged: outputs"
    ):
        compare({"fast": fast}, (4, 8), (2,), data.sphere(2, 1, dim=3), 1000, 1.0, 8, 8)


def test_it_goes_the_way_of_a_user():
    """Of limits it uses what `limits` shows, of train `ensemble`, besides its own files."""
    public = {"limits", "train", "train.ensemble", "train.progress"}
    for module in (sys.modules["train.evaluate.compare"], grid):
        imports = [each for each in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(each, ast.ImportFrom)]
        rooms = {each.module for each in imports if each.module and each.module.split(".")[0] in ("limits", "train")}
        assert {room for room in rooms if not room.startswith("train.evaluate.")} <= public


def test_squared_errors_are_without_the_noise_of_either_side():
    """N (shift² + variance) / |f|², of few members and sweeps: (0.01 + 0.01) · 64 / 1."""
    families = {"mup": functools.partial(build, "mup", "erf")}
    cells, _ = cells_of(Design(families, (64,), (1,), None, 1, 0.1, 8, 8))
    (cell,) = cells["train", "mup", 1]
    random, limit, found = np.random.default_rng(0), object.__new__(Limit), []
    for _ in range(4000):
        f = 1.1 + 0.1 * random.normal(size=(8, 2, 1, 1))
        path = 1 + 0.2 * random.normal(size=(4, 2, 1, 1))
        object.__setattr__(limit, "rich", {"path": path})
        seen = {"f_mean": f.mean(0), "f_sem": f.std(0, ddof=1) / 8**0.5}
        found.append(_squared_error(cell, seen, limit) * float((path.mean(0)[1:] ** 2).sum()))
    assert abs(np.mean(found) - 64 * 0.02) < 4 * np.std(found) / 4000**0.5 < 0.12
