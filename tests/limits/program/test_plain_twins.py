"""Twins of plain modules: kernels, training in the kernel regime and ensembles of the same definition."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from modules import MODULES, NOTE, REFUSED
from stock import Dense, readout
from vectors import SwiGLU

from limits import AbsentError, Task, empirical_ntk, twin
from limits.training import Training
from train import ensemble
from train.ensemble import run_members
from train.members import member_keys
from zoo import MLP, Parameterization, in_parameterization, learning_rate_factors

MORE = ("LNRes", "PostLN", "Gated", "Tied", "CNN", "Scan", "Mixed")


@pytest.mark.parametrize(
    "name", ["Tokens", *(pytest.param(name, marks=pytest.mark.slow) for name in ("MLP", "GLU", *MORE))]
)
def test_kernels_are_those_of_the_theory_note(name):
    """In both forms: f over γ, learning rates times γ²; also of words, which stay whole numbers."""
    make, x = MODULES[name]
    for form, gamma in (("ntk", 1.0), ("mup", 3.0)):
        found = twin(in_parameterization(make, form, width=32, gamma=gamma)).kernels(x)
        np.testing.assert_allclose(np.r_[found.nngp[0], found.ntk[0]], np.ravel(NOTE[name]), atol=1e-8)
        assert found.ntk.dtype == np.float64
        assert found.provenance["ntk"].kind == "exact"


def test_nnx_and_linen_and_pairs_have_the_same_twin():
    class Two(nnx.Module):
        def __init__(self, width, rngs):
            self.first = nnx.Linear(7, width, rngs=rngs)
            self.readout = nnx.Linear(width, 1, rngs=rngs)

        def __call__(self, x):
            return self.readout(jnp.tanh(self.first(x)))

    class Same(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(jnp.tanh(nn.Dense(self.width)(x)))

    def pair(width):
        return lambda key, x: Same(width).init(key, x), lambda params, x: Same(width).apply(params, x)

    x = MODULES["MLP"][1]
    nets = [in_parameterization(make, "ntk", width=16) for make in (Two, Same, pair)]
    first, *others = [twin(net).kernels(x) for net in nets]
    zoo = twin(MLP(16, 1, activation="tanh", b_std=1.0, bias_init="zeros")).kernels(x)
    for other in (*others, zoo):
        np.testing.assert_allclose(other.nngp, first.nngp, rtol=1e-12)
        np.testing.assert_allclose(other.ntk, first.ntk, rtol=1e-12)
    assert "truncated normal weights of 7 inputs are taken for normal ones" in first.provenance["ntk"].detail


@pytest.mark.slow
def test_blocks_diagonals_and_pairs_agree(tmp_path):
    make, x = MODULES["MLP"]
    limit = twin(in_parameterization(make, "ntk", width=16))
    x = np.concatenate([x, 0.5 * x, -x])
    whole = limit.kernels(x)
    np.testing.assert_allclose(limit.kernels(x, diagonal=True).ntk, np.diag(whole.ntk), rtol=1e-12)
    np.testing.assert_allclose(limit.kernels(x[:2], x[1:]).ntk, whole.ntk[:2, 1:], rtol=1e-12)
    for _ in range(2):  # computed, and read
        kept = limit.kernels(x, block=2, folder=tmp_path)
        np.testing.assert_allclose(kept.nngp, whole.nngp, rtol=1e-12)


@pytest.mark.slow
def test_trained_roles_share_out_the_tangent_kernel():
    """Roles are found by the plain module's own parameters; the shares of all of them make up the whole."""
    make, x = MODULES["MLP"]
    task = Task(x, np.zeros(len(x)))
    net = in_parameterization(make, "ntk", width=16)
    parts = [twin(net).lazy(task, 1, 0.1, trained=(role,)).ntk[0] for role in ("input", "hidden", "readout", "bias")]
    np.testing.assert_allclose(sum(parts), twin(net).kernels(x).ntk, rtol=1e-10)
    assert all(part[0, 0] > 0 for part in parts)


@pytest.mark.slow
def test_ensembles_of_an_nnx_module_follow_the_kernel_regime():
    x = MODULES["SwiGLU"][1]
    task = Task(x[:2], [1.0, -1.0], x[2:], [0.5])
    net = in_parameterization(SwiGLU, "ntk", width=256)
    limit = twin(net).lazy(task, 10, 0.1, centred=True, times=[0, 10])
    finite = ensemble(net, task, members=64, steps=10, learning_rate=0.1, centred=True, times=[0, 10])
    # Networks of width 256 are a percent or two off, of O(1/N); at rate 0.1 the loss has fallen by half or more.
    assert limit.loss[1] < 0.5 * limit.loss[0]
    assert abs(finite.loss[1] - limit.loss[1]) < 0.03 + 4 * finite.loss_sem[1]
    off = np.abs(finite.ntk[0] - limit.ntk[0])
    assert (off < 4.5 * finite.ntk_sem[0] + 0.03 * np.abs(limit.ntk[0]).max()).all()


