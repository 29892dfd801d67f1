"""Plain modules as definitions: rates, optimisers and messages, against zoo's own networks and against their equations."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from zoo import (
    MLP,
    Parameterization,
    Rescaled,
    explain,
    factors,
    in_parameterization,
    infer_roles,
    learning_rate_factors,
    roles,
    scaled,
)
from zoo.plain import PlainNetwork
from zoo.starts import readout_of, starts

X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), "float32")
Y = jnp.sign(X[:, :2])
STRUCT = jax.ShapeDtypeStruct(X.shape, "float32")
FORMS: Any = ("ntk", "mup", "standard", Parameterization.family(0.2, 0.5), Parameterization.mup.based(16))


class Net(nn.Module):
    """The network of zoo.MLP(depth=2, activation="tanh", bias_init="zeros", w_std=1.5), as one writes it in Linen."""

    size: int = 32

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.variance_scaling(1.5**2, "fan_in", "normal")
        for name in ("hidden_1", "hidden_2"):
            x = nn.tanh(nn.Dense(self.size, kernel_init=init, name=name)(x))
        return nn.Dense(2, kernel_init=init, name="readout")(x)


class InNNX(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.second = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)
        self.readout = nnx.Linear(width, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, deterministic=True, rngs=rngs)

    def __call__(self, x):
        return self.readout(jnp.tanh(self.dropout(self.second(jnp.tanh(self.first(x))))))


def pair_of(width):
    net = Net(width)
    return (lambda key, x: net.init(key, x), lambda params, x: net.apply(params, x))


def test_all_kinds_of_modules_run_at_any_width():
    for net in (
        in_parameterization(Net(32), "mup", width="size"),
        in_parameterization(Net, "mup", width=32),
        in_parameterization(InNNX, "mup", width=32),
        in_parameterization(lambda n, rngs: InNNX(n, rngs), "mup", width=32),
        in_parameterization(pair_of, "mup", width=32),
    ):
        assert isinstance(net, PlainNetwork)
        assert net == net.clone()
        assert hash(net) == hash(net.clone())
        for wide in (net, net.clone(width=64)):
            variables = wide.init(jax.random.key(0), X)
            assert max(max(leaf.shape) for leaf in jax.tree.leaves(variables)) == wide.width
            f: Any = wide.apply(variables, X)
            assert f.shape == (5, 2)


def test_variables_and_outputs_are_those_of_the_linen_module_over_gamma():
    net, plain = in_parameterization(Net(32), "mup", width="size", gamma=2.0), Net(32)
    mine, theirs = (each.init(jax.random.key(3), X) for each in (net, plain))
    assert jax.tree.all(jax.tree.map(np.array_equal, mine, theirs))
    np.testing.assert_allclose(net.apply(mine, X), plain.apply(theirs, X) / (2 * 32**0.5), rtol=1e-6)


@pytest.mark.parametrize(
    "form",
    [form if form in ("ntk", "mup") else pytest.param(form, marks=pytest.mark.slow) for form in FORMS],
    ids=lambda form: getattr(form, "name", form),
)
def test_every_optimiser_moves_a_plain_module_as_it_moves_the_same_network_of_zoo(form):
    """Weights W = m ω; where the initialisation holds all factors (standard, a base width) m = 1, and it is the same network."""
    net = MLP(32, 2, 2, "tanh", 1.5, 1.0, form, gamma=0.7, bias_init="zeros")
    plain = in_parameterization(Net(32), form, width="size", gamma=0.7)
    w = net.init(jax.random.key(0), X)["params"]
    p = net.parameterization if isinstance(net.parameterization, Parameterization) else getattr(Parameterization, form)

    def stored(path, leaf):
        layer, name = (entry.key for entry in path)
        role = "bias" if name == "bias" else {"hidden_1": "input", "hidden_2": "hidden"}.get(layer, "readout")
        return leaf * p.scales(role, leaf.shape[0] if name == "kernel" else 1, 32, 1.5 if name == "kernel" else 1.0)[1]

    for name, options in (("sgd", {}), ("adam", {"eps": 1e-3}), ("muon", {})):
        runs = []
        each: Any
        params: Any
        for each, params in ((net, w), (plain, jax.tree_util.tree_map_with_path(stored, w))):
            tx = scaled(name, each, STRUCT, learning_rate=0.02, **options)
            f = jax.jit(lambda params, each=each: each.apply({"params": params}, X))

            @jax.jit
            def step(params, state, f=f, tx=tx):
                updates, state = tx.update(jax.grad(lambda q: jnp.mean((f(q) - Y) ** 2))(params), state, params)
                return optax.apply_updates(params, updates), state

            state, out = tx.init(params), [f(params)]
            for _ in range(3):
                params, state = step(params, state)
                out.append(f(params))
            runs.append(np.array(out))
        assert np.abs(runs[0][3] - runs[0][0]).max() > 1e-4
        np.testing.assert_allclose(runs[1], runs[0], rtol=2e-4, atol=2e-5 * np.abs(runs[0]).max())


def test_what_starts_at_zero_learns_as_what_is_drawn():
    """The same network but for a readout of zeros: rates over the number of its inputs, as a drawn one with variance 1/N has."""

    class Zero(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = nn.relu(nn.Dense(self.width, name="first")(x))
            return nn.Dense(2, kernel_init=nn.initializers.zeros, name="readout")(h)

    rates: Any = learning_rate_factors(in_parameterization(Zero(50), "ntk"), STRUCT)
    assert rates["readout"]["kernel"] == pytest.approx(1 / 50)
    assert rates["readout"]["bias"] == rates["first"]["bias"] == 1
    assert rates["first"]["kernel"] == pytest.approx(1 / 3)


def test_one_number_for_all_neurons_moves_without_the_width():
    """Its gradient is a sum over neurons; that of a readout's bias is not."""

    class Scaled(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = self.param("scale", nn.initializers.ones, ()) * nn.relu(nn.Dense(self.width, name="first")(x))
            return nn.Dense(1, name="readout")(h)

    for width in (16, 64):
        net = in_parameterization(Scaled(width), "mup", gamma=3.0)
        rates: Any = learning_rate_factors(net, STRUCT)
        assert rates["scale"] == pytest.approx(9.0)
        assert rates["readout"]["bias"] == pytest.approx(9.0 * width)
        by_adam: Any = factors(net, net.init(jax.random.key(0), X)["params"], STRUCT)
        assert by_adam["scale"].step == pytest.approx(3.0)


def test_roles_laws_and_readouts():
    net = in_parameterization(Net(32), "mup", width="size")
    assert roles(net, STRUCT)["hidden_2"] == {"kernel": "hidden", "bias": "bias"}
    found = starts(net, STRUCT)
    assert found["hidden_2.kernel"].inputs == 32
    assert readout_of(net, STRUCT) == (pytest.approx(1.5), 0.0)
    known = in_parameterization(Net(32), "mup", width="size", roles={"hidden_1.bias": "norm"})
    assert roles(known, STRUCT)["hidden_1"]["bias"] == "norm"
    rows = {row.name: row for row in explain(net, "muon", x=STRUCT, learning_rate=0.1, show=False).rows}
    assert rows["hidden_2.kernel"].std == f"{1.5 / 32**0.5:.4g}"
    assert factors(net, net.init(jax.random.key(0), X)["params"], STRUCT)["hidden_2"]["kernel"].matrix


def test_attention_of_stock_flax_is_told_apart_by_what_is_summed_over():
    class Attends(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = nn.Dense(self.width, name="first")(x)
            h = h + nn.MultiHeadDotProductAttention(num_heads=4, name="attention")(nn.LayerNorm(name="norm")(h))
            return nn.Dense(1, name="readout")(h.mean(1))

    net = in_parameterization(Attends(64), "mup")
    x = jax.ShapeDtypeStruct((1, 5, 3), "float32")
    found: Any = factors(net, jax.eval_shape(net.init, jax.random.key(0), x)["params"], x)
    assert found["attention"]["query"]["kernel"].sides == ((0,), (1, 2))
    assert found["attention"]["out"]["kernel"].sides == ((0, 1), (2,))
    assert starts(net, x)["attention.out.kernel"].inputs == 64
    assert roles(net, x)["norm"] == {"scale": "norm", "bias": "bias"}
    (warning,) = explain(net, "adam", x=x, show=False).warnings
    assert "attention.key.kernel" in warning
    assert "attention_fn" in warning


def test_networks_of_zoo_change_their_form():
    assert in_parameterization(MLP(8, 1), "mup", gamma=2.0) == MLP(8, 1, parameterization="mup", gamma=2.0)


class Narrow(nn.Module):
    """Weights that do not fall with the width."""

    width: int = 8

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, name="first")(x)
        h = nn.Dense(self.width, kernel_init=nn.initializers.normal(0.02), name="second")(h)
        return nn.Dense(1, name="readout")(h)


class Running(nn.Module):
    """Batch normalisation by averages that no parameter holds."""

    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.BatchNorm(use_running_average=True)(nn.Dense(self.width)(x)))


