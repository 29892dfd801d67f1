"""Sums of signals that have means, which are not orthogonal."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import Dense

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 5))


def relu(k):
    size = np.sqrt(np.outer(np.diag(k), np.diag(k)))
    angle = np.arccos(np.clip(k / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)


def erf(k):
    return 2 / np.pi * np.arcsin(2 * k / np.sqrt(np.outer(1 + 2 * np.diag(k), 1 + 2 * np.diag(k))))


class TwoMeans(nn.Module):
    """relu and |·|, the second over the size of its input: their means are other parts of the sum at other inputs."""

    width: int

    @nn.compact
    def __call__(self, x):
        new = lambda h: Dense(self.width, use_bias=False)(h)  # noqa: E731
        h = nn.relu(new(x)) + jnp.abs(new(x)) / jnp.sqrt((x**2).mean(-1, keepdims=True))
        return Dense(1, use_bias=False)(nn.relu(new(h)))


def test_of_two_functions():
    """⟨|g||g′|⟩ = 4 ⟨relu relu′⟩ − ⟨g g′⟩, by relu(g) + relu(−g)."""
    k, size = X @ X.T / 5, np.sqrt((X**2).mean(1))
    turned = relu(k) - k / 2  # ⟨relu(g) relu(−g′)⟩, as relu(g) − relu(−g) = g
    absolute = 2 * (relu(k) + turned)
    mean = size / np.sqrt(2 * np.pi), 2 / np.sqrt(2 * np.pi) * np.ones(3)
    h = relu(k) + absolute / np.outer(size, size) + np.outer(*mean) + np.outer(*mean[::-1])
    found = twin(in_parameterization(TwoMeans(16), "ntk")).kernels(X)
    np.testing.assert_allclose(found.nngp, relu(h), rtol=1e-12)


class Drifts(nn.Module):
    """Residual branches with a mean."""

    width: int
    depth: int
    normed: bool

    @nn.compact
    def __call__(self, x):
        new = lambda h: Dense(self.width, use_bias=False)(h)  # noqa: E731
        h, scale = new(x), self.depth**-0.5
        for _ in range(self.depth):
            if self.normed:
                h = h + scale * nn.relu(new(h)) / jnp.sqrt((h**2).mean(-1, keepdims=True))
            else:
                h = h + scale * nn.relu(new(h))
                h = h + scale * jax.lax.erf(new(h))
        return Dense(1, use_bias=False)(h)


@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("depth", [2, 4])
def test_of_branches_in_a_loop_and_not(depth, normed):
    """Against the recursion of second moments and means in NumPy."""
    k, mean = X @ X.T / 5, np.zeros(3)
    for _ in range(depth):
        size = np.sqrt(np.diag(k)) if normed else np.ones(3)
        step = np.sqrt(np.diag(k) / (2 * np.pi)) / size / depth**0.5
        k = k + np.outer(mean, step) + np.outer(step, mean) + relu(k) / np.outer(size, size) / depth
        mean = mean + step
        k = k if normed else k + erf(k) / depth
    found = twin(in_parameterization(Drifts(16, depth, normed), "ntk")).kernels(X)
    np.testing.assert_allclose(found.nngp, k, rtol=1e-12)
