"""Every optimiser on a stock Flax transformer: an update of any matrix moves features by as much at every width."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from zoo import Rescaled, scaled

VOCABULARY, WIDTHS = 12, (16, 32, 64)


class Block(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, h: Any) -> Any:
        a = nn.LayerNorm(name="norm_1")(h)
        h = h + nn.MultiHeadDotProductAttention(self.heads, name="attention")(a, a)
        a = nn.gelu(nn.Dense(2 * self.width, name="up")(nn.LayerNorm(name="norm_2")(h)))
        return h + nn.Dense(self.width, name="down")(a)


class Transformer(nn.Module):
    """One block, and a stack of two layers that `nn.scan` makes, of a depth that never varies."""

    width: int
    heads: int = 4

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        h = nn.Embed(VOCABULARY, self.width, name="embed")(tokens)
        h = Block(self.width, self.heads, name="block")(h)

        def layer(dense: Any, h: Any, _: Any) -> Any:
            return h + nn.tanh(dense(h)), None

        stack = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
        h, _ = stack(nn.Dense(self.width, name="stack"), h, None)
        return nn.Dense(VOCABULARY, name="readout")(nn.LayerNorm(name="norm")(h))


HEADS = {"heads of one number": lambda width: 4, "heads of one size": lambda width: width // 4}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda net: scaled(optax.sgd(0.1), net),
    "momentum": lambda net: scaled("momentum", net, learning_rate=0.1),
    "adam": lambda net: scaled(optax.adam(0.1), net),
    "adamw": lambda net: scaled(optax.adamw(0.1, weight_decay=0.0), net),
    "lion": lambda net: scaled(optax.lion(0.1, weight_decay=0.0), net),
    "muon": lambda net: scaled("muon", net, learning_rate=0.1),
}
# (axes of layers, of inputs, of outputs), as Flax's layers use their kernels
SIDES = {
    "embed.embedding": ((), (0,), (1,)),
    **{f"block.attention.{name}.kernel": ((), (0,), (1, 2)) for name in ("query", "key", "value")},
    "block.attention.out.kernel": ((), (0, 1), (2,)),
    **{f"{name}.kernel": ((), (0,), (1,)) for name in ("block.up", "block.down", "readout")},
    "stack.kernel": ((0,), (1,), (2,)),
}
TOKENS = np.zeros((1, 6), int)


def roles_at(width: int, heads: Any) -> Any:
    sizes: Any = {"base": {"width": WIDTHS[0]}, "target": {"width": width}}
    return Rescaled.of(lambda width: Transformer(width, heads(width)), TOKENS, **sizes).roles


def tree_of(roles: Any, matrix: Any) -> Any:
    """A tree of matrix(shape, role) of every matrix."""
    found: dict = {}
    for name in SIDES:
        *outer, last = name.split(".")
        place, inner = roles.places[name], found
        for word in outer:
            inner = inner.setdefault(word, {})
        inner[last] = jnp.asarray(matrix(name, place), "float32")
    return found


def matrices(tree: Any, name: str) -> np.ndarray:
    """[layers, inputs, outputs]"""
    leaf: Any = tree
    for word in name.split("."):
        leaf = leaf[word]
    layers, inputs, outputs = SIDES[name]
    rows, columns = (int(np.prod([leaf.shape[i] for i in side])) for side in (inputs, outputs))
    return np.asarray(leaf).transpose(*layers, *inputs, *outputs).reshape(-1, rows, columns)


def one_direction(name: str, place: Any, m: float) -> np.ndarray:
    """Backpropagation's u vᵀ of one sample: features u and signals v of entries ±1, signals of inner layers times 1/m."""
    layers, inputs, outputs = SIDES[name]
    random = np.random.default_rng(0)

    def signs(axes: tuple[int, ...]) -> np.ndarray:
        kept = (*layers, *axes)
        found = random.choice([-1.0, 1.0], size=[place.shape[i] for i in sorted(kept)])
        return found.reshape([n if i in kept else 1 for i, n in enumerate(place.shape)])

    return signs(inputs) * signs(outputs) / (1 if name == "readout.kernel" else m)


@pytest.mark.slow  # three widths of a transformer, initialised
@pytest.mark.parametrize("heads", HEADS)
def test_every_update_of_every_matrix_is_as_large_at_three_widths(heads: str):
    """|ΔW| √(fan-in / fan-out), from root mean squares to root mean squares: exactly equal for gradients of one direction.

    Of random gradients, all singular values of Muon's updates are 1 up to what five steps of Newton and Schulz leave.
    """
    seen: dict[tuple, list] = {}
    for width in WIDTHS:
        roles = roles_at(width, HEADS[heads])
        params = tree_of(roles, lambda name, place: np.zeros(place.shape))
        slopes = tree_of(roles, lambda name, place, m=width / WIDTHS[0]: one_direction(name, place, m))
        for optimizer, make in OPTIMIZERS.items():
            tx = make(roles)
            update = tx.update(slopes, tx.init(params), params)[0]
            for name in SIDES:
                found = matrices(update, name)
                _, rows, columns = found.shape
                fan_in = 1 if name == "embed.embedding" else rows  # one row is looked up
                norm = np.linalg.norm(found, ord=2, axis=(1, 2)) * (fan_in / columns) ** 0.5
                seen.setdefault((optimizer, name), []).append(norm)
        drawn = np.random.default_rng(1)
        noise = tree_of(roles, lambda name, place, drawn=drawn: drawn.normal(size=place.shape))
        tx = OPTIMIZERS["muon"](roles)
        update = tx.update(noise, tx.init(params), params)[0]
        for name in SIDES:
            if name not in ("embed.embedding", "readout.kernel"):  # those are under Adam
                found = matrices(update, name)
                _, rows, columns = found.shape
                values = np.linalg.svd(found, compute_uv=False) / (0.1 * max(1, columns / rows) ** 0.5)
                assert 0.5 < values.mean() < 1.3, (name, width, values)
                assert values.max() < 1.3, (name, width, values)
    for (optimizer, name), by_width in seen.items():
        np.testing.assert_allclose(
            by_width, np.broadcast_to(by_width[0], np.shape(by_width)), rtol=2e-3, err_msg=f"{optimizer} {name}"
        )
