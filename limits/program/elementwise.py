"""Rules for what acts entry by entry: sums, products and functions of numbers, parameters and fields."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from limits.program.cleared import cleared
from limits.program.deterministic import check_steady, of_numbers
from limits.program.functions import leaves_of
from limits.program.nodes import Concat, Det, Entry, FieldSum, Map, Moving, Node, scaled_by
from limits.program.opened import opened
from limits.program.order import neurons, picked
from limits.program.shapes import Turned
from limits.program.values import Axes, NoLimitError, Parameter, Value, as_power, atoms, one

_AS_IT_IS = ("copy", "copy_p", "stop_gradient", "reduce_precision", "optimization_barrier", "sharding_constraint")
_OF_MOMENTS = ("mul", "square", "integer_pow")  # whose means may be second moments


def elementwise(name: str, function: Callable, values: Sequence[Value]) -> Value:
    """φ(values), entry by entry. `name` tells functions apart, with their parameters: "tanh[]"."""
    word = name.split("[")[0]
    if word in _AS_IT_IS:
        (value,) = values
        if word == "stop_gradient" and not isinstance(value.held, Det):
            raise NoLimitError(
                "the gradient of a field is stopped (stop_gradient), so that the tangent kernel is not that of a function"
            )
        return value
    if any(isinstance(value.held, Parameter) for value in values):
        kept = _of_parameters(word, values)
        if kept is not None:
            return kept
    axes = _common(values)
    held = [_fitted(value, axes) for value in values]
    if all(isinstance(each, Det) for each in held):
        return Value(axes, of_numbers(word, function, held))
    return Value(axes, of_fields(name, function, held, math.prod(atom.sizes[0] for atom in neurons(axes))))


def _of_parameters(word: str, values: Sequence[Value]) -> Value | None:
    """Parameters times numbers stay parameters."""
    if len(values) == 1 and word == "neg":
        return _times(values[0], -1.0, 0.0)
    if len(values) != 2 or word not in ("mul", "div"):
        return None
    for mine, other in (values, values[::-1]):
        det, is_number = other.held, isinstance(other.held, Det) and other.held.usual is not None
        if isinstance(mine.held, Parameter) and is_number and (word == "mul" or mine is values[0]):
            number, relative = det.usual, 1.0
            if det.number is None:
                relative = det.array.reshape(()) / number
            if word == "div":
                number, relative = 1 / number, 1 / relative
            return _times(mine, number, det.power if word == "mul" else -det.power, relative)
    return None


def _times(value: Value, factor: float, power: float, relative: Any = 1.0) -> Value:
    held = value.held
    mean, size, rate = held.moving
    moving = mean * relative, size * relative, rate * relative**2
    fields = {**held.__dict__, "factor": held.factor * factor, "growth": held.growth + power, "moving": moving}
    return Value(value.axes, Parameter(**fields))


def _common(values: Sequence[Value]) -> Axes:
    """The axes of the result: a field's, if there is one; of numbers, heads are neurons where one of them says so."""
    axes = _leading(values)
    said = [value.axes for value in values if isinstance(value.held, Det) and len(value.axes) == len(axes)]
    return tuple(
        next((each[i] for each in said if any(atom.kind == "n" for atom in each[i])), axis)
        for i, axis in enumerate(axes)
    )


def _leading(values: Sequence[Value]) -> Axes:
    by_rank = [value for value in values if value.axes] or list(values)
    for kind in (Node, Det, Parameter):
        for value in by_rank:
            if isinstance(value.held, kind) and (
                kind is not Det or not any(isinstance(v.held, Parameter) for v in by_rank)
            ):
                return value.axes
    return next((value.axes for value in by_rank if not isinstance(value.held, Parameter)), by_rank[0].axes)


def _fitted(value: Value, axes: Axes) -> Any:
    """What a value holds, with its positions in step with these axes."""
    rank = sum(atom.kind == "p" for atom in atoms(axes))
    if isinstance(value.held, Parameter):
        return field_of(value, axes)
    if not value.axes:
        return Det(value.held.array.reshape(len(value.held.array), *(1,) * rank), *_about(value.held))
    if value.axes == axes:
        return value.held
    if isinstance(value.held, Node):
        raise NoLimitError("fields meet whose axes are of different kinds (neurons beside positions)")
    sizes, given = [], list(value.held.shape)
    for mine, theirs in zip(value.axes, axes, strict=True):
        if [atom.sizes for atom in mine] != [atom.sizes for atom in theirs]:
            raise NoLimitError("arrays meet whose axes were merged in different ways")
        for a, b in zip(mine, theirs, strict=True):
            n = given.pop(0) if a.kind == "p" else 1
            if b.kind == "p":
                sizes.append(n)
            elif n > 1:
                raise NoLimitError("constants that differ between neurons meet a field")
    return Det(value.held.array.reshape(len(value.held.array), *sizes), *_about(value.held))


