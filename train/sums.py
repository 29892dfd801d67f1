"""A sum of every array of a tree that changes when any of its numbers does, however the array is divided among devices."""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

_ROW, _LONG = 256, 2**20  # numbers that are summed in one go: at least, where an array has as many, and at most


def sums_of(tree: Any) -> dict[str, int]:
    """{path: Σ_i x_i Π_d w_d(i_d) mod 2^32} of bits x_i and fixed odd weights w_d of each axis: no single change leaves it.

    Every process adds up what it holds; called by all of them, each gets the sums of the whole arrays.

    >>> one, other = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")
    >>> other[1, 2] = 1e-45
    >>> sums_of({"a": one}) == sums_of({"a": one.copy()}), sums_of({"a": one}) == sums_of({"a": other})
    (True, False)
    """
    return begin(tree)()


def begin(tree: Any) -> Callable[[], dict[str, int]]:
    """Begins to add up, beside whatever else is done; the arrays must stay as they are until the returned function was called."""
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
    pool = ThreadPoolExecutor(os.cpu_count())  # numpy adds up outside Python's lock
    parts = [pool.submit(_local, leaf) for leaf in leaves.values()]
    pool.shutdown(wait=False)

    def finish() -> dict[str, int]:
        here = np.array([part.result() for part in parts], np.uint32)
        if jax.process_count() > 1:
            here = np.asarray(multihost_utils.process_allgather(here)).sum(0, dtype=np.uint32)
        return dict(zip(leaves, here.tolist(), strict=True))

    return finish


def _local(leaf: Any) -> int:
    """The sum over the parts of an array that this process answers for."""
    if not isinstance(leaf, jax.Array):
        return _part(np.asarray(leaf), (0,) * np.ndim(leaf)) if jax.process_index() == 0 else 0
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    parts = [shard for shard in leaf.addressable_shards if shard.replica_id == 0]
    return sum(_part(np.asarray(part.data), tuple(i.start or 0 for i in part.index)) for part in parts) % 2**32


def _part(values: np.ndarray, begin: tuple[int, ...]) -> int:
    """The sum over a part of an array that begins at these indices."""
    if not values.size:
        return 0
    words, begin = np.ascontiguousarray(values).reshape(values.shape or (1,)), begin or (0,)
    size = words.dtype.itemsize
    words = words.view(np.uint32) if size >= 4 else words.view(f"u{size}").astype(np.uint32)
    begin = (*begin[:-1], begin[-1] * max(size // 4, 1))  # numbers of eight bytes are two words side by side
    axes = [_weights(axis, i + n)[i:] for axis, (i, n) in enumerate(zip(begin, words.shape, strict=True))]
    cut = words.ndim - 1
    while cut and math.prod(words.shape[cut:]) < _ROW and math.prod(words.shape[cut - 1 :]) <= _LONG:
        cut -= 1
    rows = np.einsum("ij,j->i", words.reshape(-1, math.prod(words.shape[cut:])), _outer(axes[cut:]))
    return int(np.dot(rows, _outer(axes[:cut])))


def _outer(axes: list[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.multiply.outer, axes, np.ones((), np.uint32)).ravel()


def _weights(axis: int, count: int) -> np.ndarray:
    """So many odd numbers, which look random, for the indices of an axis."""
    return _weights_up_to(axis, 1 << max(count - 1, 1).bit_length())[:count]


@functools.lru_cache(64)
def _weights_up_to(axis: int, count: int) -> np.ndarray:
    bits = np.arange(count, dtype=np.uint32) + np.uint32(0x9E3779B1 * (axis + 1) % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):  # the end of MurmurHash3
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return bits ^ (bits >> np.uint32(16)) | np.uint32(1)
