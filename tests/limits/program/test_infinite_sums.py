"""Infinitely many branches that are not Gaussian, whose sum is."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import Dense

from limits import AbsentError, twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 4))


class Stream(nn.Module):
    """h ← h + F(h)/√L with F a function of images of h, and no matrix behind it."""

    width: int
    depth: int
    kind: str

    @nn.compact
    def __call__(self, x):
        new = lambda h: Dense(self.width, use_bias=False)(h)  # noqa: E731
        h = new(x)
        for _ in range(self.depth):
            match self.kind:
                case "erf":
                    branch = jax.lax.erf(new(h))
                case "gate":
                    branch = new(h) * new(nn.relu(h))
                case "mean":
                    branch = nn.relu(new(h))
                case "own":  # the second of two branches
                    before, h = h, h + new(h) / self.depth**0.5
                    branch = before * jnp.tanh(new(h))
                case "own, within":
                    branch = jnp.tanh(h + new(h))
            h = h + branch / self.depth**0.5
        return Dense(1, use_bias=False)(nn.relu(h) if self.kind == "gate" else h)


def deep(kind):
    return twin(in_parameterization(Stream(16, 8, kind), "ntk"), depth=np.inf).kernels(X)


def relu(k):
    size = np.sqrt(np.outer(np.diag(k), np.diag(k)))
    angle = np.arccos(np.clip(k / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi), (np.pi - angle) / (2 * np.pi)


def erf(k):
    root = np.sqrt(np.outer(1 + 2 * np.diag(k), 1 + 2 * np.diag(k)))
    return 2 / np.pi * np.arcsin(2 * k / root), 4 / np.pi / np.sqrt(root**2 - 4 * k**2)


def recursion(kind, depth):
    """(NNGP, NTK) in NumPy: d(h h′) and dΘ of one block after the other."""
    k = theta = X @ X.T / X.shape[1]
    for _ in range(depth):
        if kind == "erf":
            moved, slope = erf(k)
            more = slope * (k + theta)
        else:  # ⟨W h, W h′⟩ ⟨V r, V r′⟩ with r = relu(h), and Θ of a product
            r, slope = relu(k)
            moved = k * r
            more = (k + theta) * r + k * (r + slope * theta)
        k, theta = k + moved / depth, theta + more / depth
    return (k, k + theta) if kind == "erf" else (relu(k)[0], relu(k)[0] + relu(k)[1] * theta)


@pytest.mark.parametrize("kind", ["erf", pytest.param("gate", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_limit_is_that_of_many_blocks(kind):
    """Of 2,000 and 4,000, extrapolated in 1/L."""
    found = deep(kind)
    few, many = (recursion(kind, depth) for depth in (2000, 4000))
    for mine, a, b in zip((found.nngp, found.ntk), few, many, strict=True):
        np.testing.assert_allclose(mine, 2 * b - a, rtol=1e-6)
        assert np.abs(mine / a - 1).max() > 1e-5
    assert "layer-time" in found.provenance["ntk"].detail


@pytest.mark.slow
def test_branches_with_a_mean_have_no_limit():
    with pytest.raises(FloatingPointError, match=r"infinite or NaN.*has a mean.*√L"):
        deep("mean")


@pytest.mark.parametrize("kind", ["own", "own, within"])
def test_branches_of_the_streams_own_neurons_have_no_gaussian_limit(kind):
    with pytest.raises(AbsentError, match=r"multiplies neurons of the signal.*not Gaussian.*layer of weights"):
        deep(kind)
