"""Which neurons of a layer a field has, and in what order: parts, copies and neurons that change places meet others of it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from limits.program.nodes import Carried, Concat, Entry, FieldSum, Image, Lookup, Map, Moved, Node
from limits.program.values import Atom, Axes, NoLimitError, Value, growth

_PARTS = "a part of concatenated features is taken that is none of those that were put together"


class NeuronNumbers(NamedTuple):
    """Of the neurons that a field has, among so many: their numbers, in its order."""

    total: int
    which: bytes


def neurons(axes: Axes) -> list[Atom]:
    """The parts of all axes that are neurons, in order."""
    return [atom for axis in axes for atom in axis if atom.kind == "n"]


def sliced(value: Value, number: int, start: int, stop: int, step: int = 1) -> Node:
    """Those between two of an axis, which is of neurons alone."""
    before = len(neurons(value.axes[:number]))
    shape = [atom.sizes[0] for atom in neurons(value.axes)]
    if isinstance(value.held, Concat) and step == 1 and math.prod(shape[:before]) == 1:
        return _part(value.held, start / shape[before], stop / shape[before])
    part = (*[slice(None)] * before, slice(start, stop, step))
    return picked(value.held, shape, lambda numbers: numbers[part])


def reordered(value: Value, order: Sequence[int]) -> Any:
    """What it holds where its axes stand in this order."""
    places = [i for i, axis in enumerate(value.axes) for atom in axis if atom.kind == "n"]
    moved = [k for i in order for k, place in enumerate(places) if place == i]
    if moved == sorted(moved) or not isinstance(value.held, Node):
        return value.held
    atoms = neurons(value.axes)
    wide = [atom.sizes[0] * 16 ** round(growth(atom.sizes)) for atom in atoms]
    numbers = np.arange(math.prod(wide)).reshape(wide)
    if 0.1 < (numbers.ravel() == numbers.transpose(moved).ravel()).mean() < 1:
        raise NoLimitError("a part of the neurons changes places, and others stay where they are")
    return picked(value.held, [atom.sizes[0] for atom in atoms], lambda numbers: numbers.transpose(moved))


def picked(node: Node, shape: Sequence[int], act: Callable[[np.ndarray], np.ndarray]) -> Node:
    """Some of the neurons [*shape] of a field, or all in another order: `act` does to their numbers what is done to them.

    They are other rows of the same weights: independent of those that have other places, neuron by neuron.
    """
    made = dict[int, Any]()

    def of(node: Any) -> Any:
        if not isinstance(node, Node):
            return node
        if id(node) not in made:
            made[id(node)] = cut(node)
        return made[id(node)]

    def cut(node: Node) -> Node:
        match node:
            case Image() | Entry() | Lookup():
                return replaced(node, matrix=replaced(node.matrix, rows=_rows(node.matrix.rows, shape, act)))
            case FieldSum():
                return replaced(node, terms=tuple((c, of(u)) for c, u in node.terms))
            case Moved():
                return replaced(node, source=of(node.source))
            case Map():
                return replaced(node, arguments=tuple(of(u) for u in node.arguments))
            case Carried():
                node.missed()
                raise NoLimitError(
                    "of the neurons of a signal that a loop carries a part is taken, or they change places"
                )
        raise NoLimitError(_PARTS)

    return of(node)


def _rows(rows: Any, shape: Sequence[int], act: Callable[[np.ndarray], np.ndarray]) -> Any:
    count = math.prod(shape)
    before = np.frombuffer(rows.which, np.int32) if rows else np.arange(count, dtype=np.int32)
    if before.size != count:
        raise NoLimitError("parts of neurons are taken along axes that were merged in different ways")
    after, total = act(before.reshape(shape)).ravel(), rows.total if rows else count
    return () if np.array_equal(after, np.arange(total)) else NeuronNumbers(total, after.tobytes())


def _part(node: Concat, low: float, high: float) -> Node:
    """The fields that were put together between two shares of the neurons."""
    at, found = 0.0, []
    for share, part in node.parts:
        if at > low - 1e-12 and at + share < high + 1e-12:
            found.append((share / (high - low), part))
        elif at + share > low + 1e-12 and at < high - 1e-12:
            raise NoLimitError(_PARTS)
        at += share
    return found[0][1] if len(found) == 1 else Concat(node.shape, node.power, tuple(found))


def replaced(thing: Any, **changes: Any) -> Any:
    """The same but for some of its fields."""
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return type(thing)(**{**fields, **changes})
