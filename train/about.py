"""What lies beside the arrays of a checkpoint, written with it: what the model is, and a sum of every array."""

import contextlib
import functools
import json
import math
import os
import zlib
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from limits.kept.store import DamagedError, sealed, unsealed

_FILE = "about.json"
_ROW, _LONG = 256, 2**20  # numbers that are summed in one go: at least, where an array has as many, and at most
Arrays = dict[str, dict[str, list]]  # part, path: [shape, dtype, sum]


class About:
    """Of one checkpoint: Orbax takes it beside the arrays, and the checkpoint is not finished before it is written."""

    def __init__(self, info: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
        # Before Orbax begins: beside it sums take twice the time, for its threads want the same memory and Python's lock.
        self._text = written(info, arrays_of(parts, sums_of(dict(parts))))

    async def save(self, directory: Any) -> Awaitable[None]:
        """For Orbax."""

        async def write() -> None:
            folder = await directory.await_creation()
            if jax.process_index() == 0:
                (folder / _FILE).write_text(self._text)

        return write()

    async def load(self, directory: Any) -> Awaitable[None]:
        """Orbax asks for it; `read` is what reads."""
        raise NotImplementedError


def arrays_of(parts: Mapping[str, Any], sums: Mapping[str, int]) -> Arrays:
    """What is known of the arrays of a checkpoint; `sums` may lack some, whose sum is then 0."""
    found: Arrays = {}
    for part, tree in parts.items():
        found[part] = {}
        for path, leaf in jax.tree.leaves_with_path(tree):
            full = jax.tree_util.keystr((jax.tree_util.DictKey(part), *path))
            found[part][jax.tree_util.keystr(path)] = [list(np.shape(leaf)), str(leaf.dtype), sums.get(full, 0)]
    return found


def written(info: Mapping[str, Any], arrays: Arrays) -> str:
    """As a file, of which no part can change unnoticed."""
    return sealed({"info": info, "arrays": arrays})


def read(checkpoint: Any) -> tuple[dict[str, Any], Arrays | None]:
    """(info, arrays) of the checkpoint in this folder; arrays are None where an earlier version wrote no sums of them."""
    try:
        data = (epath.Path(checkpoint) / "about" / _FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return _without_sums(checkpoint), None
    try:
        about = _of_earlier_versions(data) or unsealed(data)
        return about["info"], about["arrays"]
    except (DamagedError, KeyError) as error:
        raise DamagedError(f"{_FILE} is damaged: {error}") from None


def _of_earlier_versions(data: bytes) -> dict[str, Any] | None:
    """What they wrote as {"crc32": …, "about": …}; None where this is not that."""
    crc, _, text = data.removeprefix(b'{"crc32": ')[:-1].partition(b', "about": ')
    return json.loads(text) if crc == str(zlib.crc32(text)).encode() else None


def _without_sums(checkpoint: Any) -> dict[str, Any]:
    from orbax.checkpoint import v1 as ocp  # slow to import

    try:
        info = ocp.checkpointables_metadata(checkpoint).custom_metadata
    except Exception as error:  # Orbax has one for every kind of damage
        raise DamagedError(first_line(error)) from None
    if not isinstance(info, dict) or "step" not in info:
        raise DamagedError(f"the file about/{_FILE} is missing")
    return info


def mismatch(arrays: Arrays, parts: Mapping[str, Any]) -> str:
    """Where a checkpoint's arrays have not the paths, shapes and types that are wanted, in words; or an empty string."""
    wanted = arrays_of(parts, {})
    for part, leaves in wanted.items():
        there = arrays.get(part, {})
        for path in [*there, *leaves]:
            old, new = (_word(each.get(path)) for each in (there, leaves))
            if old != new:
                return f"{part}{path} is {old} there, {new} here"
    return ""


def difference(arrays: Arrays, parts: Mapping[str, Any]) -> str:
    """Which arrays are not those that were saved, in words; or an empty string. To be called by all processes."""
    now = arrays_of(parts, sums_of(dict(parts)))
    other = [f"{part}{path}" for part, leaves in now.items() for path, found in leaves.items()
             if found != arrays[part].get(path)]  # fmt: skip
    return f"{', '.join(other[:3])}{' and others' * (len(other) > 3)} changed since saving" if other else ""


def _word(found: list | None) -> str:
    return f"{found[1]}{tuple(found[0])}" if found else "absent"


def first_line(error: BaseException) -> str:
    """An error of Orbax, which may have hundreds of lines, in one."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"


def sums_of(tree: Any) -> dict[str, int]:
    """{path: Σ_i x_i Π_d w_d(i_d) mod 2^32} of bits x_i and fixed odd weights w_d of each axis: no single change leaves it.

    Every process adds up what it holds; called by all of them, each gets the sums of the whole arrays.

    >>> one, other = np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")
    >>> other[1, 2] = 1e-45
    >>> sums_of({"a": one}) == sums_of({"a": one.copy()}), sums_of({"a": one}) == sums_of({"a": other})
    (True, False)
    """
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
    threads = (os.cpu_count() or 1) // 4  # one thread reads as fast as the memory of a small machine can be read
    with ThreadPoolExecutor(threads) if threads > 1 else contextlib.nullcontext() as pool:
        here = np.array([*(pool.map if pool else map)(_local, leaves.values())], np.uint32)
    if jax.process_count() > 1:
        here = np.asarray(multihost_utils.process_allgather(here)).sum(0, dtype=np.uint32)
    return dict(zip(leaves, here.tolist(), strict=True))


def _local(leaf: Any) -> int:
    """The sum over the parts of an array that this process answers for."""
    if not isinstance(leaf, jax.Array):
        return _part(np.asarray(leaf), (0,) * np.ndim(leaf)) if jax.process_index() == 0 else 0
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.is_fully_addressable and len(leaf.sharding.device_set) == 1:  # a list of shards is slow
        return _part(np.asarray(leaf), (0,) * leaf.ndim)
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
