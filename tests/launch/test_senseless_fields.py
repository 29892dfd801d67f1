"""Fields that no run could mean are refused by their name, and a folder keeps one comparison."""

import json

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import mlp, training, transfer_width
from launch import compare
from train.data import augmentation, sphere
from train.evaluate import compare as evaluate
from train.study.experiment import Experiment
from train.study.fields import checked
from train.study.study import study_of

TRAINING = training.get_config("mlp").to_dict()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"learning_rate": -0.1}, "learning_rate must be a finite number ≥ 0, got -0.1"),
        ({"learning_rate": "3"}, "learning_rate must be a finite number ≥ 0, got '3'"),
        ({"weight_decay": -1.0}, "weight_decay must be"),
        ({"profile": (-1, 2)}, r"profile must be \(first step, number of steps\); got \(-1, 2\)"),
        ({"seed": 2**32}, "seed must be an integer of at least 0 and at most 4294967295, got 4294967296"),
        ({"data": 3}, "data must be a dictionary, got 3"),
        ({"data": {"train": "train"}}, "data must have a name"),
        ({"mesh": {"dat": 1}}, 'mesh has no axis "dat". Did you mean "data"'),
    ],
)
def test_training(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        checked(TRAINING | changes)


def test_augmentation():
    for step, sentence in (
        (("flip", {"probability": 7}), '"flip": probability must be a number from 0 to 1, got 7'),
        (("crop", {"padding": -1}), '"crop": padding must be an integer of at least 0'),
        (("crop", 3), 'is "name" or'),
    ):
        with pytest.raises(ValueError, match=sentence):
            augmentation([step])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"activations": ()}, r"config.activations must be a sequence, one or more of them, .*; got \(\)"),
        ({"widths": (8, 8)}, r"config.widths must be a sequence.*, each once.*; got \(8, 8\)"),
        ({"depths": ()}, r"config.depths must be"),
        ({"steps": 0}, "config.steps must be an integer of at least 1"),
        ({"seed": "3"}, "config.seed must be"),
    ],
)
def test_comparison(changes, sentence):
    config = mlp.settings()
    with config.ignore_type():
        config.update(changes)
    with pytest.raises(ValueError, match=sentence):
        compare.check_fields(config, "launch.compare")


def test_a_config_of_another_command_is_told():
    with pytest.raises(ValueError, match=r"has no widths, depths, .*: it is not one for launch.compare"):
        compare.check_fields(training.get_config("mlp"), "launch.compare")
    compare.check_fields(mlp.settings(), "launch.compare")


def test_what_is_said_of_networks_and_not_read_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(
        "from zoo import MLP\n\n\ndef make(width, depth, activations):\n    return MLP(width, depth, activation=activations[0])\n"
    )
    config = mlp.settings()
    read = r"config.architecture = 'mlp' is not read: the function make of own.py .* and parameterizations and net out"
    with pytest.raises(ValueError, match=read):
        compare.check_fields(config, "launch.compare", path=str(tmp_path / "own.py"))
    with config.unlocked():
        config.variants = {"a": {"architecture": "mlp"}}
    with pytest.raises(
        ValueError, match=r"config.architecture = 'mlp' is not read: its `variants` says .* Leave architecture and"
    ):
        compare.check_fields(config, "launch.compare")
    with config.unlocked():
        for name in ("architecture", "activations", "parameterizations", "net"):
            delattr(config, name)
    compare.check_fields(config, "launch.compare")


def test_variants_that_no_network_reads_are_refused(tmp_path):
    config = mlp.settings()
    with config.unlocked():
        for name in ("architecture", "activations", "parameterizations", "net"):
            delattr(config, name)
    (tmp_path / "own.py").write_text("def make(width, depth, form):\n    return None\n")
    for variants, own, sentence in (
        (("a", "b"), True, r"config.variants must be a dictionary, got \('a', 'b'\)"),
        ({"a": 3}, True, "config.variants: a must be a dictionary, got 3"),
        ({"a": {"from": "mup"}}, True, r"config.variants: a: from is not read: make of own.py .*Did you mean \"form\""),
        ({"a": {"form": "mup", "width": 8}}, True, r"config.variants: a: width is not read"),
        ({"a": {"architecture": "mlp", "width": 8}}, False, r"config.variants: a: width is the same .* config.widths"),
        ({"a": {"architecture": "mlp", "outputs": 8}}, False, r"config.variants: a: outputs is the same"),
    ):
        with config.unlocked(), config.ignore_type():
            config.variants = variants
        with pytest.raises(ValueError, match=sentence):
            compare.check_fields(config, "launch.compare", path=str(tmp_path / "own.py") if own else None)


