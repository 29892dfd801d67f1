"""Layers from neurons to few signals inside a network: which they are, and that their signals move alike at every width."""

import functools
import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import (
    Dense,
    Parameterization,
    Rescaled,
    explain,
    factors,
    in_parameterization,
    infer_roles,
    parameterization,
    scaled,
)
from zoo.roles import too_large

RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.normal(size=(8, 4)), "float32"), jnp.asarray(RNG.normal(size=(8, 1)) + 1, "float32")
ZEROS = nn.initializers.zeros


class Few(nn.Module):
    """Features h, a layer "few" of 2 signals of them, and what `end` makes of both."""

    width: int
    end: Any
    start: Any = ZEROS

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width, name="first")(x))
        return self.end(h, nn.Dense(2, name="few", kernel_init=self.start)(h))


def out(h: Any, **options: Any) -> Any:
    return nn.Dense(1, name="out", **options)(h)


def looped(h: Any, r: Any) -> Any:
    return out(jax.lax.fori_loop(0, 3, lambda _, h: h * nn.sigmoid(r[:, :1]), h))


def scanned(h: Any, r: Any) -> Any:
    return out(jax.lax.scan(lambda h, gate: (h * gate[:, None], None), h, nn.softmax(r).T)[0])


INSIDE = {
    "a gate": lambda h, r: out(h * nn.sigmoid(r[:, :1])),
    "a router": lambda h, r: out(jnp.einsum("nk,nkd->nd", nn.softmax(r), jnp.stack([h, h**2], 1))),
    "a bottleneck": lambda h, r: out(nn.tanh(nn.Dense(h.shape[-1], name="back")(nn.tanh(r)))),
    "a loop": looped,
    "a scan": scanned,
    "remat": lambda h, r: out(jax.checkpoint(lambda h, r: h * nn.sigmoid(r[:, :1]))(h, r)),
    "a branch of a program": lambda h, r: out(jax.lax.cond(r.shape[0] > 3, lambda: h + r[:, :1], lambda: h)),
    "after sums in places": lambda h, r: out(h.at[:, 0].add(1.0).at[:, 1].multiply(2.0) * nn.sigmoid(r[:, :1])),
    "beside outputs": lambda h, r: r[:, :1] + out(h * nn.sigmoid(r[:, 1:])),
}
OUTSIDE = {
    "alone": lambda h, r: r,
    "added to another": lambda h, r: r + out(h),
    "beside another": lambda h, r: jnp.concatenate([r, out(h)], -1),
    "over a number": lambda h, r: nn.tanh(r) / 3,
    "a product of two": lambda h, r: r[:, :1] * out(h),
    "a network of few": lambda h, r: nn.Dense(1, name="out")(nn.tanh(r)),
    "no derivative": lambda h, r: out(h * jnp.argmax(r, -1)[:, None]),
    "stopped": lambda h, r: r[:, :1] + out(h * nn.sigmoid(jax.lax.stop_gradient(r[:, :1]))),
    "over the root of the width": lambda h, r: out(h * nn.sigmoid(r[:, :1] / h.shape[-1] ** 0.5)),
    "over one that is computed": lambda h, r: out(h * nn.sigmoid(r[:, :1] / jnp.sqrt(jnp.ones(h.shape[-1]).sum()))),
}


@pytest.mark.parametrize("end", [*INSIDE, *OUTSIDE])
def test_what_is_inside_is_told_from_readouts(end):
    net = Few(8, {**INSIDE, **OUTSIDE}[end])
    found = infer_roles(lambda key, width: net.clone(width=width).init(key, X)["params"], {"width": 8}, {"width": 32})
    inside = {name for name, place in found.places.items() if place.inner}
    assert inside == ({"few.kernel", "few.bias"} if end in INSIDE else set())
    assert found.places["few.kernel"].role == "readout"
    plain = factors(in_parameterization(net, "mup"), net.init(jax.random.key(0), X)["params"], X)
    assert plain["few"]["kernel"].inner == plain["few"]["bias"].inner == (end in INSIDE)


