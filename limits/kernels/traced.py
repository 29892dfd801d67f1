"""Kernels within a program that jax compiles and differentiates: in tiles, and by few numbers in forward mode."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

TILE = 84  # rows of a tile of which a pair has one covariance: its arrays stay in a core's cache
FEW = 3  # numbers by which derivatives cost less forward than backward


def rows_of_tiles(entries: int, most: int) -> int:
    """Rows of a tile, of so many at most, whose pairs have so many covariances each (0: not to be cut).

    >>> rows_of_tiles(0, 500)
    500
    """
    # Where arrays are spread over devices, tiles would be worked out on each of them; other devices have no such caches.
    return max(1, min(most, int(TILE / entries**0.5))) if entries and one_processor() else most


def one_processor() -> bool:
    """Whether jax computes on one device, which is the host."""
    return jax.default_backend() == "cpu" and jax.device_count() == 1


def in_tiles(
    function: Callable[[Any, Any], Sequence[Any]], x1: Any, x2: Any = None, rows: int = TILE, positions: int = 0
) -> list[Any]:
    """function(x1, x2) → arrays [n1, n2, *positions, *positions], of tiles of so many rows, one after the other.

    x2 = None: x1 itself; tiles below the diagonal are those above it. Nothing of a tile is kept for a backward pass, which
    works it out again: memory does not grow with the depth of a network.

    >>> found = in_tiles(lambda a, b: (a @ b.T,), jnp.arange(5.0)[:, None], rows=2)[0]
    >>> bool((found == jnp.outer(jnp.arange(5.0), jnp.arange(5.0))).all())
    True
    """
    same, other = x2 is None, x1 if x2 is None else x2
    n1, n2 = len(x1), len(other)
    first = _even(n1, rows)
    second = first if same else _even(n2, max(rows, rows * rows // first))
    if first == n1 and second == n2:
        return list(function(x1, other))
    a, b = _cut(x1, first), _cut(other, second)
    tiles = [(i, j) for i in range(len(a)) for j in range(len(b)) if not same or i <= j]
    found = jax.lax.map(jax.checkpoint(lambda at: tuple(function(a[at[0]], b[at[1]]))), jnp.asarray(tiles))
    return [_joined(each, np.array(tiles), same, positions)[:n1, :n2] for each in found]


def _even(n: int, limit: int) -> int:
    """At most `limit` rows, so that tiles of one size cover n with little left over."""
    return -(-n // -(-n // limit))


def _cut(x: Any, rows: int) -> Any:
    """[tiles, rows, …]; beyond the end the last row again."""
    count = -(-len(x) // rows)
    return x[np.minimum(np.arange(count * rows), len(x) - 1)].reshape(count, rows, *x.shape[1:])


def _joined(parts: Any, tiles: np.ndarray, same: bool, positions: int) -> Any:
    """[rows, columns, …] of tiles [tiles, rows, columns, …]."""
    (i, j), (_, rows, columns, *rest) = tiles.T, parts.shape
    down, across = i.max() + 1, j.max() + 1
    whole = jnp.zeros((down, rows, across, columns, *rest), parts.dtype)
    whole = whole.at[i, :, j].set(parts, indices_are_sorted=True, unique_indices=True)
    whole = whole.reshape(down * rows, across * columns, *rest)
    if not same:
        return whole
    at = np.repeat(np.arange(down), rows)
    above = (at[:, None] <= at[None, :]).reshape(*whole.shape[:2], *(1,) * len(rest))
    mine, theirs = range(2, 2 + positions), range(2 + positions, 2 + 2 * positions)
    return jnp.where(above, whole, whole.transpose(1, 0, *theirs, *mine))


def by_few_numbers(function: Callable[[tuple, tuple], Any], numbers: tuple, arrays: tuple) -> Any:
    """function(numbers, arrays), whose derivatives by a few of its numbers alone are worked out with its value.

    A backward pass through a kernel goes over all its entries for each sum over them; forward it is a chain entry by entry.

    >>> jax.grad(lambda a: by_few_numbers(lambda n, x: n[0] ** 2 * x[0], (a,), (jnp.ones(3),)).sum())(2.0).item()
    12.0
    """
    call = jax.custom_jvp(function)

    def rule(primals: tuple, tangents: tuple) -> Any:
        moves = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
        at = [i for i, t in enumerate(moves) if not isinstance(t, SymbolicZero)]

        def moved(primals: tuple, ways: tuple) -> Any:
            leaves, tree = jax.tree.flatten(primals)

            def of(*moving: Any) -> Any:
                new = list(leaves)
                for i, value in zip(at, moving, strict=True):
                    new[i] = value
                return function(*jax.tree.unflatten(tree, new))

            return jax.jvp(of, tuple(leaves[i] for i in at), ways)

        ways = tuple(moves[i] for i in at)
        if len(at) > FEW or max(at) >= len(primals[0]):
            return moved(primals, ways)

        def with_slopes(*primals: Any) -> tuple[Any, Any]:
            here = [jax.tree.leaves(primals)[i] for i in at]
            units = [jnp.eye(len(at), dtype=value.dtype)[k] for k, value in enumerate(here)]
            return jax.vmap(lambda *way: moved(primals, way), out_axes=(None, 0))(*units)

        # Slopes whose slopes are taken forward in turn: JAX forgets rules of derivatives in the reverse of a loop over tiles.
        value, slopes = by_few_numbers(with_slopes, *primals)
        return value, jax.tree.map(lambda s: sum(way * s[k] for k, way in enumerate(ways)), slopes)

    call.defjvp(rule, symbolic_zeros=True)
    return call(numbers, arrays)


def outside_traces(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of values returns, also where a caller is tracing: a thread of its own knows of no trace."""
    if not isinstance(jnp.zeros(()), Tracer):
        return function(*arguments)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()
