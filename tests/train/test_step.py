"""A step against the same step written out: gradients, parts of a batch, averages, recomputation, members, sharding."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from train.data import digits
from train.first_step import watched
from train.losses import cross_entropy
from train.mesh import Placement, make_mesh, rows_here
from train.step import Program
from train.trainer import Trainer
from train.transfer.runs import train_runs, train_scored
from zoo import GPT, MLP, HeResNet, ResNet, ViT, in_parameterization, scaled

NET = MLP(16, 2, 10, activation="tanh", parameterization="mup")
VIT = ViT(8, 1, 10, patch=4, heads=2, parameterization="mup")
TASK = digits(48, 20, classes=range(10), targets="one_hot", loss="cross_entropy")
X, Y = jnp.asarray(TASK.x_train, "float32"), jnp.asarray(TASK.y_train, "float32")


def program(net: Any = NET, **options: Any) -> Program:
    return Program(net, scaled(optax.sgd(0.1, 0.9), net), cross_entropy, **options)


def outputs(net: Any, params: Any, x: Any) -> Any:
    return net.apply(params, x)


def after(given: Program, steps: int = 2, size: int = 16) -> Any:
    step, state, metrics = jax.jit(given.step), given.initial(3, X), {}
    for k in range(steps):
        state, metrics = step(state, (X[k * size : (k + 1) * size], Y[k * size : (k + 1) * size]))
    return state, metrics


@pytest.fixture(scope="module")
def plain() -> Any:
    return after(program())


def close(a: Any, b: Any, rtol: float = 2e-5) -> None:
    scale = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(b))
    jax.tree.map(lambda u, v: np.testing.assert_allclose(u, v, rtol=rtol, atol=rtol * scale), a, b)


def test_a_step_is_gradient_and_optimiser_written_out(plain: Any):
    net, tx = NET, scaled(optax.sgd(0.1, 0.9), NET)
    params: Any = net.init(jax.random.fold_in(jax.random.key(0), 3), X)
    memory, value, slope = tx.init(params), 0.0, None

    @jax.jit
    def gradient(params: Any, x: Any, y: Any) -> Any:
        return jax.value_and_grad(lambda p: optax.softmax_cross_entropy(outputs(net, p, x), y).mean())(params)

    for k in range(2):
        value, slope = gradient(params, X[16 * k : 16 * k + 16], Y[16 * k : 16 * k + 16])
        updates, memory = tx.update(slope, memory, params)
        params = optax.apply_updates(params, updates)
    state, metrics = plain
    close(state.trained, params)
    np.testing.assert_allclose(metrics["loss"], value, rtol=1e-5)
    np.testing.assert_allclose(metrics["gradient_norm"], optax.global_norm(slope), rtol=1e-4)
    np.testing.assert_allclose(metrics["parameter_norm"], optax.global_norm(params), rtol=1e-5)
    assert int(state.step) == 2


def test_parts_of_a_batch_change_nothing(plain: Any):
    state, metrics = after(program(accumulate=4))
    close(state.trained, plain[0].trained)
    for name in ("loss", "accuracy", "gradient_norm"):
        np.testing.assert_allclose(metrics[name], plain[1][name], rtol=1e-4)


@pytest.mark.slow
def test_gradients_in_half_precision_are_added_up_in_float32():
    """Of many parts, and of many parameters for their norms: sums of bfloat16 stop at 256 times what is added."""
    net = nn.Dense(2, use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    x = jnp.asarray(np.random.default_rng(0).normal(1, 0.1, (1024, 3)), jnp.bfloat16)
    whole, parts = (Program(net, optax.sgd(0.1), lambda f, y: jnp.mean((f - y) ** 2), n) for n in (1, 1024))
    found = [each._gradients(each.initial(0, x), (x, x[:, :2]))[3] for each in (whole, parts)]
    close(*(jax.tree.map(lambda a: a.astype("float32"), each) for each in found), rtol=2e-2)

    class Many(nn.Module):
        @nn.compact
        def __call__(self, x):
            return sum(self.param(f"p{i}", nn.initializers.ones, (1, 1), jnp.bfloat16) for i in range(300)) * x

    many = Program(Many(), optax.sgd(1e-9), lambda f, y: jnp.mean(f * y))
    assert many.step(many.initial(0, x), (x, x))[1]["parameter_norm"] == pytest.approx(300**0.5, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "net",
    [
        VIT,
        HeResNet(4, (1, 1), 10, norm="batch"),
        ResNet(8, 8, branch_layers=4),
    ],
    ids=lambda net: type(net).__name__,
)
def test_recomputation_changes_nothing_and_keeps_less(net: Any):
    variables = net.init(jax.random.key(0), X)
    mode = {"train": True, "mutable": ["batch_stats"]} if "batch_stats" in variables else {}
    again = net.clone(remat=True)

    def gradient(net: Any) -> Any:
        return jax.grad(lambda p: jnp.sum(jax.tree.leaves(net.apply({**variables, **p}, X, **mode))[0] ** 2))

    params = {"params": variables["params"]}
    close(jax.jit(gradient(again))(params), jax.jit(gradient(net))(params))

    def kept(net: Any) -> int:  # entries that the backward pass holds on to
        back = jax.eval_shape(lambda p: jax.vjp(lambda p: net.apply({**variables, **p}, X, **mode), p)[1], params)
        return sum(leaf.size for leaf in jax.tree.leaves(back))

    assert kept(again) < 0.7 * kept(net)


def test_averaged_parameters_are_the_moving_average():
    given = program(average=0.5)
    step, state = jax.jit(given.step), given.initial(3, X)
    expected = state.trained
    for k in range(4):
        weight = min(0.5, (1 + k) / (10 + k))
        state, _ = step(state, (X[:16], Y[:16]))
        expected = jax.tree.map(lambda a, p, w=weight: w * a + (1 - w) * p, expected, state.trained)
    close(state.average, expected)
    assert state.variables is state.average


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_half_precision_is_averaged_in_float32(accumulate):
    net = nn.Dense(10, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    given = Program(net, optax.sgd(0.1), lambda f, y: cross_entropy(f, y), accumulate, average=0.9)
    x = X.reshape(len(X), -1)
    state = start = given.initial(3, x)
    batch = x[:16], Y[:16]
    state = jax.lax.fori_loop(0, 3, lambda i, carry: given.step(carry, batch)[0], start)
    expected = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start.trained)
    for k in range(3):
        start, w = given.step(start, batch)[0], (1 + k) / (10 + k)
        expected = jax.tree.map(
            lambda a, p, w=w: w * a + (1 - w) * jnp.asarray(p, jnp.float32), expected, start.trained
        )
    close(start.average, expected, rtol=1e-6)
    close(state.average, expected, rtol=1e-2)  # a loop that is compiled rounds elsewhere
    assert {leaf.dtype for leaf in jax.tree.leaves(state.average)} == {jnp.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(state.variables)} == {jnp.dtype("bfloat16")}


@pytest.mark.slow
def test_batch_statistics_of_parts_follow_one_another():
    net = HeResNet(4, (1,), 10, norm="batch")
    state, _ = after(program(net, accumulate=2), steps=1)
    variables: Any = jax.jit(net.init)(jax.random.fold_in(jax.random.key(0), 3), X)
    passed: Any = jax.jit(functools.partial(net.apply, train=True, mutable=["batch_stats"]))
    for part in (slice(0, 16, 2), slice(1, 16, 2)):
        _, changed = passed(variables, X[:16][part])
        variables = {**variables, **changed}
    close(state.collections, {"batch_stats": variables["batch_stats"]})


def test_members_are_the_networks_of_the_next_seeds(plain: Any):
    trainer = Trainer(program(), make_mesh(), (16, 8, 8, 1), members=2, seed=2)
    state: Any = trainer.initial()
    for k in range(2):
        state, metrics = trainer.step(state, (X[16 * k : 16 * k + 16], Y[16 * k : 16 * k + 16]))
    close(jax.tree.map(lambda a: a[1], state.trained), plain[0].trained)
    np.testing.assert_allclose(metrics["loss"][1], plain[1]["loss"], rtol=1e-5)
    assert abs(metrics["loss"][0] - metrics["loss"][1]) > 1e-4


def test_evaluation_weighs_by_the_mask(plain: Any):
    trainer = Trainer(program(), make_mesh(), (16, 8, 8, 1))
    x, y = TASK.x_test.astype("float32"), TASK.y_test.astype("float32")
    padded = [np.concatenate([a, 7 * np.ones((12, *a.shape[1:]), "float32")]) for a in (x, y)]
    mask = (np.arange(32) < 20).astype("float32")
    found = trainer.evaluate(
        plain[0], [(padded[0][i : i + 16], padded[1][i : i + 16], mask[i : i + 16]) for i in (0, 16)]
    )
    f = outputs(NET, plain[0].trained, jnp.asarray(x))
    np.testing.assert_allclose(found["loss"], optax.softmax_cross_entropy(f, y).mean(), rtol=1e-5)
    np.testing.assert_allclose(found["accuracy"], np.mean(np.argmax(f, 1) == y.argmax(1)), rtol=1e-6)


def test_random_numbers_of_the_forward_pass_differ_between_steps_and_members():
    class Noisy(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dropout(0.5, deterministic=False)(nn.Dense(10)(x.reshape(len(x), -1)))

    given = Program(Noisy(), optax.sgd(0.0), cross_entropy)
    step, losses = jax.jit(given.step), []
    state: Any = given.initial(0, X)
    for _ in range(2):
        after_it, metrics = step(state, (X, Y))
        again = step(state, (X, Y))[1]
        assert metrics["loss"] == again["loss"]
        losses.append(float(metrics["loss"]))
        state = after_it
    assert losses[0] != losses[1]
    seeded: Any = given.initial(1, X)
    other = step(seeded.replace(trained=state.trained), (X, Y))[1]
    assert float(other["loss"]) != losses[0]


class Told(nn.Module):
    """Drops out where `train` says so; `by_itself`: what it takes itself for."""

    by_itself: bool = False
    rate: float = 0.9

    @nn.compact
    def __call__(self, x, train: bool | None = None):
        h = nn.relu(nn.Dense(32)(x.reshape(len(x), -1)))
        train = self.by_itself if train is None else train
        return nn.Dense(10)(nn.Dropout(self.rate, deterministic=not train)(h))


@pytest.mark.parametrize("by_itself", [False, True])
def test_a_module_is_told_whether_it_is_trained(by_itself):
    """Steps drop out, evaluations do not, whatever `train` is by default."""
    losses = {}
    for rate in (0.0, 0.9):
        trainer = Trainer(Program(Told(by_itself, rate), optax.sgd(0.1), cross_entropy), make_mesh(), (16, 8, 8, 1))
        state: Any = trainer.initial()
        state, metrics = trainer.step(state, (X[:16], Y[:16]))
        start: Any = trainer.initial()
        batch = X[:16], Y[:16], np.ones(16, "float32")
        losses[rate] = float(metrics["loss"]), float(trainer.evaluate(start, [batch])["loss"])
    assert abs(losses[0.0][0] - losses[0.9][0]) > 0.01  # what is dropped of the first batch
    assert losses[0.0][1] == losses[0.9][1]


class Training(nn.Module):
    """Must be told, by another name than `train`."""

    width: int = 32

    @nn.compact
    def __call__(self, x, training):
        return Told(rate=0.5)(x, train=training)


class Deterministic(nn.Module):
    """Asks for the opposite."""

    width: int = 32

    @nn.compact
    def __call__(self, x, deterministic=True):
        return Told(rate=0.5)(x, train=not deterministic)


class IsTrain(nn.Module):
    """Asks by another name, with a default."""

    @nn.compact
    def __call__(self, x, is_train=False):
        return Told(rate=0.5)(x, train=is_train)


class Twice(nn.Module):
    """Asks by two names, and believes both."""

    @nn.compact
    def __call__(self, x, deterministic=True, inference=None):
        return Told(rate=0.5)(x, train=not deterministic and inference is False)


class Functions:
    """No module; draws by a key of the step."""

    def init(self, key, x):
        return Told().init(key, x)["params"]

    def apply(self, params, x, train=False, key=None):
        return Told(rate=0.5).apply({"params": params}, x, train, rngs={} if key is None else {"dropout": key})


class OfNNX(nnx.Module):
    """Has keys of its own for dropout, and is told by its methods."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        self.first, self.last = nnx.Linear(64, width, rngs=rngs), nnx.Linear(width, 10, rngs=rngs)
        self.one, self.other = nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.last(self.other(self.one(nnx.relu(self.first(x.reshape(len(x), -1))))))


