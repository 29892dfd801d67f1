"""Loops of equal blocks: found, read once, and with the numbers of the same blocks read one after the other."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import relu
from modules import MODULES
from stock import Dense, readout

from limits import twin
from limits.program import closed
from limits.program.closed import program_of
from limits.program.read import measured
from zoo import CNN, MLP, ResNet, ViT, in_parameterization

X = np.random.default_rng(0).normal(size=(3, 5))
IMAGES = np.random.default_rng(0).normal(size=(3, 4, 4, 2))


class Deep(nn.Module):
    """zoo.ResNet(depth=…, residual="fixed", b_std=1, bias_init="zeros"), as one writes it in Flax."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(self.depth):
            h += 0.2 * Dense(self.width)(relu(h))
        return readout(relu(h))


class Blocks(nn.Module):
    """A read-in, four of these blocks, a readout."""

    width: int
    kind: str

    @nn.compact
    def __call__(self, x):
        a = h = Dense(self.width)(x)
        new, same, all_h = (lambda: Dense(self.width)), Dense(self.width), [h]
        for l in range(4):
            match self.kind:
                case "decreasing":
                    h = h + (l + 1.0) ** -0.5 * new()(nn.gelu(h, approximate=False))
                case "tied":
                    h = h + same(relu(h))
                case "injected":
                    h = a + new()(relu(h))
                case "all":
                    h = h + new()(relu(h))
                    all_h.append(h)
                case "slopes":
                    h = h + new()(nn.leaky_relu(h, 0.1 * l))
                case "inputs":
                    h = h + x.mean(-1, keepdims=True) * new()(relu(h))
                case "pair":  # one matrix for every two blocks
                    layer = new()
                    h = h + layer(relu(h))
                    h = h + layer(relu(h))
                case "later":  # the last block's matrix once more
                    layer = new()
                    h = h + layer(relu(h))
        if self.kind == "later":
            h = h + layer(relu(h))
        return readout(relu(sum(all_h) if self.kind == "all" else h))


def plain(kind):
    return in_parameterization(Blocks(16, kind), "ntk")


NETWORKS = {  # network, inputs, (period of equations or None, blocks)
    "layers": (MLP(16, 6, activation="erf", b_std=0.2), X, 4),
    "branches": (ResNet(16, 6, branch_layers=2, b_std=0.2), X, 4),
    "decreasing in zoo": (ResNet(16, 6, residual="decreasing", activation="tanh", b_std=0.2), X, 4),
    "pixels": (ResNet(16, 5, form="conv", readout="average", b_std=0.2), IMAGES, 3),
    "convolutions": (CNN(16, 6, b_std=0.1), IMAGES, 4),
    "tokens": (ViT(16, 4, patch=2, parameterization="mup"), IMAGES, 3),
    "decreasing": (plain("decreasing"), X, 3),
    "inputs": (plain("inputs"), X, 3),
    "pair": (plain("pair"), X, 3),
    "tied": (plain("tied"), X, None),
    "injected": (plain("injected"), X, None),
    "all": (plain("all"), X, None),
    "slopes": (plain("slopes"), X, None),
    "scan": (in_parameterization(MODULES["Scan"][0](16), "ntk"), MODULES["Scan"][1], 3),
}
# What is read in one way more than by default.
SLOW = (
    *(
        "branches",
        "decreasing",
        "all",
        "tied",
        "layers",
        "decreasing in zoo",
        "pixels",
        "convolutions",
        "tokens",
        "scan",
        "pair",
    ),
    *("slopes", "injected"),
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in NETWORKS])
def test_blocks_read_once_have_the_moments_of_blocks_read_one_by_one(name, monkeypatch):
    net, x, blocks = NETWORKS[name]
    found = []
    monkeypatch.setattr("limits.program.rolled.Rolling._run", noting(found))
    kernels = program_of(net, x.shape[1:], "float64", None)
    with jax.enable_x64(True):
        lengths, _ = measured(kernels, x)
        rolled, whole = (
            jax.jit(lambda a, b, roll=roll: kernels(a, b, lengths, roll=roll))(x[:2], x) for roll in (True, False)
        )
        diagonals = [kernels.diagonal(x, lengths, roll=roll) for roll in (True, False)]
    for pair in ((rolled, whole), diagonals):
        for kernel in ("nngp", "ntk"):
            np.testing.assert_allclose(pair[0][kernel], pair[1][kernel], rtol=1e-13, atol=1e-15)
    if blocks is None:
        assert not found
    else:
        assert found
        assert min(loop.count for loop in found) >= blocks


def noting(found):
    from limits.program.rolled import Rolling

    run = Rolling._run

    def noted(self, interpreter, plan, known):
        found.append(plan.loop)
        return run(self, interpreter, plan, known)

    return noted


@pytest.mark.slow
def test_a_matrix_that_is_used_after_the_loop_too_is_kept_out_of_it():
    net = plain("later")
    kernels = program_of(net, X.shape[1:], "float64", None)
    with jax.enable_x64(True):
        lengths, _ = measured(kernels, X)
        rolled, whole = (kernels(X, X, lengths, roll=roll) for roll in (True, False))
    np.testing.assert_allclose(rolled["ntk"], whole["ntk"], rtol=1e-13)


