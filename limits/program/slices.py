"""Rules for parts of arrays: of positions, and of neurons, which are other rows of the same weights (`order`)."""

from typing import Any

import jax

from limits.program import order
from limits.program.nodes import Det
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
        return Value(axes, order.sliced(value, number, start, stop, step))
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
