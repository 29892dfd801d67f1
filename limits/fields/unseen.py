"""A matrix that is never drawn, as a program holds it: its axes moved, joined or put apart, times a number."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from zoo.laws import Law

_AS_IT_IS = ("convert_element_type", "copy", "copy_p", "stop_gradient", "sharding_constraint", "reduce_precision")
UNUSUAL = (
    "rich: the weights {name}, whose inputs and outputs grow with the width, are used in {what}, where they cannot be revealed. "
    "Multiply signals by them, by a product or a convolution."
)
_BY_ENTRY = (
    "products entry by entry (with a mask, which no rotation leaves as it is, or with gains, that can multiply signals)"
)
Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Wide:
    """A parameter whose inputs and outputs both grow with the width: axes by which side they are on."""

    path: Path
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    law: Law

    @property
    def beside(self) -> tuple[int, ...]:
        """Axes along which it is matrices side by side."""
        return tuple(i for i in range(len(self.shape)) if i not in (*self.inputs, *self.outputs))

    def size(self, axes: Sequence[int]) -> int:
        """How many entries these axes have."""
        return math.prod(self.shape[i] for i in axes)

    @property
    def copies(self) -> list[Path]:
        """Where its matrices are kept."""
        if not self.beside:
            return [self.path]
        return [(*self.path, _number(at)) for at in itertools.product(*(range(self.shape[i]) for i in self.beside))]


def _number(at: Sequence[int]) -> str:
    return "_".join(map(str, at))


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Such a parameter as the program holds it: its axes are made of those of the parameter; times a factor."""

    wide: Wide
    axes: tuple[tuple[int, ...], ...]
    at: tuple[tuple[int, int], ...] = ()  # axes of `beside` along which an entry was taken, and which
    factor: Any = 1.0
    turned: tuple[int, ...] = ()  # axes of the parameter whose entries are in reversed order

    @classmethod
    def of(cls, wide: Wide) -> "Unseen":
        """As it enters the program."""
        return cls(wide, tuple((i,) if n > 1 else () for i, n in enumerate(wide.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that it stands for."""
        return tuple(self.wide.size(axis) for axis in self.axes)


def name_of(w: Unseen) -> str:
    """Of the parameter."""
    return ".".join(map(str, w.wide.path))


def copy_of(w: Unseen) -> Path:
    """Where the matrix that is meant is kept."""
    at = dict(w.at)
    missing = [i for i in w.wide.beside if i not in at and w.wide.shape[i] > 1]
    if missing:
        raise ValueError(UNUSUAL.format(name=name_of(w), what="all of several matrices side by side at once"))
    return (*w.wide.path, _number([at.get(i, 0) for i in w.wide.beside])) if w.wide.beside else w.wide.path


def joined_axes(w: Unseen, axes: Sequence[int]) -> list[int]:
    """The axes of the parameter that these are made of."""
    return [i for axis in axes for i in w.axes[axis]]


def moved(eqn: Any, w: Unseen, values: list[Any]) -> Unseen:
    """The same weights with their axes at other places, or times a number."""
    name, params, shape = eqn.primitive.name, eqn.params, eqn.outvars[0].aval.shape
    others = [value for value in values if value is not w]
    if name in _AS_IT_IS:
        return w
    if name == "transpose":
        return dataclasses.replace(w, axes=tuple(w.axes[i] for i in params["permutation"]))
    if name in ("reshape", "squeeze", "expand_dims"):
        return dataclasses.replace(w, axes=_reshaped(w, shape))
    if name == "broadcast_in_dim" and math.prod(shape) == math.prod(w.shape):
        return dataclasses.replace(w, axes=_reshaped(w, shape))
    if name == "neg":
        return dataclasses.replace(w, factor=-w.factor)
    if (
        name in ("mul", "div")
        and len(others) == 1
        and jnp.size(others[0]) == 1
        and values[1 - (name == "mul" and values[1] is w)] is others[0]
    ):
        number = jnp.reshape(others[0], ())
        return dataclasses.replace(w, factor=w.factor * number if name == "mul" else w.factor / number)
    if name == "slice":
        return _sliced(w, params["start_indices"], shape)
    if name == "rev" and not any(i in w.wide.beside for k in params["dimensions"] for i in w.axes[k]):
        return dataclasses.replace(w, turned=_turned(w, params["dimensions"]))
    what = _BY_ENTRY if name in ("mul", "div") else f'"{name}" of its entries'
    raise ValueError(UNUSUAL.format(name=name_of(w), what=what))


def _turned(w: Unseen, dimensions: Sequence[int]) -> tuple[int, ...]:
    """The axes in reversed order after these are turned; of joined ones, all."""
    return tuple({*w.turned} ^ {i for k in dimensions for i in w.axes[k]})


def _reshaped(w: Unseen, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Axes that are joined, or put apart again."""
    left, axes = [i for axis in w.axes for i in axis], []
    for n in shape:
        group, size = [], 1
        while size < n and left:
            group.append(left.pop(0))
            size *= w.wide.shape[group[-1]]
        if size != n:
            raise ValueError(UNUSUAL.format(name=name_of(w), what="a reshape that takes its axes apart"))
        axes.append(tuple(group))
    return tuple(axes)


def _sliced(w: Unseen, begin: Sequence[int], shape: Sequence[int]) -> Unseen:
    """One of several matrices side by side."""
    axes, at = list(w.axes), list(w.at)
    for k, (first, now, before) in enumerate(zip(begin, shape, w.shape, strict=True)):
        if now == before:
            continue
        if now != 1 or len(w.axes[k]) != 1 or w.axes[k][0] not in w.wide.beside:
            raise ValueError(UNUSUAL.format(name=name_of(w), what="a slice of its inputs or outputs"))
        axes[k] = ()
        at.append((w.axes[k][0], int(first)))
    return dataclasses.replace(w, axes=tuple(axes), at=tuple(at))