def test_a_base_width_makes_the_module_its_plain_self_there():
    make, x = MODULES["MLP"]
    p = Parameterization.mup.based(16)
    net = in_parameterization(make, p, width=16)
    key, x = jax.random.key(0), jnp.asarray(x, "float32")
    variables = net.init(key, x)
    np.testing.assert_array_equal(net.apply(variables, x), make(16).apply(make(16).init(key, x), x))


@pytest.mark.parametrize("name", [pytest.param("MaxPool", marks=pytest.mark.slow), "TrainedScalar"])
def test_what_cannot_be_read_is_drawn_with_the_reason_and_its_place(name):
    make, x, _ = REFUSED[name]
    found = twin(in_parameterization(make, "mup", width=16)).kernels(np.asarray(x, float), samples=None)
    assert found.provenance["ntk"].kind == "monte_carlo"
    assert "drawn, as there is no closed form: " in found.provenance["ntk"].detail
    assert {"MaxPool": "max", "TrainedScalar": "scale"}[name] in found.provenance["ntk"].detail


def test_standard_parameterization_has_no_tangent_kernel():
    make, x = MODULES["MLP"]
    found = twin(in_parameterization(make, "standard", width=16)).kernels(x)
    np.testing.assert_allclose(found.nngp[0], NOTE["MLP"][:3] if len(NOTE["MLP"]) == 6 else NOTE["MLP"][0], atol=1e-8)
    with pytest.raises(AbsentError, match="grows as N"):
        _ = found.ntk


class Mixer(nn.Module):
    """Tokens are mixed by a matrix for each feature, features by an MLP: a fifth architecture, in plain Flax."""

    width: int
    depth: int = 2

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)  # [n, tokens, features]
        tokens = h.shape[1]
        for i in range(self.depth):
            mix = self.param(f"mix_{i}", nn.initializers.normal(tokens**-0.5), (tokens, tokens, self.width))
            h += self.depth**-0.5 * jnp.einsum("pqf,nqf->npf", mix, nn.LayerNorm()(h))
            y = nn.gelu(Dense(2 * self.width)(nn.LayerNorm()(h)), approximate=False)
            h += self.depth**-0.5 * Dense(self.width)(y)
        return readout(nn.LayerNorm()(h).mean(1))


@pytest.mark.slow
def test_a_fifth_architecture_needs_no_theory_of_its_own():
    x = np.random.default_rng(0).normal(size=(4, 3, 5))
    task = Task(x[:3], [1.0, -1.0, 0.5], x[3:], [0.0])
    limit = twin(in_parameterization(Mixer(16), "mup"))
    kernels = limit.kernels(x)
    assert kernels.provenance["ntk"].kind == "exact"
    drawn = limit.kernels(x, samples=1024, replicas=8)
    for name in ("nngp", "ntk"):
        off = np.abs(getattr(kernels, name) - getattr(drawn, name))
        assert (off < 4.5 * getattr(drawn, f"{name}_sem") + 0.01 * np.abs(getattr(kernels, name)).max()).all()
    assert limit.lazy(task, 5, 0.1).loss[-1] < 0.9 * limit.lazy(task, 5, 0.1).loss[0]
    rich = limit.rich(task, 5, 0.1, samples=512, replicas=4)
    finite = ensemble(in_parameterization(Mixer(128), "mup"), task, 32, 5, 0.1, centred=True, kernels=())
    assert abs(finite.loss[-1] - rich.loss[-1]) < 0.02 + 4 * np.hypot(finite.loss_sem[-1], rich.loss_sem[-1])


class ByHand(nn.Module):
    """It divides by √N itself."""

    width: int

    @nn.compact
    def __call__(self, x):
        return readout(nn.relu(Dense(self.width)(x))) / self.width**0.5


def test_powers_of_the_width_in_the_code_are_refused():
    net, task = in_parameterization(ByHand(16), "mup"), Task(np.ones((2, 3)), [1.0, 2.0])
    for ask in (
        lambda: twin(net).kernels(task.x_train),
        lambda: twin(net).rich(task, 1, 0.1, samples=16, replicas=2),
        lambda: ensemble(net, task, 2, 1, 0.1),
    ):
        with pytest.raises(ValueError, match=r"outputs of ByHand go as N\^-0.5 with the width by themselves"):
            ask()


