"""Networks trained by gradient flow against the predictor of their own tangent kernel at initialisation."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from limits import empirical_ntk
from limits.predict import kernel_regression
from train.data import make_task
from zoo import MLP

pytestmark = pytest.mark.usefixtures("x64")
TASK = make_task("xor_clusters", n_train=12, n_test=8, seed=0)
with jax.enable_x64(True):
    X, X_TEST, Y = (jnp.asarray(part) for part in (TASK.x_train / 3, TASK.x_test / 3, TASK.y_train))


def network(width, seed):
    net = MLP(width, 1, activation="erf", w_std=1.3)
    return net, jax.jit(net.init)(jax.random.key(seed), X)


def linearised(net, variables):
    """f₀* + Θ*ₓ Θ⁻¹ (Y − f₀), Θ the tangent kernel of these parameters."""
    kernel = jax.jit(functools.partial(empirical_ntk, net.apply))
    k, across = (np.asarray(kernel(variables, x, X)) for x in (X, X_TEST))
    away = np.asarray(Y - net.apply(variables, X))
    return np.asarray(net.apply(variables, X_TEST)) + kernel_regression(k, away, across), k


def trained(net, variables, k, steps=6000):
    """Predictions of the network itself at the end of small steps of gradient descent."""
    rate = 0.2 / np.linalg.eigvalsh(k)[-1]

    @jax.jit
    def run(variables):
        def step(_, v):
            slope = jax.grad(lambda v: 0.5 * ((net.apply(v, X) - Y) ** 2).sum())(v)
            return jax.tree.map(lambda p, g: p - rate * g, v, slope)

        return jax.lax.fori_loop(0, steps, step, variables)

    after = run(variables)
    assert np.abs(net.apply(after, X) - Y).max() < 1e-6
    return np.asarray(net.apply(after, X_TEST))


def test_the_predictor_is_least_squares_in_the_jacobian(row):
    net: Any
    net, variables = network(20, 0)
    flat, back = ravel_pytree(variables)

    def jacobian(x):
        return np.asarray(jax.jit(jax.jacrev(lambda v: jnp.ravel(net.apply(back(v), x))))(flat))

    # The shortest change of the parameters that fits all points, which is where gradient flow of the linear model ends.
    move = np.linalg.pinv(jacobian(X)) @ np.asarray(Y - net.apply(variables, X))
    expected = np.asarray(net.apply(variables, X_TEST)) + jacobian(X_TEST) @ move
    found = linearised(net, variables)[0]
    row(36, f"linearised predictor: {np.abs(found - expected).max():.0e} from least squares in the Jacobian")
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow
def test_networks_come_to_their_linearisation_as_one_over_the_width(row):
    widths, off = np.array([64, 256, 1024, 4096]), []
    for width in widths.tolist():
        squares = []
        for seed in range(4):
            net, variables = network(width, seed)
            expected, k = linearised(net, variables)
            squares.append(np.mean((trained(net, variables, k) - expected) ** 2))
        off.append(np.mean(squares) ** 0.5)
    slope = np.polyfit(np.log(widths), np.log(off), 1)[0]
    row(36, f"trained networks less their linearisation: {off[-1]:.1e} at N = 4096, ~ N^{slope:.2f} (at most -1/2)")
    assert slope == pytest.approx(-1, abs=0.2)
