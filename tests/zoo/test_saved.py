"""A definition written as JSON comes back as the same definition, and what cannot be written says which field."""

import importlib
import json
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from definitions import definitions, small

from zoo import CNN, MLP, HeResNet, Parameterization, Quadratic, ResNet, ViT, variant
from zoo.saved import from_json, register, to_json

NETS = [
    *map(small, definitions()),
    MLP(8, 2, activation=jnp.tanh, w_std=1.5),
    MLP(8, 2, parameterization=Parameterization.family(a=0.25, d=0.5), gamma=0.5),
    CNN(8, 3, activation=Quadratic(0.3), pool_after=(1,)),
    ResNet(8, 8, form="conv", stages=2, dtype="bfloat16"),
    HeResNet(8, (2, 1), 10, norm="batch"),
    ViT(16, 2, heads="grow", parameterization=Parameterization.mup.based(16, 1), dtype=jnp.bfloat16),
    variant("ViT-B/16"),
]


@pytest.mark.parametrize("net", NETS, ids=lambda net: type(net).__name__)
def test_what_is_written_is_read_back(net):
    again = from_json(json.loads(json.dumps(to_json(net))))
    assert type(again) is type(net)
    assert to_json(again) == to_json(net)
    plain = {"activation", "dtype"}  # named differently: jnp.tanh is "tanh"
    fields = [name for name in type(net).__dataclass_fields__ if name not in plain]
    assert all(getattr(again, name) == getattr(net, name) for name in fields)


def test_a_number_of_jax_is_a_number():
    assert to_json(MLP(8, 2, w_std=jnp.float32(1.5)))["fields"]["w_std"] == 1.5


def test_a_function_without_a_name_is_refused_by_field():
    with pytest.raises(ValueError, match="MLP: the field activation cannot be written"):
        to_json(MLP(8, 2, activation=lambda x: x**3))


@pytest.mark.parametrize(
    "name", ["my_models:Mine", "os:system", "json:JSONDecoder", "zoo.saved:from_json", "zoo.mlp:nn.Dense"]
)
def test_what_is_not_known_is_neither_imported_nor_called(name: str):
    with pytest.raises(ValueError, match=f"The definition {name} is not one of zoo's"):
        from_json({"class": name, "fields": {}})
    assert "my_models" not in sys.modules


def test_a_module_that_a_checkpoint_names_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="The definition evil:Net is not one"):
        from_json({"class": "evil:Net", "fields": {}})


def test_modules_of_ones_own_are_registered_with_what_they_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_parts.py").write_text(
        "import dataclasses, flax.linen as nn\n@dataclasses.dataclass(frozen=True)\nclass Scale:\n    by: float\n"
        "class Net(nn.Module):\n    scale: Scale\n"
    )
    (tmp_path / "own_config.py").write_text("from own_parts import Net\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("own_config")
    net = config.Net(importlib.import_module("own_parts").Scale(2.0))
    with pytest.raises(ValueError, match="own_parts:Net is not one of zoo's"):
        from_json(to_json(net))
    register(config)
    assert from_json(json.loads(json.dumps(to_json(net)))) == net


def test_other_fields_than_the_saved_ones_are_said():
    with pytest.raises(ValueError, match=r"zoo\.mlp:MLP has other fields now .*\"height\""):
        from_json({"class": "zoo.mlp:MLP", "fields": {"height": 3}})