class TwoOutputs(nn.Module):
    """Stock convolutions: mapped over members, inputs and outputs at once, jax has none."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Conv(self.width, (3, 3))(x))
        return nn.Dense(2)(nn.Conv(self.width, (2, 2), strides=2, padding="VALID")(h).mean((1, 2)))


@pytest.mark.slow
def test_tangent_kernels_of_ensembles_of_convolutions_are_those_of_their_members():
    x = np.random.default_rng(0).normal(size=(3, 4, 4, 2)).astype("float32")
    net, task = in_parameterization(TwoOutputs(8), "ntk"), Task(x, np.zeros((3, 2)))
    (found,) = run_members(net, task, Training.of(task, 0, 0.0), 2, [0], kernels=("ntk",))
    rates = learning_rate_factors(net, x)
    for key, ntk in zip(member_keys(0, 0, 2), found["ntk"], strict=True):
        params = net.init(key, jnp.asarray(x[:1]))["params"]
        alone = empirical_ntk(lambda p, x: net.apply({"params": p}, x), params, x, rates=rates)
        np.testing.assert_allclose(ntk[0], alone, rtol=1e-4)
    drawn = twin(net).kernels(x, samples=512, replicas=4)
    exact = twin(net).kernels(x)
    off = np.abs(drawn.ntk - exact.ntk)  # lecun's law is truncated, and 18 inputs a window
    assert (off < 4.5 * drawn.ntk_sem + 0.05 * exact.ntk.max()).all()


class Stacks(nn.Module):
    """Signals stacked along a new axis of positions, taken apart, or repeated; positions with weights of their own."""

    width: int
    kind: str

    @nn.compact
    def __call__(self, x):
        a, b = Dense(self.width)(x), Dense(self.width)(x)
        if self.kind == "unstacked":
            parts = jnp.unstack(a, axis=1)
            h = jnp.stack([parts[0] + parts[1], parts[1]], 1)
        else:
            h = jnp.tile(a, (1, 2, 1)) if self.kind == "tiled" else jnp.stack([a, b], int(self.kind))
        h = nn.relu(Dense(self.width)(nn.relu(h)))
        weights = jnp.arange(1.0, 1 + h[0, ..., 0].size).reshape(h.shape[1:-1])
        return readout((h * weights[None, ..., None]).mean(tuple(range(1, h.ndim - 1))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tiled", "1", "2", "unstacked"])
def test_stacks_along_any_axis_have_the_kernels_of_networks(kind):
    x = np.random.default_rng(0).normal(size=(3, 3, 5))
    limit = twin(in_parameterization(Stacks(64, kind), "ntk"))
    exact, drawn = limit.kernels(x), limit.kernels(x, samples=1024, replicas=8)
    assert exact.provenance["ntk"].kind == "exact"
    for name in ("nngp", "ntk"):  # 18 numbers at 7 degrees of freedom
        assert (np.abs(getattr(exact, name) - getattr(drawn, name)) < 6 * getattr(drawn, f"{name}_sem")).all()


class TwoHeads(nn.Module):
    """Two readouts side by side, one that goes on as a gate, or a mean over neurons."""

    width: int
    what: str = "side by side"

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        if self.what == "mean":
            return h.mean(-1, keepdims=True)
        first, second = nn.Dense(2, name="first")(h), nn.Dense(1, name="second")(nn.tanh(Dense(self.width)(h)))
        return (
            jnp.concatenate([first, second], -1) if self.what == "side by side" else nn.softmax(first)[:, :1] * second
        )


@pytest.mark.parametrize("what", [pytest.param("side by side", marks=pytest.mark.slow), "gate"])
def test_several_readouts_are_named(what):
    with pytest.raises(ValueError, match="readout of TwoHeads") as told:
        twin(in_parameterization(TwoHeads(16, what), "ntk")).kernels(MODULES["MLP"][1])
    assert all(name in str(told.value) for name in ("first.kernel and second.kernel", "make a network of each", "gate"))


def test_outputs_without_weights_are_said_to_be_so():
    with pytest.raises(ValueError, match="no layer has weights of that role"):
        twin(in_parameterization(TwoHeads(16, "mean"), "ntk")).kernels(MODULES["MLP"][1])


class Beside(nn.Module):
    """Inputs beside neurons, in one matrix."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        return readout(nn.relu(Dense(self.width)(jnp.concatenate([h, x], -1))))


def test_inputs_beside_neurons_are_told_to_have_weights_of_their_own():
    with pytest.raises(ValueError, match=r"beside 7 others .* weights of their own"):
        twin(in_parameterization(Beside(16), "ntk")).kernels(np.ones((1, 7)))
