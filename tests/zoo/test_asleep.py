"""Layers inside that wait for others at zero: which are named, with which remedy, and how long that takes."""

import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from zoo import explain, in_parameterization
from zoo.asleep import sleepers
from zoo.inferred import Place
from zoo.uses import Pass

SHAPE = jax.ShapeDtypeStruct((2, 5, 3), "float32")
ZERO, LECUN = nn.initializers.zeros, nn.initializers.lecun_normal()


def small(key: Any, shape: Any, dtype: Any = jnp.float32) -> Any:
    return jax.random.normal(key, shape, dtype) / shape[0]


class Inside(nn.Module):
    """h and few signals of it, that meet another layer's."""

    width: int
    case: str
    one: Any
    two: Any

    @nn.compact
    def __call__(self, x):
        n, head = self.width, LECUN

        def dense(size: int, name: str, start: Any) -> Any:
            return nn.Dense(size, use_bias=False, name=name, kernel_init=start)

        h = nn.tanh(nn.Dense(n, name="first")(x))
        if self.case == "attention":
            logits = jnp.einsum("btd,bsd->bts", dense(4, "one", self.one)(h), dense(4, "two", self.two)(h))
            h = h + nn.softmax(logits) @ dense(n, "values", LECUN)(h)
        elif self.case == "product":
            h = h + dense(n, "up", nn.initializers.normal(1.0))(
                dense(4, "one", self.one)(h) * dense(4, "two", self.two)(h)
            )
        elif self.case == "bottleneck":
            h, head = nn.tanh(dense(n, "up", nn.initializers.normal(1.0))(dense(4, "one", self.one)(h))), self.two
            return dense(1, "two", head)(h)
        elif self.case == "gate":
            few = dense(4, "one", self.one)(h)
            h = h + dense(n, "two", self.two)(h) * dense(n, "up", nn.initializers.normal(1.0))(nn.relu(few))
        elif self.case == "scalar":
            by = self.param("two", self.two, ()) if self.two is ZERO else 1.0
            h = h + by * dense(n, "up", nn.initializers.normal(1.0))(dense(4, "one", self.one)(h))
        else:
            experts = self.param("two", self.two, (4, n, n))
            h = h + jnp.einsum("bte,beto->bto", dense(4, "one", self.one)(h), jnp.einsum("bti,eio->beto", h, experts))
        return nn.Dense(1, name="out", kernel_init=head)(h)


CASES = ["attention", "product", "bottleneck", "gate", "scalar", "experts"]


def said(case: str, one: Any, two: Any) -> list[str]:
    return list(explain(in_parameterization(Inside(16, case, one, two), "mup"), "adam", x=SHAPE, show=False).warnings)


def moves(case: str, one: Any, two: Any) -> list[bool]:
    """Whether each of the two has a gradient at the start."""
    net, x = Inside(16, case, one, two), jax.random.normal(jax.random.key(1), SHAPE.shape)
    params = net.init(jax.random.key(0), x)["params"]

    def loss(p: Any) -> Any:
        out: Any = net.apply({"params": p}, x)
        return jnp.sum((out - 1) ** 2)

    gradient = jax.grad(loss)(params)
    return [any(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(gradient[name])) for name in ("one", "two")]


@pytest.mark.parametrize("case", CASES)
def test_small_layers_that_meet_zeros_which_learn_at_once_are_no_matter(case):
    assert moves(case, small, ZERO) == [False, True]
    assert said(case, small, ZERO) == []


@pytest.mark.parametrize("case", CASES)
def test_two_that_both_start_at_zero_are_said_to_stay(case):
    assert moves(case, ZERO, ZERO) == [False, False]
    (told,) = said(case, ZERO, ZERO)
    assert "both stay at zero. Start one of them away from zero" in told
    assert told.startswith(("one", "two"))
    assert "LoRA" not in told


def test_large_signals_before_a_readout_at_zero_are_warned_of():
    (told,) = said("bottleneck", LECUN, ZERO)
    assert told.startswith("one.kernel: what stands inside the network")


def test_all_pairs_are_found_in_one_walk():
    count = 60
    shapes = {"h": (4, 4)} | {f"{kind}{i}": (4, 2) if kind == "a" else (2, 4) for i in range(count) for kind in "ab"}
    params = {name: jnp.ones(shape) for name, shape in shapes.items()}
    places = {
        name: Place("readout", (4, 2), (0,), inner=True) if name[0] == "a" else Place("input", (2, 4), (1,))
        for name in shapes
        if name != "h"
    }

    def forward(p: Any, x: Any) -> Any:
        for i in range(count):
            x = jnp.tanh(x @ p["h"]) + jnp.tanh(x @ p[f"a{i}"]) @ p[f"b{i}"]
        return x

    passed = Pass(forward, params, jnp.ones((3, 4)))
    start = time.process_time()
    found = sleepers(passed, places, {name for name in places if name[0] == "b"})
    assert {name: each.other for name, each in found.items()} == {f"a{i}": f"b{i}" for i in range(count)}
    taken = time.process_time() - start
    print(taken)
    assert taken < 3  # 17 where every pair has a walk of its own
