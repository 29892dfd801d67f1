"""The coordinate check: flat for the right rules, and every broken one is named with its layer."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from train import coord_check
from train.coordinates import Slope, _look
from zoo import MLP, Parameterization, Rescaled, ResNet, factors, in_parameterization, scaled
from zoo.modules import made_by
from zoo.roles import is_factors
from zoo.scaled import _corrected

WIDTHS, DEPTHS = (32, 64, 128, 256), (16, 32, 64)
RNG = np.random.default_rng(0)
BATCH = jnp.asarray(RNG.normal(size=(8, 5)), "float32"), jnp.asarray(RNG.normal(size=(8, 1)), "float32")
# In all of them hidden weights have no multiplier, so that the factors are those of the usual table.
FORM = Parameterization.family(0.0, 0.5, alpha=0.5)


def mlp(width: int, depth: int) -> MLP:
    return MLP(width, depth, activation="tanh", w_std=1.2, b_std=0.1, parameterization=FORM.based(32))


def resnet(width: int, depth: int, alpha: float = 0.5) -> ResNet:
    """Depth counts the read-in, so that L − 1 branches of size 1/L are 1/L short of the limit: not too shallow."""
    form = FORM.replace(alpha=alpha).based(32, 16)
    return ResNet(width, depth, activation="tanh", b_std=0.1, beta=0.5, parameterization=form)


def loss(f: Any, y: Any) -> Any:
    return -jnp.mean(f * y)  # linear: the random outputs at the start, which shrink with the width, play no part


def check(make: Callable, optimizer: Any, over: str = "width", steps: int = 3) -> Any:
    widths, depths = (WIDTHS, (3,)) if over == "width" else ((32,), DEPTHS)
    return coord_check(make, widths, depths, BATCH, loss, optimizer, steps, seeds=12)


class Broken:
    """A definition's factors with some changed, in place of `Roles`, which have places."""

    places: ClassVar[dict] = {}

    def __init__(self, net: Any, change: Callable, x: Any = None) -> None:
        self.net, self.change, self.x = net, change, x

    def factors(self, params: Any) -> Any:
        return jax.tree.map(self.change, factors(self.net, params, self.x), is_leaf=is_factors)


RIGHT = {
    "sgd": lambda net: scaled(optax.sgd(0.1, momentum=0.5), net),
    "adam": lambda net: scaled(optax.adam(0.01), net),
    "muon": lambda net: scaled("muon", net, learning_rate=0.02),
}


@pytest.mark.slow  # the example of coord_check has one of them
@pytest.mark.parametrize("over", ["width", "depth"])
@pytest.mark.parametrize("name", RIGHT)
def test_the_right_rules_are_flat(name, over):
    found = check(mlp if over == "width" else resnet, RIGHT[name], over)
    assert found
    assert "does not show that it holds" in found.sentence
    for slope in found.slopes:
        assert abs(slope.exponent) < 0.1, slope
        assert slope.high - slope.low < 0.3


def without_width(role: str) -> Callable:
    """Learning rates of this role as at the base width."""

    def change(factor: Any) -> Any:
        return dataclasses.replace(factor, rate=1.0 / factor.size) if factor.role == role else factor

    return change


def muon_of_the_larger_side(net: Any) -> Any:
    def of(params: Any) -> Any:
        dimensions = jax.tree.map(
            lambda f: optax.contrib.MuonDimensionNumbers(0, 1) if f.matrix else None, factors(net, params)
        )
        how: dict[str, Any] = {"consistent_rms": 0.2, "adam_learning_rate": 1e-4}  # so that what moves is the matrices
        return optax.contrib.muon(0.02, muon_weight_dimension_numbers=dimensions, **how)

    inner = optax.GradientTransformation(
        lambda params: of(params).init(params),
        lambda updates, state, params=None: of(updates).update(updates, state, params),
    )
    return _corrected(inner, net, None, spectral=True)


def adam(change: Callable) -> Callable:
    return lambda net: scaled(optax.adam(0.003), Broken(net, change))


def inputs_as_at_the_base(factor: Any) -> Any:
    return dataclasses.replace(factor, rate=factor.rate / factor.width) if factor.role == "input" else factor


def branches_without_depth(factor: Any) -> Any:
    return dataclasses.replace(factor, rate=1 / factor.width / factor.size) if factor.role == "branch" else factor


