"""Optimisers at other sizes than the base: equal forms, equal trajectories; at the base size, the plain optimiser."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from definitions import definitions, input_shape, small

from zoo import (
    CNN,
    MLP,
    Dense,
    HeResNet,
    Parameterization,
    ResNet,
    ViT,
    factors,
    in_parameterization,
    infer_roles,
    scaled,
)
from zoo.added import added_to_outputs
from zoo.roles import placed
from zoo.starts import starts

MUP = Parameterization.mup
NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "MLP": (MLP(32, 2, activation="tanh", b_std=0.3, gamma=1.5), (3,)),
    "ResNet": (ResNet(32, 4, activation="tanh", b_std=0.2, branch_layers=2), (3,)),
    "CNN": (CNN(16, 2, activation="tanh", gamma=0.5), (4, 4, 1)),
    "ViT": (ViT(16, 1, patch=2, heads=2), (4, 4, 1)),
    "HeResNet": (HeResNet(8, (1, 1), norm="layer", stem="small", activation="tanh"), (4, 4, 2)),
}
for other in set(definitions()) - {type(net) for net, _ in NETS.values()}:
    NETS[other.__name__] = small(other, width=16), input_shape(small(other))[1:]
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda: optax.sgd(0.05),
    "momentum and decay": lambda: optax.chain(optax.add_decayed_weights(0.02), optax.sgd(0.02, momentum=0.9)),
    "adam": lambda: optax.adam(0.01, eps=1e-3),
    "adamw": lambda: optax.adamw(0.01, eps=1e-3, weight_decay=0.3),
    "lion": lambda: optax.lion(0.003, weight_decay=0.3),
    "decay without a learning rate": lambda: optax.chain(
        optax.scale_by_adam(eps=1e-3), optax.scale(-0.01), optax.add_decayed_weights(-0.01)
    ),
}


def data(shape: tuple[int, ...]) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(4, *shape))), jnp.asarray(rng.normal(size=(4, 1)))


def trained(apply: Any, params: Any, tx: Any, x: Any, y: Any, steps: int = 5) -> np.ndarray:
    """f after every step."""

    def loss(params: Any) -> Any:
        return 0.5 * jnp.mean((apply(params, x) - y) ** 2)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state, apply(params, x)

    state, seen = tx.init(params), []
    for _ in range(steps):
        params, state, f = step(params, state)
        seen.append(np.asarray(f))
    return np.array([*seen, apply(params, x)])


def forms(net: Any, alpha: float) -> list[Any]:
    """The same network with its factors at other places: multipliers, initialisation, learning rate."""
    depth = net.depth
    base = (net.width // 4, depth / 2)
    named = [Parameterization.family(a, 0.5, alpha) for a in (0.5, 0.0, 0.3)]  # tables of TP5 and one between
    return [net.clone(parameterization=p.based(*base)) for p in named]


SLOW = pytest.mark.slow  # what compiles for long; the form without multipliers stays


@functools.cache
def started(width: int) -> Any:
    """(a network of two layers, its parameters, of three inputs): of several optimisers the same."""
    net = MLP(width, 2, parameterization=MUP.based(16))
    return net, jax.jit(net.init)(jax.random.key(0), jnp.ones((1, 3)))["params"]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        pytest.param("MLP", "adamw", marks=SLOW),
        *(pytest.param("ResNet", each, marks=SLOW) for each in OPTIMIZERS),
        pytest.param("ViT", "adamw", marks=SLOW),
    ],
)
def test_three_forms_have_one_trajectory(name, optimizer):
    """a + θ, b − 2θ, and the learning rate: SGD's with 2θ, others' with θ, ε with −θ; decay × learning rate unchanged."""
    net, shape = NETS[name]
    with jax.enable_x64(True):
        x, y = data(shape)
        runs = []
        for form in forms(net, 0.5 if name == "MLP" else 1.0):
            params = jax.jit(form.init)(jax.random.key(0), x)
            runs.append(trained(form.apply, params, scaled(OPTIMIZERS[optimizer](), form), x, y))
    assert np.abs(runs[0][-1] - runs[0][0]).max() > 1e-3
    for run in runs[1:]:
        np.testing.assert_allclose(run, runs[0], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_the_form_without_multipliers_has_the_same_trajectory(optimizer):
    """TP5's table 3: what `Roles` make of a plain network is the definition with its multipliers."""
    width, depth = 32, 4
    common: dict[str, Any] = {"activation": "tanh", "branch_layers": 2, "gamma": 1.5}
    p = Parameterization.family(0.0, 0.5, 1.0).based(8, 2)
    how = {"sgd": {"learning_rate": 0.05}, "adamw": {"learning_rate": 0.01, "eps": 1e-3, "weight_decay": 0.3}}
    options = how.get(optimizer, {"learning_rate": 0.01})

    def plain(width: int, depth: int) -> Any:
        return ResNet(width, depth, parameterization="standard", **{**common, "gamma": 1.0})

    def init(key: Any, width: int, depth: int) -> Any:
        return plain(width, depth).init(key, x)["params"]

    with jax.enable_x64(True):
        x, y = data((3,))
        net = ResNet(width, depth, parameterization=p, **common)
        params = jax.jit(net.init)(jax.random.key(0), x)["params"]
        mine = trained(lambda w, x: net.apply({"params": w}, x), params, scaled(optimizer, net, **options), x, y)
        sizes: Any = ({"width": 8, "depth": 2}, {"width": width, "depth": depth})
        roles = infer_roles(init, *sizes, alpha=1.0, gamma=1.5, branch_outputs=r"block_\d+_2")
        start = roles.rescale(jax.jit(lambda: init(jax.random.key(0), width, depth))())
        theirs = trained(
            lambda w, x: plain(width, depth).apply({"params": w}, x), start, scaled(optimizer, roles, **options), x, y
        )
    np.testing.assert_allclose(theirs, mine, rtol=1e-9, atol=1e-11)
    assert np.abs(mine[-1] - mine[0]).max() > 1e-3


