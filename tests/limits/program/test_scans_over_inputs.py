"""Loops over the inputs themselves: every step has its own slice."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import readout

from limits import twin
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 3, 2))


class MeanOfSteps(nn.Module):
    """relu of every slice, with the same weights, averaged."""

    width: int

    @nn.compact
    def __call__(self, x):
        u = self.param("u", nn.initializers.normal(1.0), (x.shape[-1], self.width))
        return readout(jax.lax.map(lambda xt: nn.relu(xt @ u), x.swapaxes(0, 1)).mean(0))


class Recurrent(nn.Module):
    """tanh(W h + U x_t), by a loop of JAX or of Python, forwards or backwards."""

    width: int
    scanned: bool
    reverse: bool = False

    @nn.compact
    def __call__(self, x):
        u = self.param("u", nn.initializers.normal(1.0), (x.shape[-1], self.width))
        w = self.param("w", nn.initializers.normal(self.width**-0.5), (self.width, self.width))
        h, steps = jnp.zeros((len(x), self.width), x.dtype), x.swapaxes(0, 1)
        step = lambda h, xt: (jnp.tanh(h @ w + xt @ u), None)  # noqa: E731
        if self.scanned:
            return readout(jax.lax.scan(step, h, steps, reverse=self.reverse)[0])
        for t in reversed(range(x.shape[1])) if self.reverse else range(x.shape[1]):
            h = step(h, steps[t])[0]
        return readout(h)


def test_the_closed_form_of_two_steps():
    found = twin(in_parameterization(MeanOfSteps(64), "ntk")).kernels(np.array([[[1.0], [2.0]], [[3.0], [-1.0]]]))
    np.testing.assert_allclose(
        found.nngp, [[1.125, 1.125], [1.125, 1.25]], rtol=1e-12
    )  # of relu(1 u) + relu(2 u) over 2 …
    assert found.provenance["nngp"].kind == "exact"


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_of_jax_is_that_of_python(reverse):
    a, b = (twin(in_parameterization(Recurrent(64, scanned, reverse), "ntk")).kernels(X) for scanned in (True, False))
    np.testing.assert_allclose(a.nngp, b.nngp, rtol=1e-12)
    np.testing.assert_allclose(a.ntk, b.ntk, rtol=1e-12)
    other = twin(in_parameterization(Recurrent(64, True, not reverse), "ntk")).kernels(X)
    assert np.abs(other.nngp - a.nngp).max() > 0.01


class LinearRecurrent(nn.Module):
    """relu of the last of s_t = 0.8 s_{t−1} + u_t: in parallel, over pairs of pairs, or in turn."""

    width: int
    parallel: bool

    @nn.compact
    def __call__(self, x):
        u = x @ self.param("u", nn.initializers.normal(1.0), (x.shape[-1], self.width))
        if self.parallel:
            a = jnp.full(u.shape, 0.8, u.dtype)
            states = jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, u), axis=1)[1]
            return readout(nn.relu(states[:, -1]))
        state = u[:, 0]
        for t in range(1, x.shape[1]):
            state = 0.8 * state + u[:, t]
        return readout(nn.relu(state))


@pytest.mark.parametrize("steps", [2, 3])
def test_a_scan_over_pairs_is_one_in_turn(steps):
    """Of an odd number, and of two, it has parts without entries."""
    a, b = (twin(in_parameterization(LinearRecurrent(64, p), "ntk")).kernels(X[:, :steps]) for p in (True, False))
    np.testing.assert_allclose(a.nngp, b.nngp, rtol=1e-12)
    np.testing.assert_allclose(a.ntk, b.ntk, rtol=1e-12)
    assert a.provenance["ntk"].kind == b.provenance["ntk"].kind == "exact"


class Mirrored(nn.Module):
    """A hidden convolution over positions that are continued by their mirror images, by Flax or by hand."""

    width: int
    by_hand: bool

    @nn.compact
    def __call__(self, x):
        gauss = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        h = nn.relu(nn.Conv(self.width, (3,), kernel_init=gauss)(x))
        if self.by_hand:
            h = jnp.concatenate([h[:, 1:2], h, h[:, -2:-1]], 1)
        h = nn.Conv(self.width, (3,), padding="VALID" if self.by_hand else "REFLECT", kernel_init=gauss)(h)
        return readout(nn.relu(h).mean(1))


@pytest.mark.slow
def test_one_position_is_its_own_mirror_image():
    flax, by_hand = (twin(in_parameterization(Mirrored(64, each), "ntk")).kernels(X) for each in (False, True))
    np.testing.assert_allclose(flax.ntk, by_hand.ntk, rtol=1e-12)
    assert flax.provenance["ntk"].kind == by_hand.provenance["ntk"].kind == "exact"
