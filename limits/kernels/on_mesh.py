"""Symmetric kernels whose tiles the devices of a mesh share: compiled whole, with no host between them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def symmetric(
    function: Callable[[Any, Any], Sequence[Any]], x: Any, mesh: Mesh, axis: str, positions: int = 0
) -> list[Any]:
    """function(a, b) → arrays [m, m, …] (b = None: a itself); of x [n, …], whose rows lie along `axis`, arrays [n, n, …] alike.

    With p devices along the axis device i works out its tiles (i, i), (i, i+1), …, (i, i + p/2), modulo p, as the rows of the
    others come round; what lies on the other side of the diagonal is sent as transposes, once, at the end. So p/2 + 1 of p
    tiles of every row are computed, and a device never holds more than its rows.

    >>> mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    >>> symmetric(lambda a, b: (a @ (a if b is None else b).T,), jnp.arange(3.0)[:, None], mesh, "rows")[0].tolist()
    [[0.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 4.0]]
    """
    count = mesh.shape[axis]
    if len(x) % count:
        raise ValueError(
            f"on_mesh: {len(x)} inputs cannot be dealt out evenly to the {count} devices along {axis!r}: leave "
            f"{len(x) % count} out, or add {-len(x) % count}."
        )
    spec = PartitionSpec(axis)
    run = jax.shard_map(
        lambda mine: _rows(function, mine, axis, count, positions),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    return list(jax.jit(run)(jax.device_put(x, NamedSharding(mesh, spec))))


def _rows(function: Callable, mine: Any, axis: str, count: int, positions: int) -> tuple[Any, ...]:
    """The rows [m, n, …] of this device."""
    me, half, m = jax.lax.axis_index(axis), count // 2, len(mine)
    to_left = [(i, (i - 1) % count) for i in range(count)]  # so that what lies at the right comes by
    own = tuple(function(mine, None))
    rows = tuple(jnp.zeros((count, *part.shape), part.dtype).at[me].set(part) for part in own)

    def tile(j: Any, carry: tuple) -> tuple:
        rows, other = carry
        other = jax.lax.ppermute(other, axis, to_left)
        parts = function(mine, other)
        return tuple(row.at[(me + j) % count].set(part) for row, part in zip(rows, parts, strict=True)), other

    rows, _ = jax.lax.fori_loop(1, half + 1, tile, (rows, mine))
    here = (jnp.arange(count) - me) % count <= half  # worked out by this device

    def whole(row: Any) -> Any:
        sent = jax.lax.all_to_all(row, axis, 0, 0)  # of every device the tile that it has for this one
        ahead, behind = (tuple(range(3 + k * positions, 3 + (k + 1) * positions)) for k in (0, 1))
        sent = sent.transpose(0, 2, 1, *behind, *ahead)
        known = jnp.where(here.reshape(count, *(1,) * (row.ndim - 1)), row, sent)
        return jnp.moveaxis(known, 0, 1).reshape(m, count * m, *row.shape[3:])

    return tuple(map(whole, rows))
