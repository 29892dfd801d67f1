"""GPTs: decoders of tokens, as people build them. Their infinite-width kernels are read off this code."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from zoo.attention import MLPS, Attention, Embed, FeedForward, TwoBranchBlocks, heads_of, residual
from zoo.checks import Check, choice, count, number
from zoo.definition import check_fields, definition, scale, size
from zoo.documents import numbered, places, visible
from zoo.layers import Dense, Norm, field, layer
from zoo.parameterization import Parameterization, parameterization

_NONE = Check("None", lambda v: v is None)


class Block(nn.Module):
    """h ← h + s Attention(norm h), h ← h + s MLP(norm h); its parts are made by name."""

    norm: Callable[..., nn.Module]
    attention: Callable[..., nn.Module]
    mlp: Callable[..., nn.Module]
    scale: Any

    @nn.compact
    def __call__(self, h: jax.Array, mask: Any = None, positions: Any = None, start: Any = None) -> jax.Array:  # noqa: D102
        attention = self.attention(name="attention")
        branches = (
            (self.norm(name="norm_1"), lambda a: attention(a, mask, positions, start)),
            (self.norm(name="norm_2"), self.mlp(name="mlp")),
        )
        return residual(h, self.scale, *branches)


@definition(
    vocabulary=size,
    context=size,
    heads=size | Check('"grow"', lambda v: v == "grow"),
    kv_heads=size | _NONE,
    head_dim=size | _NONE,
    norm=choice("layer", "rms", None),
    mlp=choice(*MLPS),
    mlp_ratio=number(positive=True),
    positions=choice("learned", "rotary", None),
    rotary_base=number(positive=True),
    logits=choice("1/d", "1/sqrt(d)"),
    embedding_std=number(positive=True),
    position_std=scale,
    beta=scale,
    norm_epsilon=number(positive=True),
    padding=count(0) | _NONE,
    separator=count(0) | _NONE,
)
class GPT(TwoBranchBlocks, nn.Module):
    """A decoder: `depth` pre-norm blocks of causal attention and MLP on tokens [n, t], whole numbers below `vocabulary`.

        h = embedding of tokens (+ learned positions)
        h ← h + s Attention(norm h),   h ← h + s MLP(norm h)     (depth times),     f = readout(norm h) / γ, [n, t, vocabulary]

    s = β depth^(−α), α the parameterization's. w_std and b_std hold for every dense layer; the readout has no bias.
    `heads`: a number, or "grow" for about √width of them, or width / head_dim where that is given; of `kv_heads` each serves
    a group of queries. `norm`: "layer", "rms" (before every branch and the readout) or None; `qk_norm`: the same of queries
    and keys, by head. `mlp`: "gelu", "gelu_tanh", "relu", "relu2", "swiglu", `mlp_ratio` times as wide. `positions`:
    "learned" (N(0, position_std²)), "rotary" or None. `tied`: the readout is the embedding's transpose; its rows are then
    met from both sides, f(0) does not vanish, and outputs are over N of the base size (see zoo/README.md). `scan`: blocks
    are one program with stacked parameters "blocks", compiled once whatever the depth; else "block_1", "block_2", …

    `padding`: the token that fills sequences up, on either side, which no token sees. `separator`: the token before every
    document of a window; tokens see those of their own document alone, and the separator before it. With either, a token's
    position is how many tokens it sees before itself: outputs are those of the sequence, or of the document, by itself.

    apply(variables, tokens, mask=…) leaves padding out: mask [n, t], true where tokens count; positions [n, t] where these
    are not 0, 1, …; at [n]: one of the t for each, whose outputs [n, vocabulary] alone are computed. With `decode=True` and
    the collection "cache" mutable it goes on after what it has seen (`generate`).
    `intermediates=True` returns (f, {"h": tokens after the embedding and after every block, "phi": the same, "features"}).

    >>> net = GPT(width=16, depth=2, vocabulary=7, context=8)
    >>> jax.jit(net.init_with_output)(jax.random.key(0), jnp.ones((3, 5), int))[0].shape
    (3, 5, 7)

    Reference: Radford et al. (2019), Language models are unsupervised multitask learners; Touvron et al. (2023), LLaMA.
    """

    width: int
    depth: int
    vocabulary: int
    context: int
    heads: int | str = 4
    kv_heads: int | None = None
    head_dim: int | None = None
    norm: str | None = "layer"
    qk_norm: bool = False
    mlp: str = "gelu"
    mlp_ratio: int | float = 4
    positions: str | None = "learned"
    tied: bool = False
    logits: str = "1/d"
    w_std: Any = 1.0
    b_std: Any = 0.0
    embedding_std: Any = 1.0
    position_std: Any = 1.0
    parameterization: str | Parameterization = "ntk"
    gamma: Any = 1.0
    bias_init: str = "normal"
    beta: Any = 1.0
    norm_epsilon: float = 1e-6
    rotary_base: float = 1e4
    padding: int | None = None
    separator: int | None = None
    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type
    remat: bool = False  # the backward pass computes a block's inside again instead of keeping it
    scan: bool = True

    images = False

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()
        if self.head_dim is None and self.heads != "grow" and self.width % int(self.heads):
            raise ValueError(f"GPT: width {self.width} does not divide into {self.heads} heads; change either.")
        if self.head_dim is not None and self.heads == "grow" and self.width % self.head_dim:
            raise ValueError(f"GPT: width {self.width} does not divide into heads of {self.head_dim}; change either.")
        if self.kv_heads is not None and (self.heads == "grow" or int(self.heads) % self.kv_heads):
            raise ValueError(f"GPT: {self.heads} heads do not divide into {self.kv_heads} groups; change either.")
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(
                f"GPT: rotary positions turn pairs of features; heads have {self.head_size}, an odd number."
            )
        if self.qk_norm and self.norm is None:
            raise ValueError('GPT: qk_norm is of the kind that norm says, and norm is None; use norm="rms".')
        for name in ("padding", "separator"):
            token = getattr(self, name)
            if token is not None and token >= self.vocabulary:
                raise ValueError(f"GPT: {name} is token {token}, and there are {self.vocabulary}, numbered from 0.")
        if self.padding is not None and self.padding == self.separator:
            raise ValueError(
                f"GPT: token {self.padding} is both padding and separator; give one of them another number."
            )

    @property
    def outputs(self) -> int:
        """As many as tokens of the vocabulary."""
        return self.vocabulary

    @property
    def activation(self) -> Any:
        """The function in the MLPs."""
        return MLPS[self.mlp][0]

    @property
    def head_count(self) -> int:
        """The number of heads: for "grow" width / head_dim, or the largest divisor of the width up to its square root."""
        if self.heads != "grow":
            return int(self.heads)
        if self.head_dim is not None:
            return self.width // self.head_dim
        return heads_of(self.width)

    @property
    def head_size(self) -> int:
        """Features of a head."""
        return self.width // self.head_count if self.head_dim is None else self.head_dim

    @property
    def tells_positions(self) -> bool:
        """Whether tokens themselves say, by padding or separators, which of them count and where they stand."""
        return self.padding is not None or self.separator is not None

    @property
    def example(self) -> jax.ShapeDtypeStruct:
        """The shape of an input."""
        return jax.ShapeDtypeStruct((1, self.context), "int32")

    @nn.compact
    def __call__(  # noqa: D102
        self,
        x: jax.Array,
        intermediates: bool = False,
        mask: Any = None,
        positions: Any = None,
        decode: bool = False,
        at: Any = None,
    ) -> Any:
        self.check_tokens(x)
        x = jnp.asarray(x, "int32") if x.dtype.itemsize < 4 else x  # bytes do not hold all tokens there may be
        start = self._advanced(x.shape[1]) if decode else None
        if self.tells_positions:
            mask, positions = self._told(x, mask, positions, start)
        h, embedding = self._embed(x, positions, start)
        hs = [field(self, "h1", h)]
        hs += self._blocks(hs[-1], (mask, positions, start), intermediates)
        features = self._norm(False)(name="norm")(hs[-1]) if self.norm else hs[-1]
        features = features if at is None else jnp.take_along_axis(features, at[:, None, None], axis=1)[:, 0]
        f = self._read_out(features, embedding)
        return (f, {"h": tuple(hs), "phi": tuple(hs), "features": features}) if intermediates else f

    def _blocks(self, h: jax.Array, context: tuple, intermediates: bool) -> list[jax.Array]:
        """The tokens after every block, or after the last one alone."""
        made = functools.partial(
            nn.remat(Block, prevent_cse=not self.scan) if self.remat else Block,
            self._norm(True), self._attention(), self._feed_forward(), self.branch_scale,
        )  # fmt: skip
        names = [f"h{l + 1}" for l in range(1, self.depth + 1)]
        if not self.scan:
            hs = [h]
            for l, name in enumerate(names, start=1):
                hs.append(field(self, name, made(name=f"block_{l}")(hs[-1], *context)))
            return hs[1:]
        shifts = None
        if self.has_variable("perturbations", names[0]):
            shifts = jnp.stack([self.get_variable("perturbations", name) for name in names])

        def step(block: Any, h: jax.Array, shift: Any) -> tuple[jax.Array, Any]:
            h = block(h, *context)
            h = h if shift is None else h + shift
            return h, (h if intermediates else None)

        scan = nn.scan(step, variable_axes={True: 0}, split_rngs={True: True}, length=self.depth)
        last, hs = scan(made(name="blocks"), h, shifts)
        return list(hs) if intermediates else [last]

    def _common(self) -> dict[str, Any]:
        p = parameterization(self.parameterization)
        return {"width": self.width, "parameterization": p, "w_std": self.w_std, "b_std": self.b_std,
                "bias_init": self.bias_init, "dtype": self.dtype}  # fmt: skip

    def _norm(self, in_branch: bool) -> Callable[..., Any]:
        if self.norm is None:
            return lambda name: lambda h: h
        p = parameterization(self.parameterization)
        return functools.partial(
            Norm, self.norm, self.width, p, epsilon=self.norm_epsilon, in_branch=in_branch, dtype=self.dtype
        )

    def _attention(self) -> Callable[..., Attention]:
        rotary = self.rotary_base if self.positions == "rotary" else None
        heads: Any = {"heads": self.head_count, "kv_heads": self.kv_heads, "head_dim": self.head_size}
        kind: Any = {
            "logits": self.logits,
            "qk_norm": self.norm if self.qk_norm else None,
            "epsilon": self.norm_epsilon,
        }
        return functools.partial(
            Attention, **self._common(), **heads, **kind, causal=True, rotary=rotary, cache=self.context
        )

    def _feed_forward(self) -> Callable[..., FeedForward]:
        hidden = round(self.mlp_ratio * self.width)
        return functools.partial(FeedForward, **self._common(), kind=self.mlp, hidden=hidden)

    def _embed(self, x: jax.Array, positions: Any, start: Any) -> tuple[jax.Array, Embed]:
        p = parameterization(self.parameterization)
        table = functools.partial(Embed, width=self.width, parameterization=p, dtype=self.dtype)
        tokens = table(self.vocabulary, std=self.embedding_std, name="embedding")
        h = tokens(x)
        if self.positions != "learned":
            return h, tokens
        at = (0 if start is None else start) + jnp.arange(x.shape[1])[None] if positions is None else positions
        return h + table(self.context, std=self.position_std, name="positions")(at), tokens

    def _read_out(self, features: jax.Array, embedding: Embed) -> jax.Array:
        p = parameterization(self.parameterization)
        if self.tied:
            f = embedding.attend(features) * p.tied_factor(self.width)
        else:
            f = layer(self, Dense, self.vocabulary, "readout", "readout", use_bias=False)(features)
        return jnp.asarray(f, jax.dtypes.canonicalize_dtype(float)) / p.output_scale(self.width, self.gamma)

    def _told(self, x: jax.Array, mask: Any, positions: Any, start: Any) -> tuple[jax.Array, jax.Array]:
        """(which tokens each one sees [n, t, t], or of the cache; its position), as padding and separators among them say."""
        number, kept = numbered(x, self.padding, self.separator, mask)
        if start is not None:
            document = self.variable("cache", "document", jnp.zeros, (len(x), 1), "int32")
            held = self.variable("cache", "documents", jnp.zeros, (len(x), self.context), "int32")
            number, kept = number + document.value, jnp.where(kept > 0, kept + document.value, 0)
            document.value = number[:, -1:] - 1
            kept = held.value = jax.lax.dynamic_update_slice(held.value, kept, (jnp.zeros_like(start), start))
        seen = visible(number, kept, start)
        return seen, places(seen) if positions is None else positions

    def _advanced(self, tokens: int) -> jax.Array:
        """The position at which these tokens go on, which the next ones will be after."""
        index = self.variable("cache", "index", jnp.zeros, (), "int32")
        start, index.value = index.value, index.value + tokens
        return start

    def check_tokens(self, x: Any) -> None:
        """Raises unless x is [n, t], whole numbers of the vocabulary, within the context."""
        if x.ndim != 2 or not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(
                f"GPT needs tokens [n, t], whole numbers below {self.vocabulary}; the input has shape {tuple(x.shape)} and "
                f"entries {x.dtype}."
            )
        if x.shape[1] > self.context:
            raise ValueError(
                f"GPT: {x.shape[1]} tokens are more than its context of {self.context}: cut them, or define it with a longer one."
            )
        seen = np.zeros(1, int) if isinstance(x, Tracer) or not x.size else np.asarray(x)
        low, high = int(seen.min()), int(seen.max())
        if not 0 <= low <= high < self.vocabulary:
            raise ValueError(f"GPT: tokens go from {low} to {high} and must be from 0 to {self.vocabulary - 1}.")


def stack_blocks(params: Any) -> Any:
    """Parameters of a network with scan=False ("block_1", …) for the same one with scan=True ("blocks")."""
    count = sum(name.startswith("block_") for name in params)
    blocks = [params[f"block_{l}"] for l in range(1, count + 1)]
    rest = {name: part for name, part in params.items() if not name.startswith("block_")}
    return rest | {"blocks": jax.tree.map(lambda *each: jnp.stack(each), *blocks)}


def unstack_blocks(params: Any) -> Any:
    """Parameters of a network with scan=True for the same one with scan=False."""
    count = len(jax.tree.leaves(params["blocks"])[0])
    blocks = {f"block_{l + 1}": jax.tree.map(lambda part, l=l: part[l], params["blocks"]) for l in range(count)}
    return {name: part for name, part in params.items() if name != "blocks"} | blocks
