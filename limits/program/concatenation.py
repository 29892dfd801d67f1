"""Rules for arrays one behind the other along an axis, and for zeros around one."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from limits.program.elementwise import field_of
from limits.program.nodes import Concat, Det, FieldSum
from limits.program.order import neurons
from limits.program.shapes import broadcast, moved, settled
from limits.program.values import Atom, NoLimitError, Parameter, Value, growth, one, positions, size


def stacked(values: list[Value], number: int, shape: tuple) -> Value:
    """Arrays one behind the other along a new axis."""
    wide = tuple((1, 1, 1) if i == number else sizes for i, sizes in enumerate(shape))
    kept = tuple(i for i in range(len(shape)) if i != number)
    return concatenated([broadcast(value, wide, kept) for value in values], number, shape[number])


def tiled(value: Value, times: tuple[int, ...], shape: tuple) -> Value:
    """Copies of an array one behind the other along its axes."""
    for number, count in enumerate(times):
        if count > 1 and not value.axes[number]:  # of one entry, which may be of a parameter
            sizes = tuple(shape[number] if i == number else size(axis) for i, axis in enumerate(value.axes))
            value = broadcast(value, sizes, tuple(range(len(sizes))))
        elif count > 1:
            value = concatenated([value] * count, number, shape[number])
    return value


def concatenated(values: list[Value], number: int, wanted: tuple) -> Value:
    """Arrays one behind the other along an axis."""
    values = _as_fields([value for value in values if size(value.axes[number])[0]], number)
    kinds = {atom.kind for value in values for atom in value.axes[number]}
    axis = (Atom("n" if growth(wanted) else "p", wanted),)
    axes = (*values[0].axes[:number], axis, *values[0].axes[number + 1 :])
    if kinds == {"n"} and growth(wanted):
        return Value(axes, _side_by_side(values, number))
    if kinds == {"n"}:
        raise NoLimitError("signals of several layers, of few neurons each, are concatenated: make a network of each")
    if "n" in kinds or "b" in kinds:
        raise NoLimitError("a concatenation merges positions with neurons or inputs along one axis")
    at = len(positions(axes[:number]))
    parts = [(settled(value), size(value.axes[number])[0], bool(value.axes[number])) for value in values]
    if all(isinstance(held, Det) for held, _, _ in parts):
        arrays = [held.array if has else jnp.expand_dims(held.array, 1 + at) for held, _, has in parts]
        n = max(array.shape[0] for array in arrays)
        arrays = [jnp.broadcast_to(array, (n, *array.shape[1:])) for array in arrays]
        dets = [held for held, _, _ in parts]
        joined = jnp.concatenate(arrays, 1 + at)
        return Value(
            axes, Det(joined, max(d.power for d in dets), max(d.noise for d in dets), all(d.zero for d in dets))
        )
    terms, constant, start = [], None, 0
    for held, length, has in parts:
        act = functools.partial(_laid, at=at, start=start, length=length, total=wanted[0], has=has)
        shape = (*held.shape[:at], wanted[0], *held.shape[at + has :])
        spread = moved(held, act, shape)
        if isinstance(held, Det):
            constant = (
                spread if constant is None else Det(constant.array + spread.array, max(constant.power, spread.power))
            )
        else:
            terms.append((one(len(shape)), spread))
        start += length
    power = max(node.power for _, node in terms)
    return Value(axes, FieldSum(terms[0][1].shape, power, tuple(terms), constant))


def _as_fields(values: list[Value], number: int) -> list[Value]:
    """With parameters that stand among positions (a token of their own) as fields."""
    others = [value for value in values if not isinstance(value.held, Parameter)]
    made = []
    for value in values:
        if isinstance(value.held, Parameter):
            if not others or any(atom.kind != "p" for atom in value.axes[number]):
                raise NoLimitError(
                    "parameters are concatenated with each other, or along neurons or inputs: make them one parameter, and give "
                    "one that is the same for all inputs to them by jnp.broadcast_to"
                )
            axes = (*others[0].axes[:number], value.axes[number], *others[0].axes[number + 1 :])
            value = Value(axes, field_of(value, axes))
        made.append(value)
    return made


def _laid(a: Any, i: int, at: int, start: int, length: int, total: int, has: bool) -> Any:
    """Into zeros, from `start` on."""
    a = a if has else jnp.expand_dims(a, i + at)
    widths = [(start, total - start - length) if axis == i + at else (0, 0) for axis in range(a.ndim)]
    return jnp.pad(a, widths)


def _side_by_side(values: list[Value], number: int) -> Any:
    counts = [size(value.axes[number]) for value in values]
    if any(len(value.axes[number]) != 1 for value in values):
        raise NoLimitError("features are concatenated along an axis that merges positions with neurons")
    total = sum(count[0] for count in counts)
    if sum(count[1] for count in counts) * counts[0][0] != total * counts[0][1]:
        raise NoLimitError("features are concatenated whose numbers grow with different powers of the width")
    if all(isinstance(value.held, Det) for value in values):
        raise NoLimitError("constants that differ between neurons are put together")
    parts, before = [], math.prod(atom.sizes[0] for atom in neurons(values[0].axes[:number]))
    for value, count in zip(values, counts, strict=True):
        held = value.held
        if isinstance(held, Concat) and held.before != before:
            raise NoLimitError("concatenated features are concatenated with others along another axis")
        if isinstance(held, Det):
            held = FieldSum(held.shape, held.power, (), held)
        inner = held.parts if isinstance(held, Concat) else ((1.0, held),)
        parts += [(share * count[0] / total, part) for share, part in inner]
    shape = max((part.shape for _, part in parts), key=math.prod)
    return Concat(shape, max(part.power for _, part in parts), tuple(parts), before)


def padded(value: Value, fill: float, config: tuple, shape: tuple) -> Value:
    """Zeros around an axis of positions."""
    held, axes = settled(value), list(value.axes)
    if fill and not isinstance(held, Det):
        raise NoLimitError(f"a field is padded with {fill}")
    for number, (low, high, inner) in enumerate(config):
        if (low, high, inner) == (0, 0, 0):
            continue
        axis, at = axes[number], len(positions(tuple(axes[:number])))
        if not axis:  # of one entry, which is not held as an axis
            axis = (Atom("p", (1, 1, 1)),)
            held = moved(held, lambda a, i, at=at: jnp.expand_dims(a, i + at), (*held.shape[:at], 1, *held.shape[at:]))
        if len(axis) != 1 or axis[0].kind != "p":
            raise NoLimitError("an axis of neurons or inputs is padded")
        axes[number] = (Atom("p", shape[number]),)
        new = (*held.shape[:at], shape[number][0], *held.shape[at + 1 :])

        def act(a: Any, i: int, at: int = at, edges: tuple = (low, high, inner)) -> Any:
            widths = [edges if axis == i + at else (0, 0, 0) for axis in range(a.ndim)]
            return jax.lax.pad(a, jnp.asarray(fill, a.dtype), widths)

        held = moved(held, act, new)
    return Value(tuple(axes), held)
