"""Moments of fields that share the weights at their top: sums over what these weights act on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Det, Image, Lookup, Mask, Weights, Window
from limits.program.values import NoLimitError


def same_weights(u: Any, v: Any) -> bool:
    """Whether two fields share the weights at their top; an error where these are used in two ways."""
    if (u.matrix.path, u.matrix.index) != (v.matrix.path, v.matrix.index):
        return False
    if type(u) is not type(v) or (isinstance(u, Image) and (u.layout != v.layout or u.contracted != v.contracted)):
        raise NoLimitError(
            f"the parameter {u.matrix.path} is used in two ways (as W and as its transpose, or along other axes), and gradients "
            "through it are then not independent of signals"
        )
    return u.matrix.rows == v.matrix.rows


def meet(some: frozenset, others: Any) -> bool:
    """Whether two fields have weights at the tops in common; an error where it is those of a part of their neurons."""
    if some & others:
        return True
    for path, index, mine in (top for top in some if len(top) == 3):
        for theirs in (top[2] for top in others if top[:2] == (path, index)):
            if (mine or theirs).meets_some(theirs if mine else ()):
                raise NoLimitError("a part of the neurons changes places, and others stay where they are")
    return False


def same_parts(taken: dict[str, tuple], matrix: Weights) -> None:
    """An error where a parameter is met as a whole and in parts; `taken`: the axes along which entries of each were taken."""
    axes = tuple(axis for axis, _ in matrix.index)
    if taken.setdefault(matrix.path, axes) != axes:
        raise NoLimitError(
            f"the parameter {matrix.path} is used as a whole, and parts of it (as its layers in a loop) by themselves, and what "
            "these make depends on each other"
        )


def of_both(one: Weights, other: Weights) -> tuple[Any, Any]:
    """(covariance of entries, learning) of two uses of the same weights, each times a number of its own above zero."""
    if (one.std, one.rate) == (other.std, other.rate) and one.moving is other.moving and one.quicker is other.quicker:
        return one.variance, one.rate and one.rate * one.quicker
    learning = [each.rate and each.rate * each.quicker for each in (one, other)]
    return one.std * other.std * one.moving * other.moving, (learning[0] * learning[1]) ** 0.5


def of_weights(m: Any, u: Any, v: Any, pairs: bool) -> Any:
    """⟨u v⟩ of images, entries or rows of the same weights; None where it is zero by structure."""
    if u.matrix.std == 0:
        return None
    variance, _ = of_both(u.matrix, v.matrix)
    if isinstance(u, Image):
        inner = contracted(m, m.second, u, v, pairs)
        return None if inner is None else u.fan * variance * inner
    return variance * shared(m, u, v, pairs)


def shared(m: Any, u: Any, v: Any, pairs: bool) -> Any:
    """1 where entries of u and v are the same, else 0; NaN where a row is looked up that is none."""
    if isinstance(u, Lookup):
        left, right = m.placed(u.indices, 0, len(v.shape), pairs), m.placed(v.indices, 1, len(u.shape), pairs)
        equal = (left == right).astype(float)
        for rows, count in ((left, u.count), (right, v.count)):
            equal = equal if count is None else jnp.where((rows >= 0) & (rows < count), equal, jnp.nan)
        return equal
    ones = jnp.ones((1,) * m.batch)
    if isinstance(u, Mask) and u.by_input and m is not m.own:
        return jnp.zeros((1,) * (m.batch + (len(u.shape) + len(v.shape) if pairs else max(len(u.shape), len(v.shape)))))
    if not pairs:
        return ones.reshape((1,) * (m.batch + max(len(u.shape), len(v.shape))))
    for axis, (n, own) in enumerate(zip(u.shape, u.own, strict=True)):
        if own:
            k = len(u.shape)
            shape = [1] * (m.batch + 2 * k)
            shape[m.batch + axis] = shape[m.batch + k + axis] = n
            ones = ones.reshape((1,) * (m.batch + 2 * k)) if ones.ndim == m.batch else ones
            ones = ones * jnp.eye(n).reshape(shape)
    return ones.reshape((1,) * (m.batch + len(u.shape) + len(v.shape))) if ones.ndim == m.batch else ones


def contracted(m: Any, form: Any, u: Any, v: Any, pairs: bool) -> Any:
    """Σ form(u, v) over equal contracted positions and offsets of the window, for images by the same weights."""
    key = ("contracted", form.__name__, id(u), id(v), pairs)
    return m.once(key, lambda: _contraction(m, form, u, v, pairs), u, v)


def _contraction(m: Any, form: Any, u: Any, v: Any, pairs: bool) -> Any:
    b, k = m.batch, u.contracted
    if u.window != v.window and not pairs:  # equal positions come from pairs of other ones
        found = contracted(m, form, u, v, True)
        return None if found is None else diagonal(found, b, u.shape, v.shape)
    if isinstance(u.source, Det) and isinstance(v.source, Det):
        found = None if u.source.zero or v.source.zero else dot(m, u.source, v.source, k, pairs)
    else:
        found = form(u.source, v.source, pairs)
        if found is not None and pairs:
            kept_u, kept_v = len(u.source.shape) - k, len(v.source.shape) - k
            for _ in range(k):  # the last axes of either side
                found = jnp.trace(found, axis1=b + kept_u, axis2=b + kept_u + k + kept_v)
                k -= 1
            k = u.contracted
        elif found is not None:
            found = found.sum(tuple(range(found.ndim - k, found.ndim))) if k else found
    if found is None:
        return None
    if u.window is not None:
        found = slid(found, b, len(u.source.shape) - k, (u.window, v.window) if pairs else (u.window,))
    return found


def diagonal(a: Any, b: int, mine: tuple[int, ...], theirs: tuple[int, ...]) -> Any:
    """Equal positions of [batch, P, P]; an axis of size 1 stands for all."""
    k = len(mine)
    for i in range(k):
        n = max(mine[i], theirs[i])
        rest = k - i
        for axis in (b + i, b + i + rest):
            if a.shape[axis] < n:
                a = jnp.repeat(a, n, axis)
        a = jnp.moveaxis(jnp.diagonal(a, axis1=b + i, axis2=b + i + rest), -1, b + i)
    return a


def dot(m: Any, u: Det, v: Det, k: int, pairs: bool) -> Any:
    """Σ_c u_ac(x) v_a′c(x′) over the last k axes."""
    left, right = (m.side(jnp.asarray(d.array), i) for i, d in enumerate((u, v)))
    b, letters = m.batch, iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP")
    batch, shared = [next(letters) for _ in range(b)], [next(letters) for _ in range(k)]
    mine = [next(letters) for _ in range(len(u.shape) - k)]
    theirs = [next(letters) for _ in range(len(v.shape) - k)] if pairs else mine
    full = np.broadcast_shapes(left.shape[:b], right.shape[:b])
    names = ["".join(n for n, s in zip(batch, array.shape[:b], strict=True) if s > 1) for array in (left, right)]
    left, right = (a.reshape(*(s for s in a.shape[:b] if s > 1), *a.shape[b:]) for a in (left, right))
    out = "".join(n for n, s in zip(batch, full, strict=True) if s > 1)
    inside = "".join(shared)
    found = jnp.einsum(
        f"{names[0]}{''.join(mine)}{inside},{names[1]}{''.join(theirs)}{inside}->{out}{''.join(mine)}"
        f"{''.join(theirs) if pairs else ''}", left, right, precision="highest",
    )  # fmt: skip
    return found.reshape(*full, *found.shape[len(out) :])


def slid(a: Any, b: int, k: int, windows: tuple[Window, ...]) -> Any:
    """Σ over the offsets of a window, which are the same on both sides; zero outside. A window for each side of pairs."""
    # Costly entries that are fused into these sums would be worked out again for each offset, and so would the sums be.
    a = jax.lax.optimization_barrier(a)
    for i, ways in enumerate(zip(*(window.axes for window in windows), strict=True)):
        axes = [b + side * k + i for side in range(len(ways))]
        around = dict(zip(axes, (edges for _, _, edges, _ in ways), strict=True))
        if any(map(any, around.values())):
            a = jnp.pad(a, [around.get(axis, (0, 0)) for axis in range(a.ndim)])
        spans = [
            (a.shape[axis] - (size - 1) * spacing - 1) // stride * stride + 1
            for axis, (size, stride, _, spacing) in zip(axes, ways, strict=True)
        ]
        parts = []
        for offset in range(ways[0][0]):
            part = a
            for axis, span, (_, stride, _, spacing) in zip(axes, spans, ways, strict=True):
                part = part[(slice(None),) * axis + (slice(offset * spacing, offset * spacing + span, stride),)]
            parts.append(part)
        a = sum(parts[1:], parts[0])
    return jax.lax.optimization_barrier(a)
