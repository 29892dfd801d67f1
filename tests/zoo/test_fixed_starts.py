"""Parameters that start as a table of numbers, as rates of decay do: no law, and yet rates, learning and kernels."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from train import ensemble
from zoo import in_parameterization, scaled
from zoo.laws import Fixed, laws

X = np.random.default_rng(0).normal(size=(4, 3))


def table(key, shape):
    return jnp.broadcast_to(jnp.arange(1, shape[-1] + 1) / shape[-1], shape)


class Decays(nn.Module):
    """Four rates of decay for each neuron, as state spaces have them."""

    width: int
    start: Callable = table
    trained: bool = True

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width)(x))
        shape = (self.width, 4)
        rates = self.param("rates", self.start, shape) if self.trained else table(None, shape)
        return nn.Dense(1)((h[..., None] * jnp.exp(-rates)[None]).sum(-1))


class Begun(nn.Module):
    """A hidden matrix that starts as the identity."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(self.width)(x))
        h = nn.tanh(nn.Dense(self.width, kernel_init=lambda key, shape, kind: jnp.eye(shape[0], dtype=kind))(h))
        return nn.Dense(1)(h)


def test_their_size_is_known():
    law = laws(Decays(8).init, X)["params"]["rates"]
    assert isinstance(law, Fixed)
    np.testing.assert_allclose(law.size, np.sqrt(np.mean((np.arange(1, 5) / 4) ** 2)), rtol=1e-6)


def test_they_have_the_rates_of_what_starts_at_one_value():
    steps = []
    for start in (table, nn.initializers.ones):
        net = in_parameterization(Decays(32, start), "mup").clone(width=128)
        tx, params = scaled("adam", net, X[:1], learning_rate=0.1), net.init(jax.random.key(0), X)["params"]
        steps.append(tx.update(jax.tree.map(jnp.ones_like, params), tx.init(params), params)[0])
    jax.tree.map(np.testing.assert_array_equal, *steps)


def test_kernels_are_drawn_and_those_of_the_same_numbers_in_the_code():
    """To five standard errors."""
    found = twin(in_parameterization(Decays(32), "ntk")).kernels(X, samples=256, replicas=8)
    exact = twin(in_parameterization(Decays(32, trained=False), "ntk")).kernels(X)
    assert found.provenance["nngp"].kind == "monte_carlo"
    assert exact.provenance["nngp"].kind != "monte_carlo"
    assert np.all(np.abs(found.nngp - exact.nngp) < 5 * found.nngp_sem)


@pytest.mark.slow
def test_they_are_trained_too():
    """Of f = Σ_i v_i Σ_k exp(−r_k) φ_i the rates have the tangent kernel Σ_k exp(−2 r_k) ⟨φ φ′⟩: of two inputs with themselves
    .55 and .44, where five standard errors are .18 and .2."""
    found, exact = (
        twin(in_parameterization(Decays(32, trained=trained), "ntk")).kernels(X, samples=2048, replicas=16)
        for trained in (True, False)
    )
    r = np.arange(1, 5) / 4
    rates = exact.nngp * np.exp(-2 * r).sum() / np.exp(-r).sum() ** 2
    assert np.all(np.abs(found.ntk - exact.ntk - rates) < 5 * found.ntk_sem)
    assert np.all(np.diag(rates > 5 * found.ntk_sem)[2:])


@pytest.mark.slow
def test_learning_is_that_of_wide_networks():
    """Mean losses over 24 networks of 1,024 neurons, and as many of 128 samples: to four standard errors, about 2 % of the loss,
    and 1 % for what finite width shifts."""
    task, net = Task(X, X[:, :1]), in_parameterization(Decays(32), "mup")
    limit = twin(net).rich(task, 3, 0.1, samples=128, replicas=24, progress=False)
    wide = ensemble(net.clone(width=1024), task, 24, 3, 0.1, progress=False)
    errors = np.hypot(limit.loss_sem, wide.loss_sem)
    assert np.all(np.abs(limit.loss - wide.loss) < 4 * errors + 0.01 * wide.loss)
    assert wide.loss[-1] < 0.7 * wide.loss[0]


def test_a_fixed_matrix_between_neurons_has_no_law():
    net = in_parameterization(Begun(16), "mup")
    params = net.init(jax.random.key(0), X)["params"]
    with pytest.raises(
        ValueError, match=r"Dense_1\.kernel at initialisation is not known: it is a constant array whose"
    ):
        scaled("adam", net, X[:1], learning_rate=0.1).init(params)