@pytest.mark.parametrize(
    "net",
    [
        Training(),
        pytest.param(Deterministic(), marks=pytest.mark.slow),
        pytest.param(IsTrain(), marks=pytest.mark.slow),
        pytest.param(Twice(), marks=pytest.mark.slow),
        pytest.param(Functions(), marks=pytest.mark.slow),
        in_parameterization(Training(), "ntk"),
        pytest.param(in_parameterization(Deterministic(), "ntk"), marks=pytest.mark.slow),
        pytest.param(
            in_parameterization(lambda width, rngs: OfNNX(width, rngs), "ntk", width=32), marks=pytest.mark.slow
        ),
    ],
    ids=[
        "training",
        "deterministic",
        "is_train",
        "twice",
        "functions",
        "training in ntk",
        "deterministic in ntk",
        "nnx in ntk",
    ],
)
@pytest.mark.slow
def test_modules_may_ask_by_another_name(net):
    """Steps drop out and evaluations do not, also where the network must be told, and in another parameterization."""
    trainer = Trainer(Program(net, optax.sgd(0.0), cross_entropy), make_mesh(), (16, 8, 8, 1))
    batch, losses = (X[:16], Y[:16]), []
    state: Any = trainer.initial()
    still = [float(trainer.evaluate(state, [(*batch, np.ones(16, "float32"))])["loss"]) for _ in range(2)]
    for _ in range(2):
        state, metrics = trainer.step(state, batch)
        losses.append(float(metrics["loss"]))
    assert still[0] == still[1]
    assert len({*losses, still[0]}) == 3
    swept = train_runs(lambda job: (net, optax.sgd(0.0)), cross_entropy, [batch] * 2, 2, {}, [0])
    np.testing.assert_allclose(swept[0], losses, rtol=1e-5)


