"""Which neurons of a layer a field has, and in what order: parts, copies and neurons that change places meet others of it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from limits.program.nodes import Carried, Concat, Entry, FieldSum, Image, Lookup, Map, Moved, Node
from limits.program.values import Atom, Axes, NoLimitError, Value, growth

_PARTS = "a part of concatenated features is taken that is none of those that were put together"


class NeuronNumbers(NamedTuple):
    """Of the neurons that a field has, among so many: their numbers, in its order; of `some` of wide networks it is as it was."""

    total: int
    which: bytes
    some: bool = False  # by whatever way it came about: the same numbers are the same neurons

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NeuronNumbers) and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])

    def meets_some(self, others: Any) -> bool:
        """Whether neurons that have other places in a field of these numbers, (): all as they are, are in part the same."""
        if not (self.some or (others and others.some)):
            return False
        mine = np.frombuffer(self.which, np.int32)
        theirs = np.frombuffer(others.which, np.int32) if others else np.arange(mine.size)
        return mine.size == theirs.size and bool((mine == theirs).any())


def neurons(axes: Axes) -> list[Atom]:
    """The parts of all axes that are neurons, in order."""
    return [atom for axis in axes for atom in axis if atom.kind == "n"]


def sliced(value: Value, number: int, start: int, stop: int, step: int = 1) -> Node:
    """Those between two of an axis, which is of neurons alone."""
    before = len(neurons(value.axes[:number]))
    shape = [atom.sizes[0] for atom in neurons(value.axes)]
    if isinstance(value.held, Concat) and step == 1 and math.prod(shape[:before]) == value.held.before:
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

    def stay(times: int) -> float:
        """The share that does, so many times as wide."""
        wide = [atom.sizes[0] * times ** round(growth(atom.sizes)) for atom in atoms]
        numbers = np.arange(math.prod(wide)).reshape(wide)
        return float((numbers.ravel() == numbers.transpose(moved).ravel()).mean())

    some = 2 * stay(16) > stay(4) > 0  # else that of a few, such as the first and the last
    return picked(value.held, [atom.sizes[0] for atom in atoms], lambda numbers: numbers.transpose(moved), some)


def picked(node: Node, shape: Sequence[int], act: Callable[[np.ndarray], np.ndarray], some: bool = False) -> Node:
    """Some of the neurons [*shape] of a field, or all in another order: `act` does to their numbers what is done to them.

    They are other rows of the same weights: independent of those that have other places, neuron by neuron. some: a share of them
    keeps its place in wide networks too.
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
                return replaced(node, matrix=replaced(node.matrix, rows=_rows(node.matrix.rows, shape, act, some)))
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


def _rows(rows: Any, shape: Sequence[int], act: Callable[[np.ndarray], np.ndarray], some: bool) -> Any:
    count = math.prod(shape)
    before = np.frombuffer(rows.which, np.int32) if rows else np.arange(count, dtype=np.int32)
    if before.size != count:
        raise NoLimitError("parts of neurons are taken along axes that were merged in different ways")
    after, total = act(before.reshape(shape)).ravel(), rows.total if rows else count
    some = some or bool(rows and rows.some)
    return () if np.array_equal(after, np.arange(total)) else NeuronNumbers(total, after.tobytes(), some)


def _part(node: Concat, low: float, high: float) -> Node:
    """The fields that were put together between two shares of the neurons."""
    at, found = 0.0, []
    for share, part in node.parts:
        if at > low - 1e-12 and at + share < high + 1e-12:
            found.append((share / (high - low), part))
        elif at + share > low + 1e-12 and at < high - 1e-12:
            raise NoLimitError(_PARTS)
        at += share
    return found[0][1] if len(found) == 1 else Concat(node.shape, node.power, tuple(found), node.before)


def replaced(thing: Any, **changes: Any) -> Any:
    """The same but for some of its fields."""
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return type(thing)(**{**fields, **changes})
