"""Rules for parts of arrays: of positions, and of neurons, which are other rows of the same weights."""

from typing import Any

import jax

from limits.program.nodes import Concat, Det, Entry, FieldSum, Image, Lookup, Map, Moved, Node
from limits.program.shapes import Act, moved
from limits.program.values import Atom, NoLimitError, Parameter, Value, growth, positions, size


def sliced(value: Value, start: tuple, stop: tuple, step: tuple, shape: tuple) -> Value:
    """A part of every axis."""
    for number, (axis, wanted) in enumerate(zip(value.axes, shape, strict=True)):
        if size(axis) != wanted:
            value = _sliced_axis(value, number, start[number], stop[number], step[number], wanted)
    return value


def _sliced_axis(value: Value, number: int, start: int, stop: int, step: int, wanted: tuple) -> Value:
    axis: Any = value.axes[number]
    if isinstance(value.held, Parameter):
        raise NoLimitError(f"a part of the parameter {value.held.path} is used by itself")
    if len(axis) > 1:
        raise NoLimitError("a part is taken of an axis that merges positions with neurons or inputs")
    new = () if wanted == (1, 1, 1) else (Atom(axis[0].kind, wanted),)
    axes = (*value.axes[:number], new, *value.axes[number + 1 :])
    if axis[0].kind == "b":
        raise NoLimitError("a part of the inputs is taken, so that outputs depend on the other inputs of a call")
    if axis[0].kind == "n":
        if isinstance(value.held, Det):
            return Value(axes, value.held)
        if growth(wanted) == 0:
            raise NoLimitError("single neurons are taken out, whose signals stay random")
        return Value(axes, rows(value.held, start, stop, step, axis[0].sizes[0]))
    at = len(positions(value.axes[:number]))
    if wanted == (1, 1, 1):
        one_of: Act = lambda a, i: jax.lax.index_in_dim(a, start if a.shape[i + at] > 1 else 0, i + at, False)  # noqa: E731
        return Value(axes, moved(value.held, one_of, _dropped(value.held.shape, at)))

    def act(a: Any, i: int) -> Any:
        return a if a.shape[i + at] == 1 else jax.lax.slice_in_dim(a, start, stop, step, i + at)

    here = value.held.shape
    return Value(axes, moved(value.held, act, (*here[:at], min(here[at], wanted[0]), *here[at + 1 :])))


def _dropped(shape: tuple[int, ...], at: int) -> tuple[int, ...]:
    return (*shape[:at], *shape[at + 1 :])


def rows(node: Node, start: int, stop: int, step: int, total: int) -> Node:
    """Some of the neurons: other rows of the same weights, and hence independent of the rest."""
    tag, made = (start, stop, step), dict[int, Any]()

    def of(node: Any) -> Any:
        if not isinstance(node, Node):
            return node
        if id(node) not in made:
            made[id(node)] = cut(node)
        return made[id(node)]

    def cut(node: Node) -> Node:
        match node:
            case Image() | Entry() | Lookup():
                matrix = node.matrix
                return _replace(node, matrix=_replace(matrix, rows=(*matrix.rows, tag)))
            case FieldSum():
                return _replace(node, terms=tuple((c, of(u)) for c, u in node.terms))
            case Moved():
                return _replace(node, source=of(node.source))
            case Map():
                return _replace(node, arguments=tuple(of(u) for u in node.arguments))
        raise NoLimitError("a part of concatenated features is taken that is none of those that were put together")

    if isinstance(node, Concat):
        return _part(node, start / total, stop / total) if step == 1 else cut(node)
    return of(node)


def _part(node: Concat, low: float, high: float) -> Node:
    """The fields that were put together between two shares of the neurons."""
    at, found = 0.0, []
    for share, part in node.parts:
        if at > low - 1e-12 and at + share < high + 1e-12:
            found.append((share / (high - low), part))
        elif at + share > low + 1e-12 and at < high - 1e-12:
            raise NoLimitError("a part of concatenated features is taken that is none of those that were put together")
        at += share
    return found[0][1] if len(found) == 1 else Concat(node.shape, node.power, tuple(found))


def _replace(thing: Any, **changes: Any) -> Any:
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return type(thing)(**{**fields, **changes})
