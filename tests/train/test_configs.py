"""The packaged configs: quick checks of their form, and (slow) the claims of the main one."""

import importlib
import math
import pkgutil
from pathlib import Path

import jax
import pytest

import configs
from launch.compare import definitions
from launch.transfer import study_of
from train.data import make_task
from train.evaluate import compare

NAMES = sorted(module.name for module in pkgutil.iter_modules(configs.__path__))


def check_study(module, config):
    """A config of launch.transfer: its networks can be initialised with its batches in every setting and size."""
    study = study_of(module.__file__, config, Path())
    for cell in study.cells():
        if math.isfinite(cell.width):
            x, _ = next(iter(study.call("batches", **cell.fields)))
            net = study.call("make", cell.width, cell.depth, **cell.fields, **study.job_example())
            tx = study.call("optimizer", net, **cell.fields, **study.job_example())
            jax.eval_shape(lambda x, net=net, tx=tx: tx.init(net.init(jax.random.key(0), x)["params"]), x)


@pytest.mark.parametrize("name", NAMES)
def test_header_says_command_and_time_and_the_config_builds(name):
    module = importlib.import_module(f"configs.{name}")
    header = module.__doc__ or ""
    assert f"--config=configs/{name}.py" in header
    assert "second" in header or "minute" in header
    config = module.get_config()
    assert config.name == name
    if hasattr(module, "make"):
        check_study(module, config)
        return
    assert config.steps == 0 or config.members >= 64  # nothing is trained without steps
    config.task_outputs = 1
    for make in definitions(config).values():
        for width in config.widths:
            assert make(width, max(config.depths)).width == width


@pytest.mark.slow
def test_main_config_holds_what_the_readme_says():
    from configs import mlp

    config = mlp.get_config()
    task = make_task(config.task.name, **{key: value for key, value in config.task.items() if key != "name"})
    config.task_outputs = task.outputs
    result = compare(
        definitions(config), config.widths, config.depths, task, config.steps, config.learning_rate,
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
