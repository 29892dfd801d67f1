"""Optimisers that ask for more than gradients: for the loss, for norms of gradients or of weights."""

import dataclasses
import io
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from zoo import MLP, Parameterization, explain, factors, in_parameterization, scaled

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


@pytest.mark.slow
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
        optax.lars(optax.linear_schedule(0.0, 0.1, 3)),
        optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1)),
        *(
            pytest.param(rule, marks=pytest.mark.slow)
            for rule in (optax.lamb(0.1, weight_decay=0.1), optax.adafactor(0.1), optax.fromage(0.1))
        ),
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


def by_hand(inner: Any, params: Any, loss: Any, steps: int, more: Any) -> tuple[Any, Any, Any]:
    """(parameters, their point, the state) of `inner` on w / step, with gradients over size and what `more` gives of a loss."""
    net, table = problem(params["hidden_2"]["kernel"].shape[0])[0], None
    table = factors(net, params)

    def times(tree: Any, value: Any) -> Any:
        return jax.tree.map(lambda leaf, factor: leaf * value(factor), tree, table)

    def slope(point: Any) -> Any:
        return times(jax.grad(loss)(times(point, lambda f: f.step), X), lambda f: 1 / f.size)

    point = times(params, lambda f: 1 / f.step)
    state = inner.init(point)

    @jax.jit
    def step(point: Any, state: Any) -> Any:
        given = more(lambda point: loss(times(point, lambda f: f.step), X), slope)
        updates, state = inner.update(slope(point), state, point, **given)
        return optax.apply_updates(point, updates), state

    for _ in range(steps):
        point, state = step(point, state)
    return times(point, lambda f: f.step), point, state


SHARP = optax.contrib.sam(
    optax.sgd(0.1), optax.chain(optax.contrib.normalize(), optax.sgd(0.05)), sync_period=2, opaque_mode=True
)


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        (SHARP, lambda _, slope: {"grad_fn": lambda point, _: slope(point)}),
        (optax.contrib.sophia(0.05, gamma=30.0, update_interval=1, clip_threshold=None), lambda f, _: {"obj_fn": f}),
    ],
    ids=["SAM", "Sophia"],
)
def test_functions_that_an_optimiser_is_given_are_of_its_own_coordinates(rule, more):
    net, params, loss = problem()
    expected, *_ = by_hand(rule, params, loss, 4, more)
    tx = scaled(rule, net)
    state, found = tx.init(params), params

    @jax.jit
    def step(found: Any, state: Any) -> Any:
        given = more(lambda p: loss(p, X), lambda p: jax.grad(loss)(p, X))
        updates, state = tx.update(jax.grad(loss)(found, X), state, found, **given)
        return optax.apply_updates(found, updates), state

    for _ in range(4):
        found, state = step(found, state)
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), expected, params)
    jax.tree.map(lambda a, b, size: np.testing.assert_allclose(a, b, atol=1e-3 * float(size)), found, expected, moved)
    assert max(jax.tree.leaves(moved)) > 0.02
    with pytest.raises(TypeError, match="scaled: curvature_fn is a function"):
        tx.update(params, state, params, curvature_fn=jnp.sum)  # pyright: ignore[reportCallIssue]


@pytest.mark.slow
def test_the_point_of_schedule_free_training_is_read_outside():
    net, params, loss = problem()
    rule = optax.contrib.schedule_free_adamw(0.05, warmup_steps=2)
    expected, point, state = by_hand(rule, params, loss, 6, lambda *_: {})
    inner = optax.contrib.schedule_free_eval_params(state, point)
    steps = jax.tree.map(lambda _, factor: factor.step, params, factors(net, params))
    tx = scaled(rule, net)
    state, found = tx.init(params), params

    @jax.jit
    def step(found: Any, state: Any) -> Any:
        updates, state = tx.update(jax.grad(loss)(found, X), state, found)
        return optax.apply_updates(found, updates), state

    for _ in range(6):
        found, state = step(found, state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)
    average = optax.contrib.schedule_free_eval_params(state, found)
    jax.tree.map(lambda a, b, step: np.testing.assert_allclose(a, b * step, atol=1e-4), average, inner, steps)
    # Of some parameters alone: what is masked has no point of its own.
    some = scaled(optax.masked(rule, jax.tree.map(lambda leaf: leaf.ndim > 1, params)), net)
    some.update(params, some.init(params), params)


