"""The rule for entries by numbers: rows of a table, or positions."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.cleared import cleared
from limits.program.elementwise import signed
from limits.program.nodes import Det, FieldSum, Lookup
from limits.program.shapes import moved, settled
from limits.program.values import Atom, Axes, NoLimitError, Parameter, Value, atoms, positions, size


def gathered(table: Value, indices: Value, params: dict[str, Any], shape: tuple) -> Value:
    """Entries of one axis, by numbers: rows of a table of parameters, or positions."""
    spec, sizes = params["dimension_numbers"], params["slice_sizes"]
    if len(spec.start_index_map) != 1 or tuple(spec.collapsed_slice_dims) != tuple(spec.start_index_map):
        raise NoLimitError("a gather along several axes")
    (axis,) = spec.start_index_map
    own = tuple(spec.operand_batching_dims)  # each has indices of its own, as in take_along_axis
    if any(s != size(a)[0] for i, (s, a) in enumerate(zip(sizes, table.axes, strict=True)) if i not in (axis, *own)):
        raise NoLimitError("a gather of parts of several axes")
    if own and (isinstance(table.held, Parameter) or any(atom.kind != "b" for i in own for atom in table.axes[i])):
        raise NoLimitError("a gather by indices that differ between parts")
    if not isinstance(indices.held, Det):
        raise NoLimitError("entries are looked up by what a field says")
    lead = indices.axes[:-1] if indices.axes and not indices.axes[-1] else indices.axes
    rest = [a for i, a in enumerate(table.axes) if i not in (axis, *own)]
    axes: list[Any] = [None] * len(shape)
    for place, each in zip(spec.offset_dims, rest, strict=True):
        axes[place] = each
    places = [i for i, each in enumerate(axes) if each is None]
    for place, each in zip(places, lead, strict=True):
        axes[place] = each
    filled = params["fill_value"] if params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP else None
    if isinstance(table.held, Parameter):
        if any(place < max(places, default=-1) for place in spec.offset_dims) or any(
            atom.kind != "n" for each in rest for atom in each
        ):
            raise NoLimitError(f"rows of {table.held.path} are looked up that are no vectors over neurons")
        weights, every = table.held, settled(indices)
        count = size(table.axes[axis])[0]
        rows = _inside(every.array, filled, count)
        some = filled is not None and not isinstance(rows, np.ndarray)  # may have none, which no trace tells
        zeros = some and filled == 0
        if some and not zeros and not np.isnan(np.asarray(filled)):
            raise NoLimitError(f"rows of {weights.path} are looked up, and {filled} is taken where there are none")
        if weights.law.mean != 0:
            raise NoLimitError(f"entries of the table {weights.path} have mean {weights.law.mean:g}, not 0")
        node: Any = Lookup(every.shape, weights.growth, weights.matrix(), rows, count if some else None)
        if zeros:
            inside = (rows >= 0) & (rows < count)
            node = FieldSum(node.shape, node.power, ((Det(inside.astype(float)), cleared(node, inside)),))
        node = signed(weights, node)
        return Value(tuple(axes), node)
    return _taken(table, indices, axis, tuple(axes), places, filled)


def _taken(table: Value, indices: Value, axis: int, axes: Axes, places: list[int], filled: Any) -> Value:
    """Positions by numbers that are the same for every input, or rows of a constant table.

    filled: what stands where a number is no position; None where the nearest one does.
    """
    constant = isinstance(table.held, Det) and all(atom.kind == "p" for atom in atoms(table.axes))
    table = _with_entries(table, axis)
    if [atom.kind for atom in table.axes[axis]] != ["p"] or not (constant or len(indices.held.array) == 1):
        raise NoLimitError("entries are taken along neurons or inputs, or by numbers that differ between inputs")
    held, at = settled(table), len(positions(table.axes[:axis]))
    with jax.ensure_compile_time_eval():  # which positions are zero is asked while a caller traces
        every = settled(indices).array
        every = np.asarray(every) if isinstance(indices.held.array, np.ndarray) else jnp.asarray(every)
    count = held.shape[at]
    if filled is None or not (
        filled == 0 or (constant and not held.zero)
    ):  # a number beside a field is no linear map of it
        every, filled = _inside(every, filled, count), np.nan
    every = (np if isinstance(every, np.ndarray) else jnp).where(
        every < 0, count, every
    )  # JAX has counted from the end
    first = len(positions(axes[: places[0]])) if places else at
    shape = (*held.shape[:at], *held.shape[at + 1 :])
    shape = (*shape[:first], *every.shape[1:], *shape[first:])

    def act(a: Any, i: int, numbers: Any = every[0]) -> Any:
        found = jnp.take(a, numbers.ravel(), axis=i + at, mode="fill", fill_value=filled)
        found = jnp.moveaxis(found, i + at, i + first)
        return found.reshape(*found.shape[: i + first], *numbers.shape, *found.shape[i + first + 1 :])

    if len(every) > 1:
        rows = jax.vmap(lambda numbers: act(jnp.asarray(held.array)[0], 0, numbers))(every)
        return Value(axes, dataclasses.replace(held, array=rows, default=None))
    return Value(axes, moved(held, act, shape))


def _with_entries(table: Value, axis: int) -> Value:
    """With an axis of one entry as one of positions: other axes of size 1 are of nothing."""
    if table.axes[axis]:
        return table
    axes = (*table.axes[:axis], (Atom("p", (1, 1, 1)),), *table.axes[axis + 1 :])
    at, held = len(positions(table.axes[:axis])), table.held
    act = lambda a, i: a.reshape(*a.shape[: i + at], 1, *a.shape[i + at :])  # noqa: E731
    return Value(axes, moved(held, act, (*held.shape[:at], 1, *held.shape[at:])))


def _inside(numbers: Any, filled: Any, count: int) -> Any:
    """Which of so many entries is taken."""
    if filled is None:
        return numbers.clip(0, count - 1)
    if isinstance(numbers, np.ndarray) and ((numbers < 0) | (numbers >= count)).any():
        raise NoLimitError(f"entries are looked up where there are none, and {filled} is taken for them")
    return numbers
