"""Rules for what only moves entries: reshape, transpose, broadcast, reverse."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from limits.program.nodes import Concat, Det, Moved, Node
from limits.program.order import reordered
from limits.program.values import Atom, Axes, Axis, NoLimitError, Parameter, Value, fresh, positions, size

Act = Callable[[Any, int], Any]  # of an array, and the first of its axes of positions


def moved(held: Any, act: Act, shape: tuple[int, ...], selects: bool = True) -> Any:
    """A deterministic value or a field after a linear map of its positions, which then have this shape."""
    if isinstance(held, Det):
        array = act(held.array, 1)
        return Det(array, held.power, held.noise, held.zero, held.default if array.size == 1 else None)
    if isinstance(held, Concat):
        return Concat(shape, held.power, tuple((w, moved(u, act, shape, selects)) for w, u in held.parts), held.before)
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
    return Value(axes, permuted(reordered(value, order), permutation))


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


class Turned(NamedTuple):
    """An axis of a parameter, its entries in reversed order."""

    origin: Any


def _turned(value: Value, dimensions: tuple[int, ...]) -> tuple[Any, ...]:
    origins, numbers = list(value.held.origin), [i for i, axis in enumerate(value.axes) for _ in axis]
    for k, number in enumerate(numbers):
        if number in dimensions and origins[k] is not None:
            if numbers.count(number) > 1:
                raise NoLimitError(f"axes of the parameter {value.held.path} were merged and reversed")
            origins[k] = origins[k].origin if isinstance(origins[k], Turned) else Turned(origins[k])
    return tuple(origins)


def reversed_along(value: Value, dimensions: tuple[int, ...]) -> Value:
    """Positions in reversed order; of a parameter, its entries along these axes."""
    if isinstance(value.held, Parameter):
        return Value(value.axes, _with(value.held, origin=_turned(value, dimensions)))
    held = settled(value)
    for number in dimensions:
        axis: Axis = value.axes[number]
        if len(axis) == 0:  # of one entry
            continue
        if any(atom.kind == "b" for atom in axis) or len(axis) > 1:
            raise NoLimitError("the order of inputs is reversed")
        if any(atom.kind == "n" for atom in axis):
            raise NoLimitError("the order of neurons is reversed")
        at = len(positions(value.axes[:number]))
        held = moved(held, lambda a, i, at=at: jnp.flip(a, i + at), held.shape)
    return Value(value.axes, held)
