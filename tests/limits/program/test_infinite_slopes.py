"""Functions that are so steep at 0 that a mean square is infinite: kernels that do not exist are refused, the others stay."""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from note import Plain
from stock import Dense, readout

from limits import AbsentError, Task, twin
from zoo import MLP, in_parameterization

X = np.random.default_rng(0).normal(size=(3, 4))


def power(p):
    return lambda h: jnp.abs(h) ** p


class Steep(Plain):
    """|h|^p behind a hidden layer, of signals over their own size where `normed`; p = −1 is 1/h."""

    p: float = 0.5
    normed: bool = False

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(nn.relu(Dense(self.width)(x)))
        h = h / jnp.sqrt((h * h).mean(-1, keepdims=True)) if self.normed else h
        return readout(1 / h if self.p == -1 else jnp.abs(h) ** self.p)


def of(**fields):
    return twin(in_parameterization(Steep(16, **fields), "ntk"))


@pytest.mark.parametrize("fields", [pytest.param({}, marks=pytest.mark.slow), {"p": 1 / 3}, {"normed": True}], ids=str)
@pytest.mark.slow
def test_a_slope_of_infinite_mean_square_has_no_tangent_kernel_but_an_nngp(fields):
    limit = of(**fields)
    for found in (limit.kernels(X), limit.kernels(X, samples=64, replicas=2)):
        assert np.isfinite(found.nngp).all()
        with pytest.raises(AbsentError, match="infinite"):
            _ = found.ntk
    with pytest.raises(AbsentError, match="tangent kernel"):
        limit.lazy(Task(X, X[:, 0]), 1, 0.1)


def test_a_function_of_infinite_mean_square_has_no_kernel():
    found = of(p=-1).kernels(X)
    for name in ("nngp", "ntk"):
        with pytest.raises(AbsentError, match="infinite"):
            getattr(found, name)


@pytest.mark.slow
def test_activations_of_the_zoo_are_looked_at_too():
    found = twin(MLP(8, 1, activation=power(0.5))).kernels(X)
    with pytest.raises(AbsentError, match="activation"):
        _ = found.ntk
    r = np.sqrt(np.diag(X @ X.T) / X.shape[1])
    # E |h|^(2p) = r^(2p) 2^p Γ(p + 1/2)/√π; of p = 1/2, r √(2/π). The series says that it is no better than 2e-5.
    np.testing.assert_allclose(np.diag(found.nngp), r * np.sqrt(2 / np.pi), rtol=1e-4)


@pytest.mark.slow
def test_a_slope_that_is_steep_and_has_a_mean_square_keeps_its_kernel():
    """p = 3/4: E φ'² = p² r^(2p−2) 2^(p−1) Γ(p − 1/2)/√π."""
    p, r = 0.75, np.sqrt(np.diag(X @ X.T) / X.shape[1])
    moment = lambda q: r**q * 2 ** (q / 2) * math.gamma((q + 1) / 2) / math.sqrt(math.pi)  # noqa: E731
    found = twin(MLP(8, 1, activation=power(p))).kernels(X)
    np.testing.assert_allclose(np.diag(found.ntk), moment(2 * p) + p**2 * moment(2 * p - 2) * r**2, rtol=1e-3)
    assert found.provenance["ntk"].kind == "approximate"
