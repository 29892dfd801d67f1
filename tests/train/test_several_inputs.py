"""Modules that are called with more than one input: several, where a tuple is taken, or whether they are trained."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from limits import Task, twin
from train import coord_check, ensemble
from zoo import Rescaled, explain, in_parameterization, scaled

R = np.random.default_rng(0)
NODES, EDGES = (jnp.asarray(R.normal(size=(3, 4, size)), "float32") for size in (5, 4))
BOTH = jnp.concatenate([NODES, EDGES], -1)
Y = jnp.ones((3, 1))
SIZES: Any = {"base": {"width": 8}, "target": {"width": 32}}
LAYERS = ("first", "second", "readout")


class Graph(nn.Module):
    width: int

    @nn.compact
    def __call__(self, nodes, edges):
        h = nn.Dense(self.width, name="first")(nodes)
        return nn.Dense(1, name="readout")(nn.relu(edges @ nn.Dense(self.width, name="second")(h)).mean(1))


class OneArray(Graph):
    @nn.compact
    def __call__(self, x):
        return Graph.__call__(self, x[..., :5], x[..., 5:])


class GraphOfNNX(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.second = nnx.Linear(5, width, rngs=rngs), nnx.Linear(width, width, rngs=rngs)
        self.readout = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, nodes, edges):
        return self.readout(nnx.relu(edges @ self.second(self.first(nodes))).mean(1))


class OneArrayOfNNX(GraphOfNNX):
    def __call__(self, x):
        return super().__call__(x[..., :5], x[..., 5:])


class Coder(nn.Module):
    """A variational autoencoder, called with the key of its noise."""

    width: int

    @nn.compact
    def __call__(self, x, key):
        h = nn.relu(nn.Dense(self.width)(x))
        mean, log = nn.Dense(2)(h), nn.Dense(2)(h)
        z = mean + jnp.exp(log / 2) * jax.random.normal(key, mean.shape)
        return nn.Dense(5)(nn.relu(nn.Dense(self.width)(z)))


def loss(f, y):
    return jnp.mean((f - y) ** 2)


def check(make, x):
    nets = {width: Rescaled.of(make, x, {"width": 8}, {"width": width}) for width in (8, 16)}
    return coord_check(
        lambda width, depth: nets[width],
        (8, 16),
        (1,),
        (x, Y),
        loss,
        lambda net: scaled(optax.adam(1e-2), net),
        seeds=2,
    )


@pytest.mark.parametrize(("several", "one"), [(Graph, OneArray), (GraphOfNNX, OneArrayOfNNX)])
@pytest.mark.slow
def test_a_tuple_is_spread_over_the_inputs(several, one):
    """They ended in Python's TypeError; roles and movements are those of the same network of one array."""
    assert Rescaled.of(several, (NODES, EDGES), **SIZES).roles == Rescaled.of(one, BOTH, **SIZES).roles
    mine, theirs = check(several, (NODES, EDGES)).slopes, check(one, BOTH).slopes
    assert [s.quantity for s in mine] == [s.quantity for s in theirs]
    assert {s.quantity for s in mine} == {*LAYERS, "outputs"}
    np.testing.assert_allclose([s.exponent for s in mine], [s.exponent for s in theirs], atol=1e-4)


def test_a_key_may_be_one_of_them():
    roles = Rescaled.of(Coder, (NODES[:, 0], jax.random.key(0)), **SIZES).roles
    assert [roles.places[f"Dense_{i}.kernel"].inner for i in range(5)] == [False, True, True, False, False]


class AskedOf(nn.Module):
    """Must be told whether it is trained, by a name without a default."""

    width: int
    rate: float = 0.0

    @nn.compact
    def __call__(self, x, train):
        h = nn.relu(nn.Dense(self.width, name="first")(x[:, 0]))
        return nn.Dense(1, name="readout")(nn.Dropout(self.rate)(h, deterministic=not train))


class Told(AskedOf):
    @nn.compact
    def __call__(self, x, train=False):
        return AskedOf.__call__(self, x, train)


class AskedOfNNX(nnx.Module):
    def __init__(self, width, rngs):
        self.first, self.readout = nnx.Linear(5, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x, *, deterministic):
        return self.readout(self.drop(nnx.relu(self.first(x[:, 0])), deterministic=deterministic))


class ToldNNX(AskedOfNNX):
    def __call__(self, x, *, deterministic=True):
        return super().__call__(x, deterministic=deterministic)


@pytest.mark.parametrize(("asked", "told"), [(AskedOf, Told), (AskedOfNNX, ToldNNX)])
def test_what_must_be_told_whether_it_is_trained_is_told(asked, told):
    """They ended in Python's TypeError: an argument is missing."""
    assert Rescaled.of(asked, NODES, **SIZES).roles == Rescaled.of(told, NODES, **SIZES).roles
    mine, theirs = check(asked, NODES).slopes, check(told, NODES).slopes
    assert {"first", "readout", "outputs"} <= {s.quantity for s in mine}
    np.testing.assert_allclose([s.exponent for s in mine], [s.exponent for s in theirs], atol=1e-5)


@pytest.mark.slow
def test_kernels_of_nnx_modules_that_must_be_told():
    asked, told = (twin(in_parameterization(make, "ntk", width=16)).kernels(NODES) for make in (AskedOfNNX, ToldNNX))
    np.testing.assert_allclose(asked.ntk, told.ntk, rtol=1e-12)


def test_modules_of_nnx_are_told_that_they_are_trained():
    """Where the argument has a default nothing was dropped in training."""
    net = in_parameterization(ToldNNX, "mup", width=16)
    variables = net.init(jax.random.key(0), NODES)
    drops = {"rngs": {"dropout": jax.random.key(1)}}
    trained, other = (net.apply(variables, NODES, train=train, **drops) for train in (True, False))
    assert abs(trained - other).max() > 1e-3
    np.testing.assert_array_equal(other, net.apply(variables, NODES))


def test_plain_modules_in_the_coordinate_check():
    found = coord_check(
        lambda width, depth: Graph(width), (8, 16), (1,), ((NODES, EDGES), Y), loss, optax.sgd(0.1), seeds=2
    )
    assert {s.quantity for s in found.slopes} == {*LAYERS, "outputs"}


@pytest.mark.parametrize("several", [Graph, GraphOfNNX])
def test_elsewhere_it_is_said_how_to_write_it(several):
    with pytest.raises(ValueError, match=r'Rescaled.of: Graph.* must be given "edges" .* a module of one'):
        Rescaled.of(several, NODES, **SIZES)
    plain, task = in_parameterization(several, "mup", width=16), Task(NODES, Y)
    if several is Graph:
        plain = in_parameterization(Graph(16), "mup")
    doors = (
        lambda: twin(plain).kernels(NODES),
        lambda: twin(plain).lazy(task, steps=2, learning_rate=0.1),
        lambda: twin(plain).rich(task, steps=2, learning_rate=0.1),
        lambda: ensemble(plain, task, members=2, steps=2, learning_rate=0.1),
        lambda: explain(plain, "adam", x=NODES),
    )
    for door in doors:
        with pytest.raises(ValueError, match=r'Graph.* must be given "edges" .* a module of one'):
            door()