def test_vectors_and_means_over_positions_are_readouts():
    def apply(p, width):
        h = jnp.tanh(X[:, None] @ p["u"] + jnp.ones((3, width)))
        gate = nn.sigmoid((h * p["gate"]).sum(-1, keepdims=True))
        return ((h * gate) * p["v"]).sum(-1).mean(1)

    def init(key, width):
        k = jax.random.split(key, 3)
        v, gate = (jax.random.normal(each, (width,)) / width**0.5 for each in k[:2])
        return {"u": jax.random.normal(k[2], (4, width)), "v": v, "gate": gate}

    with jax.numpy_rank_promotion("allow"):
        places = infer_roles(init, {"width": 8}, {"width": 32}, apply=apply).places
    assert {name: (place.role, place.inner) for name, place in places.items()} == {
        "u": ("input", False), "v": ("readout", False), "gate": ("readout", True)
    }  # fmt: skip


def test_a_readout_may_be_multiplied_with_the_matrix_before_it():
    """h (V W) is (h V) W, whichever product comes first; so is that of an einsum, which chooses."""

    def init(key, width):
        k = jax.random.split(key, 3)
        hidden, readout = (jax.random.normal(k[i], (width, n)) / width**0.5 for i, n in ((1, width), (2, 3)))
        return {"u": jax.random.normal(k[0], (4, width)), "v": hidden, "w": readout}

    def merged(p, width):
        return jnp.tanh(X @ p["u"]) @ (p["v"] @ p["w"])

    places = infer_roles(init, {"width": 8}, {"width": 32}, apply=merged).places
    assert {name: (place.role, place.inner) for name, place in places.items()} == {
        "u": ("input", False), "v": ("hidden", False), "w": ("readout", False)
    }  # fmt: skip


class OfZoo(nn.Module):
    """The same of zoo's layers."""

    width: int
    parameterization: Any = "mup"
    gamma: float = 1.0
    zero: bool = True
    small: bool = False
    batch: bool = False

    @nn.compact
    def __call__(self, x):
        p = parameterization(self.parameterization)
        if self.width > 4096:
            raise ValueError("too wide")
        dense = functools.partial(Dense, width=self.width, parameterization=p, use_bias=True)
        h = jnp.tanh(dense(self.width, "input", name="first")(x))
        if self.batch:
            h = nn.BatchNorm(use_running_average=False, use_scale=False, use_bias=False)(h)
        few = self.width**-0.5 if self.small else 1.0
        r = dense(2, "readout", name="few", w_std=few, zero_init=self.zero)(h)
        return dense(1, "readout", name="out")(h * (1 + jnp.tanh(r[:, :1]))) / p.output_scale(self.width, self.gamma)


GATED: Any = Few(64, lambda h, r: out(h * (1 + jnp.tanh(r[:, :1]))))


def moved(make: Any, width: int, rule: Any, steps: int = 8) -> np.ndarray:
    """How far signals inside, features and outputs move, of every one of 16 networks: [3, seed]."""
    net, own, start = make(width)

    def see(params: Any) -> Any:
        _, seen = net.apply({"params": params}, X, capture_intermediates=True)
        inner = seen["intermediates"]
        return inner["few"]["__call__"][0], inner["first"]["__call__"][0], net.apply({"params": params}, X)

    def run(key: Any) -> Any:
        params = start(net.init(key, X)["params"])
        tx, begin = scaled(rule, own, None if own is not net else X), see(params)

        def step(carry: Any, _: Any) -> Any:
            params, state = carry
            g = jax.grad(lambda p: jnp.mean((net.apply({"params": p}, X) - begin[2] - Y) ** 2))(params)
            updates, state = tx.update(g, state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), length=steps)
        return jnp.stack([jnp.sqrt(jnp.mean((a - b) ** 2)) for a, b in zip(see(params), begin, strict=True)])

    return np.asarray(jax.jit(lambda keys: jax.lax.map(run, keys))(jax.random.split(jax.random.key(1), 16))).T