def test_a_program_is_as_long_whatever_the_depth():
    """So is its compilation."""
    lengths = []
    for depth in (6, 18):
        kernels = program_of(in_parameterization(Deep(16, depth), "ntk"), X.shape[1:], "float64", None)
        with jax.enable_x64(True):
            seen, _ = measured(kernels, X)
            lengths.append(str(jax.make_jaxpr(lambda x, k=kernels, s=seen: k(x, x, s))(X)).count("\n"))
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("in_steps", [False, True])
@pytest.mark.slow
def test_deep_networks_have_the_numbers_of_the_zoo(in_steps, monkeypatch):
    """Read as loops, or step by step as programs are that are too long to be compiled whole."""
    if in_steps:
        monkeypatch.setattr(closed, "_step_by_step", lambda *_: True)
    x, depth = MODULES["MLP"][1], 20 if in_steps else 100
    found = twin(in_parameterization(Deep(16, depth), "ntk")).kernels(x)
    zoo = ResNet(16, depth, residual="fixed", beta=0.2, b_std=1.0, bias_init="zeros")
    exact = twin(zoo).kernels(x)
    np.testing.assert_allclose(found.nngp, exact.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, exact.ntk, rtol=1e-12)
    np.testing.assert_allclose(
        twin(in_parameterization(Deep(16, depth), "ntk")).kernels(x, diagonal=True).ntk, np.diag(exact.ntk), rtol=1e-12
    )


class Unread(nn.Module):
    """Blocks that have no closed form."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for l in range(5):
            h = h + Dense(self.width, name=f"block_{l}")(relu(h).sort(-1))
        return readout(h)


def test_what_is_refused_in_a_loop_is_refused_by_the_name_of_its_layer():
    kernels = program_of(in_parameterization(Unread(16), "ntk"), X.shape[1:], "float64", None)
    with jax.enable_x64(True):
        _, refused = kernels.look(X)
    assert "test_loops.py" in refused["nngp"]
    assert "sort" in refused["nngp"]


@pytest.mark.slow
def test_provenance_speaks_of_all_blocks():
    """A loop that is not exact."""

    class Gates(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = Dense(self.width, kernel_init=nn.initializers.normal(1.0))(x)
            for _ in range(4):
                a = Dense(self.width)(h)
                h = h + Dense(self.width)(nn.tanh(h + a) * nn.sigmoid(a))
            return readout(h)

    kernels = program_of(in_parameterization(Gates(16), "ntk"), X.shape[1:], "float64", None)
    with jax.enable_x64(True):
        _, how = measured(kernels, X)
    assert how.kind == "approximate"
    assert "like it)" in how.detail


class Iterated(nn.Module):
    """A map without weights, twenty-five times: its signal has 2^25 paths."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(25):
            h = h - 0.1 * nn.tanh(h)
        return readout(h)


@pytest.mark.slow
def test_maps_that_are_iterated_are_one_function():
    """E h² after them, by quadrature; one of its readings would not end where every path is followed."""
    found = twin(in_parameterization(Iterated(16), "ntk")).kernels(X, diagonal=True).nngp
    h, weights = np.polynomial.hermite_e.hermegauss(200)
    h = h * np.linalg.norm(X, axis=1)[:, None] / 5**0.5
    for _ in range(25):
        h = h - 0.1 * np.tanh(h)
    np.testing.assert_allclose(found, h**2 @ weights / weights.sum(), rtol=1e-8)


class Branches(nn.Module):
    """h ← h + φ(W h)/√L: what is added is not Gaussian, and meets matrices alone."""

    width: int
    depth: int = 8
    act: str = "tanh"
    first: str = "linear"

    @nn.compact
    def __call__(self, x):
        act = {"tanh": jnp.tanh, "relu": nn.relu, "gate": lambda h: h}[self.act]
        h = Dense(self.width)(x)
        h = jnp.tanh(h) if self.first == "tanh" else h
        for _ in range(self.depth):
            branch = act(Dense(self.width)(h))
            if self.act == "gate":
                branch = branch * Dense(self.width)(h)
            h = h + branch / self.depth**0.5
        return readout(h)


def rolled_and_not(net):
    kernels = program_of(in_parameterization(net, "ntk"), X.shape[1:], "float64", None)
    with jax.enable_x64(True):
        lengths, _ = measured(kernels, X)
        return [
            jax.jit(lambda a, b, roll=roll: kernels(a, b, lengths, roll=roll))(X[:2], X[2:]) for roll in (True, False)
        ]


@pytest.mark.parametrize(
    ("act", "first"), [("relu", "tanh"), *(pytest.param(a, "linear", marks=pytest.mark.slow) for a in ("tanh", "gate"))]
)
@pytest.mark.slow
def test_sums_that_are_not_gaussian_are_carried_by_their_moments(act, first, monkeypatch):
    found = []
    monkeypatch.setattr("limits.program.rolled.Rolling._run", noting(found))
    rolled, one_by_one = rolled_and_not(Branches(32, 6, act, first))
    for name in ("nngp", "ntk"):
        np.testing.assert_allclose(rolled[name], one_by_one[name], rtol=1e-12)
    assert {loop.count for loop in found} == {6}


class Ends(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(3):
            h = h + jnp.tanh(Dense(self.width)(h)) / 3**0.5
        return readout(h * h)


@pytest.mark.slow
def test_a_function_of_such_a_sum_is_read_block_by_block(monkeypatch):
    """Of h² more than moments of h is needed."""
    found = []
    monkeypatch.setattr("limits.program.rolled.Rolling._run", noting(found))
    rolled, one_by_one = rolled_and_not(Ends(32))
    np.testing.assert_allclose(rolled["nngp"], one_by_one["nngp"], rtol=1e-12)
    assert not found
