"""The limit of infinite depth of modules of one's own: the loop of their program as an equation."""

import math

import flax.linen as nn
import jax
import numpy as np
import pytest
from stock import Dense, readout

from limits import AbsentError, Task, twin
from limits.program.closed import deep_program_of
from limits.program.read import measured
from zoo import ResNet, ViT, in_parameterization

X = np.random.default_rng(0).normal(size=(4, 5))
TOKENS = np.random.default_rng(1).normal(size=(2, 3, 4))


class Deep(nn.Module):
    """As one writes a residual network in Flax."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(self.depth):
            h += self.depth**-0.5 * Dense(self.width)(nn.relu(h))
        return readout(nn.relu(h))


class Blocks(nn.Module):
    """One of many kinds of blocks."""

    width: int
    depth: int
    kind: str

    @nn.compact
    def __call__(self, x):
        layer, L = (lambda a: Dense(self.width)(a)), float(self.depth)
        h, same = layer(x), Dense(self.width)
        for l in range(self.depth):
            match self.kind:
                case "norms":  # two branches, the second of what the first made
                    h = h + 0.7 * L**-0.5 * layer(jax.lax.erf(layer(nn.LayerNorm()(h))))
                    h = h + L**-0.5 * layer(nn.relu(nn.LayerNorm()(h)))
                case "mixed":  # over tokens, pairs of which are carried
                    h = h + L**-0.5 * layer(nn.LayerNorm()(h).mean(1, keepdims=True) * np.ones((1, 3, 1)))
                    h = h + L**-0.5 * layer(nn.relu(h))
                case "vanishing":
                    h = h + L**-1.0 * layer(nn.relu(h))
                case "fixed":
                    h = h + 0.1 * layer(nn.relu(h))
                case "none":
                    h = layer(nn.relu(h))
                case "slow":
                    h = h + L**-0.25 * layer(nn.relu(h))
                case "decreasing":
                    h = h + (l + 1.0) ** -0.5 * layer(nn.relu(h))
                case "leaking":
                    h = (1 - 1 / L) ** 0.5 * h + L**-0.5 * layer(nn.relu(h))
                case "tied":
                    h = h + L**-0.5 * same(nn.relu(h))
                case "initial":
                    law = nn.initializers.variance_scaling(1 / L, "fan_in", "normal")
                    h = h + nn.Dense(self.width, kernel_init=law)(nn.relu(h))
        return readout(nn.relu(h.mean(1) if h.ndim == 3 else h))


def plain(kind, depth=4):
    return in_parameterization(Blocks(16, depth, kind), "ntk")


@pytest.mark.slow
def test_a_plain_residual_network_has_the_limit_of_zoos():
    zoo = ResNet(16, 8, b_std=1.0, bias_init="zeros")
    exact, limit = twin(zoo, depth=math.inf), twin(in_parameterization(Deep(16, 4), "ntk"), depth=math.inf)
    found = limit.kernels(X)
    for name in ("nngp", "ntk"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact.kernels(X), name), rtol=1e-9)
    np.testing.assert_allclose(limit.kernels(X, diagonal=True).ntk, np.diag(found.ntk), rtol=1e-9)
    assert found.provenance["ntk"].kind == "approximate"
    assert "layer-time equations" in found.provenance["ntk"].detail
    task = Task(X, X[:, 0])
    run, theirs = limit.lazy(task, 3, 0.1), exact.lazy(task, 3, 0.1)
    np.testing.assert_allclose(run.loss, theirs.loss, rtol=1e-8)


@pytest.mark.parametrize(
    ("make", "x"),
    [
        pytest.param(
            lambda depth: ResNet(16, depth, branch_layers=2, activation="tanh", b_std=0.2), X, id="two layers"
        ),
        pytest.param(
            lambda depth: ViT(16, depth, patch=2), np.random.default_rng(0).normal(size=(2, 4, 4, 2)), id="tokens"
        ),
    ],
)
@pytest.mark.slow
def test_networks_of_the_zoo_have_the_limit_of_their_twins(make, x):
    exact = twin(make(8), depth=math.inf).kernels(x)
    kernels = deep_program_of(make(8), x.shape[1:], "float64", None)
    with jax.enable_x64(True):
        lengths, _ = measured(kernels, x)
        found = {name: np.asarray(a) for name, a in jax.jit(lambda a: kernels(a, a, lengths))(x).items()}
    for name in ("nngp", "ntk"):
        np.testing.assert_allclose(found[name], getattr(exact, name), rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "x"),
    [pytest.param("norms", X, marks=pytest.mark.slow), pytest.param("mixed", TOKENS, marks=pytest.mark.slow)],
)
def test_deep_networks_come_near_it_as_one_over_the_depth(kind, x):
    limit = twin(plain(kind), depth=math.inf).kernels(x)
    shallow, deep = (twin(plain(kind, depth)).kernels(x) for depth in (16, 32))
    for name in ("nngp", "ntk"):
        at = [getattr(each, name) for each in (shallow, deep, limit)]
        off = np.abs(at[1] - at[2]).max()
        assert np.abs(at[0] - at[2]).max() == pytest.approx(2 * off, rel=0.1)
        assert np.abs(2 * at[1] - at[0] - at[2]).max() < 0.1 * off  # the rest is O(1/L²)


@pytest.mark.slow
def test_branches_that_vanish_faster_leave_the_read_in():
    net = in_parameterization(Blocks(16, 0, "none"), "ntk")
    for name in ("nngp", "ntk"):
        np.testing.assert_allclose(
            getattr(twin(plain("vanishing"), depth=math.inf).kernels(X), name), getattr(twin(net).kernels(X), name)
        )


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("fixed", "blocks are of one size at all depths"),
        slow("none", "blocks are of one size at all depths"),
        slow("slow", r"goes from 0.5946 at depth 8 to 0.4204 at depth 32"),
        slow("decreasing", "blocks are scaled in different ways"),
        slow("leaking", r"goes from 0.9354 at depth 8 to 0.9843 at depth 32"),
        slow("tied", "no run of equal blocks"),
        slow("initial", "starts with another law"),
    ],
)
def test_what_has_no_limit_is_refused_with_the_reason(kind, why):
    with pytest.raises(AbsentError, match=why):
        twin(plain(kind), depth=math.inf).kernels(X)
    with pytest.raises(AbsentError, match=why):
        twin(in_parameterization(Blocks(16, 4, kind), "mup"), depth=math.inf).rich(Task(X, X[:, 0]), 1, 0.1)


def test_a_module_without_a_depth_is_refused():
    with pytest.raises(ValueError, match="Dense has no field `depth`"):
        twin(in_parameterization(nn.Dense(8), "ntk", width="features"), depth=math.inf)


@pytest.mark.slow
def test_feature_learning_is_extrapolated_in_the_depth():
    task, settings = Task(X, np.sin(X[:, 0])), {"samples": 512, "replicas": 8, "kernels": ()}
    limit = twin(in_parameterization(Deep(16, 8), "mup"), depth=math.inf).rich(task, 5, 0.1, **settings)
    deep = twin(in_parameterization(Deep(16, 64), "mup")).rich(task, 5, 0.1, **settings)
    error = np.hypot(limit.loss_sem, deep.loss_sem)
    assert np.all(
        np.abs(limit.loss - deep.loss)[1:] < 4 * error[1:] + 0.01 * deep.loss[0]
    )  # 1/64 is left in one of them
