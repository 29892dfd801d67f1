"""Axes of independent copies (heads, experts): neurons whose number does not grow, told apart where numbers tell them apart."""

from limits.program.concatenation import concatenated
from limits.program.nodes import Node
from limits.program.order import sliced
from limits.program.shapes import Turned
from limits.program.values import NoLimitError, Parameter, Value, growth

MOST = 64  # all pairs of copies are looked at


def are_copies(value: Value, number: int) -> bool:
    """Whether this axis of a field is one of copies, beside neurons of another axis."""
    return (
        isinstance(value.held, Node)
        and [atom.kind for atom in value.axes[number]] == ["n"]
        and growth(value.axes[number][0].sizes) == 0
        and any(growth(atom.sizes) > 0 for axis in value.axes for atom in axis if atom.kind == "n")
    )


def apart(value: Value, number: int) -> Value:
    """With an axis of copies as one of positions, along which weights are others: a sum of copies, each at its place."""
    ((_, sizes),) = value.axes[number]
    n = sizes[0]
    if n > MOST:
        raise NoLimitError(f"{n} independent copies are told apart; up to {MOST} are followed")
    axes = (*value.axes[:number], (), *value.axes[number + 1 :])
    copies = [Value(axes, sliced(value, number, i, i + 1)) for i in range(n)]
    return concatenated(copies, number, sizes)


def entry(weights: Value, number: int, i: int) -> Value:
    """Entry i of weights along an axis: weights of their own."""
    held = weights.held
    before = sum(len(axis) for axis in weights.axes[:number])
    if not weights.axes[number]:
        return Value((*weights.axes[:number], *weights.axes[number + 1 :]), held)
    if len(weights.axes[number]) != 1:
        raise NoLimitError(f"axes of the parameter {held.path} were merged, of which entries are taken")
    origin = held.origin[before]
    if isinstance(origin, Turned):
        origin, i = origin.origin, weights.axes[number][0].sizes[0] - 1 - i
    fields = {
        **held.__dict__,
        "index": (*held.index, (origin, i)),
        "origin": (*held.origin[:before], *held.origin[before + 1 :]),
    }
    return Value((*weights.axes[:number], *weights.axes[number + 1 :]), Parameter(**fields))


def told_apart(values: list[Value]) -> list[Value]:
    """Fields with copies along an axis along which others have positions: these tell the copies apart."""
    rank = max(len(value.axes) for value in values)
    for i in range(rank):
        here = [value for value in values if len(value.axes) == rank]
        numbered = any([atom.kind for atom in value.axes[i]] == ["p"] for value in here)
        if numbered:
            values = [apart(v, i) if len(v.axes) == rank and are_copies(v, i) else v for v in values]
    return values