def test_a_basis_of_fixed_rank_is_warned_of():
    net, params, _ = problem()
    with pytest.warns(UserWarning, match="GaLore takes gradients to a basis of fixed rank"):
        scaled(optax.contrib.galore(0.1, rank=2), net).init(params)


def test_what_sm3_moves_falls_with_the_width():
    """Ten steps of gradients that stay the same, of Gaussian entries: the largest of a row grows, and SM3 divides by it."""
    moved = []
    for width in (32, 512):
        slopes = {"w": np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)}
        rule = optax.sm3(0.1)
        params: Any = {"w": np.zeros((width, width), np.float32)}
        state, step = rule.init(params), jax.jit(rule.update)
        for _ in range(10):
            updates, state = step(slopes, state, params)
            params = optax.apply_updates(params, updates)
        moved.append(np.sqrt(np.mean(params["w"] ** 2)))  # of 1024 entries: to 2 %
    assert moved[1] < 0.9 * moved[0]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1)), ["compares the norm of all gradients"]),
        (optax.lamb(0.1), ["depend on the size of the weights"]),
        (optax.polyak_sgd(0.1), ["compares the norm of all gradients"]),
        (optax.contrib.galore(0.1, rank=4), ["GaLore takes gradients to a basis"]),
        (optax.sm3(0.1), ["SM3 divides by the largest gradients"]),
        (optax.adamw(0.1), []),
        (optax.lbfgs(), []),
    ],
)
def test_explain_names_what_scaled_warns_of(rule, said, recwarn):
    net, params, _ = problem()
    found = explain(net, rule, x=X, show=False).warnings
    assert [part in whole for part, whole in zip(said, found, strict=True)] == [True] * len(said)
    recwarn.clear()
    scaled(rule, net).init(params)
    assert [str(each.message) for each in recwarn if str(each.message).startswith("scaled:")] == list(found)
    base, *_ = problem(16)
    assert not explain(base, rule, x=X, show=False).warnings


def test_options_of_an_optimiser_by_name_are_checked_at_once():
    net, params, _ = problem()
    with pytest.raises(
        TypeError, match=r'scaled: muon has no argument "nesterof"\. Did you mean "nesterov"\? .*adaptive'
    ):
        scaled("muon", net, learning_rate=0.1, nesterof=True)
    with pytest.raises(TypeError, match=r"scaled: leave out muon_weight_dimension_numbers: .*roles"):
        scaled("muon", net, learning_rate=0.1, muon_weight_dimension_numbers=None)
    with pytest.raises(TypeError, match=r'explain: adam has no argument "b_1"\. Did you mean "b1"'):
        explain(net, "adam", x=X, show=False, b_1=0.9)
    scaled("muon", net, learning_rate=0.1, nesterov=False, adam_b1=0.8).init(params)
    scaled("momentum", net, learning_rate=0.1, nesterov=True).init(params)


@pytest.mark.parametrize("kind", [AssertionError, KeyError, IndexError, NotImplementedError, AttributeError])
def test_whatever_a_module_says_to_a_guessed_input_an_input_is_asked_for(kind):
    class OfSequences(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            if x.ndim != 3:
                raise kind("sequences please")
            return nn.Dense(1)(nn.gelu(nn.Dense(self.width)(x)).mean(1))

    x = jnp.ones((4, 6, 5))
    net = in_parameterization(OfSequences(32), "mup")
    variables = net.init(jax.random.key(0), x)
    with pytest.raises(ValueError, match="takes inputs of another kind: pass an input as x") as error:
        scaled(optax.adam(0.01), net).init(variables)
    assert isinstance(error.value.__cause__, kind)
    scaled(optax.adam(0.01), net, jax.ShapeDtypeStruct((1, 6, 5), "float32")).init(variables)


def test_explain_shows_long_names_whole():
    """In narrow windows too, where they go on in another line."""
    found = explain(MLP(8, 1, parameterization=MUP), x=X, show=False)
    name = "a_layer_with_a_name_that_no_column_of_a_table_has_room_for.kernel"
    rows = (dataclasses.replace(found.rows[0], name=name), *found.rows)
    shown = io.StringIO()
    Console(file=shown, width=100, color_system=None).print(dataclasses.replace(found, rows=rows))
    first = [line.split("│")[1].strip() for line in shown.getvalue().splitlines() if line.startswith("│")]
    assert name in "".join(first)
