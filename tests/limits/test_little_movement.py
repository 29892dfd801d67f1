"""Features that move by little: float32 keeps it, down to where its own numbers lose it, which is said."""

import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.fields import sweeps
from zoo import MLP, in_parameterization

X = np.random.default_rng(0).normal(size=(7, 3))
Y = np.sin(X.sum(1, keepdims=True))
TASK = Task(X[:4], Y[:4], X[4:], Y[4:])
SAID = "float32 numbers keep"


def learnt(net, rate, dtype, **options):
    run = twin(net).rich(TASK, 2, rate, samples=64, replicas=2, kernels=(), dtype=dtype, times=[0, 2], **options)
    return np.concatenate([run.f_train, run.f_test], 1)[1] - np.concatenate([run.f_train, run.f_test], 1)[0]


@pytest.fixture
def same_draws(monkeypatch):
    """Of all precisions, so that sweeps of the one are those of the other."""
    draw = jax.random.normal
    monkeypatch.setattr(
        jax.random, "normal", lambda key, shape=(), dtype=float: draw(key, shape, jnp.float32).astype(dtype)
    )
    sweeps.compiled_sweep.cache_clear()


def test_what_moves_little_is_that_of_float64(same_draws):
    """Directions below 100 ε of the longest vector were left out with all that they give on: 30 % of what was learnt here."""
    net = MLP(64, 2, parameterization="mup")
    few, many = (learnt(net, 1e-5, dtype)[:4] for dtype in (np.float32, np.float64))
    assert np.linalg.norm(few - many) < 0.01 * np.linalg.norm(many)


@pytest.mark.parametrize(("rate", "dtype", "said"), [
    (1e-7, np.float32, True), (1e-7, np.float64, False), (1e-3, np.float32, False), (0.0, np.float32, False)
])  # fmt: skip
def test_movement_that_float32_loses_is_said(rate, dtype, said):
    """With 1e-7 outputs are 20 to 60 % off, with 1e-3 .1 % (against float64 with the same draws)."""
    net = MLP(width=64, depth=2, activation="tanh", parameterization="mup")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learnt(net, rate, dtype)
    assert sum(SAID in str(each.message) for each in caught) == said


class ZeroReadout(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(self.width, use_bias=False)(x))
        h = nn.tanh(nn.Dense(self.width, use_bias=False)(h))
        return nn.Dense(1, use_bias=False, kernel_init=nn.initializers.zeros)(h)


@pytest.mark.slow
def test_readouts_that_begin_at_zero_are_all_movement(same_draws):
    """What they learn is exact to 1e-7, however little the others move: 95 % were said to be uncertain."""
    net = in_parameterization(ZeroReadout(64), "mup")
    few, many = (learnt(net, 1e-3, dtype) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(few, many, rtol=1e-5, atol=1e-5 * np.abs(many).max())
