"""What a selection does not take of a field: rows that a table has not are looked up there, and never seen."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Concat, Det, FieldSum, Image, Lookup, Map, Moved, Node


def cleared(node: Node, taken: Any) -> Node:
    """The same field where `taken` [n, *shape] is true; elsewhere row 0 is looked up in place of one that there is not.

    A row that there is not is NaN, and so is 0 times it, whereas a selection drops it. Behind what moves or mixes positions it is
    not known which are dropped: there it counts as a row of its own, which makes no difference where the selection drops it.
    """
    return _cleared(node, taken, {}) if node.lacks_rows else node


def _moves(node: Any) -> bool:
    """Whether its positions are others than those of what it is made of."""
    return isinstance(node, Moved) or (isinstance(node, Image) and bool(node.window or node.contracted))


def _cleared(node: Any, taken: Any, met: dict[Any, Any]) -> Any:
    """taken: None where it is not known."""
    key = id(node), taken is None
    if key not in met:
        met[key] = _made(node, None if _moves(node) else taken, met)
    return met[key]


def _made(node: Any, taken: Any, met: dict[Any, Any]) -> Any:
    again = lambda part: _cleared(part, taken, met)  # noqa: E731
    if isinstance(node, Det):  # a norm of such rows is NaN, too
        known = isinstance(node.array, np.ndarray) and np.isfinite(node.array).all()
        if known or taken is None or node.array.ndim != taken.ndim:
            return node
        return dataclasses.replace(node, array=jnp.where(taken, node.array, 0.0))
    if isinstance(node, Lookup) and node.lacks_rows:
        if taken is None:
            return dataclasses.replace(node, count=None)
        found = jnp.where(taken, node.indices, 0)
        return dataclasses.replace(node, shape=found.shape[1:], indices=found, cleared=True)
    if not node.lacks_rows:
        return node
    new: dict[str, Any] = {}
    if isinstance(node, FieldSum):
        new["terms"] = tuple((again(c), again(u)) for c, u in node.terms)
        new["constant"] = node.constant and again(node.constant)
    elif isinstance(node, Map):
        new["arguments"] = tuple(again(u) if isinstance(u, Node | Det) else u for u in node.arguments)
    elif isinstance(node, Concat):
        new["parts"] = tuple((share, again(u)) for share, u in node.parts)
    elif isinstance(node, Image | Moved):
        new["source"] = again(node.source)
    else:
        return node
    if taken is not None:
        new["shape"] = np.broadcast_shapes(node.shape, taken.shape[1:])
    return dataclasses.replace(node, **new)