def test_what_a_module_must_be_told_and_nobody_knows_is_named():
    class Phased(nn.Module):
        @nn.compact
        def __call__(self, x, phase):
            return nn.Dense(10)(x.reshape(len(x), -1))

    with pytest.raises(ValueError, match=r'The model \(Phased\) must be given "phase" beside its inputs'):
        Program(Phased(), optax.sgd(0.1), cross_entropy).initial(0, X)


@pytest.mark.parametrize("still", [False, True])
def test_batch_statistics_that_stay_are_said_once(still):
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            return nn.Dense(10)(nn.BatchNorm(use_running_average=still or not train)(x.reshape(len(x), -1)))

    trainer, said = Trainer(Program(Normed(), optax.sgd(0.1), cross_entropy), make_mesh(), (16, 8, 8, 1)), []
    advance = watched(lambda state, k, most: (*trainer.step(state, (X[:16], Y[:16])), None), said.append)
    state, _, _ = advance(trainer.initial(), 0, 1)
    advance(state, 1, 2)
    assert len(said) == still


@pytest.mark.parametrize("free", [False, True])
def test_an_average_that_the_optimiser_keeps_is_not_that_of_evaluation(free):
    base = optax.sgd(0.1)
    given = Program(NET, optax.contrib.schedule_free(base, 0.1) if free else base, cross_entropy)
    said, step = [], jax.jit(given.step)
    advance = watched(lambda state, k, most: (*step(state, (X[:16], Y[:16])), None), said.append)
    advance(given.initial(3, X), 0, 1)
    assert [text.split()[0] for text in said] == ["optax.contrib.schedule_free"] * free


