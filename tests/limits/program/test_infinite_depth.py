"""The limit of infinite depth of modules of one's own: the loop of their program as an equation."""

import dataclasses
import math
from functools import partial

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx
from stock import GAUSS, Dense, readout

from limits import AbsentError, Task, twin
from limits.program.closed import deep_program_of
from limits.program.numbers_in_depth import in_depth
from limits.program.read import measured
from zoo import ResNet, ViT, in_parameterization
from zoo.plain import at_depth

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
                case "products":
                    h = h + L**-0.5 * layer(nn.relu(h))
                case "divisions":
                    h = h + layer(nn.relu(h)) / math.sqrt(self.depth)
                case "losing":  # more than 1/L
                    h = (h - L**-0.75 * h) + L**-0.5 * layer(nn.relu(h))
                case "as cosines":  # 1 − 1/2L + 1/24L²
                    h = math.cos(L**-0.5) * h + L**-0.5 * layer(nn.relu(h))
                case "mean":  # of a signal and what a layer of norms makes of it
                    h = h - h / (L + 1) + layer(jax.lax.erf(layer(nn.LayerNorm()(h)))) / (2 * L) ** 0.5
                case "one of two":  # the attention of a block is scaled, say, and its MLP is not
                    h = h + L**-0.5 * layer(nn.relu(h))
                    h = h + 0.1 * layer(nn.relu(layer(h)))
                case "biases":  # that start at zero and learn: the signal moves by their number
                    h = h + L**-0.5 * layer(nn.relu(h))
                    h = h + self.param(f"bias_{l}", nn.initializers.zeros, (self.width,))[None]
                case "tied":
                    h = h + L**-0.5 * same(nn.relu(h))
                case "initial":
                    law = nn.initializers.variance_scaling(L**-0.5, "fan_in", "normal")
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
    [pytest.param(kind, x, marks=pytest.mark.slow) for kind, x in [("norms", X), ("mean", X), ("mixed", TOKENS)]],
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
def test_a_signal_that_leaks_falls_as_its_moments_say():
    """q′ = q/2 − q of (1 − 1/L)^(1/2) h + L^(−1/2) W relu(h)."""
    found = twin(plain("leaking"), depth=math.inf).kernels(X[:2], dtype=np.float64).nngp
    read_in = twin(in_parameterization(Blocks(16, 0, "none"), "ntk")).kernels(X[:2], dtype=np.float64).nngp
    np.testing.assert_allclose(np.diag(found), math.exp(-0.5) * np.diag(read_in), rtol=1e-9)


@pytest.mark.slow
def test_what_two_inputs_have_in_common_knows_of_no_leak():
    found, without = (
        twin(in_parameterization(net, "ntk"), depth=math.inf).kernels(X[:2], dtype=np.float64).nngp
        for net in (Blocks(16, 4, "leaking"), Deep(16, 4))
    )
    np.testing.assert_allclose(found, math.exp(-1.0) * without, rtol=1e-9)


@pytest.mark.parametrize(
    ("goes", "limit", "toward"),
    [
        (lambda L: 0.3 * L**-0.5, 0.0, (0.3, 0, 0)),
        (lambda L: -((2 * L + 6) ** -0.5), 0.0, (-(0.5**0.5), 0, 0)),
        (lambda L: 2 / (L - 1), 0.0, (0, 2, 0)),
        (lambda L: L**-0.75, 0.0, (0, 0, 1)),
        (lambda L: L**-1.5, 0.0, (0, 0, 0)),
        (lambda L: (1 + 3 / L) ** -0.5, 1.0, (0, -1.5, 0)),
        (lambda L: np.float32(1) - np.float32(0.3) / np.float32(L), 1.0, (0, -0.3, 0)),
        (lambda L: 0.5 ** (1 / L), 1.0, (0, math.log(0.5), 0)),
    ],
)
def test_numbers_are_known_by_their_values_at_two_depths(goes, limit, toward):
    found = in_depth(float(goes(8)), float(goes(32)), (8, 32))
    assert found is not None
    assert found.limit == limit
    np.testing.assert_allclose(found.toward, toward, atol=1e-6)


@pytest.mark.parametrize("goes", [lambda L: 1 - L**-0.5, lambda L: L**-0.45, lambda L: 2 - 1 / L, lambda L: L**0.5])
def test_others_are_not(goes):
    assert in_depth(goes(8), goes(32), (8, 32)) is None