@pytest.mark.parametrize("name", ["MLP", *(pytest.param(name, marks=SLOW) for name in NETS if name != "MLP")])
def test_at_the_base_size_a_network_is_its_standard_self_under_the_plain_optimiser(name):
    net, shape = NETS[name]
    net = net.clone(gamma=1.0)
    x = data(shape)[0]
    here = net.clone(parameterization=MUP.based(net.width, net.depth))
    plain = net.clone(parameterization="standard")
    a, b = (jax.jit(each.init)(jax.random.key(0), x)["params"] for each in (here, plain))
    assert jax.tree.all(jax.tree.map(lambda p, q: bool((p == q).all()), a, b))
    np.testing.assert_array_equal(here.apply({"params": a}, x), plain.apply({"params": b}, x))
    gradients = jax.tree.map(lambda p: jnp.sin(100 * p), a)
    matrices = jax.tree.map(
        lambda factor, leaf: (
            optax.contrib.MuonDimensionNumbers(tuple(range(leaf.ndim - 1)), leaf.ndim - 1) if factor.matrix else None
        ),
        factors(here, a),
        a,
    )
    muon = optax.contrib.muon(0.1, weight_decay=0.1, muon_weight_dimension_numbers=matrices)
    pairs = [(scaled(OPTIMIZERS[each](), here), OPTIMIZERS[each]()) for each in ("momentum and decay", "adamw")]
    pairs.append((scaled("muon", here, learning_rate=0.1, weight_decay=0.1), muon))
    for mine, theirs in pairs:
        found, expected = (jax.jit(tx.update)(gradients, tx.init(a), a)[0] for tx in (mine, theirs))
        assert jax.tree.all(jax.tree.map(lambda p, q: bool((p == q).all()), found, expected))


