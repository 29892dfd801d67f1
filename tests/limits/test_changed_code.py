"""What a module reads beside its fields may change in a session: nothing that was found before is taken for it."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from limits import Task, twin
from zoo import MLP, explain, in_parameterization

DEPTH = 1
X = np.random.default_rng(0).normal(size=(4, 3))


class Deep(nn.Module):
    """As many layers as a number outside says."""

    width: int

    @nn.compact
    def __call__(self, x):
        for _ in range(DEPTH):
            x = nn.tanh(nn.Dense(self.width, kernel_init=nn.initializers.lecun_normal())(x))
        return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(x)


class Deeper(nn.Module):
    """The same as a class of its own."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        for _ in range(self.depth):
            x = nn.tanh(nn.Dense(self.width, kernel_init=nn.initializers.lecun_normal())(x))
        return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(x)


@pytest.mark.slow
def test_kernels_are_those_of_the_code_as_it_is(monkeypatch):
    """Also where `explain` was the first to look at the module."""
    net = in_parameterization(Deep(16), "ntk")
    assert explain(net, x=X, show=False).rows
    limit, found, expected = twin(net), [], []
    for depth in (2, 1, 3):
        monkeypatch.setattr(f"{__name__}.DEPTH", depth)
        found.append(limit.kernels(X).ntk)
    for depth in (2, 1, 3):
        expected.append(twin(in_parameterization(Deeper(16, depth), "ntk")).kernels(X).ntk)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_learning_is_that_of_the_code_as_it_is(monkeypatch):
    how = {"steps": 2, "optimizer": optax.adam(0.05), "samples": 32, "replicas": 2, "kernels": ()}
    task, losses = Task(X, X[:, :1]), []
    for depth in (1, 2):
        monkeypatch.setattr(f"{__name__}.DEPTH", depth)
        losses.append(twin(in_parameterization(Deep(16), "mup")).rich(task, **how).loss)
    np.testing.assert_allclose(
        losses[1], twin(in_parameterization(Deeper(16, 2), "mup")).rich(task, **how).loss, rtol=1e-6
    )
    assert np.abs(losses[1] - losses[0]).max() > 1e-3


class Counting(nn.Module):
    """It counts its calls: what it reads changes by itself."""

    width: int

    @nn.compact
    def __call__(self, x):
        CALLS.append(x.shape)
        h = nn.tanh(nn.Dense(self.width, kernel_init=nn.initializers.lecun_normal())(x))
        return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(h)


CALLS: list[tuple[int, ...]] = []


def test_a_module_that_counts_its_calls_is_not_traced_anew():
    seen = []
    for _ in range(4):
        twin(in_parameterization(Counting(16), "ntk")).kernels(X)
        seen.append(len(CALLS))
    assert seen[0] < seen[1] <= seen[2] == seen[3]  # once to see whether it changes by itself


GAIN = 1.0


def amplified(x):
    return GAIN * jnp.tanh(x)


def twice(x):
    return 2.0 * jnp.tanh(x)


ASKED = {
    "kernels": lambda limit, task: limit.kernels(X).ntk,
    "layers": lambda limit, task: limit.layers(X)[0][-1],
    "lazy": lambda limit, task: limit.lazy(task, steps=2, learning_rate=0.1).f_test,
    "posterior": lambda limit, task: limit.posterior(task, noise=0.1).f_test,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name != "kernels" else name for name in ASKED]
)
def test_limits_of_an_activation_whose_numbers_have_changed_are_those_of_now(monkeypatch, name):
    """Compiled programs are told apart by the function, which is the same."""
    task, (limit, other) = Task(X, X[:, :1], X), (twin(MLP(16, 1, activation=phi)) for phi in (amplified, twice))
    before = ASKED[name](limit, task)
    monkeypatch.setattr(f"{__name__}.GAIN", 2.0)
    found = ASKED[name](limit, task)
    np.testing.assert_allclose(found, ASKED[name](other, task), rtol=1e-12)
    assert np.abs(found - before).max() > 1e-2


def counted(x):
    CALLS.append(x.shape)
    return jnp.tanh(x)


def test_an_activation_that_counts_its_calls_is_not_compiled_anew():
    seen = [len(CALLS)]
    for _ in range(4):
        twin(MLP(16, 1, activation=counted)).kernels(X)
        seen.append(len(CALLS))
    first, _, third, fourth = np.diff(seen)  # its series is measured at every call
    assert third == fourth < first / 2
