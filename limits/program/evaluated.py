"""Primitives without a rule of their own, of numbers alone: what they make of inputs and constants is evaluated."""

import math
from typing import Any

import jax.numpy as jnp

from limits.program.nodes import Det
from limits.program.primitives import primitives
from limits.program.trace import Equation
from limits.program.values import Value, fresh, positions

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
    first, *others = given
    batch = [_batch(value) for value in given]
    if batch[0] in _MIXED[name](params, len(first.axes)) or not _goes_along(name, params, batch, given):
        return None
    n = max(len(value.held.array) for value in given)
    kind = jnp.result_type(
        *(value.held.array for value in given if jnp.issubdtype(value.held.array.dtype, jnp.floating))
    )
    arrays = [_as_in_program(value, n, kind) for value in (first, *others)]
    if "preferred_element_type" in params:
        params["preferred_element_type"] = None
    if (
        name == "gather" and batch[:2] != [None, None] and batch[1] is None
    ):  # of all inputs there are, not of those traced
        params["slice_sizes"] = tuple(n if i == batch[0] else size for i, size in enumerate(params["slice_sizes"]))
    found = primitives()[name].bind(*arrays, **params)
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
    if name == "sort":
        return all(each in (None, batch[0]) for each in batch) and (
            batch[0] is not None or batch.count(None) == len(batch)
        )
    if name == "conv_general_dilated":
        return batch[1] is None and batch[0] in (None, params["dimension_numbers"].lhs_spec[0])
    if name == "dynamic_update_slice":
        starts = [value.held.number for value in given[2:]]
        return (
            batch[0] == batch[1]
            and batch[2:].count(None) == len(starts)
            and (batch[0] is None or starts[batch[0]] == 0)
        )
    if name == "gather":
        numbers = params["dimension_numbers"]
        pairs = [*zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)]
        return None in batch or tuple(batch) in pairs
    if name in ("scatter", "scatter-add"):
        numbers = params["dimension_numbers"]
        inserted = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
        if batch[0] is None or batch[1] is not None or batch[0] in inserted:
            return batch == 3 * [None]
        kept = [
            i
            for i in range(max(batch[0], *numbers.update_window_dims, *inserted, 0) + 1 + len(inserted))
            if i not in inserted
        ]
        return batch[2] in (None, numbers.update_window_dims[kept.index(batch[0])])
    return True


def _as_in_program(value: Value, n: int, kind: Any) -> Any:
    array, batch = jnp.asarray(value.held.array), _batch(value)
    array = array.astype(kind) if jnp.issubdtype(array.dtype, jnp.floating) else array
    sizes = [math.prod(atom.sizes[0] for atom in axis) for i, axis in enumerate(value.axes) if i != batch]
    whole = (1 if batch is None else n, *(atom.sizes[0] for atom in positions(value.axes)))
    array = jnp.broadcast_to(array, whole).reshape(whole[0], *sizes)
    return array[0] if batch is None else jnp.moveaxis(array, 0, batch)


def _value(array: Any, shape: tuple) -> Value:
    value = Value(tuple(fresh(sizes) for sizes in shape), None)
    batch = _batch(value)
    array = array[None] if batch is None else jnp.moveaxis(array, batch, 0)
    return value._replace(held=Det(array.reshape(len(array), *(atom.sizes[0] for atom in positions(value.axes)))))
