"""Functions with derivative rules of their own: those that are right stay, others are refused with the reason."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from zoo import in_parameterization

X = 2 * np.eye(2, 4, dtype=np.float32)


@jax.custom_vjp
def straight_through(a):
    return jnp.sign(a)


straight_through.defvjp(lambda a: (jnp.sign(a), a), lambda a, g: (g * (jnp.abs(a) < 1),))


@jax.custom_vjp
def reversed_gradient(a):
    return 1.0 * a


reversed_gradient.defvjp(lambda a: (1.0 * a, None), lambda _, g: (-0.5 * g,))


@jax.custom_jvp
def steeper(a):
    return jnp.tanh(a)


steeper.defjvp(lambda p, t: (jnp.tanh(p[0]), 2 * t[0]))


@jax.custom_jvp
def cubed(a):
    return a**3


cubed.defjvp(lambda p, t: (p[0] ** 3, 3 * p[0] * p[0] * t[0]))


@jax.custom_vjp
def scaled(a, c):
    return c * a


scaled.defvjp(lambda a, c: (c * a, c), lambda c, g: (c * g, None))  # right in a, none in the constant c


def network(phi, before=lambda x: x):
    class Ruled(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            a = nn.Dense(self.width, use_bias=False, kernel_init=nn.initializers.normal(0.5))(before(x))
            readout = nn.initializers.normal(self.width**-0.5)
            return nn.Dense(1, use_bias=False, kernel_init=readout)(phi(a))

    return in_parameterization(Ruled(64), "ntk")


REFUSED = {
    "straight_through": straight_through,
    "reversed_gradient": reversed_gradient,
    "steeper": lambda a: steeper(jax.jit(cubed)(a)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_rule_than_the_derivative_is_refused(name):
    found = twin(network(REFUSED[name])).kernels(X, samples=None)
    assert found.provenance["ntk"].kind == "monte_carlo"
    assert f"{name} has a derivative rule of its own" in found.provenance["ntk"].detail


@pytest.mark.slow
def test_of_inputs_alone_any_rule_does():
    found = twin(network(jnp.tanh, before=straight_through)).kernels(X)
    assert found.provenance["ntk"].kind == twin(network(jnp.tanh)).kernels(X).provenance["ntk"].kind


PAIRS = {
    "relu": (jax.nn.relu, lambda a: jnp.maximum(a, 0)),
    "cubed": (cubed, lambda a: a**3),
    "scaled": (lambda a: scaled(a, 1.5), lambda a: 1.5 * a),
    "softplus": (jax.nn.softplus, lambda a: jnp.log1p(jnp.exp(-jnp.abs(a))) + jnp.maximum(a, 0)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_rule_that_is_the_derivative_changes_nothing(name):
    found, plain = (twin(network(phi)).kernels(X) for phi in PAIRS[name])
    assert found.provenance["ntk"].kind != "monte_carlo"
    np.testing.assert_allclose(found.ntk, plain.ntk, rtol=1e-4)  # of averages by quadrature
