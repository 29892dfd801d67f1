"""The network of configs/train_gpt.py as one would write it by hand, in Flax and Optax alone: what `launch.bench` holds
`launch.train` against."""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


def _turned(x: jax.Array) -> jax.Array:
    """Rotary positions of [n, t, heads, d]."""
    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * 1e4 ** (-jnp.arange(half) / half)[None]
    cos, sin = (part[None, :, None] for part in (jnp.cos(angle), jnp.sin(angle)))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


class PlainBlock(nn.Module):
    """Attention and an MLP, each after an RMS norm."""

    width: int
    heads: int

    @nn.compact
    def __call__(self, h: jax.Array) -> jax.Array:  # noqa: D102
        n, t, size = *h.shape[:2], self.width // self.heads
        a = nn.RMSNorm()(h)
        q, k, v = (nn.Dense(self.width, use_bias=False)(a).reshape(n, t, self.heads, size) for _ in range(3))
        q, k = (_turned(nn.RMSNorm()(part)) for part in (q, k))
        scores = jnp.einsum("nahd,nbhd->nhab", q, k) / size
        p = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t), bool))[None, None], scores, -1e30))
        h = h + nn.Dense(self.width, use_bias=False)(jnp.einsum("nhab,nbhd->nahd", p, v).reshape(n, t, self.width))
        inside = jnp.square(nn.relu(nn.Dense(4 * self.width, use_bias=False)(nn.RMSNorm()(h))))
        return h + nn.Dense(self.width, use_bias=False)(inside)


class PlainGPT(nn.Module):
    """Bytes in, a score for each next byte out.

    >>> net = PlainGPT(width=8, depth=1, heads=2)
    >>> net.init_with_output(jax.random.key(0), jnp.zeros((1, 4), int))[0].shape
    (1, 4, 256)
    """

    width: int
    depth: int
    heads: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:  # noqa: D102
        h = nn.Embed(256, self.width)(tokens)
        for _ in range(self.depth):
            h = PlainBlock(self.width, self.heads)(h)
        return nn.Dense(256, use_bias=False)(nn.RMSNorm()(h))


def by_hand(width: int, depth: int, learning_rate: float, batch: tuple[Any, Any]) -> Callable[[int], None]:
    """What makes so many steps of Muon on a batch (tokens, targets), one dispatch each, as a loop of one's own does."""
    net, tx = PlainGPT(width, depth, max(width // 64, 1)), optax.contrib.muon(learning_rate)
    params: Any = jax.jit(net.init)(jax.random.key(0), batch[0])
    state = params, tx.init(params)

    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        outputs: Any = net.apply(params, tokens)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean() / math.log(2)

    def step(state: Any, tokens: Any, targets: Any) -> Any:
        params, memory = state
        value, gradient = jax.value_and_grad(loss)(params, tokens, targets)
        updates, memory = tx.update(gradient, memory, params)
        return (optax.apply_updates(params, updates), memory), value

    compiled = jax.jit(step, donate_argnums=0)

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count):
            state, _ = compiled(state, *batch)
        jax.block_until_ready(state)

    return run