@pytest.mark.slow
def test_sweeps_drop_out_as_the_trainer_does():
    """The same network, keys and losses, seed by seed, however the steps of a sweep are divided."""
    given, batches = (
        Program(Told(), optax.sgd(0.1), cross_entropy),
        [(X[i : i + 16], Y[i : i + 16]) for i in (0, 8, 16, 4)],
    )
    alone, step = [], jax.jit(given.step)
    for seed in (3, 4):
        state: Any = given.initial(seed, X[:16])
        losses = []
        for batch in batches:
            state, metrics = step(state, batch)
            losses.append(float(metrics["loss"]))
        alone.append(losses)
    swept = (lambda job: (Told(), optax.sgd(0.1)), cross_entropy, batches, 4, {}, [3, 4])
    np.testing.assert_allclose(train_runs(*swept), alone, rtol=1e-5)
    in_quarters = train_scored(*swept, together=2, hopeless=lambda so_far: np.zeros(2, bool))[0]
    np.testing.assert_allclose(in_quarters, alone, rtol=1e-5)


def test_rules_place_arrays():
    mesh = make_mesh(data=1)
    with pytest.raises(ValueError, match=r'Unknown placement rule "fspd"\. Did you mean "fsdp"'):
        Placement(mesh, "fspd")
    with pytest.raises(ValueError, match="do not fit 1 devices"):
        make_mesh(data=2)
    with pytest.raises(ValueError, match="at most one may be −1"):
        make_mesh(-1, -1)
    assert rows_here(Placement(mesh).batch, 16) == (0, 1)
    twice = jax.sharding.Mesh(np.array(jax.devices()[:1] * 2).reshape(1, 1, 2), mesh.axis_names)
    with pytest.raises(ValueError, match="set members"):
        Trainer(program(), twice, (16, 8, 8, 1))
    with pytest.raises(ValueError, match="take members away"):
        Trainer(program(MLP(4, 1, 10)), mesh, (16, 8, 8, 1), members=2, pmap=True)


