"""A vector or a matrix that is multiplied entry by entry: a readout where products are summed, none where they are means."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import infer_roles, scaled

X: Any = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
SIZES: Any = {"base": {"width": 8}, "target": {"width": 32}}


@pytest.fixture(autouse=True)
def ranks_may_differ():
    """As users write it."""
    with jax.numpy_rank_promotion("allow"):
        yield


class Net(nn.Module):
    """One hidden layer with a bias, and what is made of its features with a parameter v."""

    width: int
    forward: Any
    shape: tuple[Any, ...] = ("w",)
    name_of: str = "v"

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = jnp.tanh(nn.Dense(self.width, name="in")(x))
        shape = tuple(self.width if n == "w" else n for n in self.shape)
        return self.forward(h, self.param(self.name_of, nn.initializers.normal(1.0), shape))


def role(forward: Any, shape: Any = ("w",), x: Any = X, name: str = "v") -> str:
    def init(key, width):
        return Net(width, forward, shape, name).init(key, x)["params"]

    return infer_roles(init, **SIZES).places[name].role


def ln(h):
    return (h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5)


def l2(h):
    return h / jnp.linalg.norm(h, axis=-1, keepdims=True)


MEANS = {
    "of what a norm by hand gives": lambda h, v: (ln(h) * v).mean(-1),
    "of activations over the width": lambda h, v: (h / h.shape[-1] * v).sum(-1),
    "of the vector over the width": lambda h, v: (h * (v / len(v))).sum(-1),
    "product over the width": lambda h, v: h @ v / len(v),
    "product of activations over the width": lambda h, v: (h / len(v)) @ v,
    "of all that a mask leaves": lambda h, v: jnp.mean(h * v, -1, where=jnp.ones(h.shape, bool)),
    "weighted": lambda h, v: (h * nn.softmax(v)).sum(-1),
    "weighted, as a product": lambda h, v: h @ nn.softmax(v),
    "weighted by activations": lambda h, v: (nn.softmax(h) * v).sum(-1),
    "weighted by activations, as a product": lambda h, v: nn.softmax(h) @ v,
    "in half precision": lambda h, v: (h.astype(jnp.bfloat16) * v.astype(jnp.bfloat16)).sum(-1) / len(v),
    "of relu": lambda h, v: (nn.relu(h) * v).sum(-1) / h.shape[-1],
    "twice": lambda h, v: ((s := (h * v).sum(-1, keepdims=True)) / len(v), s / len(v)),
}
SUMS = {
    "of what a norm by hand gives": lambda h, v: (ln(h) * v).sum(-1),
    "of vectors of norm 1": lambda h, v: (l2(h) * v).sum(-1),
    "of what is divided by the deviation": lambda h, v: (h / (h.std(-1, keepdims=True) + 1e-5) * v).sum(-1),
    "of a softmax of size 1": lambda h, v: (nn.softmax(h) * h.shape[-1] * v).sum(-1),
    "of groups": lambda h, v: (h * v).reshape(*h.shape[:-1], 4, -1).sum(-1),
    "cumulative": lambda h, v: jnp.cumsum(h * v, -1)[..., -1],
    "of a product without a sum": lambda h, v: jnp.einsum("...n,n->...n", h, v).sum(-1),
    "of a plain product": lambda h, v: (h * v).sum(-1),
    "with noise": lambda h, v: (h * (v + np.linspace(-1, 1, len(v), dtype=np.float32))).sum(-1),
    "product": lambda h, v: h @ v,
    "product with weights of norm 1": lambda h, v: h @ l2(v),
    "after weights over the root of the width": lambda h, v: nn.relu(h * 1.0) @ v / len(v) ** 0.5,
}


def quietly(*arguments: Any, **options: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return role(*arguments, **options)


@pytest.mark.parametrize("x", [X, X[0]], ids=["batch", "one"])
@pytest.mark.parametrize("name", MEANS)
def test_a_vector_in_a_mean_is_no_readout(name: str, x: Any):
    assert quietly(MEANS[name], x=x) == "bias"


@pytest.mark.parametrize("x", [X, X[0]], ids=["batch", "one"])
@pytest.mark.parametrize("name", SUMS)
def test_a_vector_in_a_sum_is_a_readout(name: str, x: Any):
    assert quietly(SUMS[name], x=x) == "readout"


MATRICES = {
    "norm by hand, mean": ((4, "w"), lambda h, v: (ln(h)[..., None, :] * v).mean(-1), "input"),
    "norm by hand, sum": ((4, "w"), lambda h, v: (ln(h)[..., None, :] * v).sum(-1), "readout"),
    "norm by hand, sum of columns": (("w", 4), lambda h, v: (ln(h)[..., None] * v).sum(-2), "readout"),
    "product without a sum": (("w", 4), lambda h, v: jnp.einsum("...n,nk->...nk", h, v).sum(-2), "readout"),
    "the same, then a head": (
        ("w", 4),
        lambda h, v: jnp.tanh(jnp.einsum("...n,nk->...nk", h, v).sum(-2)) @ jnp.ones((4, 1)),
        "readout",
    ),
}


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_in_a_sum_is_a_readout_and_in_a_mean_none(name: str):
    shape, forward, expected = MATRICES[name]
    found = quietly(forward, shape)
    assert found in (("bias", "input") if expected == "input" else (expected,))


@pytest.mark.parametrize("name", ["scale", "gain", "b", "bias"])
def test_a_vector_that_is_summed_over_is_a_readout_whatever_its_name(name: str):
    assert quietly(lambda h, v: (h * v).sum(-1), name=name) == "readout"


@pytest.mark.parametrize("batch", [True, False])
def test_a_vector_whose_sum_is_over_the_root_of_the_width_is_a_readout(batch: bool):
    """As one in a product: the number stands for the initialisation."""
    for forward in (lambda h, v: (h * v).sum(-1) / len(v) ** 0.5, lambda h, v: (h * v).mean(-1) * len(v) ** 0.5):
        assert quietly(forward, x=X if batch else X[0]) == "readout"


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_a_network_of_products_and_sums_has_the_roles_of_one_of_matrices(batch: bool, relu: bool):
    bend = jax.nn.relu if relu else jnp.tanh

    def init(key, width):
        normal = jax.random.normal
        return {
            "w": normal(key, (width, 3)),
            "b": normal(key, (width,)),
            "hid": normal(key, (width, width)) / width**0.5,
            "o": normal(key, (2, width)) / width**0.5,
        }

    def apply(p, width):
        h = bend((p["w"] * (X[:, None] if batch else X[0])).sum(-1) + p["b"])
        h = bend((p["hid"] * h[..., None, :]).sum(-1))
        return (p["o"] * h[..., None, :]).sum(-1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = infer_roles(init, **SIZES, apply=apply).places
    assert {name: place.role for name, place in found.items()} == {
        "w": "input",
        "b": "bias",
        "hid": "hidden",
        "o": "readout",
    }


@pytest.mark.parametrize("table", [4, 2])
def test_tables_before_a_readout_that_is_summed_over_are_followed(table: int):
    def init(key, width):
        normal = jax.random.normal
        return {"w": normal(key, (3, width)), "v": normal(key, (table, width)), "out": normal(key, (width,))}

    def apply(p, width):
        rows = p["v"] if table == 4 else jnp.where(X[:, :1] > 0, p["v"][0], p["v"][1])
        return (jnp.tanh(X @ p["w"] + rows).mean(0) * p["out"]).sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = infer_roles(init, **SIZES, apply=apply).places
    assert (found["v"].role, found["out"].role) == ("input", "readout")


@pytest.mark.parametrize(
    "name", ["of what a norm by hand gives", "weighted, as a product", "of all that a mask leaves"]
)
def test_a_step_of_adam_on_a_vector_in_a_mean_moves_outputs_alike_at_every_width(name: str):
    moves = []
    for width in (64, 1024):
        net: Any = Net(width, MEANS[name])
        base = {"width": 64}
        roles = infer_roles(lambda key, width: Net(width, MEANS[name]).init(key, X), base=base, target={"width": width})
        params: Any = roles.rescale(net.init(jax.random.key(0), X))
        tx: Any = scaled(optax.adam(0.01), roles)
        gradient: Any = jax.grad(lambda p, net=net: net.apply(p, X).sum())(params)
        step: Any = tx.update(gradient, tx.init(params), params)[0]["params"]["v"]
        moved = {"params": {**params["params"], "v": params["params"]["v"] + step}}
        moves.append(float(jnp.abs(net.apply(moved, X) - net.apply(params, X)).mean()))
    assert moves[1] == pytest.approx(moves[0], rel=0.5)  # by 16, as a readout