@pytest.mark.slow
def test_divisions_are_products():
    products, divisions = (twin(plain(kind), depth=math.inf).kernels(X) for kind in ("products", "divisions"))
    np.testing.assert_allclose(divisions.ntk, products.ntk, rtol=1e-12)


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
        slow("as cosines", r"goes from 0.9381 at depth 8 to 0.9844 at depth 32"),
        slow("tied", "no run of equal blocks"),
        slow("initial", r"goes from 0.1487 at depth 8 to 0.1051 at depth 32"),
    ],
)
def test_what_has_no_limit_is_refused_with_the_reason(kind, why):
    with pytest.raises(AbsentError, match=why):
        twin(plain(kind), depth=math.inf).kernels(X)
    with pytest.raises(AbsentError, match=why):
        twin(in_parameterization(Blocks(16, 4, kind), "mup"), depth=math.inf).rich(Task(X, X[:, 0]), 1, 0.1)


@pytest.mark.parametrize("kind", ["biases", slow("one of two"), slow("losing")])
def test_features_do_not_learn_where_one_branch_of_a_block_is_of_one_size_at_all_depths(kind):
    """Sweeps of several depths were extrapolated: a branch that is scaled beside them was enough."""
    net = in_parameterization(Blocks(16, 4, kind), "mup")
    with pytest.raises(AbsentError, match=r"no infinite-depth limit: .* a branch, or a bias of it, does not fall"):
        twin(net, depth=math.inf).rich(Task(X, X[:, 0]), 1, 0.1)


@pytest.mark.slow
def test_a_signal_that_is_lost_in_less_than_the_depth_is_refused():
    with pytest.raises(FloatingPointError, match="the signal is not scaled by 1 − c/L"):
        twin(plain("losing"), depth=math.inf).kernels(X)


def test_a_module_without_a_depth_is_refused():
    with pytest.raises(ValueError, match="Dense has no field `depth`"):
        twin(in_parameterization(nn.Dense(8), "ntk", width="features"), depth=math.inf)


@dataclasses.dataclass(frozen=True)
class DeepOfNNX:
    """Makes the network `Deep` of layers of NNX."""

    depth: int

    def __call__(self, width, rngs):
        return Residual(width, self.depth, rngs)


class Residual(nnx.Module):
    def __init__(self, width, depth, rngs):
        linear = partial(nnx.Linear, kernel_init=GAUSS, rngs=rngs)
        self.first, self.last = linear(5, width), linear(width, 1)
        self.blocks = nnx.List([linear(width, width) for _ in range(depth)])

    def __call__(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = h + len(self.blocks) ** -0.5 * block(nnx.relu(h))
        return self.last(nnx.relu(h))


@pytest.mark.slow
def test_a_dataclass_that_makes_a_network_says_its_depth():
    """That of Linen modules and of NNX: the readings of two depths are those of the same network in Linen."""
    net = at_depth(in_parameterization(DeepOfNNX(2), "ntk", width=16), 3)
    deep = twin(in_parameterization(Deep(16, 3), "ntk"))
    np.testing.assert_allclose(twin(net).kernels(X).ntk, deep.kernels(X).ntk, rtol=1e-12)
    assert twin(net, depth=math.inf).deep
    with pytest.raises(ValueError, match=r"<lambda> has no field `depth`.* a dataclass that has one"):
        twin(in_parameterization(lambda width, rngs: Residual(width, 3, rngs), "ntk", width=16), depth=math.inf)


@pytest.mark.slow
def test_what_makes_networks_of_nnx_has_the_limit_of_those_in_linen():
    found = twin(in_parameterization(DeepOfNNX(4), "ntk", width=16), depth=math.inf).kernels(X)
    known = twin(in_parameterization(Deep(16, 4), "ntk"), depth=math.inf).kernels(X)
    np.testing.assert_allclose(found.nngp, known.nngp, rtol=1e-9)
    np.testing.assert_allclose(found.ntk, known.ntk, rtol=1e-9)


@pytest.mark.slow
def test_feature_learning_is_extrapolated_in_the_depth():
    task, settings = Task(X, np.sin(X[:, 0])), {"samples": 512, "replicas": 8, "kernels": ()}
    limit = twin(in_parameterization(Deep(16, 8), "mup"), depth=math.inf).rich(task, 5, 0.1, **settings)
    deep = twin(in_parameterization(Deep(16, 64), "mup")).rich(task, 5, 0.1, **settings)
    error = np.hypot(limit.loss_sem, deep.loss_sem)
    assert np.all(
        np.abs(limit.loss - deep.loss)[1:] < 4 * error[1:] + 0.01 * deep.loss[0]
    )  # 1/64 is left in one of them