def _about(det: Det) -> tuple:
    return det.power, det.noise, det.zero, det.default


def field_of(value: Value, axes: Axes) -> Node:
    """A parameter as a field along these axes: its mean, and entries around it."""
    held, flat = value.held, atoms(value.axes)
    wanted = atoms(axes) if value.axes else []
    if [atom.sizes for atom in flat] != [atom.sizes for atom in wanted]:
        raise NoLimitError(f"the parameter {held.path} meets an array whose axes were merged in another way")
    if any(isinstance(origin, Turned) for origin in held.origin):
        raise NoLimitError(f"the parameter {held.path} is used in reversed order, entry by entry")
    shape, own = [], []
    for mine, theirs, origin in zip(flat, wanted, held.origin, strict=True):
        if theirs.kind == "b" and origin is not None:
            raise NoLimitError(f"the parameter {held.path} has an axis of inputs")
        if theirs.kind == "p":
            shape.append(mine.sizes[0] if origin is not None else 1)
            own.append(origin is not None)
    if not value.axes:
        rank = sum(atom.kind == "p" for atom in atoms(axes))
        shape, own = [1] * rank, [False] * rank
    neurons = [origin for atom, origin in zip(wanted, held.origin, strict=False) if atom.kind == "n"]
    loose = [atom for atom in atoms(axes) if atom.kind == "n"] if not value.axes else []
    if loose or (neurons and all(origin is None for origin in neurons)):
        raise NoLimitError(f"the parameter {held.path} is one number for all neurons: its gradient is their sum")
    matrix = held.matrix()
    entry = signed(held, Entry(tuple(shape), held.growth, matrix, tuple(own)))
    mean = held.law.mean * held.factor
    if mean == 0:
        return entry
    constant = one(len(shape), mean if isinstance(held.moving[0], float) else Moving(mean * held.moving[0], mean))
    return FieldSum(entry.shape, held.growth, ((one(len(shape)), entry),), constant)


def of_fields(name: str, function: Callable, held: Any, count: int = 0) -> Node:
    """A function of fields and numbers, neuron by neuron."""
    if any(isinstance(each, Concat) for each in held):
        return _part_by_part(name, function, held, count)
    word, shape = name.split("[")[0], np.broadcast_shapes(*(each.shape for each in held))
    if word == "neg":
        return multiple(-1.0, held[0])
    if word in ("add", "sub", "add_any"):
        return _sum(name, function, held[0], held[1], shape)
    if word in ("mul", "div") and isinstance(held[1], Det) and isinstance(held[0], Node):
        return _multiple(word, held[0], held[1], shape)
    if word == "mul" and isinstance(held[0], Det):
        return _multiple(word, held[1], held[0], shape)
    if word == "select_n" and isinstance(held[0], Det) and len(held) == 3:
        return _selected(held[0], held[1], held[2], shape)
    for each in held:
        if isinstance(each, Det):
            check_steady(each, 0.0)
        elif word != "mul" and abs(each.power) > 1e-6:
            raise NoLimitError(
                f"{word} is taken of signals that go as {as_power(each.power)} with the width, not as N^0"
            )
    held = [_opened(each, lenient=word in _OF_MOMENTS) for each in held]
    if word == "mul":
        held = _scale_taken(held[0], held[1])
    power = sum(each.power for each in held if isinstance(each, Node)) if word == "mul" else 0.0
    word_name = "mul" if word == "mul" else name
    return Map(shape, power, function, word_name, tuple(held))


def _opened(node: Any, lenient: bool) -> Any:
    """As a function of Gaussian fields; of what is none, the second moments are known all the same."""
    try:
        return opened(node)
    except NoLimitError:
        if lenient:
            return node
        raise


def _scale_taken(a: Any, b: Any) -> tuple[Any, Any]:
    """The factors of a product, the deterministic scale of one given to the Gaussian other: (u, c γ) is (c u, γ)."""
    for u, v, swap in ((a, b, False), (b, a, True)):
        scaled = isinstance(v, FieldSum) and len(v.terms) == 1 and v.constant is None and scaled_by(v) is None
        if scaled and u.gaussian and not v.gaussian:
            (scale, inner) = v.terms[0]
            u = _multiple("mul", u, scale, np.broadcast_shapes(u.shape, scale.shape))
            return (inner, u) if swap else (u, inner)
    return a, b