def test_the_table_of_the_tensor_programs():
    """Table 8 at m = 4 (input, hidden, readout, bias): learning rates of SGD and Adam, ε, decay; Muon's matrices."""
    net = MLP(64, 2, b_std=0.1, parameterization=Parameterization.family(0.0, 0.5).based(16))
    shapes = jax.eval_shape(net.init, jax.random.key(0), jnp.ones((1, 3)))["params"]
    found = factors(net, shapes)
    # With a = 0 the input's weights are N^(−1/2) times table 8's and the readout's too, each with the factor in front.
    s = {"hidden_1": 4**-0.5, "hidden_2": 1.0, "readout": 4**-0.5}
    table = {"hidden_1": (4.0, 1.0), "hidden_2": (1.0, 0.25), "readout": (4.0, 1.0)}  # SGD, Adam
    for layer, (sgd, adam) in table.items():
        factor = found[layer]["kernel"]
        assert factor.rate == sgd * s[layer] ** 2
        assert factor.step == adam * s[layer]
        assert factor.size == 0.25 / s[layer]  # ε × 1/m
    assert found["hidden_2"]["kernel"].spectral == 1.0
    assert [found[layer]["kernel"].matrix for layer in table] == [False, True, False]


class Biased(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, name="readout")(nn.relu(nn.Dense(self.width)(x)))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "lion", "muon"])
@pytest.mark.parametrize(
    "net", [MLP(64, 1, outputs=2, b_std=0.1, parameterization=MUP), in_parameterization(Biased(64), MUP)]
)
def test_the_bias_of_the_readout_moves_outputs_alike_at_every_width(net, optimizer):
    """By a step they move by O(1): the outputs are divided by √N, and so is its gradient, which is no neuron's share of that."""
    x, moved = jnp.asarray(np.random.default_rng(0).normal(size=(8, 6)), jnp.float32), []
    for width in (64, 4096):
        mine = net.clone(width=width)
        params = jax.jit(mine.init)(jax.random.key(0), x)["params"]
        outputs = jax.jit(lambda p, mine=mine: mine.apply({"params": p}, x))
        gradients = jax.jit(jax.grad(lambda p, outputs=outputs: jnp.mean((outputs(p) - 3.0) ** 2)))(params)
        tx = scaled(optimizer, mine, learning_rate=0.1)
        updates: Any = jax.jit(tx.update)(gradients, tx.init(params), params)[0]
        after = params | {
            "readout": params["readout"] | {"bias": params["readout"]["bias"] + updates["readout"]["bias"]}
        }
        moved.append(float(jnp.mean(outputs(after) - outputs(params))))
    assert moved[0] == pytest.approx(moved[1], rel=0.15)
    assert abs(moved[0]) > 2e-3


class Routed(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x))
        shares = nn.softmax(nn.Dense(2, name="router")(h))
        parts = jnp.stack([nn.Dense(self.width, name=f"expert_{i}")(h) for i in range(2)], axis=-1)
        h = nn.relu(jnp.sum(parts * shares[:, None, :], axis=-1))
        return nn.Dense(2, name="readout")(h)[:, :1] / 2.0


class RoutedZoo(nn.Module):
    width: int
    parameterization: Any = "mup"
    gamma: float = 1.0

    @nn.compact
    def __call__(self, x):
        dense = functools.partial(Dense, width=self.width, parameterization=MUP, b_std=0.1)
        h = nn.relu(dense(self.width, "input", name="first")(x))
        shares = nn.softmax(dense(2, "readout", name="router")(h))
        h = nn.relu(dense(self.width, "hidden", name="second")(h)) * shares[:, :1]
        return dense(1, "readout", name="readout")(h) / MUP.output_scale(self.width, self.gamma)


def test_a_bias_of_few_signals_inside_is_not_one_of_outputs():
    found = starts(in_parameterization(Routed(8), "mup"), jnp.ones((1, 3)))
    assert {name for name, start in found.items() if start.of_outputs} == {"readout.bias"}
    assert found["router.bias"].role == "constant"
    assert found["router.kernel"].place.inner
    theirs = placed(RoutedZoo(8), jnp.ones((1, 3)))
    assert [theirs[layer]["bias"].of_outputs for layer in ("first", "router", "readout")] == [False, False, True]


