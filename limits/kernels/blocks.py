"""Big kernels in blocks: bounded memory, and each pair of a symmetric kernel computed once."""

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
from rich.progress import track

BLOCK = 400  # rows; its arrays stay in the cache of one core


def _padded(x: np.ndarray, start: int, block: int) -> np.ndarray:
    """Rows start … start + block; rows beyond the end repeat the last one, so that every block has one shape."""
    return x[np.minimum(np.arange(start, start + block), len(x) - 1)]


def _block_rows(n: int) -> int:
    """About `BLOCK` rows, so that blocks of one size cover n with little left over."""
    return n if n <= BLOCK else -(-n // -(-n // BLOCK) // 8) * 8


def pairwise(
    function: Callable[[Any, Any], Sequence[Any]],
    x1: np.ndarray,
    x2: np.ndarray | None = None,
    count: int = 2,
    block: int | None = None,
    progress: bool | None = None,
) -> list[np.ndarray]:
    """`count` kernels [n1, n2], from a function of two blocks of rows that returns so many blocks [block, block].

    x2 = None means x1 with itself: blocks below the diagonal are copied from above it. Progress shows where there are
    more than 1,000 blocks (or as `progress` says).

    >>> pairwise(lambda a, b: [a @ b.T], np.eye(3), block=2, count=1)[0].tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    other = x1 if x2 is None else x2
    n1, n2 = len(x1), len(other)
    need, have = count * n1 * n2 * x1.itemsize, psutil.virtual_memory().available
    if need > have:
        raise MemoryError(
            f"{count} kernels of {n1} × {n2} need {need / 2**30:.1f} GiB and {have / 2**30:.1f} GiB are free: "
            "ask for fewer inputs at a time (x1 in parts against x2), or for the diagonal alone."
        )
    out = [np.empty((n1, n2), x1.dtype) for _ in range(count)]
    size = _block_rows(max(n1, n2)) if block is None else min(block, max(n1, n2))
    corners = [(i, j) for i, j in itertools.product(range(0, n1, size), range(0, n2, size)) if x2 is not None or i <= j]

    def fill(corner: tuple[int, int]) -> None:
        i, j = corner
        parts = function(_padded(x1, i, size), _padded(other, j, size))
        for whole, part in zip(out, parts, strict=True):
            values = np.asarray(part)[: n1 - i, : n2 - j]
            whole[i : i + size, j : j + size] = values
            if x2 is None and i != j:
                whole[j : j + size, i : i + size] = values.T

    show = len(corners) > 1000 if progress is None else progress
    with ThreadPoolExecutor(max_workers=min(4, psutil.cpu_count() or 1)) as pool:
        done = pool.map(fill, corners)
        for _ in track(done, "kernel blocks", total=len(corners)) if show else done:
            pass
    return out