def multiple(number: float | Moving, node: Any, power: float = 0.0) -> Any:
    """A number, which goes as N^power, times a field; of a multiple, the product of the numbers."""
    scale, inner = scaled_by(node) or (1.0, node)
    if number * scale == 1.0 and inner.power == node.power + power:
        return inner
    return FieldSum(node.shape, node.power + power, ((one(len(node.shape), number * scale), inner),))


def signed(weights: Parameter, node: Node) -> Node:
    """What the weights give, with the sign of their factor: two uses may have another."""
    return multiple(-1.0, node) if weights.factor < 0 else node


def _multiple(word: str, node: Node, det: Det, shape: tuple[int, ...]) -> Node:
    check_steady(det, 0.0 if det.zero else det.power)
    if word == "div":
        det = of_numbers("div", jnp.divide, (one(len(det.shape)), det))
    if det.scalar is not None and shape == node.shape:
        return multiple(det.scalar, node, det.power)
    return FieldSum(shape, node.power + det.power, ((det, node),))


def _sum(name: str, function: Callable, a: Any, b: Any, shape: tuple[int, ...]) -> Node:
    sign = -1.0 if name.startswith("sub") else 1.0
    if isinstance(a, Det) or isinstance(b, Det):
        pair: Any = (b, a) if isinstance(a, Det) else (a, b)
        node, det = pair
        check_steady(det, node.power)
        c, s = (sign, 1.0) if isinstance(a, Det) else (1.0, sign)
        if det.zero or det.number == 0:  # as the 0 that Python's sum begins with
            return multiple(c, node)
        constant = det if s == 1 else of_numbers("neg", jnp.negative, (det,))
        return FieldSum(shape, max(node.power, det.power), ((one(len(shape), c), node),), constant)
    (s, u), (t, v) = scaled_by(a) or (1.0, a), scaled_by(b) or (1.0, b)
    if u is v:
        return multiple(s + sign * t, u)
    mine, theirs = ({id(leaf) for leaf in leaves_of(each)} for each in (u, v))
    if not (u.gaussian and v.gaussian) and (mine <= theirs or theirs <= mine):
        return Map(shape, max(a.power, b.power), function, name, (a, b))  # one function of the same variables
    rank = len(shape)
    return FieldSum(shape, max(a.power, b.power), ((one(rank, s), u), (one(rank, sign * t), v)))


def _selected(mask: Det, off: Any, on: Any, shape: tuple[int, ...]) -> Node:
    """off where the mask is false, on where it is true."""
    terms: list[tuple[Det, Any]] = []
    constant = None
    for part, true in ((off, False), (on, True)):
        picked: Any = jnp.asarray(mask.array) == true
        if isinstance(part, Det):
            constant_here = Det(jnp.where(picked, jnp.asarray(part.array), 0.0), part.power, part.noise)
            constant = constant_here if constant is None else of_numbers("add", jnp.add, (constant, constant_here))
        else:
            terms.append((Det(picked.astype(float), 0.0, mask.noise), cleared(part, picked)))
    return FieldSum(shape, max(node.power for _, node in terms), tuple(terms), constant)


def _part_by_part(name: str, function: Callable, held: Sequence[Any], count: int) -> Node:
    """Of concatenated features: of each part by itself; others, of `count` neurons, are cut as they are."""
    first = next(each for each in held if isinstance(each, Concat))
    shares, before = [share for share, _ in first.parts], first.before
    columns, at = [], 0.0
    for i, share in enumerate(shares):
        column = []
        for each in held:
            if isinstance(each, Concat):
                if [part[0] for part in each.parts] != shares or each.before != before:
                    raise NoLimitError("features that were concatenated in different ways meet")
                column.append(each.parts[i][1])
            else:
                rows = before, count // before
                part = slice(None), slice(*(round(end * rows[1]) for end in (at, at + share)))
                column.append(picked(each, rows, operator.itemgetter(part)) if isinstance(each, Node) else each)
        columns.append((share, of_fields(name, function, column)))
        at += share
    shape = np.broadcast_shapes(*(part.shape for _, part in columns))
    return Concat(shape, max(part.power for _, part in columns), tuple(columns), before)
