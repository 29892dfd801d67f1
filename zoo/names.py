"""Names of parameters: the words of their place in a tree, with dots between."""

import re
import sys
from collections.abc import Callable
from typing import Any

import jax
from flax.core import meta


def names_of(tree: Any, is_leaf: Callable | None = None) -> list[str]:
    """The name of every leaf, in the order of jax.tree.leaves. Boxes around arrays (Linen's metadata, NNX's variables) have none.

    >>> names_of({"attention": {"value": {"kernel": 1}}, "layers": [2, 3]})
    ['attention.value.kernel', 'layers.0', 'layers.1']
    """
    boxes = _boxes()
    stop = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda part: isinstance(part, boxes))
    inside = {tuple(path) for path, part in stop if isinstance(part, boxes)}
    paths = [tuple(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)]
    names = [".".join(_word(path[i]) for i in range(len(path)) if path[:i] not in inside) for path in paths]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise ValueError(f"Two parameters have the name {min(twice)}: rename one of them.")
    return names


def by_name(tree: Any, is_leaf: Callable | None = None) -> dict[str, Any]:
    """The leaves by their names."""
    return dict(zip(names_of(tree, is_leaf), jax.tree.leaves(tree, is_leaf=is_leaf), strict=True))


def map_named(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """function(name, leaf) of every leaf."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [function(*each) for each in zip(names_of(tree), leaves, strict=True)])


def numberless(name: str) -> str:
    """The name without its numbers.

    >>> numberless("layer_12.kernel")
    'layer_#.kernel'
    """
    return re.sub(r"\d+", "#", name)


def _boxes() -> tuple[type, ...]:
    """Nodes that hold one array, under a key of their own."""
    nnx = sys.modules.get("flax.nnx")  # whoever has an NNX variable has imported it
    return (meta.AxisMetadata, nnx.Variable) if nnx else (meta.AxisMetadata,)


def _word(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
