"""The rule for what is added or set at positions that the program says (segment sums, `h.at[:, i].set(u)`): a map of them."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program import sums
from limits.program.elementwise import field_of
from limits.program.nodes import Det
from limits.program.shapes import settled, transposed
from limits.program.trace import Equation
from limits.program.values import NoLimitError, Parameter, Value, fresh, size


def scattered(equation: Equation, given: list[Value], own: Any, by_entry: Callable[..., Value]) -> Value:
    """k_i whole_i + Σ_e M_ie part_e with M of zeros and ones, which is what adding makes of every unit vector.

    k is one where it is added, and where it is set 1 − Σ_e M_ie, which is no part's place. by_entry(primitive, a, b).
    """
    whole, at, part = given
    word = "added" if equation.primitive == "scatter-add" else "set"
    numbers: Any = equation.params["dimension_numbers"]
    if numbers.operand_batching_dims or _is_of_inputs(at):
        raise NoLimitError(f"something is {word} at positions that inputs say ({equation.primitive})")
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
    if isinstance(whole.held, Det) and whole.held.number == 0:
        return made
    if word == "set":
        array = whole.held.array if isinstance(whole.held, Det) else None
        if isinstance(array, np.ndarray) and not np.isfinite(array).all():  # k of it would be 0 · ∞
            raise NoLimitError("something is set among numbers that are not finite (scatter)")
        if isinstance(whole.held, Parameter):
            whole = Value(whole.axes, field_of(whole, whole.axes))
        kept_at = tuple(fresh(n) if i in hit else () for i, n in enumerate(shape))
        whole = by_entry("mul", whole, Value(kept_at, _det(1 - ones.sum(tuple(range(len(given_by)))))))
    return by_entry("add", whole, made)


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
    if equation.primitive == "scatter" and found.sum(0).max(initial=0) > 1:
        raise NoLimitError("several things are set at one position, of which jax says not which stays (scatter)")
    return found.reshape([*(rows[j] for j in given_by), *(columns[i] for i in hit)])
