"""What transformers are built of: a table of tokens, attention, and the MLP of a block."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import checks
from zoo.activations import activation_function
from zoo.fused import fits, fused
from zoo.layers import Dense, HasRoles, Norm, scaled_normal
from zoo.parameterization import Parameterization, parameterization

# What stands between the layers of an MLP: (activation, whether it is a gate for a second layer beside the first).
MLPS: dict[str, tuple[Any, bool]] = {
    "gelu": ("gelu", False),
    "gelu_tanh": (jax.nn.gelu, False),  # jax's default approximation, which GPT-2 was trained with
    "relu": ("relu", False),
    "relu2": (lambda x: jnp.square(jax.nn.relu(x)), False),  # jnp.maximum has a slower gradient
    "swiglu": (jax.nn.silu, True),
}
WEIGHTS = "attention_weights"  # [n, heads, a, b] in the collection "intermediates", for who makes it mutable
Layers = Callable[[str, int], Callable[[jax.Array], jax.Array]]  # of (name of a part, features)


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: Any = None,
    logits: str = "1/d",
    softmax: bool = True,
    precision: Any = None,
    keep: Callable[[jax.Array], Any] | None = None,
    causal: bool = False,
) -> jax.Array:
    """Σ_b softmax_b(q_a·k_b / d^p) v_b by head: q [n, a, heads, d], k and v [n, b, heads or fewer, d] → [n, a, heads · d].

    Every head of k and v serves as many heads of q in a row. Only b with `mask` [n or 1, a, b] count, and b ≤ a if `causal`.
    `precision`: the float type of logits and softmax, if it is another than that of q. `keep` is called with the weights
    [n, heads, a, b]. Without these, a mask and in half precision it may be one kernel of a GPU (`zoo.fused`).

    >>> one = jnp.ones((1, 2, 1, 4))
    >>> attend(one, one, jnp.arange(8.0).reshape(1, 2, 1, 4), jnp.tril(jnp.ones((1, 2, 2), bool)))[0, 0].tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    # jax.nn.dot_product_attention gives the same numbers and keeps no weights; on CPUs it takes 1.1 times as long at 8 × 256
    # tokens and two heads of 64, and at 4 × 512 1.2 to 1.3 times forward, 1.4 to 1.7 times with gradients.
    n, a, heads, d = q.shape
    if mask is None and keep is None and softmax and fits(q, k, v):
        return fused(q, k, v, causal, 1 / d ** (1.0 if logits == "1/d" else 0.5)).reshape(n, a, heads * d)
    if causal:
        before = (jnp.arange(k.shape[1])[None] <= jnp.arange(a)[:, None])[None]
        mask = before if mask is None else before & mask
    shared = k.shape[2] != heads
    grouped = q.reshape(n, a, k.shape[2], -1, d) if shared else q
    sums = ("nakgd,nbkd->nkgab", "nkgab,nbkd->nakgd") if shared else ("nahd,nbhd->nhab", "nhab,nbhd->nahd")
    scores = jnp.einsum(sums[0], grouped, k, preferred_element_type=precision)
    scores = scores / d ** (1.0 if logits == "1/d" else 0.5)
    if mask is not None:
        scores = jnp.where(jnp.expand_dims(mask, range(1, scores.ndim - 2)), scores, jnp.finfo(scores.dtype).min)
    weights = jax.nn.softmax(scores, axis=-1) if softmax else scores
    if keep is not None:
        keep(weights.reshape(n, heads, a, -1))
    return jnp.einsum(sums[1], jnp.asarray(weights, v.dtype), v).reshape(n, a, heads * d)


def keeper(module: nn.Module) -> Callable[[jax.Array], Any] | None:
    """What keeps the weights of a module's attention, if who applies it asks for them."""
    kept = module.is_mutable_collection("intermediates")
    return functools.partial(module.sow, "intermediates", WEIGHTS) if kept else None


