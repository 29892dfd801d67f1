"""Modules that sow, that draw by names of their own, and that are other networks in training."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train import coord_check
from train.data.own import arrays_of
from train.mesh import make_mesh
from train.step import Program
from train.trainer import Trainer
from train.variables import loss_of
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
BATCH = jnp.asarray(X), jnp.sin(X[:, :1])


def squares(f: Any, y: Any) -> Any:
    return jnp.mean((f - y) ** 2)


class Sows(nn.Module):
    where: str = ""
    added: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(4)(x))
        if self.where:
            how = {"reduce_fn": jnp.add, "init_fn": lambda: jnp.zeros(())} if self.added else {}
            self.sow(self.where, "mean", h.mean(), **how)
        return nn.Dense(1)(h)


@pytest.mark.parametrize("where", ["losses", "intermediates"])
@pytest.mark.filterwarnings("ignore:What the model sows")
def test_what_is_sown_is_left_out(where):
    states = []
    for net in (Sows(), Sows(where), Sows(where, added=True)):
        given = Program(net, optax.sgd(0.1), squares, accumulate=2)
        state = given.initial(0, X)
        for _ in range(2):
            state, _ = jax.jit(given.step)(state, BATCH)
        states.append(state)
    for other in states[1:]:
        jax.tree.map(np.testing.assert_array_equal, states[0], other)


def test_what_is_sown_besides_intermediates_is_said():
    with pytest.warns(UserWarning, match="What the model sows in losses is left out"):
        Program(Sows("losses"), optax.sgd(0.1), squares).initial(0, X)


class Counts(nn.Module):
    @nn.compact
    def __call__(self, x):
        count = self.variable("counts", "n", lambda: jnp.zeros((), jnp.int32))
        if not self.is_initializing():
            count.value += 1
        return nn.Dense(1)(x)


def test_collections_of_ones_own_go_with_the_steps():
    given = Program(Counts(), optax.sgd(0.1), squares)
    state = given.initial(0, X)
    for _ in range(3):
        state, _ = given.step(state, BATCH)
    assert int(state.collections["counts"]["n"]) == 3


class Draws(nn.Module):
    width: int = 8
    noise: str = ""

    @nn.compact
    def __call__(self, x, train=False):
        h = nn.Dropout(0.5, deterministic=not train)(nn.Dense(self.width)(x))
        if self.noise and train:
            h += jax.random.normal(self.make_rng(self.noise), h.shape)
        return nn.Dense(1)(h)


@pytest.mark.slow
def test_streams_of_other_names_are_drawn_anew_and_dropout_stays():
    losses = {}
    for noise in ("", "noise"):
        given = Program(Draws(noise=noise), optax.sgd(0.0), squares)
        state, losses[noise], step = given.initial(0, X), [], jax.jit(given.step)
        start = state
        for _ in range(2):
            state, numbers = step(state, BATCH)
            losses[noise].append(float(numbers["loss"]))
        key = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(start.key), 0), 0)
        if not noise:
            f = Draws().apply(start.trained, X, train=True, rngs={"dropout": key})
            np.testing.assert_allclose(losses[noise][0], squares(f, BATCH[1]), rtol=1e-6)
    assert len({*losses[""], *losses["noise"]}) == 4


def test_random_numbers_in_evaluation_are_named():
    class Always(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(x + jax.random.normal(self.make_rng("noise"), x.shape))

    trainer = Trainer(Program(Always(), optax.sgd(0.1), squares), make_mesh(), (8, 3))
    with pytest.raises(ValueError, match="draws random numbers in evaluation too, where there are none"):
        trainer.evaluate(trainer.initial(), [(*BATCH, np.ones(8, "float32"))])


def test_coordinates_are_those_of_training():
    class Trained(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x, train=False):
            h = nn.Dense(self.width, name="first")(x)
            return nn.Dense(1, name="last")(h if train else 0 * h)  # without gradients but in training

    found = coord_check(
        lambda width, depth: Trained(width), (4, 8), (1,), BATCH, squares, optax.sgd(0.1), steps=2, seeds=2
    )
    assert {"first", "last", "outputs"} <= {slope.quantity for slope in found.slopes}


class Several(nn.Module):
    """Outputs and features."""

    width: int = 4
    named: bool = False

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, name="first")(x))
        f = nn.Dense(1, name="last")(h)
        return {"f": f, "h": h} if self.named else (f, h)


def of_all(f: Any, y: Any) -> Any:
    return squares(f[0], y) + 0.1 * jnp.mean(f[1] ** 2)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_losses_may_take_several_outputs(accumulate):
    trainer = Trainer(Program(Several(), optax.sgd(0.1), of_all, accumulate), make_mesh(), X.shape)
    state = trainer.initial()
    (f, h), y = jax.jit(Several().apply)(state.variables, X), BATCH[1]
    expected = float(squares(f, y) + 0.1 * jnp.mean(h**2))
    tested = trainer.evaluate(state, [(X, np.asarray(y), np.ones(8, np.float32))])
    state, numbers = trainer.step(state, (X, np.asarray(y)))
    assert numbers["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert numbers.names[:2] == ("loss", "gradient_norm")
    assert tested == {"loss": pytest.approx(expected, rel=1e-5)}


def test_several_outputs_that_a_loss_does_not_take():
    program = Program(Several(named=True), optax.sgd(0.1), squares)
    with pytest.raises(
        ValueError, match=r'model \(Several\) returns a dict of "f", "h", where losses expect one array'
    ):
        program.step(program.initial(0, X), BATCH)
    with pytest.raises(ValueError, match=r'Several returns a dict of "f", "h"; one array of outputs'):
        in_parameterization(Several(named=True), "mup").init(jax.random.key(0), X)


def test_a_loss_with_something_beside():
    program = Program(Sows(), optax.sgd(0.1), lambda f, y: (squares(f, y), {"aux": f}))
    with pytest.raises(ValueError, match=r"it returned a tuple of 2: what comes beside the number \(as with has_aux\)"):
        program.step(program.initial(0, X), BATCH)


def test_the_coordinate_check_names_every_output():
    check = coord_check(lambda width, _: Several(width), (4, 8), (1,), BATCH, of_all, optax.sgd(0.1), steps=1, seeds=2)
    assert {each.quantity for each in check.slopes} == {"first", "last", "outputs[0]", "outputs[1]"}


def test_inputs_that_are_a_tuple_are_refused_as_a_dictionary_is():
    y = np.ones(8)
    with pytest.raises(ValueError, match=r"inputs that are a tuple of 2; they must be one array"):
        arrays_of(((X, X), y), "own.py: batches")
    assert arrays_of((tuple(X), y), "own.py: batches")[0].shape == X.shape
    assert arrays_of(((X, X), y[:2]), "own.py: batches")[0].shape == (2, *X.shape)  # two samples
    assert arrays_of(((X, X), [0, 1]), "own.py: batches")[0].shape == (2, *X.shape)


def ranking(f: Any, y: Any) -> Any:
    f, y = f.ravel(), y.ravel()
    return jax.nn.softplus(-(f[:, None] - f) * jnp.sign(y[:, None] - y)).mean()


@pytest.mark.parametrize("shapes", [((8, 1), (8,)), pytest.param(((8,), (8, 1)), marks=pytest.mark.slow)])
@jax.numpy_rank_promotion("allow")  # as users have it
def test_a_loss_that_spreads_outputs_over_targets_is_said(shapes):
    outputs, targets = (jnp.ones(shape) for shape in shapes)
    with pytest.warns(
        UserWarning, match=r"spreads outputs of shape .* over \(8, 8\), every output against every target"
    ):
        loss_of(squares, Sows(), outputs, targets)
    loss_of(lambda f, y: squares(f.ravel(), y.ravel()), Sows(), outputs, targets)
    loss_of(squares, Sows(), jnp.ones((8, 3)), jnp.ones(3))
    loss_of(ranking, Sows(), *(jnp.ones(8).reshape(shape) for shape in shapes))  # pairs are made of each before
    loss_of(lambda f, y: squares(f.ravel(), np.asarray(y).ravel()), Sows(), outputs, targets)  # values, which have none
    with pytest.warns(UserWarning, match="spreads"):
        coord_check(lambda *_: Sows(), (4, 8), (1,), (X, X[:, 0]), squares, optax.sgd(0.1), steps=1, seeds=2)
