"""Experts whose whole matrices are looked up by a number, or summed with weights: each is a matrix of its own."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import explain, factors, in_parameterization, infer_roles, scaled
from zoo.held import Use
from zoo.uses import uses

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


class LookedUp(nn.Module):
    """Matrices or vectors that signals meet, each sample its own: looked up, or chosen from all by ones and zeros."""

    width: int
    case: str
    looked_up: bool = True

    @nn.compact
    def __call__(self, x):
        n = self.width
        shape = {"head": (3, n, 2), "vectors": (3, n), "wide": (3, n, 2 * n), "wide, turned": (3, 2 * n, n)}[self.case]
        way = {"head": "bi,bio->bo", "vectors": "bi,bi->b", "wide": "bi,bio->bo", "wide, turned": "bi,boi->bo"}[
            self.case
        ]
        h = nn.tanh(nn.Dense(n, name="second")(nn.tanh(nn.Dense(n, name="first")(x))))
        start = nn.initializers.zeros if self.case.startswith("wide") else nn.initializers.normal(n**-0.5)
        w, chosen = self.param("w", start, shape), jnp.argmax(x, -1)
        chosen_of = jax.nn.one_hot(chosen, 3)
        if self.looked_up:
            out = jnp.einsum(way, h, w[chosen])
        elif self.case.startswith("wide"):
            out = jnp.einsum(
                "be,ebo->bo",
                chosen_of,
                jnp.einsum(way.replace("boi", "eoi").replace("bio", "eio").replace("->bo", "->ebo"), h, w),
            )
        elif self.case == "head":
            out = jnp.einsum("be,beo->bo", chosen_of, jnp.einsum("bi,eio->beo", h, w))
        else:
            out = jnp.einsum("be,be->b", chosen_of, h @ w.T)
        out = out.reshape(len(x), -1)
        return nn.Dense(1, name="out")(nn.tanh(out)) if self.case.startswith("wide") else out


@pytest.mark.parametrize("rule", ["sgd", "muon"])
@pytest.mark.parametrize("case", ["head", "vectors", "wide", "wide, turned"])
def test_what_is_looked_up_has_the_role_and_the_sides_of_what_is_chosen_from_all(case, rule):
    def row(looked_up: bool) -> Any:
        said = explain(in_parameterization(LookedUp(16, case, looked_up), "mup"), rule, x=SHAPE, show=False)
        return next((each.role, each.std, each.rate) for each in said.rows if each.name == "w")

    assert row(True) == row(False)
    assert row(True)[:2] == (("hidden", "0") if case.startswith("wide") else ("readout", "0.25"))


def test_one_row_of_a_stored_readout_is_no_bias():
    class Rows(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = nn.tanh(nn.Dense(self.width, name="first")(x))
            w = self.param("w", nn.initializers.normal(self.width**-0.5), (2, self.width))
            return jnp.concatenate([h @ w[jnp.arange(1)].T, h @ w[1:].T], -1)

    said = explain(in_parameterization(Rows(16), "mup"), "sgd", x=SHAPE, show=False)
    assert {each.name: each.role for each in said.rows}["w"] == "readout"


def test_words_that_meet_each_other_or_go_on_as_signals_are_inputs():
    class Pairs(nn.Module):
        width: int

        @nn.compact
        def __call__(self, t):
            one, two, key = (nn.Embed(5, self.width, name=n) for n in ("one", "two", "key"))
            word = key(t)
            h = nn.tanh(nn.Dense(self.width, name="mid")(word))
            logits = jnp.einsum("btn,btn->bt", h, word) / self.width  # of words that are signals too
            return jnp.einsum("btn,btn->bt", one(t), two(t)) / self.width + logits

    words = jax.ShapeDtypeStruct((2, 3), "int32")
    shapes = jax.eval_shape(lambda: Pairs(8).init(jax.random.key(0), jnp.zeros((2, 3), int))["params"])
    found = uses(lambda p, t: Pairs(8).apply({"params": p}, t), shapes, words)
    for name in ("one", "two", "key"):
        assert [use for use in found[f"{name}.embedding"] if isinstance(use, Use)] == [Use((0,), (1,), ())]
