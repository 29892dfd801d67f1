"""What holds for every definition of zoo: each is found by itself."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from definitions import definitions, input_shape, small

import limits
import zoo
from zoo.definition import Definition, definition_of

EVERY = pytest.mark.parametrize("cls", definitions(), ids=lambda cls: cls.__name__)
# Definitions of the zoo, by class: an instance, the shape of a sample, and its exact number of parameters.
SIZES: dict[type, Any] = {
    zoo.MLP: (zoo.MLP(width=512, depth=3, outputs=10, b_std=0.1), (28, 28, 1), 785 * 512 + 2 * 513 * 512 + 5130),
    zoo.CNN: (
        zoo.CNN(width=8, depth=3, outputs=10, b_std=0.1, pool_after=(1,)),
        (8, 8, 3),
        (27 + 1) * 8 + 2 * (9 * 8 + 1) * 8 + (16 * 8 + 1) * 10,
    ),
    zoo.ResNet: (
        zoo.ResNet(width=16, depth=6, outputs=10, form="conv", stages=3, readout="average"),
        (8, 8, 3),
        # read-in, two blocks of 4 channels, doubling, a block of 8, doubling, a block of 16, readout
        27 * 4 + 2 * 36 * 4 + 36 * 8 + 72 * 8 + 72 * 16 + 144 * 16 + 160,
    ),
    zoo.ViT: (
        zoo.ViT(width=16, depth=2, outputs=10, patch=4, pool="class"),
        (8, 8, 3),
        # patches, class token, positions, two blocks (norms, attention, MLP), the last norm, readout
        48 * 16 + 16 + 5 * 16 + 2 * (4 * 16 + 4 * 16**2 + 8 * 16**2) + 2 * 16 + 160,
    ),
    zoo.HeResNet: (
        zoo.HeResNet(width=8, stages=(1, 1), outputs=10, b_std=0.1, stem="small"),
        (8, 8, 3),
        # stem, a block of 8 channels, one of 16 with its shortcut, gain and bias of each, readout
        27 * 8 + 2 * 72 * 8 + 72 * 16 + 144 * 16 + 8 * 16 + 2 * (3 * 8 + 3 * 16) + 17 * 10,
    ),
}


def test_all_architectures_are_found():
    modules = [each for each in vars(zoo).values() if isinstance(each, type) and issubclass(each, nn.Module)]
    networks = [cls for cls in modules if {"outputs", "parameterization"} <= set(cls.__dataclass_fields__)]
    assert set(networks) == set(definitions()) == set(SIZES)  # layers have no outputs


@EVERY
def test_every_definition_has_a_twin_and_an_exact_number_of_parameters(cls):
    net, shape, expected = SIZES[cls]
    assert isinstance(limits.twin(net), limits.Twin)
    variables = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *shape), "float32"))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == expected


@EVERY
def test_every_definition_says_what_definitions_say(cls):
    net: Any = small(cls)
    assert isinstance(small(cls), Definition)
    assert np.shape(net.branch_scale) in ((), (net.branches,))
    assert (definition_of(net).depth, definition_of(net).branches) == (net.depth, net.branches)
    x = jax.ShapeDtypeStruct(input_shape(net), "float32")
    (f, inside), _ = jax.eval_shape(
        lambda key, x: net.init_with_output(key, x, intermediates=True), jax.random.key(0), x
    )
    assert f.shape == (2, net.outputs)
    assert set(inside) == {"h", "phi", "features"}


@EVERY
def test_every_parameter_of_every_definition_has_a_role_and_factors(cls):
    net: Any = small(cls, b_std=0.5, parameterization=zoo.Parameterization.mup.based(width=4))
    x = jax.ShapeDtypeStruct(input_shape(net), "float32")
    params = jax.eval_shape(net.init, jax.random.key(0), x)["params"]
    assert set(jax.tree.leaves(zoo.roles(net, x))) <= set(zoo.ROLES)
    found = zoo.factors(net, params, x)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    assert {factor.width for factor in jax.tree.leaves(found)} == {2.0}


def test_a_module_that_says_less_is_described_by_what_makes_no_difference():
    class Mine:
        width, parameterization = 8, "ntk"

    said = definition_of(Mine())
    assert (said.depth, said.outputs, said.gamma, said.branches, said.branch_scale) == (1, 1, 1.0, 0, 1.0)
    with pytest.raises(AttributeError, match="heads"):
        said.heads  # noqa: B018
