"""Roles of parameters that meet activations entry by entry, not by a product of matrices."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import Rescaled, in_parameterization, infer_roles, learning_rate_factors, scaled
from zoo.held import Use
from zoo.uses import uses

X: Any = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)
SIZES: Any = {"base": {"width": 8}, "target": {"width": 32}}


@pytest.fixture(autouse=True)
def ranks_may_differ():
    """As users write it."""
    with jax.numpy_rank_promotion("allow"):
        yield


def roles(shape, forward, drop=(), **more) -> str:
    """The role of v of this shape ("w": the width) beside the layers of a network of one hidden layer; more: shapes."""

    def init(key, width):
        shapes = {"in": (3, "w"), "mid": ("w", "w"), "out": ("w", 1), "v": shape, **more}
        shapes = {name: [width if n == "w" else n for n in each] for name, each in shapes.items()}
        keys = jax.random.split(key, len(shapes))
        return {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True) if n not in drop}

    return infer_roles(init, **SIZES, apply=lambda p, width: forward(p), tied=False).places["v"].role


def hidden(p):
    return X @ p["in"]


def shifted(p):
    return jnp.pad(hidden(p), ((0, 0), (3, 0), (0, 0)))


def end(p, h):
    return jnp.tanh(h @ p["mid"]) @ p["out"]


def decays(p):
    return end(p, (hidden(p)[..., None] * jnp.exp(-jnp.exp(p["v"]))).sum(-1))


def taps(p):
    return end(p, sum(shifted(p)[:, i : i + 7] * p["v"][:, i] for i in range(4)))


def windows(p):
    return end(p, jnp.einsum("ntck,ck->ntc", jnp.stack([shifted(p)[:, i : i + 7] for i in range(4)], -1), p["v"]))


def logits(matrix):
    return lambda p: jnp.tanh(hidden(p) @ p["mid"]) @ matrix(p)


def of_token(p):
    return X[0] @ p["in"]


NOISE: Any = np.random.default_rng(1).normal(size=(64, 5)).astype(np.float32)
ROLES = {
    "decays": (("w", 4), decays, (), "bias"),
    "taps": (("w", 4), taps, (), "bias"),
    "taps as a product": (("w", 4), windows, (), "bias"),
    "gate": (("w", 3), lambda p: end(p, hidden(p) * p["v"][:, 0]), (), "bias"),
    "readout": ((5, "w"), lambda p: (hidden(p)[:, 0, None] * p["v"]).sum(-1), ("mid", "out"), "readout"),
    "readout, transposed": (("w", 5), lambda p: (hidden(p)[:, 0, :, None] * p["v"]).sum(-2), ("mid", "out"), "readout"),
    "mean": ((5, "w"), lambda p: (hidden(p)[:, 0, None] * p["v"]).mean(-1), ("mid", "out"), "bias"),
    "input": ((3, "w"), lambda p: end(p, (X[:, 0, :, None] * p["v"]).sum(1)), ("in",), "input"),
    "positions": ((7, "w"), lambda p: end(p, hidden(p) + p["v"]), (), "input"),
    "class token": (
        (1, 1, "w"),
        lambda p: end(p, jnp.concatenate([jnp.broadcast_to(p["v"], (4, 1, p["v"].shape[-1])), hidden(p)], 1)),
        (),
        "input",
    ),
}


def products(p):
    return jnp.tanh(hidden(p))[:, :, None] * p["v"]


SUMS = {  # what is a mean at one width only is none, and a factor makes no sum of a mean
    "mean, times 10": (lambda p: 10 * products(p)[:, 0].mean(-1), "bias"),
    "mean, summed over tokens": (lambda p: products(p).mean(-1).sum(1), "bias"),
    "sum over tokens and width, by width": (lambda p: products(p).sum((1, 3)) / p["mid"].shape[0], "bias"),
    "sum, by a constant": (lambda p: products(p)[:, 0].sum(-1) / 8, "readout"),
    "sum, mean over tokens": (lambda p: products(p).sum(-1).mean(1), "readout"),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("target", [8, 32])
def test_a_mean_is_known_from_a_sum_by_two_widths(name: str, target: int, monkeypatch: Any):
    monkeypatch.setitem(SIZES, "target", {"width": target})
    assert roles((5, "w"), SUMS[name][0]) == SUMS[name][1]


def test_a_sum_over_the_root_of_the_width_is_a_readout():
    """The root stands for the start of its weights."""
    assert roles((5, "w"), lambda p: products(p)[:, 0].sum(-1) / p["mid"].shape[0] ** 0.5) == "readout"


READOUTS = {
    "noise": lambda p: p["v"] + NOISE[: len(p["v"])],
    "drawn noise": lambda p: p["v"] + jax.random.normal(jax.random.key(0), p["v"].shape),
    "dropped weights": lambda p: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, p["v"].shape), p["v"], 0),
    "rounded with noise": lambda p: jnp.round(p["v"] + NOISE[: len(p["v"])]),
    "low rank": lambda p: p["v"] + p["a"] @ p["b"],
    "of norm 1": lambda p: p["v"] / jnp.linalg.norm(p["v"], axis=0, keepdims=True),
}


@pytest.mark.parametrize("name", READOUTS)
def test_a_readout_that_something_is_added_to_or_chosen_in_is_one(name: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roles(("w", 5), logits(READOUTS[name]), a=("w", 2), b=(2, 5)) == "readout"
        assert (
            roles((5, "w"), logits(lambda p: READOUTS[name]({**p, "v": p["v"].T})), a=("w", 2), b=(2, 5)) == "readout"
        )


VECTORS = {
    "product": (lambda p: jnp.tanh(hidden(p)) @ p["v"], "readout"),
    "sum": (lambda p: (jnp.tanh(hidden(p)) * p["v"]).sum(-1), "readout"),
    "noise": (lambda p: jnp.tanh(hidden(p)) @ (p["v"] + NOISE[: len(p["v"]), 0]), "readout"),
    "without a batch": (lambda p: of_token(p) @ p["v"], "readout"),
    "mean": (lambda p: (jnp.tanh(hidden(p)) * p["v"]).mean(-1), "bias"),
    "gain": (lambda p: end(p, hidden(p) * p["v"]), "bias"),
    "gain before a norm": (lambda p: end(p, jax.nn.standardize(hidden(p) * p["v"])), "bias"),
    "gain that is summed too": (
        lambda p: (g := hidden(p) * p["v"])[..., :1] + g @ p["mid"] + g.sum(-1)[..., None],
        "bias",
    ),
    "gain of a token": (lambda p: end(p, of_token(p)[0] * p["v"]), "bias"),
    "gain of a matrix": (lambda p: end(p, hidden(p) @ (p["v"][:, None] * p["mid"])), "bias"),
    "gain of both": (lambda p: end(p, jnp.einsum("ntw,w,w->ntw", hidden(p), p["v"], p["v"])), "bias"),
    "bias": (lambda p: end(p, hidden(p) + p["v"]), "bias"),
    "bias in another order": (lambda p: end(p, hidden(p) + p["v"][jnp.arange(len(p["v"]))[::-1]]), "bias"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_a_readout_where_it_is_summed_over(name: str):
    forward, role = VECTORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roles(("w",), forward) == role


def test_a_readout_starts_and_moves_alike_as_a_vector_and_as_a_matrix():
    found = []
    for shape in ((), (1,)):

        def init(key, width, shape=shape):
            return {
                "in": jax.random.normal(key, (3, width)),
                "v": jax.random.normal(key, (width, *shape)) / width**0.5,
            }

        def forward(p, width=0):
            return (jnp.tanh(X[:, 0] @ p["in"]) @ p["v"]).reshape(-1)

        inferred = infer_roles(init, base={"width": 16}, target={"width": 256}, apply=forward)
        params: Any = inferred.rescale(init(jax.random.key(0), 256))
        tx = scaled(optax.adam(0.01), inferred)
        gradient = jax.jit(jax.grad(lambda p: (forward(p) ** 2).mean()))(params)
        moved: Any = optax.apply_updates(params, jax.jit(tx.update)(gradient, tx.init(params), params)[0])
        assert inferred.places["v"].role == "readout"
        found.append([params["v"].ravel(), moved["v"].ravel(), moved["in"], forward(moved)])
    for vector, matrix in zip(*found, strict=True):
        np.testing.assert_allclose(vector, matrix, rtol=1e-5, atol=1e-7)


ALIKE = {  # without a batch, activations and parameters have one shape
    "gate": ((7, "w"), lambda p: end(p, of_token(p) * p["v"]), "bias"),
    "gate of queries": ((7, "w"), lambda p: end(p, ((of_token(p) * p["v"]) @ of_token(p).T) @ of_token(p)), "bias"),
    "positions": ((7, "w"), lambda p: end(p, of_token(p) + p["v"]), "input"),
    "rates": (("w", 4), lambda p: end(p, (jnp.outer(of_token(p)[0], X[1, :4, 0]) * p["v"]).sum(-1)), "bias"),
}


@pytest.mark.parametrize("name", ALIKE)
def test_without_a_batch_activations_are_no_weights(name: str):
    shape, forward, role = ALIKE[name]
    assert roles(shape, forward) == role


class Noisy(nn.Module):
    """A readout that is shifted at random, and drawn masks that meet nothing but weights."""

    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        v = self.param("v", nn.initializers.lecun_normal(), (self.width, 5))
        h = jnp.tanh(nn.Dense(self.width)(x))
        noise = 1 + 0.1 * jax.random.normal(self.make_rng("dropout"), (self.width, 1))
        return h @ (v * noise + 0.1 * jax.random.normal(self.make_rng("dropout"), v.shape))


def test_noise_that_a_module_draws_is_no_activation():
    def init(key, width):
        return Noisy(width).init({"params": key, "dropout": key}, X)

    assert infer_roles(init, **SIZES).places["params.v"].role == "readout"


@pytest.mark.parametrize("name", ROLES)
def test_roles_follow_from_the_use(name: str):
    shape, forward, drop, role = ROLES[name]
    assert roles(shape, forward, drop) == role


def test_a_use_that_is_not_followed_is_said():
    def forward(p):
        h = hidden(p)[..., None, :]
        return end(p, hidden(p)) + (h * p["v"] * jnp.cos(h)).sum()

    with pytest.warns(UserWarning, match=r"v of shape \(2, 32\) meets activations .* taken for \"input\""):
        assert roles((2, "w"), forward) == "input"


def states(p, first):
    def step(c, x):
        c = c * jnp.exp(-jnp.exp(p["v"])) + x[..., None]
        return c, c.sum(-1)

    return end(p, jax.lax.scan(step, jnp.broadcast_to(first, (4, *first.shape)), hidden(p).swapaxes(0, 1))[1])


@pytest.mark.parametrize("learned", [False, True])
def test_rates_of_states_are_vectors_whatever_these_begin_with(learned: bool):
    shape = ("w", 4)
    assert roles(shape, lambda p: states(p, p["h"] if learned else jnp.zeros_like(p["v"])), h=shape) == "bias"


def test_distances_to_prototypes_are_said():
    with pytest.warns(UserWarning, match="meets activations"):
        roles((5, "w"), lambda p: -((hidden(p)[:, 0, None] - p["v"]) ** 2).sum(-1))


FOLLOWED = {
    "positions before a norm": ((7, "w"), lambda p: end(p, root_mean_square(hidden(p) + p["v"])), "input"),
    "scales before groups": (
        (6, "w"),
        lambda p: end(p, nn.GroupNorm(2, use_bias=False, use_scale=False).apply({}, hidden(p) * p["v"][2])),
        "bias",
    ),
    "positions before a convolution": (
        (7, "w"),
        lambda p: end(
            p,
            jax.lax.conv_general_dilated(
                root_mean_square(hidden(p) + p["v"]),
                p["mid"][None],
                (1,),
                "SAME",
                dimension_numbers=("NWC", "WIO", "NWC"),
            ),
        ),
        "input",
    ),
    "gates before a softmax": ((6, "w"), lambda p: end(p, jax.nn.softmax(hidden(p) * p["v"][2])), "bias"),
}


def root_mean_square(h):
    return h / jnp.linalg.norm(h, axis=-1, keepdims=True) * h.shape[-1] ** 0.5


@pytest.mark.parametrize("name", FOLLOWED)
def test_norms_of_what_goes_on_to_weights_are_followed(name: str):
    shape, forward, role = FOLLOWED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roles(shape, forward) == role


class Decaying(nn.Module):
    """A channel forgets at rates that are drawn alike at every width, and so they are to be trained."""

    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        h = nn.Dense(self.width)(x)
        log_rates = self.param("log_rates", lambda *_: jnp.log(jnp.broadcast_to(jnp.arange(1.0, 5.0), (self.width, 4))))
        return nn.Dense(1)(jnp.tanh((h[..., None] * jnp.exp(-jnp.exp(log_rates))).sum(-1)))


@pytest.mark.slow
def test_rates_of_channels_start_and_move_alike_at_every_width():
    starts, moves = [], []
    for width in (16, 256):
        net = Rescaled.of(Decaying, X[:, 0], base={"width": 16}, target={"width": width})
        params: Any = jax.jit(net.init)(jax.random.key(0), X[:, 0])
        tx = scaled(optax.adam(0.01), net.roles)
        gradient: Any = jax.jit(jax.grad(lambda p, net=net: (net.apply(p, X[:, 0]) ** 2).mean()))(params)
        step: Any = jax.jit(tx.update)(gradient, tx.init(params), params)[0]
        starts.append(np.asarray(params["params"]["log_rates"])[0])
        moves.append(np.abs(step["params"]["log_rates"]).mean())
    np.testing.assert_allclose(starts[0], np.log([1, 2, 3, 4]), atol=1e-6)
    np.testing.assert_allclose(*starts, atol=1e-6)
    np.testing.assert_allclose(moves, 0.01, rtol=0.05)


class Padded(nn.Module):
    width: int
    mode: str

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width)(x))
        return nn.Dense(1)(jnp.pad(h, ((0, 0), (1, 1), (0, 0)), mode=self.mode).sum(1))


@pytest.mark.parametrize("mode", ["edge", "mean"])
def test_parts_that_are_empty_hold_nothing(mode):
    """As those that jax cuts off at axes which are not padded."""
    factors = learning_rate_factors(in_parameterization(Padded(64, mode), "ntk"), X[:1])
    assert len(jax.tree.leaves(factors)) == 4


LOOPS = {
    "scan": lambda w: jax.lax.scan(lambda c, each: (c + each, None), jnp.zeros((8, 8)), w)[0],
    "from the first": lambda w: jax.lax.scan(lambda c, each: (c + each, None), w[0], w[1:])[0],
    "by its number": lambda w: jax.lax.fori_loop(0, 3, lambda i, c: c + w[i], jnp.zeros((8, 8))),
}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("name", LOOPS)
def test_a_sum_of_weights_that_a_loop_makes_is_one_matrix(name: str, told: bool):
    """Its carry was taken for activations, which met the weights entry by entry."""
    params, x = {"w": jnp.ones((3, 8, 8))}, jnp.ones((2, 8))
    forward = lambda p, x: jnp.tanh(x @ LOOPS[name](p["w"]))  # noqa: E731
    found = uses(forward, params, x) if told else uses(lambda p: forward(p, x), params)
    assert [use[:2] for use in found["w"]] == [((1,), (2,))]


def test_a_loop_may_carry_a_key_of_random_numbers():
    def body(carry, w):
        key, h = carry
        key, own = jax.random.split(key)
        return (key, h + jnp.tanh(h @ w) * jax.random.bernoulli(own, 0.5, h.shape)), None

    params = {"w": jnp.ones((3, 8, 8))}
    found = uses(lambda p: jax.lax.scan(body, (jax.random.key(0), jnp.ones((2, 8))), p["w"])[0][1], params)
    assert found["w"] == [Use((1,), (2,), (0,))]


def test_signals_that_a_loop_carries_are_none():
    """What begins as a parameter, too, once signals are added to it."""
    params = {"w": jnp.ones((3, 8, 8)), "h": jnp.ones((2, 8))}
    body = lambda h, w: (h + jnp.tanh(h @ w), None)  # noqa: E731
    found = uses(lambda p, x: jax.lax.scan(body, p["h"], p["w"])[0] + x, params, jnp.ones((2, 8)))
    assert found["w"] == [Use((1,), (2,), (0,))]
    assert {use.how for use in found["h"]} == {"added"}  # pyright: ignore
