"""Layers of one stack of weights, however the code takes them out, against layers with weights of their own each."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import Dense, readout

from limits import twin
from limits.program.closed import program_of
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 5))
NORMAL = nn.initializers.normal(1.0)


class Block(nn.Module):
    """One of two layers behind a norm."""

    width: int
    size: float

    @nn.compact
    def __call__(self, h, _):
        u = nn.Dense(2 * self.width)(nn.LayerNorm()(h))
        return h + self.size * nn.Dense(self.width)(nn.relu(u)), None


class Stacked(nn.Module):
    """h + L^(−1/2) W relu(h), with W of a stack."""

    width: int
    depth: int
    kind: str

    @nn.compact
    def __call__(self, x):
        h, n, L = Dense(self.width)(x), self.width, self.depth
        size = (n * L) ** -0.5
        own = lambda i, std: self.param(f"W{i}", nn.initializers.normal(std), (n, n))  # noqa: E731
        stack = lambda std: self.param("W", nn.initializers.normal(std), (L, n, n))  # noqa: E731
        match self.kind:
            case "own":
                for i in range(L):
                    h = h + size * (nn.relu(h) @ own(i, 1.0))
            case "inside":
                for i in range(L):
                    h = h + (size * nn.relu(h)) @ own(i, 1.0)
            case "initial":
                for i in range(L):
                    h = h + nn.relu(h) @ own(i, size)
            case "index":
                W = stack(1.0)
                for i in range(L):
                    h = h + size * nn.relu(h) @ W[i]
            case "iterated":
                for w in stack(size):
                    h = h + nn.relu(h) @ w
            case "counted":
                W = stack(1.0)
                h = jax.lax.fori_loop(0, L, lambda i, h: h + size * nn.relu(h) @ W[i], h)
            case "scanned":
                h, _ = jax.lax.scan(lambda h, w: (h + nn.relu(h) @ w, None), h, -size * stack(1.0))
            case "axes":  # of the number, too
                h, _ = jax.lax.scan(lambda h, w: (h + nn.relu(h) @ w, None), h, np.full((1, 1, 1), size) * stack(1.0))
            case "sizes":
                parts = stack(n**-0.5), jnp.full(L, L**-0.5)
                h, _ = jax.lax.scan(lambda h, w: (h + w[1] * nn.relu(h) @ w[0], None), h, parts)
            case "blocks":
                for _ in range(L):
                    h, _ = Block(n, L**-0.5)(h, None)
            case "nn.scan":
                axes: dict = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
                h, _ = nn.scan(nn.remat(Block), length=L, **axes)(n, L**-0.5)(h, None)
            case "bias":
                for i in range(L):
                    h = h + size * nn.relu(h) @ own(i, 1.0) + self.param(f"b{i}", nn.initializers.zeros, (1, n))
            case "whole":  # and each layer by itself
                W = stack(size)
                for i in range(L):
                    h = h + nn.relu(h) @ W[i]
                h = h + jnp.einsum("lab,na->nb", W, nn.relu(h))
        return readout(nn.relu(h))


def kernels(kind):
    return twin(in_parameterization(Stacked(16, 3, kind), "ntk"), depth=math.inf).kernels(X)


def at(kind, depth):
    return twin(in_parameterization(Stacked(16, depth, kind), "ntk")).kernels(X)


WAYS = [("own", kind) for kind in ("index", "iterated", "counted", "scanned", "axes", "sizes", "inside", "initial")]


@pytest.mark.parametrize(("one", "other"), [*WAYS, pytest.param("blocks", "nn.scan", marks=pytest.mark.slow)])
def test_however_a_layer_is_taken_its_weights_are_its_own(one, other):
    expected, found = at(one, 5), at(other, 5)
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-7)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-7)


@pytest.mark.parametrize("kind", ["index", "iterated", "counted", "scanned", "axes", "nn.scan"])
def test_layers_of_a_stack_are_read_once(kind):
    short, long = (program_of(in_parameterization(Stacked(16, n, kind), "ntk"), (5,), "float64", None) for n in (4, 12))
    assert short.loops.length == long.loops.length


@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*pair, marks=pytest.mark.slow) for pair in [*WAYS, ("blocks", "nn.scan")]],
)
def test_infinitely_many_are_an_equation_however_they_are_written(one, other):
    expected, found = kernels(one), kernels(other)
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-7)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-7)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in ("initial", "nn.scan")])
def test_deep_stacks_come_near_it_as_one_over_the_depth(kind):
    limit, shallow, deep = kernels(kind), at(kind, 16), at(kind, 32)
    for name in ("nngp", "ntk"):
        first, second, last = (getattr(each, name) for each in (shallow, deep, limit))
        off = np.abs(second - last).max()
        assert np.abs(first - last).max() == pytest.approx(2 * off, rel=0.1)
        assert np.abs(2 * second - first - last).max() < 0.1 * off  # the rest is O(1/L²)


@pytest.mark.slow
def test_biases_of_one_size_at_all_depths_have_no_limit():
    with pytest.raises(FloatingPointError, match="does not fall with the depth"):
        kernels("bias")


def test_a_stack_that_is_used_as_a_whole_too_is_not_taken_apart():
    found = program_of(in_parameterization(Stacked(16, 3, "whole"), "ntk"), (5,), "float64", None)
    assert "scan_index" not in {e.primitive for e in found.program.equations}


class Both(nn.Module):
    """A scan over layers, beside one product with all of them: W_1 φ + W_2 φ twice."""

    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        W = self.param("W", nn.initializers.normal(self.width**-0.5), (2, self.width, self.width))
        u, _ = jax.lax.scan(lambda u, w: (u + h @ w, None), jnp.zeros_like(h), W)
        return readout(u + jnp.einsum("lab,na->nb", W, h))


class Twice(Both):
    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        W = self.param("W", nn.initializers.normal(self.width**-0.5), (2, self.width, self.width))
        return readout(2 * (h @ W[0] + h @ W[1]))


@pytest.mark.slow
def test_what_a_stack_and_its_layers_make_is_not_taken_for_independent():
    """It was: of kernels 4 ⟨φφ⟩ half were missing. Now they are drawn, with the reason."""
    found, exact = (twin(in_parameterization(net(16), "ntk")).kernels(X) for net in (Both, Twice))
    for name in ("nngp", "ntk"):
        assert "used as a whole, and parts of it" in found.provenance[name].detail
        errors = found.errors[name]
        assert np.abs((getattr(found, name) - getattr(exact, name)) / errors).max() < 5  # 7 degrees of freedom
