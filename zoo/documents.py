"""Padding, and documents side by side in a window, told from the tokens: which of them each one sees, and where it stands."""

from typing import Any

import jax
import jax.numpy as jnp


def numbered(tokens: jax.Array, padding: int | None, separator: int | None, mask: Any = None) -> tuple[Any, Any]:
    """(the number of every token's document, from 1; the same, but 0 for what is padding or not in the mask), each [n, t].

    >>> [a.tolist() for a in numbered(jnp.array([[5, 0, 4, 9, 0, 6]]), padding=9, separator=0)]
    [[[1, 2, 2, 2, 3, 3]], [[1, 2, 2, 0, 3, 3]]]
    """
    number = jnp.ones(tokens.shape, "int32")
    if separator is not None:
        number = number + jnp.cumsum(tokens == separator, axis=1, dtype="int32")
    counts = jnp.ones(tokens.shape, bool) if mask is None else mask
    counts = counts if padding is None else counts & (tokens != padding)
    return number, jnp.where(counts, number, 0)


def visible(number: jax.Array, kept: jax.Array, start: Any = None) -> jax.Array:
    """Which of the tokens `kept` [n, s] those numbered [n, t], the first of which is number `start`, see: [n, t, s]."""
    at = jnp.arange(number.shape[1]) + (0 if start is None else start)
    before = jnp.arange(kept.shape[1])[None] <= at[:, None]
    return before[None] & (number[:, :, None] == kept[:, None, :])


def places(seen: jax.Array) -> jax.Array:
    """How many tokens each one sees before itself: its position, [n, t].

    >>> number, kept = numbered(jnp.array([[9, 5, 0, 4, 0, 6]]), padding=9, separator=0)
    >>> places(visible(number, kept)).tolist()
    [[0, 0, 0, 1, 0, 1]]
    """
    return jnp.maximum(seen.sum(-1, dtype="int32") - 1, 0)
