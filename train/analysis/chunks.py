"""Functions of many samples, a few at a time, so that memory does not grow with their number."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_chunks(function: Callable[[Any], Any], x: Any, size: int) -> Any:
    """function(x), `size` samples at a time: for functions that treat samples one by one. It may be used under jit.

    >>> in_chunks(lambda x: 2 * x, jnp.arange(5), size=2).tolist()
    [0, 2, 4, 6, 8]
    """
    head, tail = _parts((x,), size)
    if head is None:
        return function(x)
    stacked = jax.lax.map(lambda part: function(*part), head)
    parts = [jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), stacked)]
    parts += [] if tail is None else [function(*tail)]
    return jax.tree.map(lambda *each: jnp.concatenate(each), *parts)


def mean_over_chunks(function: Callable[..., Any], data: tuple, size: int) -> Any:
    """function(*data) where it is a mean over samples, `size` of them at a time. It may be used under jit.

    >>> float(mean_over_chunks(lambda x: jnp.mean(x**2), (jnp.arange(5.0),), size=2))
    6.0
    """
    head, tail = _parts(data, size)
    if head is None:
        return function(*data)
    n, size, first = len(data[0]), even(len(data[0]), size), jax.tree.map(lambda a: a[0], head)
    start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(lambda part: function(*part), first))
    total, _ = jax.lax.scan(lambda sum, part: (jax.tree.map(jnp.add, sum, function(*part)), None), start, head)
    total = jax.tree.map(lambda a: a * (size / n), total)
    if tail is None:
        return total
    return jax.tree.map(lambda a, b: a + b * (len(tail[0]) / n), total, function(*tail))


def even(n: int, size: int) -> int:
    """The size of chunks of n samples, of at most `size`, that are as equal as possible: what is left over compiles again.

    >>> even(1000, 256)
    250
    """
    return -(-n // -(-n // size))


def _parts(data: tuple, size: int) -> tuple[Any, Any]:
    """(equal chunks [chunk, samples, …] of at most `size`, what is left over); None where there is none."""
    n = len(data[0])
    if size < 1:
        raise ValueError(f"chunk must be at least 1 sample, got {size}.")
    if n <= size:
        return None, None
    size = even(n, size)
    whole = n // size * size
    head = tuple(a[:whole].reshape(-1, size, *a.shape[1:]) for a in data)
    return head, (tuple(a[whole:] for a in data) if whole < n else None)
