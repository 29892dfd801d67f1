"""The rule for what is added at positions that the program says (segment sums, `h.at[:, i].add(u)`): a map of positions."""

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


def added(equation: Equation, given: list[Value], own: Any, plus: Callable[[Value, Value], Value]) -> Value:
    """whole + Σ_e M_ie part_e with M of zeros and ones, which is what the primitive makes of every unit vector."""
    whole, at, part = given
    numbers: Any = equation.params["dimension_numbers"]
    if numbers.operand_batching_dims or _is_of_inputs(at):
        raise NoLimitError("something is added at positions that inputs say (scatter-add)")
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
        raise NoLimitError("something is added at single neurons or inputs (scatter-add)")
    m = Value(tuple(fresh(sizes) for side in sides for sizes in side), _matrix(equation, at, part, given_by, hit))
    made = sums.dot(part, m, ((tuple(given_by), tuple(range(len(given_by)))), ((), ())), own)
    order = [i for i in kept if i not in hit] + hit
    made = transposed(made, tuple(order.index(i) for i in range(len(shape))))
    return made if isinstance(whole.held, Det) and whole.held.number == 0 else plus(whole, made)


def _is_of_inputs(at: Value) -> bool:
    of = [atom.kind for axis in at.axes for atom in axis]
    return not isinstance(at.held, Det) or not isinstance(at.held.array, np.ndarray) or {*of} - {"p"} != set()


def _matrix(equation: Equation, at: Value, part: Value, given_by: list[int], hit: list[int]) -> Det:
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
    return Det(found.reshape([1, *(n for n in (*(rows[j] for j in given_by), *(columns[i] for i in hit)) if n > 1)]))
