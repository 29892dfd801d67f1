"""Modules whose own code makes NaN or infinite numbers are told so, with the line; it is no learning rate that is too large."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from limits import Task, twin
from limits.fields.sweep import check_finite
from limits.program.undefined import check_defined
from train import ensemble
from zoo import MLP, in_parameterization

X = np.random.default_rng(0).normal(size=(4, 3))
TASK = Task(X, X[:, :1], X, X[:, :1])


class Broken(nn.Module):
    width: int
    how: str = "beyond"

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width)(x)
        match self.how:
            case "beyond":
                h = h + nn.Dense(self.width)(jnp.take(x, jnp.array([0, 7]), axis=1))
            case "root":
                h = jnp.sqrt(h)
            case "large":
                h = h + jnp.exp(1000.0 * jnp.abs(h) + 1000.0)
            case "inside":
                h = h * jax.nn.relu(jax.jit(lambda a: jnp.log(a - 100.0))(h))
            case "difference":
                h = jnp.where(h > 0, jnp.inf, h) - jnp.where(h > 0, jnp.inf, 0.0)
            case "masked":  # NaN that does not come out
                h = jnp.where(h > 0, jnp.sqrt(h), 0.0) * jnp.take(jnp.ones(3), 5)
        return nn.Dense(1)(h)


def own(how, form="mup"):
    return in_parameterization(Broken(width=16, how=how), form)


@pytest.mark.parametrize(
    "run",
    [
        lambda net: twin(net).kernels(X),
        lambda net: twin(net).lazy(TASK, steps=2, learning_rate=0.1),
        lambda net: twin(net).rich(TASK, steps=2, learning_rate=0.1, samples=16, replicas=2, kernels=()),
        lambda net: twin(net).rich(TASK, steps=0, learning_rate=0.0, samples=16, replicas=2, kernels=()),
        lambda net: ensemble(net, TASK, members=2, steps=2, learning_rate=0.1, times=[2], kernels=()),
        lambda net: ensemble(net, TASK, members=2, steps=1, optimizer=optax.sgd(0.1), kernels=()),
    ],
)
def test_positions_beyond_the_end_are_said_with_their_line_by_everything_that_computes(run):
    with pytest.raises(
        FloatingPointError, match=r"^Broken: .* NaN .* test_undefined\.py:\d+ looks up positions beyond .*clip"
    ):
        run(own("beyond"))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("root", "NaN .* takes the root of negative"),
        ("large", "infinite numbers .* makes them by exp"),
        ("inside", "NaN .* takes the logarithm"),
        ("difference", "NaN .* subtracts infinite"),
        ("masked", "NaN .* looks up positions beyond"),
    ],
)
def test_what_makes_them_is_said_and_nothing_that_a_mask_takes_out(how, said):
    with pytest.raises(FloatingPointError, match=said):
        ensemble(own(how), TASK, members=2, steps=1, learning_rate=0.1, kernels=())


@pytest.mark.slow
def test_the_learning_rate_is_blamed_where_the_code_is_right():
    check_defined(own("none"), X, np.full((4, 1), np.nan))
    with pytest.raises(FloatingPointError, match="learning rate 1e\\+30 is too large for this width"):
        ensemble(own("none"), TASK, members=2, steps=4, learning_rate=1e30, kernels=())


def test_before_training_no_learning_rate_is_blamed():
    with pytest.raises(FloatingPointError, match="at step 0: before any training the signal overflows") as said:
        check_finite(np.array([np.inf, 1.0]), 0, 0.1)
    assert "learning rate" not in str(said.value)
    with pytest.raises(FloatingPointError, match=r"at step 0 .*: before any training the signal overflows"):
        ensemble(MLP(width=8, depth=2, activation="linear", w_std=1e20), TASK, members=2, steps=1, learning_rate=0.1)


class Asking(nn.Module):
    """It draws random numbers of its own, without which it cannot be run again."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(x) / jnp.zeros(()) + jax.random.normal(self.make_rng("noise"), ())


def test_what_cannot_be_run_again_is_not_blamed():
    check_defined(Asking(), X, np.full(3, np.nan))
