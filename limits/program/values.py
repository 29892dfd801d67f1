"""What the equations of a program are read with: deterministic numbers, parameters, fields; and the axes of their arrays."""

import dataclasses
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from limits.program.nodes import Det, Moving, Weights
from limits.program.trace import Sizes


class NoLimitError(ValueError):
    """There is no limit in closed form: the message says where, why, and what to do instead."""


class InfiniteError(NoLimitError):
    """There is no limit at all: the message says where and why."""


class InfiniteKernel(str):
    """Why a kernel has no limit at all, rather than none in closed form."""

    __slots__ = ()


class MixedError(NoLimitError):
    """What a network is depends on random numbers of which there are few at every width: the message says where."""


class MixedKernel(str):
    """Why a kernel is a mean over networks that differ, however wide."""

    __slots__ = ()


def reason_of(error: NoLimitError) -> str:
    """What the error says, as `InfiniteKernel` or `MixedKernel` where it is one of these."""
    return {InfiniteError: InfiniteKernel, MixedError: MixedKernel}.get(type(error), str)(error)


def error_of(reason: str) -> NoLimitError:
    """The error that says it, of the kind that it came from."""
    return {InfiniteKernel: InfiniteError, MixedKernel: MixedError}.get(type(reason), NoLimitError)(reason)


def as_power(power: float) -> str:
    """A power of the width for messages: measured ones are whole or halves up to rounding.

    >>> as_power(-1.11e-16), as_power(-0.5000001), as_power(1 / 3)
    ('N^0', 'N^-0.5', 'N^0.33')
    """
    return f"N^{round(power, 2) + 0.0:g}"


class Atom(NamedTuple):
    """A part of an axis: of inputs ("b"), of neurons ("n"), or of positions ("p"); an axis may be several, merged."""

    kind: str
    sizes: Sizes


Axis = tuple[Atom, ...]  # () has size 1
Axes = tuple[Axis, ...]


class Value(NamedTuple):
    """An array of the program: its axes, and what it holds (a `Det`, a `Node`, or a `Parameter` parameter)."""

    axes: Axes
    held: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter as it stands, times a factor; `growth`: of its size, as a power of N.

    `origin` says for each atom of its axes which axis of the parameter it is (None: a new one, along which it is the same).
    """

    path: str
    index: tuple  # of entries taken: (axis of the parameter, which)
    rows: tuple
    law: Any
    rate: float
    factor: float
    growth: float
    origin: tuple[Any, ...]
    moving: tuple[Any, Any, Any] = (1.0, 1.0, 1.0)  # mean, size and learning rate over those of law, factor and rate

    def matrix(self) -> Weights:
        """As weights."""
        law = self.law
        return Weights(self.path, self.index, self.rows, abs(self.factor) * law.variance**0.5,
                      self.rate * self.factor**2, law.gaussian, law.kind, *self.moving[1:])  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Refused:
    """What has no limit; only an error if the output depends on it."""

    reason: str


def size(axis: Axis) -> Sizes:
    """Of an axis, in the three traces."""
    return tuple(math.prod(atom.sizes[i] for atom in axis) for i in range(3))  # pyright: ignore[reportReturnType]


def label(sizes: Sizes) -> str:
    """What an axis is, by how it grows."""
    if sizes[1] != sizes[0] and sizes[2] != sizes[0]:
        raise NoLimitError("an axis grows with the width and with the number of inputs: neurons and inputs were merged")
    return "n" if sizes[1] != sizes[0] else "b" if sizes[2] != sizes[0] else "p"


def fresh(sizes: Sizes) -> Axis:
    """A new axis of these sizes."""
    return () if sizes == (1, 1, 1) else (Atom(label(sizes), sizes),)


def atoms(axes: Axes) -> list[Atom]:
    """All parts of all axes, in order."""
    return [atom for axis in axes for atom in axis]


def positions(axes: Axes) -> list[Atom]:
    """The parts that are positions, in order: those of the array or field that is held."""
    return [atom for atom in atoms(axes) if atom.kind == "p"]


def growth(sizes: Sizes) -> float:
    """The power of N with which an axis grows.

    >>> growth((4, 8, 4)), growth((16, 64, 16)), growth((3, 3, 3))
    (1.0, 2.0, 0.0)
    """
    return math.log2(sizes[1] / sizes[0])


def one(rank: int, number: float | Moving = 1.0) -> Det:
    """A number as a deterministic value with so many axes of positions."""
    if isinstance(number, Moving):
        return Det(jnp.asarray(number.value).reshape((1,) * (1 + rank)), default=number.default)
    return Det(np.full((1,) * (1 + rank), number, float))
