"""Optimisers of Optax that ask for more than gradients: steps are those by hand, in training and in sweeps."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from train.step import Program
from train.transfer.runs import train_runs

X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 3)), jnp.float32)
BATCH = X, jnp.sin(X[:, :1])
NET = nn.Sequential([nn.Dense(4), nn.tanh, nn.Dense(1)])

EXTRA: Any = optax.GradientTransformationExtraArgs
OPTIMISERS: dict[str, Any] = {
    "adam": optax.adam(0.1),
    "plateau": optax.chain(optax.sgd(0.1), contrib.reduce_on_plateau(patience=1, rtol=0.9)),
    "polyak": optax.polyak_sgd(),
    "lbfgs": optax.lbfgs(),
    "sam": contrib.sam(optax.sgd(0.1), optax.sgd(0.05)),  # passes on what its parts do not take
}


def squares(f: Any, y: Any) -> Any:
    return jnp.mean((f - y) ** 2)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_are_given_what_they_ask_for(name: str):
    tx = OPTIMISERS[name]
    whole, parts = (Program(NET, tx, squares, accumulate) for accumulate in (1, 2))
    state = start = whole.initial(0, X)
    params, memory, losses = start.trained, tx.init(start.trained), []

    def value_fn(params: Any) -> Any:
        return squares(NET.apply(params, X), BATCH[1])

    @jax.jit
    def by_hand(params: Any, memory: Any) -> Any:
        value, slope = jax.value_and_grad(value_fn)(params)
        more = {} if name in ("adam", "sam") else {"value": value, "grad": slope, "value_fn": value_fn}
        updates, memory = tx.update(slope, memory, params, **more)
        return optax.apply_updates(params, updates), memory, value

    steps = [jax.jit(each.step) for each in (whole, parts)]
    for _ in range(4):
        state, numbers = steps[0](state, BATCH)
        params, memory, value = by_hand(params, memory)
        losses.append(float(numbers["loss"]))
        np.testing.assert_allclose(losses[-1], value, rtol=1e-4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), state.trained, params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        *(step(start, BATCH)[0].trained for step in steps),
    )
    swept = train_runs(lambda job: (NET, tx), squares, [BATCH] * 4, 4, {}, [0])
    np.testing.assert_allclose(swept[0], losses, rtol=1e-3)


@pytest.mark.parametrize(
    ("tx", "sentence"),
    [
        (optax.lookahead(optax.adam(0.1), 3, 0.5), "keeps two copies of the parameters in a type of its own"),
        (EXTRA(lambda p: (), lambda u, s, p=None, *, hessian, **more: (u, s)),
         "asks for what a step does not know: .*'hessian'.*It knows grad, value, value_fn"),
    ],
)  # fmt: skip
def test_what_a_step_cannot_give_is_named(tx: Any, sentence: str):
    given = Program(NET, tx, squares)
    with pytest.raises(ValueError, match=sentence):
        given.step(given.initial(0, X), BATCH)