def rotated(x: jax.Array, positions: jax.Array, base: float = 1e4) -> jax.Array:
    """Pairs of features (i, i + d/2) of x [n, t, heads, d], turned by the angles position · base^(−2i/d).

    >>> [round(float(a), 2) for a in rotated(jnp.ones((1, 2, 1, 2)), jnp.array([[0, 1]]))[0, 1, 0]]
    [-0.3, 1.38]

    Reference: Su et al. (2021), RoFormer.
    """
    store = jnp.promote_types(x.dtype, "float32")
    frequency = base ** -(jnp.arange(0, x.shape[-1], 2, dtype=store) / x.shape[-1])
    angle = jnp.asarray(positions, store)[..., None, None] * frequency.reshape(1, 1, 1, -1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    first, second = jnp.split(jnp.asarray(x, store), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return jnp.asarray(turned, x.dtype)


def residual(h: jax.Array, scale: Any, *branches: tuple[Callable, Callable]) -> jax.Array:
    """h ← h + scale · branch(norm(h)), one (norm, branch) after the other."""
    for norm, branch in branches:
        h = h + jnp.asarray(scale, h.dtype) * branch(norm(h))
    return h


def feed_forward(layers: Layers, x: jax.Array, hidden: int, activation: Any, gated: bool = False) -> jax.Array:
    """W₂ φ(W₁ x), with `hidden` features in between; `gated`: W₂ (φ(W_g x) ∘ W₁ x)."""
    phi, inside = activation_function(activation), layers("mlp_1", hidden)(x)
    inside = phi(layers("mlp_gate", hidden)(x)) * inside if gated else phi(inside)
    return layers("mlp_2", x.shape[-1])(inside)


class TableOfNormals(HasRoles):
    """What tables of N(0, std²) entries say of themselves: their one parameter is an embedding."""

    @property
    def param_roles(self) -> dict[str, str]:
        """The role of each parameter, by its name."""
        return {"embedding": "embedding"}

    def scales(self: Any, name: str, inputs: int) -> tuple[Any, Any]:
        """(standard deviation at initialisation, forward multiplier) of the entries."""
        del name, inputs
        return self.parameterization.scales("embedding", 1, self.width, self.std)


class TwoBranchBlocks:
    """What networks of `depth` blocks of attention and MLP say of themselves."""

    @property
    def branches(self: Any) -> int:
        """The number of residual branches: attention and MLP of every block."""
        return 2 * self.depth

    @property
    def branch_scale(self: Any) -> Any:
        """The factor of every branch."""
        return self.beta * parameterization(self.parameterization).branch_factor(self.depth)


def heads_of(width: int) -> int:
    """The number of heads that grows with the width: its largest divisor up to its square root.

    >>> heads_of(64), heads_of(24)
    (8, 4)
    """
    return max(h for h in range(1, int(width**0.5) + 1) if width % h == 0)


@checks.arguments()
class Embed(TableOfNormals, nn.Module):
    """A table of N(0, std²) rows, looked up by whole numbers; `attend` is the product with every row (tied readouts).

    >>> table = Embed(7, 4, Parameterization.mup)
    >>> table.init_with_output(jax.random.key(0), jnp.array([[1, 2, 2]]))[0].shape
    (1, 3, 4)
    """

    entries: int
    width: int
    parameterization: Parameterization
    std: Any = 1.0
    dtype: Any = None

    def setup(self) -> None:  # noqa: D102
        self.store = jax.dtypes.canonicalize_dtype(float)
        init = scaled_normal(self.scales("embedding", 1)[0])
        self.embedding = self.param("embedding", init, (self.entries, self.width), self.store)

    def __call__(self, numbers: jax.Array) -> jax.Array:
        """The rows of these numbers, [*, width]."""
        return self._scaled(self.embedding[numbers])

    def attend(self, h: jax.Array) -> jax.Array:
        """h · row of every row, [*, entries]."""
        return self._scaled(h) @ jnp.asarray(self.embedding, self._kind).T

    @property
    def _kind(self) -> Any:
        return self.store if self.dtype is None else self.dtype

    def _scaled(self, x: jax.Array) -> jax.Array:
        return jnp.asarray(self.scales("embedding", 1)[1], self._kind) * jnp.asarray(x, self._kind)


class _OfBlocks(nn.Module):
    """What `Attention` and `FeedForward` share: the numbers of their dense layers."""

    width: int
    parameterization: Parameterization
    role: str = "branch"
    w_std: Any = 1.0
    b_std: Any = 0.0
    bias_init: str = "normal"
    dtype: Any = None

    def layers(self, name: str, features: int) -> Dense:
        """The dense layer of a part."""
        common = {"bias_init": self.bias_init, "dtype": self.dtype, "name": name}
        return Dense(features, self.role, self.width, self.parameterization, self.w_std, self.b_std, **common)


@checks.arguments()
class Attention(_OfBlocks):
    """Attention of x [n, t, width] on itself: y_a = W_o [Σ_b softmax_b(q_a·k_b / d^p) v_b by head].

    `heads` of `head_dim` features (None: width / heads each); `kv_heads` fewer of keys and values, each for a group of
    queries. `causal`: b ≤ a. `rotary`: the base of rotary positions. `qk_norm`: "layer" or "rms", of queries and keys by
    head. mask [n, t]: positions that count (the rest is padding); or [n, t, s]: which each sees. `cache`: how many positions
    `start` may go on to.

    >>> layer = Attention(8, Parameterization.ntk, heads=4, kv_heads=2, causal=True)
    >>> layer.init_with_output(jax.random.key(0), jnp.ones((1, 3, 8)))[0].shape
    (1, 3, 8)

    Reference: Vaswani et al. (2017); Ainslie et al. (2023) for groups; Yang et al. (2022) for 1/d logits.
    """

    heads: int = 1
    kv_heads: int | None = None
    head_dim: int | None = None
    logits: str = "1/d"
    causal: bool = False
    rotary: float | None = None
    qk_norm: str | None = None
    epsilon: float = 1e-6
    cache: int = 0

    @nn.compact
    def __call__(self, x: jax.Array, mask: Any = None, positions: Any = None, start: Any = None) -> jax.Array:
        """`positions` [n or 1, t]: those of rotation (None: 0, 1, …). `start`: x goes on there, after what is in the cache."""
        n, t, _ = x.shape
        size = self.width // self.heads if self.head_dim is None else self.head_dim
        kv_heads = self.heads if self.kv_heads is None else self.kv_heads
        counts = {"query": self.heads, "key": kv_heads, "value": kv_heads}
        q, k, v = (self.layers(part, h * size)(x).reshape(n, t, h, size) for part, h in counts.items())
        if self.qk_norm is not None:
            inside: dict[str, Any] = {"epsilon": self.epsilon, "in_branch": self.role == "branch"}
            q, k = (
                Norm(self.qk_norm, self.width, self.parameterization, name=name, **inside)(part)
                for name, part in (("query_norm", q), ("key_norm", k))
            )
        first = jnp.zeros((), int) if start is None else start
        at = first + jnp.arange(t)
        if self.rotary is not None:
            places = at[None] if positions is None else positions
            q, k = (rotated(part, places, self.rotary) for part in (q, k))
        seen = mask
        if start is not None:
            k, v = self._remembered("keys", k, start), self._remembered("values", v, start)
            if mask is None or mask.ndim == 2:
                seen = self._remembered("mask", jnp.ones((n, t), bool) if mask is None else mask, start)
        seen = seen[:, None] if seen is not None and seen.ndim == 2 else seen
        if self.causal and start is not None:
            before = (jnp.arange(k.shape[1])[None] <= at[:, None])[None]
            seen = before if seen is None else before & seen
        options: dict[str, Any] = {"precision": jnp.promote_types(q.dtype, "float32"), "keep": keeper(self)}
        out = attend(q, k, v, seen, self.logits, causal=self.causal and start is None, **options)
        return self.layers("out", self.width)(out)

    def _remembered(self, name: str, new: jax.Array, start: Any) -> jax.Array:
        """Of all positions up to now, of which these are the last."""
        shape, zero = (len(new), self.cache, *new.shape[2:]), jnp.zeros_like(start)
        held = self.variable("cache", name, jnp.zeros, shape, new.dtype)
        held.value = jax.lax.dynamic_update_slice(held.value, new, (zero, start, *(zero,) * (new.ndim - 2)))
        return held.value


@checks.arguments()
class FeedForward(_OfBlocks):
    """The MLP of a block: W₂ φ(W₁ x), or W₂ (φ(W_g x) ∘ W₁ x); `kind` as in `MLPS`, `hidden` features in between.

    >>> layer = FeedForward(4, Parameterization.ntk, kind="swiglu", hidden=6)
    >>> sorted(layer.init(jax.random.key(0), jnp.ones((1, 4)))["params"])
    ['mlp_1', 'mlp_2', 'mlp_gate']

    Reference: Shazeer (2020), GLU variants; So et al. (2021), Primer, for relu2.
    """

    kind: str = "gelu"
    hidden: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:  # noqa: D102
        phi, gated = MLPS[self.kind]
        return feed_forward(self.layers, x, self.hidden, phi, gated)
