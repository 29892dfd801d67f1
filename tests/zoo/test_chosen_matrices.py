"""Experts whose whole matrices are looked up by a number, or summed with weights: each is a matrix of its own."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import factors, in_parameterization, infer_roles, scaled

X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
Y = np.sign(np.random.default_rng(1).normal(size=(6, 1))).astype("float32")
SHAPE = jax.ShapeDtypeStruct(X.shape, "float32")


class Chosen(nn.Module):
    """h + h W of the expert that a number of the input says."""

    width: int
    how: str = "looked up"
    start: Any = nn.initializers.zeros

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(self.width, name="first")(x))
        h = nn.tanh(nn.Dense(self.width, name="second")(h))
        w = self.param("w", self.start, (3, self.width, self.width))
        chosen = jnp.argmax(x, -1)
        if self.how == "looked up":
            h = h + jnp.einsum("nd,ndm->nm", h, w[chosen])
        elif self.how == "weighted":
            h = h + jnp.einsum("nd,ndm->nm", h, jnp.tensordot(jax.nn.one_hot(chosen, 3), w, 1))
        else:
            each = jnp.einsum("end,edm->enm", jnp.broadcast_to(h, (3, *h.shape)), w)
            h = h + jnp.einsum("ne,enm->nm", jax.nn.one_hot(chosen, 3), each)
        return nn.Dense(1, name="out")(h)


def trained(net: Any, tx: Any) -> Any:
    variables = net.init(jax.random.key(0), X)

    def loss(params: Any) -> Any:
        return jnp.mean((net.apply({"params": params}, X) - Y) ** 2)

    @jax.jit
    def run(params: Any) -> Any:
        state = tx.init(params)
        for _ in range(3):
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            params = optax.apply_updates(params, updates)
        return params

    return run(variables["params"])


@pytest.mark.parametrize("rule", ["sgd", "muon"])
@pytest.mark.parametrize("how", ["looked up", "weighted"])
def test_experts_that_are_looked_up_train_as_those_side_by_side(how, rule):
    nets = [in_parameterization(Chosen(32, each), "mup") for each in ("side by side", how)]
    one, two = (trained(net, scaled(rule, net, SHAPE, learning_rate=0.02))["w"] for net in nets)
    size = float(np.abs(one).max())
    assert size > 1e-5
    np.testing.assert_allclose(two, one, rtol=5e-3, atol=5e-3 * size)


@pytest.mark.parametrize("how", ["looked up", "weighted", "side by side"])
def test_their_sides_are_those_of_one(how):
    def init(key: Any, width: int) -> Any:
        return Chosen(width, how, nn.initializers.lecun_normal(batch_axis=(0,))).init(key, X)["params"]

    roles = infer_roles(init, base={"width": 8}, target={"width": 16})
    found = factors(roles, jax.eval_shape(lambda: init(jax.random.key(0), 16)))["w"]
    assert (found.role, found.sides, found.unsure) == ("hidden", ((1,), (2,)), False)
