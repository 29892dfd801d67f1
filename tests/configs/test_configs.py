"""The packaged configs: quick checks of their form, and (slow) the claims of the main one."""

import importlib
import math
import pkgutil
from pathlib import Path
from typing import Any

import jax
import pytest
from rich.console import Console

import configs
from configs import training
from launch.compare import check_fields, left_out
from launch.limit import work_of
from launch.train import FUNCTIONS, prepare
from train.data import make_task
from train.evaluate import compare
from train.study.experiment import Experiment
from train.study.families import families
from train.study.grid import conduct
from train.study.study import study_of
from train.transfer import claims

NAMES = [module.name for module in pkgutil.iter_modules(configs.__path__) if not module.ispkg]
NAMES = sorted({*NAMES, *(f"training:{each}" for each in training.SIZES)} - {"training"})


def check_study(module, config):
    """A config of launch.transfer: its networks take its batches in every setting, and the first at every width."""
    study = study_of(str(module.__file__), config, Path())
    first = study.cells()[0].label
    for cell in study.cells():
        taken = cell.label == first or cell.width == min(config.widths)
        if math.isfinite(cell.width) and cell.depth == min(config.depths) and taken:
            x, _ = next(iter(study.call("batches", **cell.fields)))
            net = study.call("make", cell.width, cell.depth, **cell.fields, **study.job_example())
            tx = study.call("optimizer", net, **cell.fields, **study.job_example())
            jax.eval_shape(lambda x, net=net, tx=tx: tx.init(net.init(jax.random.key(0), x)["params"]), x)


@pytest.mark.parametrize("name", NAMES)
def test_header_says_command_and_time_and_the_config_builds(name, tmp_path):
    name, _, architecture = name.partition(":")
    module = importlib.import_module(f"configs.{name}")
    header = module.__doc__ or ""
    assert f"--config=configs/{name}.py" in header
    assert "second" in header or "minute" in header
    if architecture:
        config = module.get_config(architecture)
        assert config.name == f"train_{architecture}"
        assert f"\n    {architecture} " in header
        config.batch = 8
        run = prepare(Experiment(str(module.__file__), config, FUNCTIONS), tmp_path)
        x, y = next(run.batches(0))
        assert (len(x), y.shape) == (8, (8, 10))
        return
    config = module.get_config()
    assert config.name == name
    if hasattr(module, "make") and "data" in config:
        config.batch = 2
        run = prepare(Experiment(str(module.__file__), config, FUNCTIONS), tmp_path)
        x, y = next(run.batches(0))
        assert x.shape == y.shape == (2, config.data.context)
        return
    own = str(module.__file__) if hasattr(module, "make") else None
    if own and "members" not in config:
        check_study(module, config)
        return
    if "regression" in config:
        assert len(work_of(config, str(module.__file__), tmp_path)[2]) == len(config.variants) * len(config.depths)
        return
    if "members" in config:
        check_fields(config, "launch.compare", left_out(config), own)
    # Nothing is trained without steps, or where posteriors are sampled.
    assert "posterior" in config or config.steps == 0 or config.members >= 64
    for make in families(config, own, 1).values():
        for width in config.widths:
            assert make(width, max(config.depths)).width == width


@pytest.mark.slow
def test_main_config_holds_what_the_readme_says():
    from configs import mlp

    config = mlp.settings()
    task = make_task(config.task.name, **{key: value for key, value in config.task.items() if key != "name"})
    result = compare(
        families(config, None, task.outputs), config.widths, config.depths, task, config.steps, config.learning_rate,
        config.members, config.init_members, config.seed, config.centred,
    )  # fmt: skip
    for depth in config.depths:
        for observable, label in (("nngp", "ntk, mup"), ("ntk", "ntk, mup"), ("f", "ntk"), ("ntk_end", "ntk")):
            assert result.find(observable, label, depth).verdict == "agrees"
        for observable, label in (("nngp", "ntk, mup"), ("ntk", "ntk, mup"), ("f", "ntk")):
            law = result.find(observable, label, depth).variance
            assert law is not None
            assert law.meets(-1.0, 0.15)
        assert result.find("f", "mup", depth).verdict == "does not converge"
    jax.clear_caches()


def conducted(name, tmp_path) -> Any:
    module = importlib.import_module(f"configs.{name}")
    (tmp_path / "cells").mkdir()
    return conduct(study_of(str(module.__file__), module.get_config(), tmp_path), (0, 1), Console(quiet=True))


@pytest.mark.slow
def test_learning_rates_transfer_over_width_in_mup_and_not_in_standard(tmp_path):
    outcome = conducted("transfer_width", tmp_path)
    standard, mup = (outcome.over(label, "width") for label in ("standard", "mup"))
    slope, _, high = standard.slope()
    assert slope <= -0.5
    assert high < 0
    assert abs(mup.slope()[0]) < 0.35
    assert claims.compared(outcome, "standard", "mup", "width").holds  # beyond the intervals
    assert claims.keeps(outcome, "standard", "width").holds is False
    assert claims.loses(outcome, "mup", "width").holds is False


@pytest.mark.slow
def test_learning_rates_transfer_over_depth_where_branches_are_scaled(tmp_path):
    """By α = 1 within an octave, by α = 1/2 less well; both end far below α = 0, whose rate does not transfer."""
    outcome = conducted("transfer_depth", tmp_path)
    for name in ("adam", "muon"):
        none, half, one = (f"{name}, α = {alpha}" for alpha in ("0", "1/2", "1"))
        moves = [abs(outcome.over(label, "depth").shift()[0]) for label in (one, half, none)]
        assert moves[0] < 1 < moves[2]
        assert moves == sorted(moves)
        assert claims.compared(outcome, none, one, "depth").holds
        for label in (half, one):
            assert claims.loses(outcome, label, "depth").holds is False
            assert claims.ends_lower(outcome, label, none, "depth").holds
    assert claims.keeps(outcome, "adam, α = 0", "depth").holds is False


@pytest.mark.slow
def test_the_widest_networks_have_the_curve_of_the_limit(tmp_path):
    outcome = conducted("transfer_limit", tmp_path)
    limit, wide = outcome.limits["transfer_limit"][3], outcome.sweeps["transfer_limit"][512, 3]
    assert abs(limit.optimum().log_rate - wide.optimum().log_rate) < 0.5


def test_an_architecture_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(ValueError, match=r'"vti".*Did you mean "vit"'):
        training.get_config("vti")