@pytest.mark.parametrize(
    ("after", "added"),
    [
        (lambda f: f / jnp.sqrt(2.0), True),
        (lambda f: 30 * jnp.tanh(f / 30), True),
        (lambda f: jnp.concatenate([f, f], -1)[:, ::-1], True),
        (lambda f: jnp.where(jnp.arange(2)[None] > 0, f, 0.0), True),
        (lambda f: jax.lax.map(lambda row: 2 * row, f), True),
        (lambda f: f.mean(1, keepdims=True) @ jnp.ones((1, 3)), True),
        (nn.log_softmax, True),
        (nn.softmax, False),
    ],
)
def test_a_bias_is_followed_to_the_outputs(after, added):
    params = {name: jnp.ones(shape) for name, shape in {"u": (3, 4), "c": (4,), "w": (4, 2), "b": (2,)}.items()}
    found = added_to_outputs(
        lambda p, x: after(nn.relu(x @ p["u"] + p["c"][None]) @ p["w"] + p["b"][None]), params, jnp.ones((5, 3))
    )
    assert found == ({"b"} if added else set())


def test_depth_rules_of_the_branches():
    """rate m_L^(2α−1), Adam's m_L^(α−1), ε m_L^(−α) for α ≥ 1/2; α = 0 has none."""
    for alpha, rate, step in ((0.0, 1.0, 1.0), (0.5, 1.0, 0.5), (0.75, 2.0, 4**-0.25), (1.0, 4.0, 1.0)):
        net = ResNet(8, 8, b_std=0.1, parameterization=MUP.replace(alpha=alpha).based(8, 2))
        found = factors(net, jax.eval_shape(net.init, jax.random.key(0), jnp.ones((1, 3)))["params"])
        for part in ("kernel", "bias"):
            factor = found["block_1_1"][part]
            np.testing.assert_allclose((factor.rate, factor.step, factor.size), (rate, step, 4.0**-alpha), rtol=1e-12)
        assert found["readout"]["kernel"].step == found["read_in"]["kernel"].step == 1.0


def test_epsilon_decay_and_clipping_are_where_they_belong():
    """A huge ε makes Adam linear in g: the step is then g / size × step / ε; decay is learning rate × λ at every size."""
    net, params = started(64)
    gradients, table = jax.tree.map(jnp.ones_like, params), factors(net, params)
    nothing = jax.tree.map(jnp.zeros_like, params)

    def update(tx: Any, g: Any) -> Any:
        return jax.jit(tx.update)(g, tx.init(params), params)[0]

    steep = update(scaled(optax.adam(0.1, eps=1e6), net), gradients)
    for found, factor in zip(jax.tree.leaves(steep), jax.tree.leaves(table), strict=True):
        np.testing.assert_allclose(found, -0.1 * factor.rate / 1e6, rtol=1e-4)
    decay = update(scaled(optax.adamw(0.1, weight_decay=0.5), net), nothing)
    assert jax.tree.all(jax.tree.map(lambda u, p: bool(jnp.allclose(u, -0.05 * p, rtol=1e-5)), decay, params))
    chain = optax.chain(optax.clip(0.1), scaled(optax.sgd(1.0), net), optax.scale_by_schedule(lambda step: 0.5))
    clipped = update(chain, gradients)
    for found, factor in zip(jax.tree.leaves(clipped), jax.tree.leaves(table), strict=True):
        np.testing.assert_allclose(found, -0.05 * factor.rate, rtol=1e-5)


def test_what_is_refused():
    net, params = started(64)
    with pytest.raises(ValueError, match=r'scaled: this optimiser is Muon.*scaled\("muon", net'):
        scaled(optax.contrib.muon(0.1), net).init(params)
    with pytest.raises(ValueError, match=r"√max\(fan_in, fan_out\)"):
        scaled("muon", net, learning_rate=0.1, consistent_rms=0.2)
    with pytest.raises(ValueError, match='unknown optimiser "adm"'):
        scaled("adm", net, learning_rate=0.1)
    with pytest.raises(TypeError, match="learning_rate belong to an optimiser given by name"):
        scaled(optax.adam(0.1), net, learning_rate=0.1)
    with pytest.raises(ValueError, match="not those of this MLP"):
        scaled(optax.adam(0.1), net.clone(depth=3)).init(params)