class Spectral(nn.Module):
    """Weights over their largest singular value, by a vector that no parameter holds."""

    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.SpectralNorm(nn.Dense(self.width))(nn.Dense(self.width)(x), update_stats=False))


class Slope(nn.Module):
    """A network's derivative by its inputs."""

    width: int

    @nn.compact
    def __call__(self, x):
        w, v = (self.param(name, nn.initializers.lecun_normal(), shape) for name, shape in
                (("w", (x.shape[1], self.width)), ("v", (self.width, 1))))  # fmt: skip
        return jax.grad(lambda x: (jnp.tanh(x @ w) @ v).sum())(x)


class Lopsided(nn.Module):
    """Flax's uniform law begins at 0."""

    width: int = 8

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, name="first")(x)
        return nn.Dense(1, kernel_init=nn.initializers.uniform(0.1), name="readout")(h)


class Averages(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.norm = nnx.Linear(3, width, rngs=rngs), nnx.BatchNorm(width, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.first(x))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: in_parameterization(Net(8), "mup"), "no width in a field 'width'.*width=FIELD"),
        (lambda: in_parameterization(InNNX(8, nnx.Rngs(0)), "mup", width=8), r"make\(width, rngs\)"),
        (lambda: in_parameterization(Net, "mup"), "width='width'"),
        (lambda: in_parameterization(Net, "mup", width=0), "width=0"),
        (lambda: in_parameterization(Net(8), "mu", width="size"), "parameterization"),
        (lambda: in_parameterization(Net(8), "mup", width="size", gamma=0.0), "gamma"),
        (lambda: in_parameterization(Net(8), "mup", width="size", roles={"a": "wide"}), "no roles wide"),
        (lambda: in_parameterization(lambda n: n, "mup", width=8), r"make\(8\) must return"),
        (lambda: in_parameterization(Averages, "mup", width=8), "BatchStat"),
        (lambda: roles(in_parameterization(Running(8), "mup"), STRUCT), "reads what is no parameter, as running averages"),
        (lambda: roles(in_parameterization(Spectral(8), "mup"), STRUCT), "no parameter, .* nn.SpectralNorm"),
        (lambda: roles(in_parameterization(Slope(8), "mup"), STRUCT), r"in_parameterization of Slope: w: .*\(jax.grad\)"),
        (lambda: roles(in_parameterization(Lopsided(), "mup"), STRUCT), r"readout.kernel \(readout\) starts .* mean 0.05"),
        (
            lambda: learning_rate_factors(in_parameterization(Narrow(), "mup"), STRUCT),
            r"second.kernel \(hidden\).*0.02 at width 8 and 0.02 at 16, as N\^0; it must go as N\^-0.5.*lecun_normal",
        ),
        (
            lambda: explain(in_parameterization(Net(8), "mup", width="size"), "adam", x={"a": X, "b": X}),
            'x is a dict of "a", "b"; inputs must be one array',
        ),
        (
            lambda: learning_rate_factors(in_parameterization(Net(8), "mup", width="size"), (X, X)),
            "x is a tuple of 2; inputs must be one array",
        ),
        (
            lambda: in_parameterization(Net(8), "mup", width="size").apply(Net(8).init(jax.random.key(0), X), X, train=True),
            "no argument `train`",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(make, said):
    with pytest.raises(ValueError, match=said):
        make()


class OfNNX(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.last = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


def test_nnx_modules_of_sizes_and_rngs():
    x = jnp.ones((2, 3))
    sizes: Any = {"base": {"width": 8}, "target": {"width": 32}}
    net = Rescaled.of(OfNNX, x, **sizes)
    wanted = {"first.bias": "bias", "first.kernel": "input", "last.bias": "constant", "last.kernel": "readout"}
    for inferred in (net.roles, infer_roles(OfNNX, **sizes)):
        assert {name: place.role for name, place in inferred.places.items()} == wanted
    params = net.init(jax.random.key(0), x)
    assert net.apply(params, x).shape == (2, 1)
    assert Rescaled.of(OfNNX, jax.ShapeDtypeStruct(x.shape, x.dtype), **sizes).roles == net.roles

    class Both(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.Dense(self.width)(x["a"] + x["b"][:, None]))

    both = {"a": x, "b": x[:, 0]}
    assert Rescaled.of(Both, both, **sizes).roles == Rescaled.of(Both, jax.eval_shape(lambda: both), **sizes).roles
    assert explain(net, "adam", learning_rate=1.0)
    with pytest.raises(ValueError, match=r"make returns the NNX module OfNNX.* give make an argument rngs"):
        Rescaled.of(lambda width: OfNNX(width, nnx.Rngs(0)), x, **sizes)
    with pytest.raises(
        ValueError, match=r"init must take a key and the sizes, init\(key, width\).*make\(width, rngs\)"
    ):
        infer_roles(lambda width: OfNNX(width, nnx.Rngs(0)), **sizes)


class Calls(nnx.Variable):
    """How often a module was called."""


class Counted(OfNNX):
    used = False

    def __init__(self, width, rngs):
        self.calls = Calls(jnp.array(0))
        super().__init__(width, rngs)

    def __call__(self, x):
        self.calls[...] += 1
        return super().__call__(x) * (self.calls[...] if self.used else 1)


class CountedAndUsed(Counted):
    used = True


def test_variables_of_nnx_that_do_not_change_the_outputs_are_left_alone():
    """Any variable that was no parameter was refused, with the advice to take another normalisation."""
    x, sizes = jnp.ones((2, 3)), {"base": {"width": 8}, "target": {"width": 32}}
    nets: Any = [Rescaled.of(make, x, **sizes) for make in (OfNNX, Counted)]
    assert nets[0].roles == nets[1].roles
    plain = [in_parameterization(make, "mup", width=16) for make in (OfNNX, Counted)]
    rates = [learning_rate_factors(net, STRUCT) for net in plain]
    outputs = [net.apply(net.init(jax.random.key(0), X), X) for net in plain]
    assert rates[0] == rates[1]
    np.testing.assert_array_equal(*outputs)
    with pytest.raises(ValueError, match=r"Rescaled.of: outputs .* depend on .* no parameters \(Calls\)"):
        Rescaled.of(CountedAndUsed, x, **sizes)
    with pytest.raises(ValueError, match=r"in_parameterization: outputs .* no parameters \(Calls\)"):
        starts(in_parameterization(CountedAndUsed, "mup", width=16), STRUCT)


class HeadOfEveryLayer(nn.Module):
    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        h, head, found = nn.Dense(self.width, name="in")(x), nn.Dense(1, name="head"), 0
        for i in range(self.depth):
            h = h + self.depth**-0.5 * nn.Dense(self.width, name=f"layer_{i}")(nn.tanh(h))
            found = found + head(h) / self.depth
        return found


def test_a_readout_of_every_layer_lies_in_no_block():
    roles = infer_roles(
        lambda key, width, depth: HeadOfEveryLayer(width, depth).init(key, jnp.ones((1, 3)))["params"],
        {"width": 8, "depth": 2}, {"width": 8, "depth": 8}, branch_outputs="in code",
    )  # fmt: skip
    assert not roles.places["head.kernel"].in_block


class Tied(nn.Module):
    size: int = 16

    @nn.compact
    def __call__(self, t):
        table = nn.Embed(5, self.size)
        return table.attend(nn.Dense(self.size)(table(t)))


@pytest.mark.parametrize("shape", [(1, 3), (1,)], ids=["words", "one word a sample"])
def test_a_tied_table_is_refused_with_a_remedy_that_there_is(shape):
    with pytest.raises(ValueError, match=r"in_parameterization of Tied: Embed_0.* also the readout.* of its own"):
        starts(in_parameterization(Tied(), "mup", width="size"), jax.ShapeDtypeStruct(shape, "int32"))


class Sized(nnx.Module):
    def __init__(self, width, rngs, scale=1.0):
        self.first, self.last, self.scale = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs), scale

    def __call__(self, x):
        return self.last(self.scale * self.first(x))


def test_a_class_of_nnx_with_some_arguments_given_is_a_maker():
    x = jnp.ones((1, 3))

    def outputs(make):
        net = in_parameterization(make, "ntk", width=8)
        return net.apply(net.init(jax.random.key(0), x), x)

    doubled = outputs(functools.partial(Sized, scale=2.0))
    np.testing.assert_array_equal(doubled, outputs(lambda width, rngs: Sized(width, rngs, 2.0)))
    np.testing.assert_allclose(doubled, 2 * outputs(Sized), rtol=1e-6)