def _plain(width: int) -> Any:
    net = in_parameterization(GATED.clone(width=width), "mup")
    return net, net, lambda params: params


def over_the_width(key: Any, shape: Any, dtype: Any = "float32") -> Any:
    return jax.random.normal(key, shape, dtype) / shape[0]


def _small_start(width: int) -> Any:
    net = in_parameterization(GATED.clone(width=width, start=over_the_width), "mup")
    return net, net, lambda params: params


def _based(width: int) -> Any:
    net = OfZoo(width, Parameterization.mup.based(64))
    return net, net, lambda params: params


def _zoo(width: int) -> Any:
    net = OfZoo(width)
    return net, net, lambda params: params


def _zoo_small(width: int) -> Any:
    net = OfZoo(width, zero=False, small=True)
    return net, net, lambda params: params


def _inferred(width: int) -> Any:
    net = GATED.clone(width=width, start=nn.initializers.lecun_normal())
    init = lambda key, width: net.clone(width=width).init(key, X)["params"]  # noqa: E731
    found = infer_roles(init, {"width": 64}, {"width": width})
    return net, found, found.rescale


@pytest.mark.parametrize("rule", ["adam", "sgd"])
@pytest.mark.parametrize("make", [_plain, _small_start, _zoo, _zoo_small, _based, _inferred])
def test_signals_inside_move_alike_at_every_width(make, rule):
    """Between widths 64 and 1024: √N would be 4. Standard errors of the ratio: below .2."""
    small = make in (_based, _inferred)  # a plain optimiser at the base
    tx = {"adam": optax.adam(0.01 if small else 0.03), "sgd": optax.sgd(0.05 if small else 0.2)}[rule]
    narrow, wide = (moved(make, width, tx) for width in (64, 1024))
    ratio = wide.mean(1) / narrow.mean(1)
    error = ratio * np.hypot(*(each.std(1, ddof=1) / 16**0.5 / each.mean(1) for each in (narrow, wide)))
    assert (np.abs(ratio - 1) < 0.15 + 3 * error).all()
    assert (error < 0.2).all()


def test_weights_inside_that_start_large_are_named():
    net = in_parameterization(GATED.clone(start=nn.initializers.lecun_normal()), "mup")
    assert too_large(net, X) == ["few.kernel"]
    assert too_large(OfZoo(8, zero=False), X) == ["few.kernel"]
    assert any("few.kernel: what stands inside" in each for each in explain(net, "adam", x=X, show=False).warnings)
    rows = {row.name: row for row in explain(net, "sgd", x=X, show=False).rows}
    assert rows["few.kernel"].role == "readout, inside"
    assert rows["few.kernel"].rate == pytest.approx(1 / 64)
    assert rows["few.bias"].rate == pytest.approx(1.0)
    assert rows["out.kernel"].rate == pytest.approx(1.0)
    small = OfZoo(8, zero=False, small=True)
    for other in (net.clone(parameterization="ntk"), in_parameterization(GATED, "mup"), OfZoo(8), small):
        assert not too_large(other, X)


@pytest.mark.parametrize("net", [OfZoo(16, batch=True), OfZoo(4096)])
def test_layers_inside_are_seen_beside_other_variables_and_at_half_the_width(net):
    shapes = jax.eval_shape(net.init, jax.random.key(0), X)["params"]
    found = factors(net, shapes, X)["few"]
    assert (found["kernel"].inner, found["kernel"].rate, found["bias"].rate) == (True, 1.0, 1.0)


def test_in_ntk_nothing_is_other():
    net = in_parameterization(GATED.clone(start=nn.initializers.lecun_normal()), "ntk")
    found = factors(net, net.init(jax.random.key(0), X)["params"], X)
    assert found["few"]["kernel"].rate == pytest.approx(1 / 64)
    assert found["few"]["bias"].rate == pytest.approx(1.0)


