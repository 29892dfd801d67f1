import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import MLP, Parameterization, learning_rate_factors, scale_gradients

X = np.sin(1.3 * np.arange(5)[:, None] * np.arange(1, 5) + 0.2)
Y = np.stack([np.cos(np.arange(5.0)), np.sin(2 * np.arange(5.0))], axis=1)
STEPS = 20
CASES = [*itertools.product((0.0, 0.25, 0.9), (0.0, 0.5), ("normal",)), (0.0, 0.5, "zeros")]


@functools.partial(jax.jit, static_argnames="bias_init")
def train(parameterization, bias_init):
    """f at every step of gradient descent, [steps + 1, n, outputs]. The exponents are traced: one compilation."""
    net = MLP(12, 2, 2, "erf", w_std=1.3, b_std=0.4, parameterization=parameterization, gamma=1.5, bias_init=bias_init)
    x, y = jnp.asarray(X), jnp.asarray(Y)
    params = net.init(jax.random.key(3), x)
    tx = optax.chain(scale_gradients({"params": learning_rate_factors(net, x)}), optax.sgd(0.4))

    def step(carry, _):
        p, state = carry
        f, pullback = jax.vjp(lambda p: jnp.asarray(net.apply(p, x)), p)
        updates, state = tx.update(pullback((f - y) / len(x))[0], state)
        return (optax.apply_updates(p, updates), state), f

    return jax.lax.scan(step, (params, tx.init(params)), None, length=STEPS + 1)[1]


def outputs_while_training(parameterization, bias_init="normal"):
    with jax.enable_x64(True):
        return np.asarray(train(parameterization.replace(), bias_init))


@functools.cache
def reference(d, bias_init="normal"):
    return outputs_while_training(Parameterization.family(a=0.5, d=d), bias_init)


@pytest.mark.parametrize(("a", "d", "bias_init"), CASES)
def test_members_of_the_family_are_one_function_at_every_step(a, d, bias_init):
    expected = reference(d, bias_init)
    found = outputs_while_training(Parameterization.family(a=a, d=d), bias_init)
    assert np.abs(expected[-1] - expected[0]).max() > 0.1  # it has moved
    np.testing.assert_allclose(found, expected, atol=1e-10, rtol=0)


def test_lazy_and_rich_members_train_differently():
    assert np.abs(reference(0.0) - reference(0.5) * 12**0.5)[0].max() < 1e-10  # one network at the start, up to γ
    assert np.abs(reference(0.0) - reference(0.5))[-1].max() > 1e-2


@pytest.mark.parametrize("exponent", ["a", "b", "c", "d", "a_in", "b_in"])
def test_changing_one_exponent_breaks_the_symmetry(exponent):
    p = Parameterization.family(a=0.25, d=0.5)
    broken = outputs_while_training(p.replace(**{exponent: getattr(p, exponent) + 0.1}))
    assert np.abs(broken - reference(0.5)).max() > 1e-3
