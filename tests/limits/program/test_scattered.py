"""Modules that add or set signals at positions that the code says, as message passing on a graph does."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stock import Dense
from test_program import reading

from limits import twin
from limits.program.values import NoLimitError
from zoo import in_parameterization

X = np.random.default_rng(0).normal(size=(3, 4, 5))
SENDERS, RECEIVERS = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2])
TO = np.eye(4)[RECEIVERS]  # [edges, nodes]
WAYS = {
    "segment_sum": lambda h, m: jax.vmap(lambda one: jax.ops.segment_sum(one, RECEIVERS, 4))(m),
    "at": lambda h, m: jnp.zeros_like(h).at[:, RECEIVERS].add(m),
    "first": lambda h, m: jnp.zeros((4, len(h), h.shape[-1]), h.dtype).at[RECEIVERS].add(m.swapaxes(0, 1)).swapaxes(0, 1),
    "onto": lambda h, m: h.at[:, RECEIVERS].add(m),
    "dropped": lambda h, m: jnp.zeros_like(h).at[:, np.append(RECEIVERS, 9)].add(jnp.concatenate([m, h[:, :1]], 1), mode="drop"),
    "pairs": lambda h, m: jnp.zeros((*h.shape[:1], 2, 2, h.shape[-1]), h.dtype)
    .at[:, RECEIVERS // 2, RECEIVERS % 2]
    .add(m)
    .reshape(h.shape),
}  # fmt: skip
ONTO = {"onto"}  # what the node had stays


class Messages(nn.Module):
    """Two rounds of messages along edges, summed by one of the `WAYS` or by a matrix of zeros and ones."""

    width: int
    way: str
    dense: bool = False
    last: bool = False  # one round of bare messages, and no biases

    @nn.compact
    def __call__(self, x):
        new = lambda h: Dense(self.width, use_bias=not self.last)(h)  # noqa: E731
        add = WAYS[self.way]
        if self.dense:
            ones = jnp.asarray(TO, x.dtype)
            add = lambda h, m: jnp.einsum("nec,et->ntc", m, ones) + (h if self.way in ONTO else 0)  # noqa: E731
        h = new(x)
        if self.last:
            return Dense(1, use_bias=False)(nn.relu(add(h, h[:, SENDERS])).mean(1))
        for _ in range(2):
            h = h + nn.relu(new(h) + new(add(h, nn.relu(new(h[:, SENDERS]) + new(h[:, RECEIVERS])))))
        return Dense(1)(h.mean(1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_sums_over_edges_are_products_with_ones_and_zeros(way):
    """They were drawn: there was no rule for the primitive."""
    found, dense = (reading([Messages(n, way, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(found, dense, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        assert np.abs(a - np.diag(a)[:, None]).max() > 0.01


def test_one_round_by_the_formula():
    """Arc-cosine kernels of A x with A_tu the number of edges from u to t."""
    a = TO.T @ np.eye(4)[SENDERS]
    k = np.einsum("tu,nuc,mvc,sv->ntms", a, X, X, a) / 5
    size = np.sqrt(np.einsum("ntnt->nt", k))
    size = size[:, :, None, None] * size
    angle = np.arccos(np.clip(k / size, -1, 1))
    nngp = (size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)).mean((1, 3))
    ntk = nngp + (k * (np.pi - angle) / (2 * np.pi)).mean((1, 3))
    found = twin(in_parameterization(Messages(16, "segment_sum", last=True), "ntk")).kernels(X)
    assert found.provenance["ntk"].kind != "monte_carlo"
    np.testing.assert_allclose(found.nngp, nngp, rtol=1e-7)  # the angle of an input with itself is a root of rounding
    np.testing.assert_allclose(found.ntk, ntk, rtol=1e-7)


def test_wide_networks_have_these_kernels():
    """128 networks of width 512 drawn here, 4 standard errors and 1/N: (fᵃ fᵇ over networks; sums over gradients)."""
    net = Messages(512, "at", last=True)
    params = jax.eval_shape(lambda: net.init(jax.random.key(0), X))["params"]

    def one(key):
        drawn = nn.meta.unbox(net.init(key, X)["params"])
        outputs: Any = lambda p: net.apply({"params": p}, X)  # noqa: E731
        slopes = jax.jacobian(lambda p: outputs(p)[:, 0])(drawn)
        scales = {name: leaf["kernel"].shape[0] for name, leaf in params.items()}
        return sum(
            jnp.tensordot(j["kernel"], j["kernel"], ((1, 2), (1, 2))) / scales[name] for name, j in slopes.items()
        )

    drawn = np.asarray(jax.lax.map(jax.jit(one), jax.random.split(jax.random.key(1), 128)))
    error = drawn.std(0, ddof=1) / 128**0.5
    found = twin(in_parameterization(net, "ntk")).kernels(X).ntk
    assert (abs(drawn.mean(0) - found) < 4 * error + 1e-2 / 512 * abs(found)).all(), (drawn.mean(0) - found) / error


AT = np.array([2, 0])
SETS: dict[str, Any] = {
    "signals": (lambda h, u: h.at[:, AT].set(u[:, :2]), lambda h, u: [u[:, 1], h[:, 1], u[:, 0], h[:, 3]]),
    "a pair": (
        lambda h, u: h.reshape(-1, 2, 2, h.shape[-1]).at[:, 1, 0].set(u[:, 0]).reshape(h.shape),
        lambda h, u: [h[:, 0], h[:, 1], u[:, 0], h[:, 3]],
    ),
    "a slice": (
        lambda h, u: jax.lax.dynamic_update_slice(h, u[:, :2], (0, 3, 0)),  # JAX moves it to where it has room
        lambda h, u: [h[:, 0], h[:, 1], u[:, 0], u[:, 1]],
    ),
    "one more": (
        lambda h, u: jax.lax.dynamic_update_index_in_dim(h, u[:, 2], 1, 1),
        lambda h, u: [h[:, 0], u[:, 2], h[:, 2], h[:, 3]],
    ),
}
ZEROS = {
    "among zeros": (lambda h: jnp.zeros_like(h).at[:, AT].set(h[:, AT]), [1, 0, 1, 0]),
    "numbers": (lambda h: h.at[:, AT].multiply(jnp.array([0.5, -2.0], h.dtype)[None, :, None]), [-2.0, 1, 0.5, 1]),
    "half": (lambda h: h.at[:, 1].multiply(0.5), [1, 0.5, 1, 1]),
    "zeros from there on": (
        lambda h: jax.lax.dynamic_update_slice(h, jnp.zeros_like(h[:, :2]), (0, 1, 0)),
        [1, 0, 0, 1],
    ),
    "a zero": (lambda h: h.at[:, 1].set(0), [1, 0, 1, 1]),
}
SETS |= {
    way: (lambda h, u, at=at: at(u), lambda h, u, by=by: (u * jnp.array(by, u.dtype)[None, :, None]).swapaxes(0, 1))
    for way, (at, by) in ZEROS.items()
}


class Set(nn.Module):
    """Signals among others, at some positions or side by side."""

    width: int
    way: str
    stacked: bool = False

    @nn.compact
    def __call__(self, x):
        h, u = Dense(self.width)(x), Dense(self.width)(nn.tanh(Dense(self.width)(x)))
        at, side_by_side = SETS[self.way]
        h = jnp.stack([*side_by_side(h, u)], 1) if self.stacked else at(h, u)
        return Dense(1)(jnp.sin(Dense(self.width)(jnp.sin(h))).mean(1))


@pytest.mark.parametrize("way", SETS)
def test_what_is_set_stands_where_it_is_set(way):
    """They were drawn: there was no rule for the primitive."""
    found, stacked = (reading([Set(n, way, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(found, stacked, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


class Shifted(nn.Module):
    """A position that a number was added to, beside another: a function of both, or of each."""

    width: int
    each: bool = False

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x[:, :2])
        parts = h[:, :1], h[:, 1:] + 0.5
        both = [jnp.sin(p) for p in parts] if self.each else parts
        h = jnp.concatenate(both, 1)
        return Dense(1)((h if self.each else jnp.sin(h)).mean(1))


@pytest.mark.slow
def test_a_number_that_is_added_stays_at_its_position():
    """It was added at all positions of the concatenation."""
    whole, each = (reading([Shifted(n, each) for n in (16, 32)], X) for each in (False, True))
    for a, b in zip(whole, each, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)  # averages over four variables by points


class ByInput(nn.Module):
    """Positions that inputs say, or neurons."""

    width: int
    neurons: bool = False
    twice: bool = False
    infinite: bool = False
    times: bool = False
    first: bool = False

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        if self.twice:
            return Dense(1)(nn.relu(h.at[:, np.array([1, 1])].set(h[:, :2])).mean(1))
        if self.neurons:
            return Dense(1)(nn.relu(h.at[..., 0].add(1.0)).mean(1))
        if self.first:
            return Dense(1)(nn.relu(jax.lax.dynamic_update_slice(h, h[:, :1, :1], (0, 0, 0))).mean(1))
        if self.times:
            return Dense(1)(nn.relu(h.at[:, AT].multiply(h[:, :2])).mean(1))
        if self.infinite:
            return Dense(1)(jnp.maximum(jnp.full_like(h, -jnp.inf).at[:, 1].set(h[:, 2]), -1.0).mean(1))
        at = jnp.argsort(x[..., 0], -1)
        return Dense(1)(nn.relu(jax.vmap(lambda m, i: jnp.zeros_like(m).at[i // 2].add(m))(h, at)).mean(1))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ((False, False), "at positions that inputs say"),
        ((True,), "single neurons"),
        ((False, True), "at one position"),
        ((False, False, True), "not finite"),
        ((False, False, False, True), "multiplied by others"),
        ((False, False, False, False, True), "single neurons"),
    ],
)
def test_what_is_not_followed_is_said(how, said):
    with pytest.raises(NoLimitError, match=said):
        reading([ByInput(n, *how) for n in (16, 32)], X)
