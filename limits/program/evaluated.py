"""Primitives without a rule of their own, of numbers alone: what they make of inputs and constants is evaluated."""

import math
from typing import Any

import jax.numpy as jnp

from limits.program.nodes import Det
from limits.program.primitives import primitives
from limits.program.trace import Equation
from limits.program.values import Value, fresh, positions, size

# Those whose parameters hold no sizes, by which axes of their first array they mix.
_MIXED = {
    "sort": lambda p, n: {p["dimension"]},
    "argmax": lambda p, n: {*p["axes"]},
    "argmin": lambda p, n: {*p["axes"]},
    **{name: lambda p, n: {p["axis"]} for name in ("cummax", "cummin", "cumprod", "cumlogsumexp")},
    **{f"reduce_window_{word}": lambda p, n: {i for i in range(n) if p["window_dimensions"][i] != 1} for word in ("max", "min")},
    "conv_general_dilated": lambda p, n: {*range(n)} - {p["dimension_numbers"].lhs_spec[0]},
    "scatter": lambda p, n: {*p["dimension_numbers"].scatter_dims_to_operand_dims},
    "scatter-add": lambda p, n: {*p["dimension_numbers"].scatter_dims_to_operand_dims},
    "gather": lambda p, n: {*p["dimension_numbers"].start_index_map},
    "dynamic_update_slice": lambda p, n: set(),
    "top_k": lambda p, n: {p.get("axis", n - 1) % n},
}  # fmt: skip


def evaluated(equation: Equation, given: list[Value]) -> list[Value] | None:
    """Its results, input by input; None of what is no such primitive, not of numbers alone, or mixes inputs.

    Numbers that go with the width, and those that are the same for all of many neurons, are none of these.
    """
    name, params = equation.primitive, dict(equation.params)
    if name not in _MIXED or not all(_is_plain(value) for value in given):
        return None
    if any(atom.kind == "n" for shape in equation.shapes for sizes in shape for atom in fresh(sizes)):
        return None  # as many as there are neurons
    batch = [_batch(value) for value in given]
    if batch[0] in _MIXED[name](params, len(given[0].axes)) or not _goes_along(name, params, batch, given):
        return None
    n = max(len(value.held.array) for value in given)
    if "preferred_element_type" in params:
        params["preferred_element_type"] = None
    if name == "gather" and batch[0] is not None and batch[1] is None:  # of all inputs there are, not of those traced
        params["slice_sizes"] = tuple(n if i == batch[0] else size for i, size in enumerate(params["slice_sizes"]))
    found = primitives()[name].bind(*_as_in_program(given, n), **params)
    found = found if isinstance(found, (list, tuple)) else [found]
    return [_value(array, shape) for array, shape in zip(found, equation.shapes, strict=True)]


def _is_plain(value: Value) -> bool:
    held = value.held
    if not isinstance(held, Det) or held.power != 0 or held.noise != -math.inf:
        return False
    kinds = [[atom.kind for atom in axis] for axis in value.axes]
    return all(set(each) <= {"p"} or each == ["b"] for each in kinds) and kinds.count(["b"]) <= 1


def _batch(value: Value) -> int | None:
    """Which axis is that of inputs."""
    return next((i for i, axis in enumerate(value.axes) if axis and axis[0].kind == "b"), None)


def _goes_along(name: str, params: dict[str, Any], batch: list[int | None], given: list[Value]) -> bool:
    """Whether inputs of further arrays meet their own of the first."""
    first, *others = batch
    if name == "sort":
        return set(others) <= {None, first}
    if name == "conv_general_dilated":
        return others == [None] and params["batch_group_count"] == 1
    if name == "dynamic_update_slice":
        starts = [value.held.number for value in given[2:]]
        return others == [first] + [None] * len(starts) and (first is None or starts[first] == 0)
    numbers: Any = params.get("dimension_numbers")
    if name == "gather":
        pairs = [*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)]
        whole = first is None or params["slice_sizes"][first] == size(given[0].axes[first])[0]
        return tuple(batch) in pairs or (None in batch and whole)
    if name in ("scatter", "scatter-add"):
        inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        kept = [i for i in range(len(given[0].axes)) if i not in inserted]
        return batch == 3 * [None] or (
            first in kept and others == [None, numbers.update_window_dims[kept.index(first)]]
        )
    return True


def _as_in_program(given: list[Value], n: int) -> list[Any]:
    """Arrays with axes as the program has them, and n inputs; floating numbers all of one type."""
    arrays = [jnp.asarray(value.held.array) for value in given]
    floating = [jnp.issubdtype(array.dtype, jnp.floating) for array in arrays]
    kind = jnp.result_type(*(array for array, which in zip(arrays, floating, strict=True) if which), jnp.float32)
    made = []
    for value, array, which in zip(given, arrays, floating, strict=True):
        batch = _batch(value)
        whole = (1 if batch is None else n, *(atom.sizes[0] for atom in positions(value.axes)))
        array = jnp.broadcast_to(array.astype(kind) if which else array, whole)
        array = array.reshape(whole[0], *(size(axis)[0] for i, axis in enumerate(value.axes) if i != batch))
        made.append(array[0] if batch is None else jnp.moveaxis(array, 0, batch))
    return made


def _value(array: Any, shape: tuple) -> Value:
    value = Value(tuple(fresh(sizes) for sizes in shape), None)
    batch = _batch(value)
    array = array[None] if batch is None else jnp.moveaxis(array, batch, 0)
    return value._replace(held=Det(array.reshape(len(array), *(atom.sizes[0] for atom in positions(value.axes)))))
