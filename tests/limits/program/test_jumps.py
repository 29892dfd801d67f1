"""Averages of Gaussians times functions that jump: differentiated, these lack a δ at every jump."""

import contextlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from limits.program.continuity import is_continuous
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(2, 3, 4)) + 1.0


def network(function):
    class Net(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            a = nn.Dense(self.width, use_bias=False, kernel_init=nn.initializers.normal(0.5))(x)
            readout = nn.initializers.normal(self.width**-0.5)
            return nn.Dense(1, use_bias=False, kernel_init=readout)(function(a).mean(1))

    return in_parameterization(Net(64), "ntk")


def covariance():
    return np.einsum("npd,mqd->npmq", X, X) / 4


GATES = {
    "sign": (lambda a: jnp.sign(a) * a, lambda s: s * (2 / np.pi) ** 0.5),
    "quotient": (lambda a: a / jnp.abs(a) * a, lambda s: s * (2 / np.pi) ** 0.5),
    "root": (lambda a: a / jnp.sqrt(a**2) * a, lambda s: s * (2 / np.pi) ** 0.5),
    "power": (lambda a: a * jnp.abs(a) ** -1.0 * a, lambda s: s * (2 / np.pi) ** 0.5),
    "where": (lambda a: (a > 0) * a, lambda s: s / (2 * np.pi) ** 0.5),
    "leaky": (lambda a: jnp.where(a > 0, a, 0.2 * a) * a, lambda s: 0.6 * s**2),
    "square": (lambda a: a * a, lambda s: s**2),
}


@pytest.mark.parametrize("name", GATES)
def test_a_gate_that_is_a_mean_over_neurons(name):
    """a (1 + E F(a)) of every position; E |a| = s √(2/π). The quadrature of a jump is off by 4e-3."""
    function, mean = GATES[name]
    c = covariance()
    gate = 1 + mean(np.sqrt(np.einsum("npnp->np", c)))
    want = np.einsum("npmq,np,mq->nm", c, gate, gate) / 9
    found = twin(network(lambda a: a * (1 + function(a).mean(2, keepdims=True)))).kernels(X)
    exact = name in ("leaky", "square", "power")
    np.testing.assert_allclose(found.nngp, want, rtol=1e-9 if exact else 1e-2)
    assert (found.provenance["nngp"].kind == "exact") == exact


@pytest.mark.slow
def test_a_product_with_the_relu_of_a_correlated_position():
    """E[a₀ a₁ relu(a₂)] as a gate, against a million draws; Stein's identity twice would differentiate relu twice."""
    z = np.random.default_rng(1).normal(size=(10**6, 3))
    c = covariance()
    draws = [z @ np.linalg.cholesky(c[i, :, i]).T for i in range(2)]
    gates = [1 + (a[:, 0] * a[:, 1] * np.maximum(a[:, 2], 0)).mean() for a in draws]
    want = np.einsum("npmq->nm", c) * np.outer(gates, gates) / 9
    gate = lambda a: (a[:, :1] * a[:, 1:2] * nn.relu(a[:, 2:])).mean(2, keepdims=True)  # noqa: E731
    found = twin(network(lambda a: a * (1 + gate(a)))).kernels(X)
    np.testing.assert_allclose(found.nngp, want, rtol=1e-2)  # errors of a gate: 3e-3 by draws, 1e-3 by 65,536 points


# Of each, whether it and its slope jump; of floors and teeth slopes are numbers wherever there are any.
JUMPS = {
    "floor": (jnp.floor, True, False),
    "step": (lambda a: jnp.where(a > 0.3, 1.0, a), True, True),
    "sawtooth": (lambda a: jnp.mod(a, 1.0), True, False),
    "elu": (nn.elu, False, False),
    "leaky": (nn.leaky_relu, False, True),
    "selu": (nn.selu, False, True),
    "softplus": (nn.softplus, False, False),
    "square of relu": (lambda a: nn.relu(a) ** 2, False, False),
}  # fmt: skip


class Enough(Exception):
    """What was looked for is found."""


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_are_found(name, monkeypatch):
    function, jumps, slopes_jump = JUMPS[name]
    found = []

    def seen(f):
        if f.random:
            found.append(f)
            raise Enough
        return True

    monkeypatch.setattr("limits.program.continuity.is_continuous", seen)
    with contextlib.suppress(Enough):
        twin(network(lambda a: a[:, :1] * function(a[:, 1:2]))).kernels(X)
    f = found[0]
    (slope,) = f.derivatives(f.random[0])
    assert (is_continuous(f), is_continuous(slope)) == (not jumps, not slopes_jump)


LARGER = {
    "either": (lambda u, v: jnp.where(u > v, 1.0, 0.0), lambda q1, q2, k: (2 * _agree(q1, q2, k), 0.0)),
    "the larger": (lambda u, v: jnp.maximum(u, v), lambda q1, q2, k: (k + _spread(q1, q2, k), 4 * k * _agree(q1, q2, k))),
}  # fmt: skip


def _agree(q1, q2, k):
    """How often u > v at both inputs: (π − arccos c)/2π."""
    return (jnp.pi - jnp.arccos(k / jnp.sqrt(q1 * q2))) / (2 * jnp.pi)


def _spread(q1, q2, k):
    """E |u − v| |u′ − v′| / 4 is half of this."""
    c = k / jnp.sqrt(q1 * q2)
    return 2 * jnp.sqrt(q1 * q2) * (jnp.sqrt(1 - c * c) + c * jnp.arcsin(c)) / jnp.pi


@pytest.mark.slow
@pytest.mark.parametrize("name", ["either", "the larger"])
def test_kernel_functions_of_jumps_of_two_variables_have_slopes(name):
    """By the density's derivative, within 1 % of closed forms; slopes of the function alone are 0, or lack 2 % of the NTK's."""
    function, closed = LARGER[name]

    class Net(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            u, v = (nn.Dense(self.width, use_bias=False, kernel_init=nn.initializers.normal(1.0))(x) for _ in "uv")
            readout = nn.initializers.normal(self.width**-0.5)
            return nn.Dense(1, use_bias=False, kernel_init=readout)(function(u, v))

    kernels = twin(in_parameterization(Net(64), "ntk")).kernel_function()
    a, b = jnp.array([1.0, 0.4]), jnp.array([0.3, -1.1])

    def found(a):
        pair = kernels(a[None], b[None])
        return jnp.stack([pair.nngp[0, 0], pair.ntk[0, 0]])

    def want(a):  # NNGP, NTK
        nngp, more = closed(a @ a, b @ b, a @ b)
        return jnp.stack([nngp / 2, nngp / 2 + more / 2])

    np.testing.assert_allclose(found(a), want(a), rtol=2e-3)
    np.testing.assert_allclose(jax.jacrev(found)(a), jax.jacrev(want)(a), rtol=1e-2)
