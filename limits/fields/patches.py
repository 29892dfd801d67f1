"""What the windows of a convolution see."""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def patches(
    a: jax.Array, window: Sequence[int], strides: Sequence[int], padding: Sequence[Any], spacing: Sequence[int]
) -> jax.Array:
    """What a window sees: a [n, *positions, channels] → [n, *positions, *window, channels].

    >>> patches(jnp.arange(4.0)[None, :, None], [3], [1], [(1, 1)], [1])[0, :, :, 0].tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 0.0]]
    """
    a = jax.lax.pad(a, jnp.zeros((), a.dtype), [(0, 0, 0), *((*edges, 0) for edges in padding), (0, 0, 0)])
    spans = [
        (n - (size - 1) * gap - 1) // stride * stride + 1
        for n, size, gap, stride in zip(a.shape[1:-1], window, spacing, strides, strict=True)
    ]
    seen = []
    for offsets in itertools.product(*map(range, window)):
        part = a
        for axis, (o, span, gap, stride) in enumerate(zip(offsets, spans, spacing, strides, strict=True), start=1):
            part = jax.lax.slice_in_dim(part, o * gap, o * gap + span, stride, axis)
        seen.append(part)
    stacked = jnp.stack(seen, axis=-2)
    return stacked.reshape(*stacked.shape[:-2], *window, stacked.shape[-1])