def test_what_is_no_definition_is_told_how_to_be_one(tmp_path):
    for net, sentence in (
        (nn.Dense(8), r'compare, mine: Dense is a plain module, .*zoo\.in_parameterization\(net, "mup"\) .* "ntk"'),
        (optax.sgd(0.1), r"compare: the network of mine must be a Flax Linen module, .*zoo\.in_parameterization"),
    ):
        with pytest.raises(ValueError, match=sentence):
            evaluate({"mine": lambda width, depth, net=net: net}, (8, 16), (1,), sphere(3, 2, dim=3), 2, 0.1, 8, 8)
    (tmp_path / "own.py").write_text(
        "from flax import nnx\ndef make(width, depth):\n    return nnx.Linear(2, 3, rngs=nnx.Rngs(0))\n"
    )
    with pytest.raises(
        ValueError, match=r'make returned .* Of an NNX module: zoo\.in_parameterization\(build, "mup" or "ntk"'
    ):
        Experiment(str(tmp_path / "own.py"), {}, ("make",)).call("make", 8, 1)


def test_a_study(tmp_path):
    for changes, sentence in (
        ({"target": {"width": 0}}, "config.target.width must be an integer of at least 1, got 0"),
        ({"widths": (64, 64)}, "config.widths must be .*each once"),
    ):
        config = transfer_width.get_config()
        with config.unlocked(), config.ignore_type():
            for name, value in changes.items():
                config[name] = value
        with pytest.raises(ValueError, match=sentence):
            study_of(transfer_width.__file__, config, tmp_path)


def test_a_folder_keeps_one_comparison(tmp_path, capsys):
    settings = {"steps": 3, "widths": [8, 16]}
    compare.check_folder(tmp_path, settings)
    (tmp_path / "config.json").write_text(json.dumps({"config": settings}))
    compare.check_folder(tmp_path, dict(settings))
    compare.check_folder(tmp_path, {**settings, "steps": 4})  # there is no report yet: its cells serve others too
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds a comparison with another steps \(3, now 4\): .*--workdir"):
        compare.check_folder(tmp_path, {**settings, "steps": 4})
    (tmp_path / "config.json").write_text("{")
    compare.check_folder(tmp_path, settings)
    assert "config.json cannot be read, and is written anew" in capsys.readouterr().err


def test_a_function_that_returns_nothing_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from ml_collections import ConfigDict\n"
        "def get_config():\n    return ConfigDict({'width': 8})\n"
        "def make(width):\n    pass\ndef optimizer():\n    pass\n"
    )
    mine = Experiment(str(file), {"width": 8}, ("make", "optimizer"))
    with pytest.raises(ValueError, match=r"mine\.py: make returned None; make.* returns a model with init and apply"):
        mine.call("make")
    with pytest.raises(ValueError, match=r"optimizer returned None; .* returns an Optax transformation"):
        mine.call("optimizer")


def test_a_loss_that_does_not_take_its_targets_is_told_what_it_was_given(tmp_path):
    """What was said was Optax's: "got bool instead", or "indices and arr must have the same number of dimensions"."""
    (tmp_path / "own.py").write_text(
        "import optax\n"
        "def loss(outputs, targets):\n"
        "    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean()\n"
    )
    own, outputs = Experiment(str(tmp_path / "own.py"), {}, ("loss",)), jnp.zeros((2, 3))
    for targets in (np.array([True, False]), np.zeros((2, 3), np.int32)):
        words = (
            rf"own\.py: loss fails for outputs float\d\d\[2, 3\] with targets {targets.dtype}\{list(targets.shape)}: "
        )
        with pytest.raises(ValueError, match=words.replace("]:", r"\]:")):
            own.call("loss", outputs, targets)
    assert float(own.call("loss", outputs, np.array([0, 2]))) == pytest.approx(np.log(3))
