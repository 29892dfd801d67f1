"""Optimisers that are made anew for every call are served by the programs of those that are the same."""

import functools

import jax
import numpy as np
import optax
import pytest

from limits import Task, twin
from limits.kept.first import first_alike
from train import ensemble
from zoo import MLP, scaled

NET = MLP(8, 1, parameterization="mup", activation="tanh")
TASK = Task(np.eye(3, 4), [1.0, -1.0, 0.5])


def trained(optimizer, run=ensemble):
    if run is ensemble:
        return ensemble(NET, TASK, 2, 3, optimizer=optimizer).f_train
    return twin(NET).rich(TASK, 3, optimizer=optimizer, samples=8, replicas=2, progress=False).f_train


def test_what_is_made_anew_compiles_nothing(compilations):
    first = trained(scaled(optax.chain(optax.clip(0.5), optax.adam(0.1)), NET))
    compilations()
    again = trained(scaled(optax.chain(optax.clip(0.5), optax.adam(0.1)), NET))
    assert not compilations()
    np.testing.assert_array_equal(first, again)
    other = trained(scaled(optax.chain(optax.clip(0.5), optax.adam(0.2)), NET))
    assert np.abs(other - first).max() > 1e-3


def test_own_code_is_told_apart_by_itself():
    """It may read what nobody sees: here a number that is looked up by a name put together."""
    numbers = {"rate": 0.1}
    globals()["_numbers_of_ones_own"] = numbers

    def make():
        return optax.stateless(lambda g, p: optax.tree.scale(-globals()["_numbers" + "_of_ones_own"]["rate"], g))

    one, two = make(), make()
    assert first_alike(one) is one
    assert first_alike(two) is two
    before = trained(scaled(one, NET))
    numbers["rate"] = 0.3
    assert np.abs(trained(scaled(two, NET)) - before).max() > 1e-3


def test_what_has_been_changed_since_is_not_taken_for_what_it_was():
    factor = np.array(-0.125)
    first, second = optax.scale(factor), optax.scale(np.array(-0.125))
    assert first_alike(first) is first
    assert first_alike(second) is first
    factor[()] = -0.25  # `first` has programs of what it was
    assert first_alike(second) is second
    assert first_alike(first) is first
    third = optax.scale(np.array(-0.25))
    assert first_alike(third) is third


@pytest.mark.parametrize(
    "make",
    [
        lambda: optax.sgd(functools.partial(next, iter([0.1]))),
        lambda: optax.sgd(functools.partial(np.random.normal, 0.1, 0.01)),  # pyright: ignore[reportArgumentType]
        lambda: optax.sgd(np.frompyfunc(lambda step: 0.1, 1, 1)),
        lambda: optax.scale(np.ones(1000)),
        lambda: optax.masked(optax.sgd(0.1), lambda params: True),
        lambda: optax.scale(jax.random.key(0)),
    ],
    ids=["generator", "random numbers", "ufunc", "many numbers", "own mask", "key"],
)
def test_what_nobody_can_tell_is_itself(make):
    one, two = make(), make()
    assert first_alike(one) is one
    assert first_alike(two) is two
