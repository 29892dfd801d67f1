"""Rules for what is added, set or multiplied at positions that the program says (segment sums, `h.at[:, i].set(u)`)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program import concatenation, sums
from limits.program.elementwise import field_of
from limits.program.nodes import Det
from limits.program.shapes import settled, transposed
from limits.program.trace import Equation
from limits.program.values import NoLimitError, Parameter, Value, fresh, size

_WORDS = {"scatter-add": "added", "scatter": "set", "scatter-mul": "multiplied"}


def scattered(equation: Equation, given: list[Value], own: Any, by_entry: Callable[..., Value]) -> Value:
    """k_i whole_i + Σ_e M_ie part_e with M of zeros and ones, which is what adding makes of every unit vector.

    k is one where it is added, and where it is set 1 − Σ_e M_ie, which is no part's place. What is multiplied is
    (k_i + Σ_e M_ie part_e) whole_i with this k. by_entry(primitive, a, b).
    """
    whole, at, part = given
    word = _WORDS[equation.primitive]
    numbers: Any = equation.params["dimension_numbers"]
    if numbers.operand_batching_dims or _is_of_inputs(at):
        raise NoLimitError(f"something is {word} at positions that inputs say ({equation.primitive})")
    if word == "multiplied" and not isinstance(part.held, Det):
        raise NoLimitError("signals are multiplied by others at some positions (scatter-mul)")
    if isinstance(part.held, Parameter):
        part = Value(part.axes, field_of(part, part.axes))
    shape = equation.shapes[0]
    kept = [i for i in range(len(shape)) if i not in numbers.inserted_window_dims]
    parts = dict(
        zip(kept, map(int, numbers.update_window_dims), strict=True)
    )  # axes of a window, by those of the whole
    hit = [i for i in range(len(shape)) if i in numbers.scatter_dims_to_operand_dims or i not in parts]
    hit += [i for i in kept if i not in hit and size(part.axes[parts[i]]) != shape[i]]
    hit.sort()
    given_by = [j for j in range(len(part.axes)) if j not in {parts[i] for i in kept if i not in hit}]
    sides = [size(part.axes[j]) for j in given_by], [shape[i] for i in hit]
    if any(atom.kind != "p" for side in sides for sizes in side for atom in fresh(sizes)):
        raise NoLimitError(f"something is {word} at single neurons or inputs ({equation.primitive})")
    ones = _matrix(equation, at, part, given_by, hit)
    m = Value(tuple(fresh(sizes) for side in sides for sizes in side), _det(ones))
    made = sums.dot(part, m, ((tuple(given_by), tuple(range(len(given_by)))), ((), ())), own)
    order = [i for i in kept if i not in hit] + hit
    made = transposed(made, tuple(order.index(i) for i in range(len(shape))))
    if word == "added":
        return made if isinstance(whole.held, Det) and whole.held.number == 0 else by_entry("add", whole, made)
    kept_at = tuple(fresh(n) if i in hit else () for i, n in enumerate(shape))
    kept = Value(kept_at, _det(1 - ones.sum(tuple(range(len(given_by))))))
    return (
        by_entry("mul", whole, by_entry("add", made, kept))
        if word == "multiplied"
        else _beside(whole, made, kept, by_entry)
    )


def _beside(whole: Value, made: Value, kept: Value, by_entry: Callable[..., Value]) -> Value:
    """What is set, and the whole where that is not."""
    if isinstance(whole.held, Det) and whole.held.number == 0:
        return made
    array = whole.held.array if isinstance(whole.held, Det) else None
    if isinstance(array, np.ndarray) and not np.isfinite(array).all():  # k of it would be 0 · ∞
        raise NoLimitError("something is set among numbers that are not finite (scatter)")
    if isinstance(whole.held, Parameter):
        whole = Value(whole.axes, field_of(whole, whole.axes))
    return by_entry("add", by_entry("mul", whole, kept), made)


def updated(whole: Value, part: Value, starts: list[int], shape: tuple, by_entry: Callable[..., Value]) -> Value:
    """The same of a part from `starts` on (`jax.lax.dynamic_update_slice`)."""
    sizes = [size(axis)[0] for axis in part.axes]
    if any(size(a) != n and any(atom.kind != "p" for atom in fresh(n)) for a, n in zip(part.axes, shape, strict=True)):
        raise NoLimitError("something is set at single neurons or inputs (dynamic_update_slice)")
    if isinstance(part.held, Parameter):
        part = Value(part.axes, field_of(part, part.axes))
    first = [min(max(start, 0), n[0] - m) for start, n, m in zip(starts, shape, sizes, strict=True)]
    config = tuple((a, n[0] - m - a, 0) if size(axis) != n else (0, 0, 0)
                   for a, n, m, axis in zip(first, shape, sizes, part.axes, strict=True))  # fmt: skip
    made = concatenation.padded(part, 0.0, config, shape)
    kept = np.ones([n[0] if edges != (0, 0, 0) else 1 for n, edges in zip(shape, config, strict=True)])
    kept[tuple(slice(a, a + m) if n > 1 else slice(None) for a, m, n in zip(first, sizes, kept.shape, strict=True))] = 0
    kept_at = tuple(fresh(n) if edges != (0, 0, 0) else () for n, edges in zip(shape, config, strict=True))
    return _beside(whole, made, Value(kept_at, _det(kept)), by_entry)


def _is_of_inputs(at: Value) -> bool:
    of = [atom.kind for axis in at.axes for atom in axis]
    return not isinstance(at.held, Det) or not isinstance(at.held.array, np.ndarray) or {*of} - {"p"} != set()


def _det(array: np.ndarray) -> Det:
    return Det(array.reshape([1, *(n for n in array.shape if n > 1)]))


def _matrix(equation: Equation, at: Value, part: Value, given_by: list[int], hit: list[int]) -> np.ndarray:
    """[positions of the part, positions of the whole]."""
    rows = [size(axis)[0] if j in given_by else 1 for j, axis in enumerate(part.axes)]
    columns = [sizes[0] if i in hit else 1 for i, sizes in enumerate(equation.shapes[0])]
    numbers: Any = equation.params["dimension_numbers"]
    with jax.ensure_compile_time_eval():  # also while a caller traces
        index = jnp.asarray(settled(at).array, jnp.int32).reshape([size(axis)[0] for axis in at.axes])
        place = lambda unit: jax.lax.scatter_add(  # noqa: E731
            jnp.zeros(columns), index, unit, numbers, mode=equation.params["mode"]
        )
        found = np.asarray(jax.vmap(place)(jnp.eye(math.prod(rows)).reshape(-1, *rows)))
    if equation.primitive != "scatter-add" and found.sum(0).max(initial=0) > 1:
        raise NoLimitError(
            "several things are set at one position, of which jax says not which stays, or multiplied there (scatter)"
        )
    return found.reshape([*(rows[j] for j in given_by), *(columns[i] for i in hit)])
