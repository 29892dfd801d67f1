"""Test losses that are no means over samples are those of batches."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from train.data import evaluation_batches
from train.data.own import Validation
from train.data.sources import Arrays
from train.data.tokens import Sequences
from train.losses import cross_entropy
from train.mesh import make_mesh
from train.step import Program
from train.trainer import Trainer

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(22, 3)).astype(np.float32)


def contrast(f, y):
    del y
    return optax.softmax_cross_entropy_with_integer_labels(f @ f.T, jnp.arange(len(f))).mean()


def deviation(f, y):
    return jnp.sqrt(jnp.mean((f - y) ** 2))


def classes(f, y):
    return cross_entropy(f, y.argmax(-1))


def squares(f, y):
    return jnp.mean((f - y) ** 2)


LOSSES = {contrast: True, deviation: True, classes: False, squares: False}


@pytest.mark.parametrize(
    ("loss", "by_batches", "members"),
    [
        pytest.param(loss, LOSSES[loss], members, marks=() if (i + members // 2) % 2 == 0 else pytest.mark.slow)
        for i, loss in enumerate(LOSSES)
        for members in (0, 2)
    ],
)
def test_a_loss_is_evaluated_as_what_it_is(loss, by_batches, members):
    y = np.eye(4, dtype="float32")[RANDOM.integers(4, size=22)]
    trainer = Trainer(Program(nn.Dense(4), optax.sgd(0.1), loss), make_mesh(), (8, 3), members=members)
    state, source = trainer.initial(), Arrays("own", X, y)
    found = [trainer.evaluate(state, evaluation_batches(source, 8))["loss"] for _ in range(2)]
    assert trainer.by_batches == by_batches
    kernel = np.asarray(state.trained["params"]["kernel"]).reshape(-1, 3, 4)
    sizes = [8, 8, 6] if by_batches else [22]
    parts = [slice(end - size, end) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    wanted = [sum(size * float(loss(X[at] @ k, y[at])) for size, at in zip(sizes, parts, strict=True)) / 22
              for k in kernel]  # fmt: skip
    for each in found:
        np.testing.assert_allclose(np.atleast_1d(each), wanted, rtol=1e-5)


def test_losses_that_are_alike_at_the_start_are_told_apart_later():
    """√(mean square) of targets ±1 and outputs 0 is that of every sample."""
    y = np.sign(X[:, :1])
    net = nn.Dense(1, kernel_init=nn.initializers.zeros)
    trainer = Trainer(Program(net, optax.sgd(0.5), deviation), make_mesh(), (22, 3))
    state = trainer.initial()
    for at in range(2):
        found = trainer.evaluate(state, evaluation_batches(Arrays("own", X, y), 22))["loss"]
        kernel = np.asarray(state.trained["params"]["kernel"])
        np.testing.assert_allclose(found, float(deviation(X @ kernel, y)), rtol=1e-5)
        assert trainer.by_batches == bool(at)
        state, _ = trainer.step(state, (X, y))


def by_sequence(f, y):
    return jnp.mean(jax.vmap(lambda f, y: cross_entropy(f[None], y[None]))(f, y))


# Every two of these meet by default.
LATIN = [
    (cross_entropy, Validation, 0),
    (cross_entropy, Sequences, 2),
    (by_sequence, Validation, 2),
    (by_sequence, Sequences, 0),
]
OTHERS = [(loss, kind, 2 - members) for loss, kind, members in LATIN]


@pytest.mark.parametrize(
    ("loss", "kind", "members"), [*LATIN, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHERS)]
)
@pytest.mark.slow
def test_a_mean_over_targets_that_count_or_over_samples_is_that_mean(loss, kind, members):
    targets = RANDOM.integers(-1, 4, size=(22, 5))
    targets[:8] = RANDOM.integers(4, size=(8, 5))  # of the first batch all count
    x = RANDOM.integers(9, size=(22, 5))
    source = Validation.of(lambda: (x, targets), "own") if kind is Validation else Sequences("own", x, targets, 9)
    net = nn.Sequential([nn.Embed(9, 3), nn.Dense(4)])
    trainer = Trainer(
        Program(net, optax.sgd(0.1), loss), make_mesh(), jax.ShapeDtypeStruct((8, 5), "int32"), members=members
    )
    state = trainer.initial()
    found = trainer.evaluate(state, evaluation_batches(source, 8))
    assert trainer.by_batches is False
    for i in range(members or 1):
        f: Any = net.apply(jax.tree.map(lambda a, i=i: a[i], state.trained) if members else state.trained, x)
        right = (f.argmax(-1) == targets)[targets >= 0]
        np.testing.assert_allclose(np.atleast_1d(found["loss"])[i], loss(f, targets), rtol=1e-5)
        np.testing.assert_allclose(np.atleast_1d(found["accuracy"])[i], right.mean(), rtol=1e-6)


def test_targets_of_which_none_counts_are_refused():
    trainer = Trainer(Program(nn.Dense(4), optax.sgd(0.1), cross_entropy), make_mesh(), (22, 3))
    with pytest.raises(ValueError, match="All targets to evaluate on are below 0"):
        trainer.evaluate(trainer.initial(), evaluation_batches(Validation.of(lambda: (X, np.full(22, -1)), "own"), 22))


def unlabelled_as_zero(f, y):
    return (optax.softmax_cross_entropy_with_integer_labels(f, jnp.maximum(y, 0)) * (y >= 0)).mean()


def root(f, y):
    return jnp.sqrt(cross_entropy(f, y))


def weighted(f, y):
    weights = (y >= 0) * (1.0 + jnp.maximum(y, 0))
    return (optax.softmax_cross_entropy_with_integer_labels(f, jnp.maximum(y, 0)) * weights).sum() / weights.sum()


def unguarded(f, y):
    each = optax.softmax_cross_entropy_with_integer_labels(f, jnp.maximum(y, 0))
    return (each * (y >= 0)).sum() / (y >= 0).sum()


def cases():
    for loss in (unlabelled_as_zero, cross_entropy, root, weighted, unguarded):
        for i, where in enumerate((slice(0, 8), slice(14, 22), slice(0, 22, 3), slice(21, 22))):
            yield pytest.param(loss, where, marks=pytest.mark.slow if i > (loss is weighted) else ())


@pytest.mark.parametrize(("loss", "where"), cases())
def test_it_does_not_matter_which_samples_have_no_target(loss, where):
    y = np.random.default_rng(1).integers(4, size=22)
    y[where] = -1
    trainer = Trainer(Program(nn.Dense(4), optax.sgd(0.1), loss), make_mesh(), (8, 3))
    state = trainer.initial()
    found = trainer.evaluate(state, evaluation_batches(Validation.of(lambda: (X, y), "own"), 8))
    f = X @ np.asarray(state.trained["params"]["kernel"])
    assert trainer.by_batches == (loss in (root, weighted))
    parts = [slice(0, 8), slice(8, 16), slice(16, 22)] if trainer.by_batches else [slice(0, 22)]
    if trainer.by_batches and where == slice(0, 8) and loss is weighted:
        assert np.isnan(found["loss"])  # of a batch without a target the config's own loss is 0/0
        return
    wanted = sum(len(y[at]) * float(loss(f[at], y[at])) for at in parts) / 22
    np.testing.assert_allclose(found["loss"], wanted, rtol=1e-5)
    np.testing.assert_allclose(found["accuracy"], (f.argmax(-1) == y)[y >= 0].mean(), rtol=1e-6)


class Probabilities(nn.Module):
    """Outputs that must stay between 0 and 1."""

    @nn.compact
    def __call__(self, x):
        return nn.softmax(nn.Dense(4)(x))


def binary(f, y):
    t = jax.nn.one_hot(y, 4)
    return (-(t * jnp.log(f) + (1 - t) * jnp.log(1 - f)).sum(-1) * (y >= 0)).mean()


def binary_root(f, y):
    return binary(f, y) ** 0.5


@pytest.mark.parametrize("loss", [binary, binary_root])
def test_losses_of_probabilities_are_told_apart(loss):
    y = np.random.default_rng(1).integers(-1, 4, size=22)
    trainer = Trainer(Program(Probabilities(), optax.sgd(0.1), loss), make_mesh(), (22, 3))
    state = trainer.initial()
    found = trainer.evaluate(state, evaluation_batches(Validation.of(lambda: (X, y), "own"), 22))
    f = Probabilities().apply(state.variables, X)
    assert trainer.by_batches == (loss is binary_root)
    np.testing.assert_allclose(found["loss"], loss(f, y), rtol=1e-5)
