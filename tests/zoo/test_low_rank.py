"""Changes of low rank beside a wide matrix, W + A B: however they are written, and where one of their layers starts at zero."""

import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from zoo import Rescaled, explain, in_parameterization, infer_roles, scaled
from zoo.starts import readouts

X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
Y = np.sign(np.random.default_rng(1).normal(size=(5, 1))).astype("float32")
SHAPE = jax.ShapeDtypeStruct(X.shape, "float32")
ZERO, NORMAL, LECUN = nn.initializers.zeros, nn.initializers.normal(1.0), nn.initializers.lecun_normal()


class LowRank(nn.Module):
    """h ← tanh(h (W + A B)): with the product of A and B, or one after the other."""

    width: int
    how: str = "apart"
    a: Any = ZERO
    b: Any = NORMAL

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(self.width, name="first")(x))
        w = self.param("w", LECUN, (self.width, self.width))
        a, b = self.param("a", self.a, (self.width, 2)), self.param("b", self.b, (2, self.width))
        if self.how == "apart":
            h = h @ w + (h @ a) @ b
        elif self.how == "product":
            h = h @ (w + a @ b)
        else:
            h = h @ (w + jnp.outer(a[:, 0], b[0]) + a[:, 1:] * b[1:])
        return nn.Dense(1, name="out")(nn.tanh(h))


def trained(net: Any, tx: Any, steps: int = 3, seed: Any = 0) -> Any:
    """The parameters after some steps on f − f(0)."""
    variables = net.init(jax.random.key(seed), X)
    start = net.apply(variables, X)

    def loss(params: Any) -> Any:
        return jnp.mean((net.apply({"params": params}, X) - start - Y) ** 2)

    params = variables["params"]
    state = tx.init(params)
    for _ in range(steps):
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("rule", [optax.sgd(0.3), optax.adam(0.02)], ids=["sgd", "adam"])
@pytest.mark.parametrize("how", ["product", "outer"])
def test_a_product_that_is_multiplied_out_trains_as_its_layers_one_by_one(how, rule):
    nets = [in_parameterization(LowRank(64, each), "mup") for each in ("apart", how)]
    one, two = (jax.jit(lambda net=net: trained(net, scaled(rule, net, SHAPE)))() for net in nets)
    assert readouts(nets[1], SHAPE) == ["out.kernel"]
    for name in ("a", "b"):
        np.testing.assert_allclose(two[name], one[name], rtol=2e-3, atol=1e-5 * float(np.abs(one[name]).max()))


def test_the_rank_of_embeddings_and_of_heads_is_no_layer_inside():
    class Factored(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            few = self.param("few", NORMAL, (7, 2)) @ self.param("up", NORMAL, (2, self.width))
            h = nn.tanh(nn.Dense(self.width)(nn.tanh(few[jnp.argmax(x, -1)])))
            return h @ (self.param("down", LECUN, (self.width, 2)) @ self.param("end", NORMAL, (2, 1)))

    net = in_parameterization(Factored(16), "mup")
    assert readouts(net, SHAPE) == ["down"]


def signals(net: Any, tx: Any) -> np.ndarray:
    """By how much h A B moves in five steps, root mean square, of 96 networks."""

    def one(seed: Any) -> Any:
        p = trained(net, tx, 5, seed)
        h = jnp.tanh(X @ p["first"]["kernel"] + p["first"]["bias"][None])
        return jnp.sqrt(jnp.mean((h @ p["a"] @ p["b"]) ** 2))

    return np.asarray(jax.jit(lambda seeds: jax.lax.map(one, seeds))(jnp.arange(96)))


@pytest.mark.slow
def test_layers_that_wait_for_each_other_at_zero_are_named_and_the_remedy_moves_alike():
    def of(width: int, rule: Any, **starts: Any) -> Any:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            net = Rescaled.of(lambda width: LowRank(width, **starts), X, base={"width": 32}, target={"width": width})
        return signals(net, scaled(rule, net)), [str(each.message) for each in said]

    (narrow, _), (wide, said) = (of(width, optax.sgd(0.03), a=LECUN, b=ZERO) for width in (64, 256))
    assert wide.mean() < 0.5 * narrow.mean()  # what is warned of: 0.2 to 0.4, as 1/√width or faster
    assert ["a makes few signals" in each and "through b alone" in each for each in said] == [True]
    (narrow, _), (wide, said) = (of(width, optax.adam(3e-3)) for width in (64, 256))
    assert not said
    error = np.hypot(narrow.std() / narrow.mean(), wide.std() / wide.mean()) / 96**0.5  # standard error of the ratio
    print(wide.mean() / narrow.mean(), error)
    assert abs(wide.mean() / narrow.mean() - 1) < 0.05 + 3 * error
    assert error < 0.06


class InNNX(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.first, self.out = nnx.Linear(3, width, rngs=rngs), nnx.Linear(width, 1, rngs=rngs)
        self.mid = nnx.LoRALinear(width, width, lora_rank=2, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.tanh(self.mid(nnx.tanh(self.first(x)))))


def test_lora_of_nnx_is_named():
    with pytest.warns(UserWarning, match=r"mid.lora.lora_a makes few signals .* through mid.lora.lora_b alone"):
        Rescaled.of(InNNX, X, base={"width": 8}, target={"width": 32})
    said = explain(in_parameterization(InNNX, "mup", width=16), "adam", x=X, show=False).warnings
    assert ["lora_a" in each and "lora_b with numbers of O(1)" in each for each in said] == [True]


@pytest.mark.parametrize("a", [LECUN, ZERO])
def test_explain_gives_lora_a_start_from_which_it_learns(a):
    said = explain(in_parameterization(LowRank(16, a=a, b=ZERO), "mup"), "adam", x=X, show=False).warnings
    assert ["Start a at zero and b with numbers of O(1)" in each for each in said] == [True]
    assert not explain(in_parameterization(LowRank(16), "mup"), "adam", x=X, show=False).warnings
    assert not explain(in_parameterization(LowRank(16, a=a, b=ZERO), "ntk"), "adam", x=X, show=False).warnings


@pytest.mark.parametrize("gate", [nn.sigmoid, nn.tanh])
def test_gates_and_branches_that_start_at_zero_are_not_asleep(gate):
    class Gated(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            h = nn.tanh(nn.Dense(self.width)(x))
            g = nn.Dense(2, kernel_init=ZERO, name="gate")(h)
            h = h + nn.Dense(self.width, kernel_init=ZERO, name="branch")(h) * gate(g[:, :1]) + gate(g[:, 1:]) * h
            return nn.Dense(1, name="out")(h)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infer_roles(lambda key, width: Gated(width).init(key, X)["params"], base={"width": 8}, target={"width": 32})
    assert not explain(in_parameterization(Gated(16), "mup"), "adam", x=X, show=False).warnings
