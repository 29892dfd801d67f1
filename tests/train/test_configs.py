"""The packaged configs: quick checks of their form, and (slow) the claims of the main one."""

import importlib
import pkgutil

import jax
import pytest

import configs
from launch.compare import definitions
from train.data import make_task
from train.evaluate import compare

NAMES = sorted(module.name for module in pkgutil.iter_modules(configs.__path__))


@pytest.mark.parametrize("name", NAMES)
def test_header_says_command_and_time_and_the_config_builds(name):
    module = importlib.import_module(f"configs.{name}")
    header = module.__doc__ or ""
    assert f"--config=configs/{name}.py" in header
    assert "second" in header or "minute" in header
    config = module.get_config()
    assert config.name == name
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
