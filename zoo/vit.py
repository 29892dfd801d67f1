"""Vision transformers. The infinite-width twin is in `limits/vit.py`."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.attention import TableOfNormals, TwoBranchBlocks, attend, feed_forward, heads_of, keeper, residual
from zoo.checks import Check, choice
from zoo.definition import (
    Network,
    by_layer,
    check_images,
    check_layers,
    definition,
    of_layer,
    rows_and_columns,
    scale,
    sides,
    size,
)
from zoo.layers import Dense, Norm, field, layer, output, scaled_normal
from zoo.parameterization import Parameterization, parameterization


class Embedding(TableOfNormals, nn.Module):
    """An array of N(0, std²) entries, the same for n inputs, [n, *shape, width]; its role is "embedding".

    >>> e = Embedding((3,), 2, Parameterization.ntk, std=0.0)
    >>> e.init_with_output(jax.random.key(0), 5)[0].shape
    (5, 3, 2)
    """

    shape: tuple[int, ...]
    width: int
    parameterization: Parameterization
    std: Any = 1.0

    @nn.compact
    def __call__(self, n: int) -> jax.Array:  # noqa: D102
        store = jax.dtypes.canonicalize_dtype(float)
        if self.has_variable("params", "embedding"):
            expected = jnp.shape(self.get_variable("params", "embedding"))[:-1]
            if expected != self.shape:
                raise ValueError(
                    f"{'.'.join(self.path)} was initialised for {' × '.join(map(str, expected))} tokens and now meets "
                    f"{' × '.join(map(str, self.shape))}: use images of the size that init saw, or initialise again."
                )
        std, multiplier = self.scales("embedding", 1)
        table = jnp.asarray(multiplier, store) * self.param(
            "embedding", scaled_normal(std), (*self.shape, self.width), store
        )
        return jnp.broadcast_to(table, (n, *table.shape))


def sines(tokens: int, width: int) -> jax.Array:
    """Fixed positions: sines and cosines of a ω, with frequencies ω from 1 to 1e-4 in a geometric series, times √2.

    >>> sines(3, 4).shape
    (3, 4)
    """
    frequency = 1e4 ** -((jnp.arange(width // 2) + 0.5) / (width // 2))
    phase = jnp.arange(tokens)[:, None] * frequency[None]
    return jnp.sqrt(2.0) * jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], axis=1)


@definition(
    **by_layer(),
    patch=size | sides,
    mlp_ratio=size,
    heads=size | Check('"grow"', lambda v: v == "grow"),
    position_std=scale,
    beta=scale,
    logits=choice("1/d", "1/sqrt(d)"),
    query_init=choice("normal", "zeros"),
    attention=choice("softmax", "identity"),
    norm=choice("layer", None),
    positions=choice("learned", "fixed", None),
    pool=choice("mean", "class"),
)
class ViT(TwoBranchBlocks, Network):
    """A vision transformer: `depth` blocks of attention and MLP on tokens of `width` features.

        h = embedding of patches (+ class token) + positions
        h ← h + s Attention(norm h),   h ← h + s MLP(norm h)       (depth times),   f = readout(pool(norm h)) / γ
        Attention: W_o [Σ_b softmax_b(q_a·k_b / d^p) v_b by head],   MLP: W₂ φ(W₁ h), `mlp_ratio` times as wide

    s = β depth^(−α), α the parameterization's (1/2 in `ntk` and `mup`, 0 in `standard`). w_std and b_std hold for every
    dense layer; tuples have an entry for the embedding, each block and the readout, and `activation` one a block.
    `patch`: the side of squares, or (rows, columns), such as (1, 8) for strips of a row of eight pixels.
    `logits` = "1/d" (p = 1) or "1/sqrt(d)", d the head dimension; `heads`: a number, or "grow" for about √width of them.
    `query_init="zeros"` starts the queries at zero, `tied` uses one layer for queries and keys.
    `attention="identity"` leaves the softmax out. `norm`: "layer" (before each branch and before the readout) or None,
    with gain and bias if `norm_affine`. `positions`: "learned" (N(0, position_std²)), "fixed" (sines, of
    variance position_std²) or None. `pool`: "mean" over tokens, or "class" for the output of a class token.

    `apply(..., intermediates=True)` returns (f, {"h": the tokens after the embedding and after every block, "phi": the
    same, "features": what enters the readout}).

    >>> net = ViT(width=16, depth=2, patch=4, heads=2)
    >>> jax.jit(net.init_with_output)(jax.random.key(0), jnp.ones((5, 8, 8, 3)))[0].shape
    (5, 1)

    Reference: Dosovitskiy et al. (2020), An image is worth 16x16 words.
    """

    activation: Any = "gelu"
    patch: Any = 4
    heads: int | str = 4
    logits: str = "1/d"
    query_init: str = "normal"
    tied: bool = False
    attention: str = "softmax"
    mlp_ratio: int = 4
    norm: str | None = "layer"
    norm_affine: bool = True
    norm_epsilon: float = 1e-6
    positions: str | None = "learned"
    position_std: Any = 1.0
    pool: str = "mean"
    beta: Any = 1.0
    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type
    remat: bool = False  # the backward pass computes a block's inside again instead of keeping it

    images = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self, self.depth + 1, self.depth)
        if self.heads != "grow" and self.width % int(self.heads):
            raise ValueError(f"ViT: width {self.width} does not divide into {self.heads} heads; change either.")
        if self.tied and self.query_init == "zeros":
            raise ValueError('ViT: tied queries and keys cannot start at zero; use tied=False or query_init="normal".')
        if self.positions == "fixed" and self.width % 2:
            raise ValueError(f"ViT: fixed positions come in pairs of sine and cosine; width {self.width} is odd.")

    @property
    def head_count(self) -> int:
        """The number of heads: for "grow" the largest divisor of the width up to its square root."""
        if self.heads != "grow":
            return int(self.heads)
        return heads_of(self.width)

    def patches(self, x: Any) -> Any:
        """Images [n, height, width, channels] cut into flattened patches [n, tokens, pixels · channels], row by row."""
        check_images(self, x)
        n, rows, columns, channels = x.shape
        a, b = rows_and_columns(self.patch)
        if rows % a or columns % b:
            raise ValueError(
                f"ViT: images of {rows} × {columns} do not divide into patches of {a} × {b}: change patch, or crop or pad the "
                "images."
            )
        x = x.reshape(n, rows // a, a, columns // b, b, channels)
        return x.swapaxes(2, 3).reshape(n, -1, a * b * channels)

    @nn.compact
    def __call__(self, x: jax.Array, intermediates: bool = False) -> Any:  # noqa: D102
        h = self._embed(self.patches(x))
        hs = [field(self, "h1", h)]
        block = nn.remat(ViT._block, static_argnums=(2,)) if self.remat else ViT._block
        for l in range(1, self.depth + 1):
            hs.append(field(self, f"h{l + 1}", block(self, hs[-1], l)))
        h = self._norm(hs[-1], "norm", False)
        features = h[:, 0] if self.pool == "class" else h.mean(1)
        return output(self, features, hs, hs, intermediates)

    def _block(self, h: jax.Array, l: int) -> jax.Array:
        def layers(part: str, features: int, **options: Any) -> Dense:
            return layer(self, Dense, features, "branch", f"block_{l}_{part}", l + 1, **options)

        def mlp(h: jax.Array) -> jax.Array:
            return feed_forward(layers, h, self.mlp_ratio * self.width, of_layer(self.activation, l))

        norms = [functools.partial(self._norm, name=f"block_{l}_norm_{i}", in_branch=True) for i in (1, 2)]
        branches = (norms[0], functools.partial(self._attend, layers)), (norms[1], mlp)
        return residual(h, self.branch_scale, *branches)

    def _embed(self, patches: jax.Array) -> jax.Array:
        h, p = layer(self, Dense, self.width, "input", "embedding", 1)(patches), parameterization(self.parameterization)
        if self.pool == "class":
            token = Embedding((1,), self.width, p, 1.0, name="class_token")(len(h))
            h = jnp.concatenate([token.astype(h.dtype), h], axis=1)
        if self.positions is None:
            return h
        if self.positions == "fixed":
            at = self.position_std * sines(h.shape[1], self.width)[None]
        else:
            at = Embedding((h.shape[1],), self.width, p, self.position_std, name="positions")(len(h))
        return h + at.astype(h.dtype)

    def _norm(self, h: jax.Array, name: str, in_branch: bool) -> jax.Array:
        if self.norm is None:
            return h
        p = parameterization(self.parameterization)
        return Norm("layer", self.width, p, self.norm_affine, self.norm_epsilon, in_branch=in_branch, name=name)(h)

    def _attend(self, layers: Any, h: jax.Array) -> jax.Array:
        query = layers("query", self.width, zero_init=self.query_init == "zeros")
        key = query if self.tied else layers("key", self.width)
        split = (*h.shape[:2], self.head_count, self.width // self.head_count)
        q, k, v = (part(h).reshape(split) for part in (query, key, layers("value", self.width)))
        softmax = self.attention == "softmax"
        return layers("out", self.width)(attend(q, k, v, None, self.logits, softmax, keep=keeper(self)))