@pytest.mark.parametrize(
    "inside",
    [
        optax.clip_by_global_norm(0.5),
        optax.normalize_by_update_norm(),
        optax.polyak_sgd(0.1),
        optax.contrib.momo_adam(0.1),
    ],
)
def test_a_threshold_of_all_gradients_inside_is_warned_of(inside):
    (net, params), rule = started(64), optax.chain(inside, optax.sgd(0.1))
    with pytest.warns(UserWarning, match="compares the norm of all gradients"):
        scaled(rule, net).init(params)
    small, params = started(16)  # where all factors are 1 it is the plain optimiser
    scaled(rule, small).init(params)


@pytest.mark.parametrize(
    "rule",
    [
        optax.chain(optax.clip(0.1), optax.sgd(0.1)), optax.lion(0.1, weight_decay=0.3), optax.adamw(0.1, weight_decay=1.0),
        optax.adam(optax.warmup_cosine_decay_schedule(0, 1, 5, 10)), optax.contrib.schedule_free_sgd(0.1),
        optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.1)), optax.adafactor(0.1, multiply_by_parameter_scale=False),
    ],
)  # fmt: skip
def test_other_rules_are_not_warned_of(rule):
    net, params = started(64)
    scaled(rule, net).init(params)


class Plain(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = jnp.tanh(nn.Dense(self.width, use_bias=False)(1.4 * x))
        return nn.Dense(1, use_bias=False)(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (lambda width: MLP(width, 2, activation="tanh", parameterization="mup", w_std=1.4), 1.9, 2.15),
        (lambda width: in_parameterization(Plain(width), "mup"), 0.95, 1.1),
    ],
    ids=["zoo", "plain"],
)
def test_the_threshold_before_it_means_the_same_at_every_width(make, least, most):
    """As `scaled` says: raw gradients fall as N^(−1/2), or, of plain modules, keep their size."""

    def norm(width: int) -> float:
        net = make(width)
        x = jnp.sin(jnp.arange(12.0)).reshape(4, 3)
        variables = jax.jit(jax.vmap(net.init, (0, None)))(jax.random.split(jax.random.key(0), 16), x)

        def loss(variables: Any) -> Any:
            out: Any = net.apply(variables, x)
            return jnp.mean((out - 1) ** 2)

        return float(jnp.mean(jax.jit(jax.vmap(lambda v: optax.global_norm(jax.grad(loss)(v))))(variables)))

    assert least < norm(512) / norm(2048) < most


@pytest.mark.slow
def test_parts_of_the_parameters_are_scaled_as_in_the_whole():
    """`optax.multi_transform` and `masked` show each transformation some of the parameters."""
    for net, x in (
        (MLP(64, 2, b_std=0.1, parameterization=MUP.based(16)), (1, 3)),
        (CNN(16, 2, b_std=0.1), (1, 4, 4, 3)),
    ):
        params = jax.jit(net.init)(jax.random.key(0), jnp.ones(x))["params"]
        gradients = jax.tree.map(jnp.ones_like, params)
        each = scaled(optax.adam(0.1, eps=1.0), net)
        split = optax.multi_transform(
            {"kernel": each, "bias": each}, jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key, params)
        )
        whole, parts = (tx.update(gradients, tx.init(params), params)[0] for tx in (each, split))
        jax.tree.map(np.testing.assert_array_equal, whole, parts)
    with pytest.raises(ValueError, match="not those of this MLP"):
        scaled("adam", MLP(64, 2), learning_rate=0.1).init({"other": jnp.ones((3, 64))})


def test_a_name_needs_a_learning_rate():
    with pytest.raises(TypeError, match=r'adam needs a learning rate: scaled\("adam", net, learning_rate=…\)'):
        scaled("adam", MLP(8, 1))
