"""Rules for what only moves entries: reshape, transpose, slice, broadcast, concatenate, pad."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Concat, Det, Entry, FieldSum, Image, Lookup, Map, Moved, Moving, Node
from limits.program.values import Atom, Axes, Axis, NoLimitError, Parameter, Value, fresh, growth, positions, size

Act = Callable[[Any, int], Any]  # of an array, and the first of its axes of positions


def moved(held: Any, act: Act, shape: tuple[int, ...], selects: bool = True) -> Any:
    """A deterministic value or a field after a linear map of its positions, which then have this shape."""
    if isinstance(held, Det):
        array = act(held.array, 1)
        return Det(array, held.power, held.noise, held.zero, held.default if array.size == 1 else None)
    if isinstance(held, Concat):
        return Concat(shape, held.power, tuple((w, moved(u, act, shape, selects)) for w, u in held.parts))
    return Moved(shape, held.power, held, lambda a, first, side: act(a, first), selects)


def settled(value: Value) -> Any:
    """What is held, with axes of positions of their full length where they stood for any."""
    full = tuple(atom.sizes[0] for atom in positions(value.axes))
    if value.held.shape == full:
        return value.held
    k = len(full)
    return moved(value.held, lambda a, i: jnp.broadcast_to(a, (*a.shape[:i], *full, *a.shape[i + k :])), full)


def reshaped(value: Value, shape: tuple) -> Value:
    """Entries in the same order along other axes."""
    if isinstance(value.held, Parameter):
        return _reshaped_parameter(value, shape)
    axes = regrouped([atom for axis in value.axes for atom in axis], shape)
    before, after = ([atom.sizes[0] for atom in positions(each)] for each in (value.axes, axes))
    if before == after:
        return Value(axes, value.held)
    held, k = settled(value), len(before)
    return Value(axes, moved(held, lambda a, i: a.reshape(*a.shape[:i], *after, *a.shape[i + k :]), tuple(after)))


def regrouped(parts: list[Atom], shape: tuple) -> Axes:
    """The same atoms along axes of other sizes, merged and split as these say."""
    queue, axes = list(parts), []
    for wanted in shape:
        axis: list[Atom] = []
        while wanted != (1, 1, 1):
            if not queue:
                raise NoLimitError(f"a reshape to axes of {wanted} cannot be followed")
            atom = queue.pop(0)
            if all(w % s == 0 for w, s in zip(wanted, atom.sizes, strict=True)):
                taken = atom
            elif all(s % w == 0 for w, s in zip(wanted, atom.sizes, strict=True)) and atom.kind != "b":
                taken = Atom(atom.kind, wanted)
                queue.insert(0, Atom(atom.kind, _over(atom.sizes, wanted)))
            else:
                raise NoLimitError(
                    "a reshape mixes inputs, neurons and positions along one axis and takes it apart otherwise"
                )
            wanted = _over(wanted, taken.sizes)
            if axis and axis[-1].kind == taken.kind:
                axis[-1] = Atom(taken.kind, tuple(a * b for a, b in zip(axis[-1].sizes, taken.sizes, strict=True)))  # pyright: ignore[reportArgumentType]
            else:
                axis.append(taken)
        axes.append(tuple(axis))
    return tuple(axes)


def _over(a: tuple, b: tuple) -> Any:
    return tuple(x // y for x, y in zip(a, b, strict=True))


def _reshaped_parameter(value: Value, shape: tuple) -> Value:
    """Axes of weights may be merged; origins that were merged become one that names them all."""
    held, old = (
        value.held,
        [(atom, origin) for atom, origin in zip((a for x in value.axes for a in x), value.held.origin, strict=True)],
    )
    axes, origins = [], []
    for wanted in shape:
        if wanted == (1, 1, 1):
            axes.append(())
            continue
        names, rest = [], wanted
        while rest != (1, 1, 1) and old and all(w % s == 0 for w, s in zip(rest, old[0][0].sizes, strict=True)):
            atom, origin = old.pop(0)
            names.append(origin)
            rest = _over(rest, atom.sizes)
        if rest != (1, 1, 1):
            raise NoLimitError(f"the parameter {held.path} is taken apart by a reshape")
        axes.append((Atom("n" if wanted[0] != wanted[1] else "p", wanted),))
        origins.append(names[0] if len(names) == 1 else tuple(names))
    return Value(tuple(axes), _with(held, origin=tuple(origins)))


def _with(held: Parameter, **changes: Any) -> Parameter:
    return Parameter(**{**held.__dict__, **changes})


def transposed(value: Value, order: tuple[int, ...]) -> Value:
    """Axes in another order."""
    axes = tuple(value.axes[i] for i in order)
    if isinstance(value.held, Parameter):
        starts, origins = 0, []
        for axis in value.axes:
            origins.append(value.held.origin[starts : starts + len(axis)])
            starts += len(axis)
        return Value(axes, _with(value.held, origin=tuple(o for i in order for o in origins[i])))
    numbers, count = [], 0
    for axis in value.axes:
        here = [atom for atom in axis if atom.kind == "p"]
        numbers.append(list(range(count, count + len(here))))
        count += len(here)
    permutation = [number for i in order for number in numbers[i]]
    return Value(axes, permuted(value.held, permutation))


def permuted(held: Any, permutation: list[int]) -> Any:
    """Axes of positions in another order."""
    if permutation == sorted(permutation):
        return held
    k = len(permutation)

    def act(a: Any, i: int) -> Any:
        return jnp.transpose(a, [*range(i), *(i + p for p in permutation), *range(i + k, a.ndim)])

    return moved(held, act, tuple(held.shape[p] for p in permutation))


def broadcast(value: Value, shape: tuple, places: tuple[int, ...]) -> Value:
    """New axes, along which all is the same."""
    axes: list[Any] = [None] * len(shape)
    for axis, place in zip(value.axes, places, strict=True):
        axes[place] = axis if size(axis) == shape[place] else None
    new = tuple(fresh(sizes) if axis is None else axis for axis, sizes in zip(axes, shape, strict=True))
    if isinstance(value.held, Parameter):
        old = iter(value.held.origin)
        origin = [next(old) if axis is not None else None for axis, made in zip(axes, new, strict=True) for _ in made]
        return Value(new, _with(value.held, origin=tuple(origin)))
    if isinstance(value.held, Node) and any(
        axis is None and atom.kind == "n" for axis, made in zip(axes, new, strict=True) for atom in made
    ):
        raise NoLimitError("one neuron's signal is given to many neurons, which are then not independent")
    return Value(new, _stretched(value.held, axes, new))


def _stretched(held: Any, old: list, new: Axes) -> Any:
    """With an axis of size 1 for every new axis of positions."""
    sizes, given = [], iter(held.shape)
    for axis, made in zip(old, new, strict=True):
        sizes += [1 if axis is None else next(given) for atom in made if atom.kind == "p"]
    if tuple(sizes) == held.shape:
        return held
    k = len(held.shape)
    return moved(held, lambda a, i: a.reshape(*a.shape[:i], *sizes, *a.shape[i + k :]), tuple(sizes))


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
        return Value(axes, rows(value.held, start, stop, step, axis[0].sizes[0]))
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


def rows(node: Node, start: int, stop: int, step: int, total: int) -> Node:
    """Some of the neurons: other rows of the same weights, and hence independent of the rest."""
    tag, made = (start, stop, step), dict[int, Any]()

    def of(node: Any) -> Any:
        if not isinstance(node, Node):
            return node
        if id(node) not in made:
            made[id(node)] = cut(node)
        return made[id(node)]

    def cut(node: Node) -> Node:
        match node:
            case Image() | Entry() | Lookup():
                matrix = node.matrix
                return _replace(node, matrix=_replace(matrix, rows=(*matrix.rows, tag)))
            case FieldSum():
                return _replace(node, terms=tuple((c, of(u)) for c, u in node.terms))
            case Moved():
                return _replace(node, source=of(node.source))
            case Map():
                return _replace(node, arguments=tuple(of(u) for u in node.arguments))
        raise NoLimitError("a part of concatenated features is taken that is none of those that were put together")

    if isinstance(node, Concat):
        return _part(node, start / total, stop / total) if step == 1 else cut(node)
    return of(node)


def _part(node: Concat, low: float, high: float) -> Node:
    """The fields that were put together between two shares of the neurons."""
    at, found = 0.0, []
    for share, part in node.parts:
        if at > low - 1e-12 and at + share < high + 1e-12:
            found.append((share / (high - low), part))
        elif at + share > low + 1e-12 and at < high - 1e-12:
            raise NoLimitError("a part of concatenated features is taken that is none of those that were put together")
        at += share
    return found[0][1] if len(found) == 1 else Concat(node.shape, node.power, tuple(found))


def _replace(thing: Any, **changes: Any) -> Any:
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return type(thing)(**{**fields, **changes})


def stacked(values: list[Value], number: int, shape: tuple) -> Value:
    """Arrays one behind the other along a new axis."""
    wide = tuple((1, 1, 1) if i == number else sizes for i, sizes in enumerate(shape))
    kept = tuple(i for i in range(len(shape)) if i != number)
    return concatenated([broadcast(value, wide, kept) for value in values], number, shape[number])


def tiled(value: Value, times: tuple[int, ...], shape: tuple) -> Value:
    """Copies of an array one behind the other along its axes."""
    for number, count in enumerate(times):
        if count > 1:
            value = concatenated([value] * count, number, shape[number])
    return value


def concatenated(values: list[Value], number: int, wanted: tuple) -> Value:
    """Arrays one behind the other along an axis."""
    kinds = {atom.kind for value in values for atom in value.axes[number]}
    axis = (Atom("n" if growth(wanted) else "p", wanted),)
    axes = (*values[0].axes[:number], axis, *values[0].axes[number + 1 :])
    if any(isinstance(value.held, Parameter) for value in values):
        raise NoLimitError("parameters are concatenated")
    if kinds == {"n"} and growth(wanted):
        return Value(axes, _side_by_side(values, number))
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


def one(rank: int, number: float | Moving = 1.0) -> Det:
    """A number as a deterministic value with so many axes of positions."""
    if isinstance(number, Moving):
        return Det(jnp.asarray(number.value).reshape((1,) * (1 + rank)), default=number.default)
    return Det(_host(number).reshape((1,) * (1 + rank)))


def _host(number: float) -> Any:
    return np.asarray(number, float)


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
    parts = []
    for value, count in zip(values, counts, strict=True):
        held = value.held
        if isinstance(held, Det):
            held = FieldSum(held.shape, held.power, (), held)
        inner = held.parts if isinstance(held, Concat) else ((1.0, held),)
        parts += [(share * count[0] / total, part) for share, part in inner]
    shape = max((part.shape for _, part in parts), key=math.prod)
    return Concat(shape, max(part.power for _, part in parts), tuple(parts))


def padded(value: Value, fill: float, config: tuple, shape: tuple) -> Value:
    """Zeros around an axis of positions."""
    held, axes = settled(value), list(value.axes)
    if fill and not isinstance(held, Det):
        raise NoLimitError(f"a field is padded with {fill}")
    for number, (low, high, inner) in enumerate(config):
        if (low, high, inner) == (0, 0, 0):
            continue
        axis = axes[number]
        if len(axis) != 1 or axis[0].kind != "p":
            raise NoLimitError("an axis of neurons or inputs is padded")
        at = len(positions(tuple(axes[:number])))
        axes[number] = (Atom("p", shape[number]),)
        new = (*held.shape[:at], shape[number][0], *held.shape[at + 1 :])

        def act(a: Any, i: int, at: int = at, edges: tuple = (low, high, inner)) -> Any:
            widths = [edges if axis == i + at else (0, 0, 0) for axis in range(a.ndim)]
            return jax.lax.pad(a, jnp.asarray(fill, a.dtype), widths)

        held = moved(held, act, new)
    return Value(tuple(axes), held)


def reversed_along(value: Value, dimensions: tuple[int, ...]) -> Value:
    """Positions in reversed order."""
    held = settled(value)
    for number in dimensions:
        axis: Axis = value.axes[number]
        if any(atom.kind == "b" for atom in axis) or len(axis) > 1:
            raise NoLimitError("the order of inputs is reversed")
        if axis and axis[0].kind == "n":
            raise NoLimitError("the order of neurons is reversed")
        at = len(positions(value.axes[:number]))
        held = moved(held, lambda a, i, at=at: jnp.flip(a, i + at), held.shape)
    return Value(value.axes, held)