class Mixing(nn.Module):
    """Two layers on the positions of every neuron, as of an MLP-Mixer; `average`: their signals are the outputs."""

    width: int
    average: bool = False

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(self.width, name="stem")(x[..., None]))
        mixed = nn.relu(nn.Dense(2 * self.width, name="mix")(jnp.swapaxes(h, 1, 2)))
        signals = nn.Dense(4, kernel_init=ZEROS, name="back")(mixed)
        if self.average:
            return signals.mean(1)
        return nn.Dense(1, name="readout")(jnp.tanh(h + jnp.swapaxes(signals, 1, 2)).mean(1))


def test_weights_that_mix_positions_of_every_neuron_are_inside():
    """Signals of their own for every neuron, which others' weights multiply; the mean of signals over neurons is an output."""
    for average in (False, True):
        roles = infer_roles(
            lambda key, width, a=average: Mixing(width, a).init(key, X)["params"], {"width": 16}, {"width": 64}
        )
        inner = {name for name, place in roles.places.items() if place.inner}
        assert inner == (set() if average else {"back.kernel", "back.bias"})
        assert roles.places["back.kernel"].role == "readout"


@pytest.mark.slow
def test_signals_of_mixed_positions_move_alike_at_every_width():
    """By 4 steps of Adam in `mup`: as a readout of outputs, with a rate √N times larger, they moved by 2.1 times more.

    Over seeds 0 to 2, widths 32 to 1024: .18 to .26, where they were .46 to 1.50.
    """
    moved = []
    for width in (32, 256):
        net = in_parameterization(Mixing(width), "mup")
        start = jax.jit(net.init)(jax.random.key(1), X)
        tx, f0 = scaled("adam", net, X, learning_rate=0.05), net.apply(start, X)

        @jax.jit
        def step(params, state, f0=f0, net=net, tx=tx):
            gradient = jax.grad(lambda p: jnp.mean((net.apply(p, X) - f0 - Y) ** 2))(params)
            updates, state = tx.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        params, state = start, tx.init(start)
        for _ in range(4):
            params, state = step(params, state)
        kept = net.apply(params, X, capture_intermediates=True, mutable=["intermediates"])[1]
        signals = jax.tree.leaves(kept["intermediates"]["back"])[0]
        moved.append(float(jnp.sqrt(jnp.mean(jnp.square(signals)))))
    assert moved[1] == pytest.approx(moved[0], rel=0.35)


class Scaled(nn.Module):
    """An embedding times √width, as of Transformers, or times 4 (`fixed`)."""

    width: int
    fixed: bool

    @nn.compact
    def __call__(self, tokens):
        h = nn.Embed(7, self.width, name="embed")(tokens) * jnp.sqrt(16 if self.fixed else self.width)
        h = nn.LayerNorm()(h + nn.Dense(self.width, name="dense")(nn.LayerNorm(name="before")(h)))
        return nn.Dense(1, name="readout")(h.mean(1))


def test_multipliers_of_embeddings_that_go_with_the_width_are_said():
    """Embedded tokens then have √m times the size of the base's (twice at four times the width), without a word before."""
    tokens = jnp.array([[1, 2, 3]])
    sizes = {"base": {"width": 16}, "target": {"width": 64}}
    with pytest.warns(
        UserWarning, match=r"embed.embedding: the code multiplies it by a number that goes with the width"
    ):
        Rescaled.of(functools.partial(Scaled, fixed=False), tokens, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = Rescaled.of(functools.partial(Scaled, fixed=True), tokens, **sizes)
    table = net.init(jax.random.key(0), tokens)["params"]["embed"]["embedding"]
    assert float(table.std()) == pytest.approx(16**-0.5, rel=0.15)  # of 448 entries: a standard error of 3 %