# what is wrong: (model, over, what must be named, optimiser)
BROKEN: dict[str, tuple[Callable, str, str, Callable]] = {
    "Adam on hidden weights without 1/m": (mlp, "width", "the change of h2 grows", adam(without_width("hidden"))),
    "SGD on inputs without m": (
        mlp, "width", "the change of h1 shrinks", lambda net: scaled(optax.sgd(0.3), Broken(net, inputs_as_at_the_base)),
    ),
    "readout that starts and learns as in the standard form": (
        lambda width, depth: mlp(width, depth).clone(parameterization="standard"), "width", "outputs grows",
        lambda net: scaled(optax.adam(0.003), net),
    ),
    "Adam in blocks without the depth": (
        lambda width, depth: resnet(width, depth, 0.5), "depth", "h# (last) grows", adam(branches_without_depth),
    ),
    "Muon with √max(fan_in, fan_out)": (mlp, "width", "the change of h2 grows", muon_of_the_larger_side),
    "no branch factor": (
        lambda width, depth: resnet(width, depth, 0.0), "depth", "h# (last) grows", lambda net: scaled(optax.sgd(0.1), net),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_are_caught_with_the_layer_named(name):
    make, over, named, optimizer = BROKEN[name]
    found = check(make, optimizer, over)
    assert not found
    assert named in found.sentence, found.sentence


@pytest.mark.slow
def test_a_model_of_the_users_own_report_and_divergence(tmp_path):
    class Net(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(1, name="last")(nn.relu(nn.Dense(self.width, name="first")(x)))

    def run(rate: float, steps: int = 1, **options: Any) -> Any:
        return coord_check(
            lambda width, depth: Net(width), (16, 64), (1,), BATCH, lambda f, y: jnp.mean((f - y) ** 2), optax.sgd(rate),
            steps=steps, seeds=2, **options,
        )  # fmt: skip

    found = run(0.01, predict=jnp.tanh)
    assert {slope.quantity for slope in found.slopes} == {"first", "last", "outputs", "predictions"}
    assert "Coordinate check" in found.save(tmp_path).read_text()
    assert (tmp_path / "coordinates.json").exists()
    lost = run(1e20, steps=3)
    assert not lost
    assert "diverges at some width" in lost.sentence
    with pytest.raises(ValueError, match="at least two widths or two depths"):
        coord_check(lambda width, depth: Net(width), (16,), (1,), BATCH, loss, optax.sgd(0.1))


def test_verdicts_of_intervals():
    def verdict(low: float, high: float, least: float = 0.0) -> str:
        return Slope("h", "width", (1, 2), np.ones((2, 2)), (low + high) / 2, low, high, least).verdict

    assert verdict(-0.05, 0.08) == "flat"
    assert verdict(0.12, 0.2) == "grows"
    assert verdict(-0.4, -0.2) == "shrinks"
    assert verdict(-0.05, 0.2) == "undecided"
    assert verdict(-0.55, -0.3, least=-0.5) == "by its rule"
    assert verdict(-0.7, -0.3, least=-0.5) == "undecided"
    assert verdict(-0.9, -0.7, least=-0.5) == "shrinks"
    assert verdict(0.2, 0.3, least=-0.5) == "grows"


class Normalised(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        h = nn.BatchNorm(use_running_average=not train, name="norm")(nn.Dense(self.width, name="first")(x))
        return nn.Dense(1, name="last")(nn.relu(h))


@pytest.mark.slow
def test_batch_statistics_are_kept():
    (x, y), mean_square = BATCH, lambda f, y: jnp.mean((f - y) ** 2)
    check = coord_check(
        lambda width, _: Normalised(width), (4, 8), (1,), BATCH, mean_square, optax.sgd(0.1), steps=2, seeds=2
    )
    moved = {s.quantity: s.movement for s in check.slopes}
    assert set(moved) == {"first", "norm", "last", "outputs"}
    net = Normalised(4)
    variables = jax.jit(net.init)(jax.random.fold_in(jax.random.key(0), 0), x)

    @jax.jit
    def outputs(variables: Any) -> Any:
        return net.apply(variables, x, train=True, mutable=["batch_stats"])

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient(params: Any, stats: Any) -> Any:
        f, after = outputs({"params": params, "batch_stats": stats})
        return mean_square(f, y), after["batch_stats"]

    f, params, stats = outputs(variables)[0], variables["params"], variables["batch_stats"]
    for _ in range(2):
        slope, stats = gradient(params, stats)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, slope)
    after, _ = outputs({"params": params, "batch_stats": stats})
    np.testing.assert_allclose(moved["outputs"][0, 0], jnp.sqrt(jnp.mean((after - f) ** 2)), rtol=1e-4)


class Own(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(1, name="last")(nn.tanh(nn.Dense(self.width, name="first")(x)))


class Functions:
    """A model that is no module: it has init and apply, and nothing else."""

    def __init__(self, width: int) -> None:
        self.width = width

    def init(self, key: Any, x: Any) -> Any:
        a, b = jax.random.split(key)
        first = jax.random.normal(a, (x.shape[-1], self.width))
        return {"first": first, "last": jax.random.normal(b, (self.width, 1)) / self.width}

    def apply(self, params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["first"]) @ params["last"]


def rescaled(width: int, depth: int) -> Rescaled:
    return Rescaled.of(Own, BATCH[0], base={"width": 8}, target={"width": width})


@pytest.mark.parametrize("kind", ["functions", "pair", "rescaled", "plain"])
def test_any_model_with_init_and_apply(kind):
    makes: dict[str, Callable] = {
        "functions": lambda width, depth: Functions(width),
        "pair": lambda width, depth: (Functions(width).init, Functions(width).apply),
        "rescaled": rescaled,
        # Its readout is seen as the output, over γ.
        "plain": lambda width, depth: in_parameterization(Own(width), Parameterization.mup.based(8)),
    }
    ours = kind in ("rescaled", "plain")
    tx: Any = (lambda net: scaled(optax.sgd(0.01), net, BATCH[0])) if ours else optax.sgd(0.01)
    found = coord_check(makes[kind], (8, 32), (1,), BATCH, loss, tx, steps=1, seeds=2)
    assert {s.quantity for s in found.slopes} == {
        "outputs",
        *{"rescaled": ("first", "last"), "plain": ("first",)}.get(kind, ()),
    }
    assert ("Only outputs were looked at: look(" in found.sentence) == (not ours)
    assert str(found).splitlines()[0].strip() == "Changes after 1 steps"
    assert "array(" not in str(found)
    assert " ".join(found.sentence.split()[:3]) in " ".join(str(found).split())


def test_what_is_no_model_is_said():
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Linear(3, 4, rngs=rngs)

    with pytest.raises(ValueError, match=r"NNX module Net, which has its parameters already.*in_parameterization"):
        coord_check(lambda width, depth: Net(nnx.Rngs(0)), (8, 16), (1,), BATCH, loss, optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"make must return a model with init.*got int"):
        coord_check(lambda width, depth: 3, (8, 16), (1,), BATCH, loss, optax.sgd(0.1))


class Blocks(nn.Module):
    width: int
    depth: int = 2

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.Dense(self.width, name="in")(x)
        for i in range(self.depth):
            h = h + 0.3 * (2 / self.depth) ** 0.5 * nn.Dense(self.width, name=f"block_{i}")(nn.tanh(h))
        return nn.Dense(1, name="out")(h)


@pytest.mark.slow
@pytest.mark.parametrize("steeper", [0.0, 1.0])
def test_layers_in_branches_may_move_by_less(steeper):
    """By 1/√L each at α = 1/2, as their rule has it; where the rate falls by more, outputs show it."""

    def run() -> Any:
        def make(width: int, depth: int) -> Any:
            sizes = {"base": {"width": 32, "depth": 2}, "target": {"width": width, "depth": depth}}
            return Rescaled.of(Blocks, BATCH[0], **sizes, branch_outputs="in code")

        def change(factor: Any, depth: float) -> Any:
            return (
                dataclasses.replace(factor, size=factor.size * depth**-steeper) if factor.role == "hidden" else factor
            )

        def optimizer(net: Any) -> Any:
            of = Broken(net.roles, lambda factor: change(factor, net.roles.depth)) if steeper else net
            return scaled(optax.adam(1e-3), of)

        return coord_check(make, (32,), (2, 4, 8, 16) if steeper else (2, 4, 8), BATCH, loss, optimizer, 2, seeds=3)

    found = run()
    if steeper:
        assert "the change of outputs shrinks" in found.sentence
        return
    verdicts = {s.quantity: s.verdict for s in found.slopes}
    assert verdicts["block_# (first)"] == verdicts["block_# (last)"] == "by its rule"
    assert verdicts["outputs"] == "flat"


@pytest.mark.slow
def test_f_at_the_start_is_subtracted_where_it_moves_small_networks():
    """By SGD on squared errors, of which a random f(0) is a part that falls with the width."""
    squares = lambda f, y: jnp.mean((f - y) ** 2)  # noqa: E731
    batch = BATCH[0], 0.1 * BATCH[1]

    def make(width: int, depth: int) -> Any:
        return Rescaled.of(Blocks, batch[0], base={"width": 16}, target={"width": width})

    found = coord_check(
        make, (16, 64, 256), (2,), batch, squares, lambda net: scaled(optax.sgd(0.02), net), 1, seeds=24
    )
    assert found, found.sentence
    assert "With f(0), which falls as 1/√width, subtracted" in found.sentence


class Branch(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.norm, self.inner = nnx.LayerNorm(width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.inner(self.norm(x))


class Branches(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.read, self.out = nnx.Linear(5, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.blocks = nnx.List([Branch(width, rngs), nnx.Linear(width, width, rngs=rngs)])

    def __call__(self, x: Any) -> Any:
        h = self.read(x)
        h = h + self.blocks[0](jnp.tanh(h))
        return self.out(h + jax.vmap(self.blocks[1])(jnp.tanh(h)))


def test_what_overshoots_and_comes_back_is_seen_after_the_first_step():
    """Adam that is not scaled, at a rate so large that after more steps the outputs of wide networks are near the targets."""
    squares = lambda f, y: jnp.mean((f - y) ** 2)  # noqa: E731
    found = coord_check(
        lambda width, _: Functions(width), (32, 512), (1,), BATCH, squares, optax.adam(1e-2), steps=6, seeds=3
    )
    assert not found
    assert {s.verdict for s in found.slopes} <= {"flat", "undecided", "shrinks"}, "it is seen after the last step too"
    assert [(s.quantity, s.verdict) for s in found.early] == [("outputs", "grows")]
    assert "the change of outputs after the first step grows as width^" in found.sentence
    assert "outputs after the first step" in str(found)


@pytest.mark.slow
def test_features_of_nnx_modules():
    """Of every submodule, but for those inside a transformation, which are named."""
    make = lambda width, _: made_by(Branches, width)  # noqa: E731
    found = coord_check(make, (4, 8), (1,), BATCH, loss, optax.sgd(0.01), steps=1, seeds=2)
    seen = {"read", "blocks.0", "blocks.0.norm", "blocks.0.inner", "out"}
    assert {s.quantity for s in found.slopes} == {*seen, "outputs"}
    assert found.unseen == ("blocks.1",)
    net = make(4, 1)
    params: Any = net.init(jax.random.key(0), BATCH[0])
    inside = jax.jit(lambda params: _look(net, params, BATCH[0]))(params)
    expected = BATCH[0] @ params["read.kernel"] + params["read.bias"][None]
    np.testing.assert_allclose(inside["read"], expected, rtol=1e-5, atol=1e-6)


class Scanned(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.Dense(self.width, name="in")(x)
        shared: Any = {"in_axes": None, "axis_size": 2}
        many = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}, **shared)
        return nn.Dense(1, name="out")(many(self.width, name="many")(h).mean(0))


@pytest.mark.slow
def test_layers_that_are_not_seen_are_named():
    found = coord_check(lambda width, _: Scanned(width), (4, 8), (1,), BATCH, loss, optax.sgd(0.1), steps=1, seeds=2)
    assert found.unseen == ("many",)
    assert "No rows for many: layers inside nn.scan or nn.vmap" in found.sentence
    assert not coord_check(
        lambda width, _: Own(width), (4, 8), (1,), BATCH, loss, optax.sgd(0.1), steps=1, seeds=2
    ).unseen


class Shares(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        f = nn.Dense(3, name="out")(nn.tanh(nn.Dense(self.width, name="in")(x)))
        return nn.softmax(f)


@pytest.mark.slow
def test_outputs_from_which_nothing_can_be_subtracted_keep_their_verdict():
    """The logarithm of f − f(0) = 0 is −∞, which is no divergence of the network."""
    x, labels = np.random.default_rng(1).normal(size=(8, 4)), np.arange(8) % 3
    loss = lambda p, y: -jnp.mean(jnp.log(p[jnp.arange(8), y]))  # noqa: E731
    found = coord_check(lambda w, _: Shares(w), (8, 32), (1,), (x, labels), loss, optax.adam(0.01), steps=2, seeds=4)
    assert {s.verdict for s in found.against} == {"grows"}
    assert not any(s.centred for s in found.slopes)


class Gated(nn.Module):
    """A plain module with a gate, one signal that all neurons make."""

    width: int
    start: Any = nn.initializers.zeros

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width, name="first")(x))
        return nn.Dense(1)(h * (1 + jnp.tanh(nn.Dense(1, name="gate", kernel_init=self.start)(h))))


@pytest.mark.parametrize("broken", ["", "rate", "start"])
@pytest.mark.slow
def test_a_gate_has_a_row(broken):
    """It finds the rate of a readout, and weights that start as N^(−1/2)."""
    start = nn.initializers.lecun_normal() if broken == "start" else nn.initializers.zeros

    def make(width: int, depth: int) -> Any:
        return in_parameterization(Gated(width, start), "mup")

    def rule(net: Any) -> Any:
        def change(factor: Any) -> Any:
            return dataclasses.replace(factor, rate=factor.rate * net.width) if factor.inner else factor

        table = Broken(net, change, BATCH[0]) if broken == "rate" else net
        return _corrected(optax.adam(0.02), table, BATCH[0] if table is net else None)

    found = coord_check(make, (32, 128, 512), (1,), BATCH, loss, rule, steps=6, seeds=12)
    verdicts = {slope.quantity: slope.verdict for slope in (*found.slopes, *found.early)}
    assert {"first", "gate"} <= verdicts.keys()
    assert "Dense_0" not in verdicts
    assert (verdicts["gate"] == "grows") == bool(broken), found.sentence
    assert bool(found) == (not broken), found.sentence
