"""What sequences show: the loss at every position, and where attention looks."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from limits.kept.quickly import quickly
from limits.kept.remembered import remembered
from train.analysis.network import parts_of
from zoo.attention import WEIGHTS

SHOWN = 48  # positions of a map of attention
_AT_ONCE = 16  # inputs whose weights are held at once


def loss_by_position(f: Any, targets: Any) -> np.ndarray:
    """−log softmax(f)_y at every position of outputs [n, t, k], mean over the samples whose target, a whole number, is not
    negative: [t]; NaN where none counts.

    >>> loss_by_position(np.zeros((2, 2, 4)), np.array([[1, -1], [2, -1]])).round(3).tolist()
    [1.386, nan]
    """
    f, targets = np.asarray(f, np.float64), np.asarray(targets)
    largest = f.max(-1, keepdims=True)
    normaliser = largest[..., 0] + np.log(np.sum(np.exp(f - largest), axis=-1))
    at = np.take_along_axis(f, np.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    counts = targets >= 0
    with np.errstate(invalid="ignore"):
        return np.sum((normaliser - at) * counts, axis=0) / counts.sum(0)


def attention(net: Any, trained: Any, state: Any, x: Any) -> dict[str, Any]:
    """How attention is spread, by layer and head, mean over inputs.

    maps [layer, head, t, t]: the weight of key b for query a, of the first positions; entropy [layer, head]: −Σ_b p_b log p_b
    over log of the number of keys that a query sees, mean over queries that see several: 1 where all keys count alike;
    distance [layer, head]: Σ_b p_b |a − b|, mean over queries.

    >>> import zoo
    >>> net, x = zoo.GPT(width=8, depth=2, vocabulary=5, context=4), jax.numpy.array([[1, 2, 3, 4]])
    >>> found = attention(net, net.init(jax.random.key(0), x), {}, x)
    >>> found["maps"].shape, bool(np.all(found["entropy"] <= 1))
    ((2, 4, 4, 4), True)
    """
    parts = parts_of(len(x), _AT_ONCE)
    each = [_spread(attention_weights(net)(trained, state, x[part])) for part in parts]
    shares = [(part.stop - part.start) / len(x) for part in parts]
    return jax.tree.map(lambda *values: sum(s * v for s, v in zip(shares, values, strict=True)), *each)


def no_attention(net: Any, trained: Any, state: Any, x: Any) -> str:
    """Why the network tells no attention weights, or an empty string."""
    name = type(net).__name__
    if not isinstance(net, nn.Module):
        return "A function does not show its attention: pass a module."
    layers = jax.eval_shape(attention_weights(net), trained, state, x[:1])
    if not layers:
        return f"{name} has no layer that is zoo.attention.Attention, or keeps its weights as that does."
    shapes = {each.shape[1:] for each in layers}
    return f"Layers of {name} have attention of different shapes, {sorted(shapes)}." if len(shapes) > 1 else ""


@remembered(maxsize=64)
def attention_weights(net: nn.Module) -> Callable[..., list[Any]]:
    """(trained, state, x) → weights [n, head, a, b] of every layer, in the order of the forward pass."""

    def weights(trained: Any, state: Any, x: Any) -> list[Any]:
        _, seen = net.apply({**trained, **state}, x, mutable=["intermediates"])
        leaves = jax.tree_util.tree_leaves_with_path(seen.get("intermediates", {}))
        named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
        kept = sorted((name for name in named if f"'{WEIGHTS}'" in name), key=lambda name: (len(name), name))
        scanned = [(named[name] if named[name].ndim == 5 else named[name][None]) for name in kept]
        return [layer for leaf in scanned for layer in leaf]

    return quickly(weights)


def _spread(layers: list[Any]) -> dict[str, Any]:
    """The means over inputs that `attention` says, of weights [n, head, a, b]."""
    maps, entropies, distances = [], [], []
    for p in (np.asarray(layer, np.float64) for layer in layers):
        seen = np.any(p > 0, axis=1, keepdims=True).sum(-1)  # fewer where documents or padding stand in the window
        several = seen > 1
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1) / np.log(np.where(several, seen, 2))
        mean = np.sum(entropy * several, axis=(0, 2)) / max(several.sum(), 1)
        away = np.abs(np.arange(p.shape[2])[:, None] - np.arange(p.shape[3]))
        maps.append(p.mean(0)[:, :SHOWN, :SHOWN])
        entropies.append(mean if several.any() else np.full(p.shape[1], np.nan))
        distances.append(np.sum(p * away, axis=-1).mean((0, 2)))
    return {"maps": np.stack(maps), "entropy": np.stack(entropies), "distance": np.stack(distances)}
