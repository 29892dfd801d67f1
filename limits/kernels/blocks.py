"""Big kernels in blocks: bounded memory, and each pair of a symmetric kernel computed once."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import psutil
from rich.console import Console
from rich.progress import track

from limits.kernels.kept import KeptKernels, kernel_dtype, mirrored

# Rows of a block, at most, and bytes of one of its arrays: what a core works on stays near it; an accelerator wants enough of it.
_ON_CPU, _ON_ACCELERATOR = (400, 2**21), (2000, 2**26)
_PATIENCE = 3.0  # seconds without progress


def block_rows(positions: int, itemsize: int) -> int:
    """Rows of a block whose pairs have so many covariances each.

    >>> block_rows(1, 8), block_rows(64**2, 8), block_rows(1024**2, 8)
    (400, 8, 1)
    """
    rows, array = _sizes()
    return int(max(1, min(rows, (array / (positions * itemsize)) ** 0.5)))


def _sizes() -> tuple[int, int]:
    return _ON_CPU if jax.default_backend() == "cpu" else _ON_ACCELERATOR


def _padded(x: np.ndarray, start: int, block: int) -> np.ndarray:
    """Rows start … start + block; rows beyond the end repeat the last one, so that every block has one shape."""
    return x[np.minimum(np.arange(start, start + block), len(x) - 1)]


def _even(n: int, limit: int) -> int:
    """At most `limit` rows, so that blocks of one size cover n with little left over; few sizes, each is compiled once."""
    rows = -(-n // -(-n // limit))
    return min(limit, 1 << (rows - 1).bit_length() if rows < 8 else -(-rows // 8) * 8)


def padded(x: np.ndarray) -> np.ndarray:
    """x with its last row repeated, up to one of few numbers of rows; what is more than a block stays as it is.

    >>> [len(padded(np.zeros((n, 2)))) for n in (1, 3, 10, 13, 401)]
    [1, 4, 16, 16, 401]
    """
    rows = _sizes()[0]
    return x if len(x) > rows else _padded(x, 0, _even(len(x), rows))


def pairwise(
    function: Callable[[Any, Any], Sequence[Any]],
    x1: np.ndarray,
    x2: np.ndarray | None = None,
    count: int = 2,
    block: int | None = None,
    progress: bool | None = None,
    kept: KeptKernels | None = None,
    positions: tuple[int, ...] = (),
) -> list[np.ndarray]:
    """`count` kernels [n1, n2], from a function of two blocks of inputs that returns so many blocks [block, block].

    With `positions` they are [n1, n2, *positions, *positions]. x2 = None means x1 with itself: blocks below the diagonal are
    copied from above it. Blocks run on all devices in turn. Progress shows where it takes more than a few seconds (or as
    `progress` says). With `kept` finished blocks stay on disk.

    >>> pairwise(lambda a, b: [a @ b.T], np.eye(3), block=2, count=1)[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    other = x1 if x2 is None else x2
    n1, n2 = len(x1), len(other)
    size = _even(max(n1, n2), block or _sizes()[0])
    if kept is not None:
        with kept.open(x1, x2, size, positions) as blocks:
            whole = _corners(n1, n2, size, x2 is None)
            left = [corner for corner in blocks.mine(whole) if corner not in blocks.finished]
            _fill(function, x1, x2, size, left, progress, blocks.put)
            blocks.check_whole(whole)
            return blocks.arrays()
    dtype = kernel_dtype(x1)
    entry = 2 * positions
    need, have = count * n1 * n2 * math.prod(entry) * dtype.itemsize, psutil.virtual_memory().available
    if need > have:
        raise MemoryError(
            f"{count} kernels of {' × '.join(map(str, (n1, n2, *entry)))} need {need / 2**30:.1f} GiB and {have / 2**30:.1f} GiB "
            "are free: ask for fewer inputs at a time (x1 in parts against x2), for the diagonal alone, or give a folder."
        )
    out = [np.empty((n1, n2, *entry), dtype) for _ in range(count)]

    def put(i: int, j: int, parts: Sequence[np.ndarray]) -> None:
        for whole, values in zip(out, parts, strict=True):
            whole[i : i + size, j : j + size] = values
            if x2 is None and i != j:
                whole[j : j + size, i : i + size] = mirrored(values)

    _fill(function, x1, x2, size, _corners(n1, n2, size, x2 is None), progress, put)
    return out


def _corners(n1: int, n2: int, size: int, symmetric: bool) -> list[tuple[int, int]]:
    """The first entry of every block, of those on and above the diagonal where that is enough."""
    pairs = itertools.product(range(0, n1, size), range(0, n2, size))
    return [(i, j) for i, j in pairs if not symmetric or i <= j]


def _fill(
    function: Callable[[Any, Any], Sequence[Any]],
    x1: np.ndarray,
    x2: np.ndarray | None,
    size: int,
    corners: list[tuple[int, int]],
    progress: bool | None,
    put: Callable[[int, int, Sequence[np.ndarray]], None],
) -> None:
    """Computes these blocks, and hands them with their first entry to `put`.

    Those on the diagonal of x1 with itself are made symmetric: points of a rule lie otherwise for (a, b) than for (b, a).
    """
    other = x1 if x2 is None else x2
    n1, n2 = len(x1), len(other)
    devices = jax.local_devices()

    def fill(task: tuple[int, tuple[int, int]]) -> None:
        number, (i, j) = task
        with jax.default_device(devices[number % len(devices)]):
            parts = function(_padded(x1, i, size), _padded(other, j, size))
        parts = [np.asarray(part)[: n1 - i, : n2 - j] for part in parts]
        put(i, j, [_from_above(part) for part in parts] if x2 is None and i == j else parts)

    workers = max(min(4, psutil.cpu_count() or 1), len(devices))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        done = pool.map(fill, enumerate(corners))
        try:
            _wait(done, len(corners), progress)
        except BaseException:  # an interrupt too: what is finished is kept, nothing else is begun
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _from_above(block: np.ndarray) -> np.ndarray:
    """The block [n, n, …] with what stands above the diagonal below it too."""
    below = np.tri(len(block), k=-1, dtype=bool)
    return np.where(below.reshape(*below.shape, *(1,) * (block.ndim - 2)), mirrored(block), block)


def _wait(done: Any, count: int, progress: bool | None) -> None:
    """Until all is done; a bar with the time left appears if that takes a while."""
    if progress is None:
        start, left = time.monotonic(), count
        while left and time.monotonic() - start < _PATIENCE:
            next(done)
            left -= 1
        progress = left > 1
        count = left
    screen = Console(stderr=True)  # stdout belongs to the caller's own output
    for _ in track(done, "kernel blocks", total=count, console=screen) if progress else done:
        pass
