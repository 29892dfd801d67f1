"""Optimisers that ask for more than gradients: for the loss, for norms of gradients or of weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import MLP, Parameterization, factors, scaled

MUP = Parameterization.mup.based(16)
X = jnp.sin(jnp.arange(24.0)).reshape(8, 3)
Y = X @ jnp.asarray([[1.0], [-1.0], [0.5]])


def problem(width: int = 64) -> tuple[Any, Any, Any]:
    """(network, its parameters, a loss of them and of a batch)."""
    net = MLP(width, 2, activation="tanh", parameterization=MUP)
    params = jax.jit(net.init)(jax.random.key(0), X)["params"]

    def loss(params: Any, batch: Any) -> Any:
        out: Any = net.apply({"params": params}, batch)
        return jnp.mean((out - Y) ** 2)

    return net, params, loss


def searched(tx: Any, params: Any, loss: Any, steps: int, reuse: bool = False) -> tuple[Any, list[float]]:
    """Parameters after some steps, and the losses before each; reuse: the value and gradient that the search ended with."""
    again = optax.value_and_grad_from_state(loss)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        given = {"state": state} if reuse else {}
        value, gradient = (again if reuse else jax.value_and_grad(loss))(params, batch=X, **given)
        updates, state = tx.update(gradient, state, params, value=value, grad=gradient, value_fn=loss, batch=X)
        return optax.apply_updates(params, updates), state, value

    state, seen = tx.init(params), []
    for _ in range(steps):
        params, state, value = step(params, state)
        seen.append(float(value))
    return params, seen


@pytest.mark.parametrize("reuse", [False, True])
def test_lbfgs_is_that_of_the_scaled_coordinates(reuse):
    net, params, loss = problem()
    roots = jax.tree.map(lambda _, factor: factor.rate**0.5, params, factors(net, params))

    def outside(inner: Any) -> Any:
        return jax.tree.map(jnp.multiply, inner, roots)

    found, seen = searched(scaled(optax.lbfgs(), net), params, loss, 6, reuse)
    inner = jax.tree.map(lambda p, root: p / root, params, roots)
    by_hand, expected = searched(optax.lbfgs(), inner, lambda params, batch: loss(outside(params), batch), 6)
    np.testing.assert_allclose(seen, expected, rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), found, outside(by_hand))
    assert seen[-1] < 0.7 * seen[0]


@pytest.mark.parametrize("rule", [optax.sgd(1.0), optax.adam(0.1)])
def test_a_search_along_a_line_is_that_of_the_loss(rule):
    """As by a search after `scaled`, which sees the parameters themselves."""
    net, params, loss = problem()
    search = optax.scale_by_backtracking_linesearch(15, store_grad=True)
    inside, after = (
        searched(tx, params, loss, 6, reuse=True)[1]
        for tx in (scaled(optax.chain(rule, search), net), optax.chain(scaled(rule, net), search))
    )
    np.testing.assert_allclose(inside, after, rtol=1e-4)
    assert inside[-1] < 0.8 * inside[0]


@pytest.mark.parametrize("threshold", [0.01, 1.0, 1e8])
@pytest.mark.parametrize("rule", [optax.adam(0.1), optax.sgd(0.1, 0.9)])
def test_a_threshold_before_any_rule_is_warned_of(rule, threshold):
    net, params, _ = problem()
    with pytest.warns(UserWarning, match="compares the norm of all gradients"):
        scaled(optax.chain(optax.clip_by_global_norm(threshold), rule), net).init(params)


@pytest.mark.parametrize(
    "rule",
    [
        optax.lamb(0.1, weight_decay=0.1), optax.lars(optax.linear_schedule(0.0, 0.1, 3)), optax.adafactor(0.1),
        optax.fromage(0.1), optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
    ],
)  # fmt: skip
def test_steps_by_the_size_of_the_weights_are_warned_of(rule):
    net, params, _ = problem()
    with pytest.warns(
        UserWarning, match="depend on the size of the weights themselves.*as large it moves 4 times as far"
    ):
        scaled(rule, net).init(params)
    net, params, _ = problem(16)  # of the base size
    scaled(rule, net).init(params)
