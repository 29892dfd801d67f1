"""What lies beside the arrays of a checkpoint, written with it: what the model is, and a sum of every array."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from etils import epath
from orbax.checkpoint import v1 as ocp

from limits.store import DamagedError, sealed, unsealed
from train.sums import begin, sums_of

_FILE = "about.json"
Arrays = dict[str, dict[str, list]]  # part, path: [shape, dtype, sum]


class About:
    """Of one checkpoint: Orbax takes it beside the arrays, and the checkpoint is not finished before it is written."""

    def __init__(self, info: Mapping[str, Any], parts: Mapping[str, Any]) -> None:
        self._info, self._parts, self._text = info, parts, Future[str]()
        self._sums = begin(dict(parts))

    def finish(self) -> None:
        """To be called by all processes, before the arrays change."""
        try:
            self._text.set_result(written(self._info, arrays_of(self._parts, self._sums())))
        except Exception as error:
            self._text.set_exception(error)
            raise

    async def save(self, directory: Any) -> Awaitable[None]:
        """For Orbax."""

        async def write() -> None:
            folder, text = await directory.await_creation(), await asyncio.wrap_future(self._text)
            if jax.process_index() == 0:
                (folder / _FILE).write_text(text)

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
