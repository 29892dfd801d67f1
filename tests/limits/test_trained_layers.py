"""`trained` names layers as well as roles: of kernels, of their training, of feature learning, of networks."""

import math
from typing import Any

import numpy as np
import pytest

from limits import Task, twin
from train import ensemble
from zoo import CNN, MLP, HeResNet, ResNet, ViT

X = np.sin(1.7 * np.arange(6)[:, None] * np.arange(1, 5) + 0.4)
Y = np.cos(np.arange(6.0))
TASK = Task(X[:4], Y[:4], X[4:], Y[4:])
IMAGES = np.sin(1.3 * np.arange(5 * 16).reshape(5, 4, 4, 1) + 0.2)
NET = MLP(8, 3, activation="erf", w_std=1.4, b_std=0.3)
DEEP = ResNet(8, 4, activation="relu", w_std=1.2)


def ntk(net, x, trained=None):
    """Of these inputs, by `lazy`."""
    return twin(net).lazy(Task(x, np.ones(len(x))), 0, 0.1, trained=trained, kernels=("ntk",)).ntk[0]


@pytest.mark.parametrize(
    ("net", "x", "layers"),
    [
        pytest.param(NET, X, ("hidden_1", "hidden_2", "hidden_3", "readout"), marks=pytest.mark.slow),
        (CNN(8, 2, activation="relu", b_std=0.2, readout="average"), IMAGES, ("conv_1", "conv_2", "readout")),
        pytest.param(
            ViT(8, 1, patch=2), IMAGES, ("block_1_mlp_1", "block_1_mlp_2", "block_1_out"), marks=pytest.mark.slow
        ),
    ],
)
def test_kernels_of_layers_add_up_to_that_of_all(net, x, layers):
    parts = [ntk(net, x, (name,)) for name in layers]
    assert all(np.trace(part) > 0 for part in parts)
    np.testing.assert_allclose(sum(parts), ntk(net, x, layers), rtol=1e-11)
    if not isinstance(net, ViT):  # but for the readout's bias
        np.testing.assert_allclose(sum(parts) + net.b_std**2, ntk(net, x), rtol=1e-11)


@pytest.mark.slow
def test_a_layer_alone_and_with_a_role():
    second, third = (ntk(NET, X, (name,)) for name in ("hidden_2", "hidden_3"))
    np.testing.assert_allclose(ntk(NET, X, ("hidden_2", "readout")), second + ntk(NET, X, ("readout",)), rtol=1e-10)
    biases = second + third - ntk(NET, X, ("hidden",))  # of a layer, which have another role than its weights
    assert np.all(np.diagonal(biases) > 0)


@pytest.mark.parametrize("parameterization", ["ntk", pytest.param("mup", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_limits_and_networks_train_the_same_layers(parameterization):
    """Within sampling errors; of networks of width 128 O(1/N) is dropped, below 3 % of the largest entry."""
    net = NET.clone(width=128, parameterization=parameterization)
    how: Any = {"trained": ("hidden_2", "readout")}
    finite = ensemble(net, TASK, 48, 4, 0.3, times=(0, 4), kernels=("ntk",), **how)
    limit = twin(net).lazy(TASK, 4, 0.3, times=(0, 4), **how) if parameterization == "ntk" else twin(net).rich(
        TASK, 4, 0.3, times=(0, 4), samples=512, replicas=4, kernels=("ntk",), **how
    )  # fmt: skip
    for name in ("f_train", "f_test", "ntk"):
        one, other = getattr(finite, name), getattr(limit, name)
        errors = np.hypot(getattr(finite, f"{name}_sem"), getattr(limit, f"{name}_sem"))
        assert np.all(np.abs(one - other) < 4.5 * errors + 0.03 * np.abs(other).max()), name
    whole = ensemble(net, TASK, 4, 0, 0.3, kernels=("ntk",)).ntk[0]
    assert np.trace(finite.ntk[0]) < 0.8 * np.trace(whole)


@pytest.mark.slow
def test_blocks_of_residual_networks():
    parts = [ntk(DEEP, X, (f"block_{l}_1",)) for l in (1, 2, 3)]
    np.testing.assert_allclose(sum(parts), ntk(DEEP, X, ("branch",)), rtol=1e-11)


def test_names_that_do_not_exist_and_infinite_depth():
    with pytest.raises(ValueError, match=r'MLP has no role or layer "hiden_2".* Did you mean "hidden_2"'):
        twin(NET).lazy(TASK, 1, 0.1, trained=("hiden_2",))
    with pytest.raises(ValueError, match=r"trained must be a tuple of roles .* or of layers; got"):
        twin(NET).rich(TASK, 1, 0.1, trained=())
    for train in (twin(DEEP, depth=math.inf).lazy, twin(DEEP.clone(parameterization="mup"), depth=math.inf).rich):
        with pytest.raises(ValueError, match="infinitely many"):
            train(TASK, 1, 0.1, trained=("block_1_1",))


@pytest.mark.slow
def test_what_is_drawn_knows_layers_too():
    net = HeResNet(4, stages=(1,), norm="batch", stem="small", parameterization="ntk")
    block = ("stage_1_block_1_1", "stage_1_block_1_2")
    drawn: Any = twin(net)
    groups = [("readout",), ("norm",), ("stem",), block]
    parts = [drawn.of_trained(names).kernels(IMAGES[:3], members=2).ntk for names in groups]
    np.testing.assert_allclose(sum(parts), drawn.kernels(IMAGES[:3], members=2).ntk, rtol=1e-4, atol=1e-4)
