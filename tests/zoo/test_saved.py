"""A definition written as JSON comes back as the same definition, and what cannot be written says which field."""

import json

import jax.numpy as jnp
import pytest

from zoo import CNN, MLP, HeResNet, Parameterization, Quadratic, ResNet, ViT, variant
from zoo.saved import from_json, to_json

NETS = [
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


def test_a_class_that_is_not_there_says_where_it_should_be():
    saved = to_json(MLP(8, 2)) | {"class": "my_models:Mine"}
    with pytest.raises(ValueError, match="my_models:Mine cannot be imported here"):
        from_json(saved)
