"""Flax's own recurrent cells: orthogonal weights, loops that begin in float32, gates whose weights are joined."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal

import zoo
from limits import Task, twin
from limits.fields.joined import Joined, through_joined
from limits.program.run import bound
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 4, 2))
GAUSS = nn.initializers.variance_scaling(1.0, "fan_in", "normal")


class Recurrent(nn.Module):
    """nn.RNN over a cell of Flax as it comes, or its loop written out; or a mean over all states."""

    width: int
    cell: Any = nn.SimpleCell
    recurrent: Any = nn.initializers.orthogonal()
    written: bool = False
    average: bool = False

    @nn.compact
    def __call__(self, x):
        cell = self.cell(self.width, kernel_init=GAUSS, recurrent_kernel_init=self.recurrent)
        if self.written:
            state = jnp.zeros((len(x), self.width), x.dtype)
            for t in range(x.shape[1]):
                state, _ = cell(state, x[:, t])
        else:
            states: Any = nn.RNN(cell)(x)
            state = states.mean(1) if self.average else states[:, -1]
        return nn.Dense(1, kernel_init=GAUSS)(state)


class TwoSided(nn.Module):
    """An orthogonal matrix and its transpose."""

    width: int

    @nn.compact
    def __call__(self, x):
        w = self.param("w", nn.initializers.orthogonal(), (self.width, self.width))
        h = nn.tanh(nn.Dense(self.width, kernel_init=GAUSS)(x[:, 0]))
        return nn.Dense(1, kernel_init=GAUSS)(nn.tanh(nn.tanh(h @ w) @ w.T))


def kernels(**options: Any) -> Any:
    return twin(in_parameterization(Recurrent(64, **options), "ntk")).kernels(X)


@pytest.mark.slow
def test_a_loop_of_flax_is_the_loop_written_out():
    found, written = kernels(), kernels(written=True)
    np.testing.assert_allclose(found.nngp, written.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, written.ntk, rtol=1e-12)
    assert "traced in float32" in found.provenance["ntk"].detail
    assert written.provenance["ntk"].kind == "exact"


@pytest.mark.slow
def test_orthogonal_weights_have_the_kernels_of_independent_ones():
    found, independent = kernels(written=True), kernels(written=True, recurrent=GAUSS)
    np.testing.assert_array_equal(found.ntk, independent.ntk)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [nn.SimpleCell, nn.GRUCell, nn.OptimizedLSTMCell], ids=lambda cell: cell.__name__)
def test_kernels_are_means_over_wide_networks(cell):
    """32 networks of width 256; 3.5 standard errors of both, of six pairs, beside 1 % that are of order 1/width."""
    net = in_parameterization(Recurrent(256, cell, average=True), "ntk")
    rates = jax.tree.leaves(zoo.learning_rate_factors(net, X))

    def one(key):
        params = net.init(key, X)["params"]
        jacobian = jax.tree.leaves(jax.jacrev(lambda p: net.apply({"params": p}, X)[:, 0])(params))
        return sum(r * jnp.einsum("a...,b...->ab", j, j) for r, j in zip(rates, jacobian, strict=True))

    drawn = np.array(jax.lax.map(jax.jit(one), jax.random.split(jax.random.key(0), 32)))
    found = twin(net).kernels(X)
    error = np.sqrt(drawn.var(0) / 31 + found.ntk_sem**2)
    assert np.all(np.abs(drawn.mean(0) - found.ntk) < 3.5 * error + 0.01 * found.ntk)


def test_features_that_learn_from_orthogonal_weights_are_refused():
    task = Task(X, np.ones(3), X[:1], np.ones(1))
    with pytest.raises(ValueError, match=r"SimpleCell_0.h.kernel start as an orthogonal matrix.*lecun_normal"):
        twin(in_parameterization(Recurrent(32), "mup")).rich(task, 1, 0.1, samples=32)
    with pytest.raises(ValueError, match="and finite widths, are of another limit"):
        twin(in_parameterization(Recurrent(32), "mup")).rich(task, 0, 0.1, samples=32, width=32)
    with pytest.raises(ValueError, match="use it from both sides"):
        twin(in_parameterization(TwoSided(32), "ntk")).kernels(X)


W = [np.random.default_rng(i).normal(size=(3, n)).astype(np.float32) for i, n in enumerate((2, 4))]
CASES = {
    "left over": (lambda w, a: a @ w, (5, 3)),
    "left over, from the left": (lambda w, a: w.T @ a, (3, 5)),
    "summed": (lambda w, a: a @ w.T, (5, 6)),
    "summed, from the left": (lambda w, a: w @ a, (6, 5)),
    "among axes": (lambda w, a: jnp.einsum("bic,io->bco", a, w), (5, 3, 2)),
    "turned and halved": (lambda w, a: -a @ (w.T / 2), (5, 6)),
}


@pytest.mark.parametrize("case", CASES)
def test_joined_weights_are_those_of_their_parts(case):
    product, shape = CASES[case]
    a, whole = np.random.default_rng(2).normal(size=shape).astype(np.float32), np.concatenate(W, 1)
    program = jax.make_jaxpr(product)(whole, a).jaxpr
    held: dict[Any, Any] = dict(zip(program.invars, (Joined(tuple(W), 1), a), strict=True))
    for eqn in program.eqns:
        values = [v.val if isinstance(v, Literal) else held[v] for v in eqn.invars]
        many = any(isinstance(value, Joined) for value in values)
        each = lambda parts, eqn=eqn: bound(eqn, parts)[0]  # noqa: E731
        made = through_joined(eqn, values, each) if many else each(values)
        held[eqn.outvars[0]] = made
    np.testing.assert_allclose(held[program.outvars[0]], product(whole, a), rtol=2e-6)