@pytest.mark.parametrize("mapped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_parts_weigh_as_many_targets_as_they_have(mapped):
    """Sequences with 6, 1, 3, 0 targets that count: in parts, on devices, and both, the gradient of the whole batch."""
    net = GPT(8, 1, 5, 6, heads=2, scan=False)
    x = jax.random.randint(jax.random.key(0), (4, 6), 0, 5)
    y = jnp.where(jnp.arange(6)[None] < jnp.array([6, 1, 3, 0])[:, None], jnp.roll(x, -1, axis=1), -1)
    whole, parts = (Program(net, optax.sgd(1.0), cross_entropy, accumulate=k) for k in (1, 2))
    start = jax.jit(lambda x: whole.initial(0, x))(x)
    expected, numbers = jax.jit(whole.step)(start, (x, y))
    if mapped:
        step = jax.vmap(
            dataclasses.replace(parts, mapped="devices").step, axis_name="devices", in_axes=(None, 0), out_axes=None
        )
        found = step(start, (x.reshape(2, 2, 6), y.reshape(2, 2, 6)))
    else:
        found = jax.jit(parts.step)(start, (x, y))
    np.testing.assert_allclose(found[1].values, numbers.values, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(found[0].trained), jax.tree.leaves(expected.trained), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


@pytest.mark.slow
def test_large_seeds_are_those_of_single_networks():
    program, x = Program(MLP(4, 1), optax.sgd(0.1), lambda f, y: ((f - y) ** 2).mean()), (2, 3)
    seed = 2**32 - 2
    several = Trainer(program, make_mesh(), x, members=2, seed=seed).initial()
    for i in range(2):
        alone = Trainer(program, make_mesh(), x, seed=seed + i).initial()
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), several.trained, alone.trained)
    with pytest.raises(ValueError, match=r"seed=4294967294: 3 members .* below 2\*\*32"):
        Trainer(program, make_mesh(), x, members=3, seed=seed)
    batches = [(np.ones(x, np.float32), np.ones((2, 1), np.float32))]
    build, loss = lambda job: (MLP(4, 1), optax.sgd(job["rate"])), lambda f, y: ((f - y) ** 2).mean()
    curves = train_runs(build, loss, batches, 1, {"rate": np.full(2, 0.1)}, [2**32 - 2, 2**32 - 1])
    trained = jax.tree.map(lambda a: a[1], several.trained)
    np.testing.assert_allclose(curves[1, 0], loss(program.net.apply(trained, jnp.ones(x)), 1.0), rtol=1e-6)
    with pytest.raises(ValueError, match=r"seeds must be below 2\*\*32; got 4294967296"):
        train_runs(build, loss, batches, 1, {"rate": np.full(1, 0.1)}, [2**32])
