"""Sums and means in a traced function: by which numbers its arrays are multiplied, and over how many entries summed."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from zoo.held import OF_SHAPES, Axis, Entrywise

HOW = {"sum": "summed", "mixed": "unclear", "bent": "reduced", "product": ""}  # what they are, if no means
_ALONG = (
    *OF_SHAPES, "neg", "convert_element_type", "copy", "copy_p", "reduce_precision", "gather", "pad", "sort", "abs", "reduce_max",
    "reduce_min", "stop_gradient", "optimization_barrier", "rev", "real",
)  # fmt: skip
_BESIDE = ("add", "sub", "add_any", "select_n", "concatenate", "max", "min", "dynamic_update_slice")


class Sum:
    """A sum over axes of parameters, by how it is one; of a mean, `size` is alike at all widths."""

    def __init__(self, axes: dict[str, Axis], size: float, given: float = 1.0) -> None:
        """size: how many entries are summed, times the numbers that they are multiplied by; given: those of `Scale.given`."""
        self.axes, self.given = axes, given
        self._size, self._after = size, list[Sum]()

    def times(self, factor: float) -> "Sum":
        """As it goes on, multiplied."""
        if factor == 1:
            return self
        self._after.append(Sum(self.axes, self._size * factor))
        return self._after[-1]

    def size(self) -> float:
        """Of the largest of what comes of it."""
        return max((each.size() for each in self._after), default=self._size)


class Scale(NamedTuple):
    """What an array is multiplied by, as far as the program tells: numbers, and how many entries sums have.

    Functions that are not linear begin anew, and so do products with weights, whose initialisation is made for the number of
    inputs. given: what has been multiplied since such a product, before another parameter takes part; it may stand for an
    initialisation, as in h @ W / √N. fresh: none has.
    """

    factor: float = 1.0
    given: float = 1.0
    fresh: bool = False
    sums: tuple[Sum, ...] = ()

    def times(self, factor: float) -> "Scale":
        """Multiplied by a number."""
        given = self.given * factor if self.fresh else self.given
        return Scale(self.factor * factor, given, self.fresh, tuple(each.times(factor) for each in self.sums))


class Scales:
    """Of the arrays of a program, by variable."""

    def __init__(self) -> None:
        self._known: dict[Any, Scale] = {}

    def of(self, v: Any) -> Scale:
        """As far as it is known."""
        if isinstance(v, Literal):
            return Scale(abs(float(v.val))) if _is_number(v.val) else Scale()
        return self._known.get(v, Scale())

    def give(self, variables: Sequence[Any], others: Sequence[Any]) -> None:
        """What a program inside begins with, or what comes out of one."""
        for v, scale in [(v, self.of(other)) for v, other in zip(variables, others, strict=False)]:
            self._known[v] = scale

    def constants(self, variables: Sequence[Any], values: Sequence[Any]) -> None:
        """Of arrays that the program was traced with, which are numbers."""
        for v, value in zip(variables, values, strict=False):
            if _is_number(value):
                self._known[v] = Scale(abs(float(np.asarray(value).item())))

    def after(self, eqn: Any, weights: Sequence[int], held: Sequence[int], sums: Sequence[Sum]) -> None:
        """weights: operands that are, and summed over; held: those that are made of parameters alone; sums: this makes them."""
        found = _after(eqn, [self.of(v) for v in eqn.invars], weights, held)
        for v in eqn.outvars:
            self._known[v] = found._replace(sums=(*found.sums, *sums))


def summed(eqn: Any) -> float:
    """How many entries of its operands a sum has."""
    name, shape = eqn.primitive.name, eqn.invars[0].aval.shape
    if name == "dot_general":
        return math.prod(shape[i] for i in eqn.params["dimension_numbers"][0][0])
    if name == "reduce_window_sum":
        return math.prod(eqn.params["window_dimensions"])
    axes = [eqn.params["axis"]] if name == "cumsum" else eqn.params["axes"]
    return math.prod(shape[i] for i in axes)


def _after(eqn: Any, scales: list[Scale], weights: Sequence[int], held: Sequence[int]) -> Scale:
    name = eqn.primitive.name
    if weights:  # numbers that they were multiplied by
        factor = math.prod(scales[i].factor for i in weights)
        return Scale(factor, factor, True)
    if name in ("reduce_sum", "cumsum", "reduce_window_sum"):
        return scales[0].times(summed(eqn))
    if name in _ALONG:
        return scales[0]
    if name in _BESIDE:
        parts = [s for v, s in zip(eqn.invars, scales, strict=True) if not isinstance(v, Literal)]
        parts = (parts[1:] if name == "select_n" else parts[:2]) if name != "concatenate" else parts
        largest = max(parts or scales, key=lambda s: s.factor)
        return largest._replace(sums=tuple(dict.fromkeys(each for s in parts for each in s.sums)))
    if name == "integer_pow" or name == "square":
        return Scale(scales[0].factor ** eqn.params.get("y", 2)) if scales[0].factor else Scale()
    if name in ("mul", "dot_general"):
        return _product(scales[0], scales[1], summed(eqn) if name == "dot_general" else 1, held)
    if name == "div":
        return scales[0].times(1 / scales[1].factor if scales[1].factor else 1.0)
    return Scale()


def _product(left: Scale, right: Scale, count: float, held: Sequence[int]) -> Scale:
    sums = (*left.times(right.factor * count).sums, *right.times(left.factor * count).sums)
    factor, fresh = left.factor * right.factor * count, (left.fresh or right.fresh) and not held
    a, b = (each.factor if fresh and not each.fresh else each.given for each in (left, right))
    return Scale(factor, a * b, fresh, sums)


def _is_number(value: Any) -> bool:
    return np.size(value) == 1 and jnp.issubdtype(np.asarray(value).dtype, np.number)


def may_be_means(met: Sequence[Any]) -> bool:
    """Whether a parameter's role hangs on whether sums are means."""
    entries = [use for use in met if isinstance(use, Entrywise)]
    weighed = {use.axis for use in entries if use.how == "weighed"}
    return any(use.how in HOW and (use.how != "bent" or use.axis not in weighed) for use in entries)


def told_apart(first: Sequence[Any], second: Sequence[Any], grown: float) -> list[Any]:
    """The uses of a parameter, with sums and means told apart by how they count at two widths: those of a mean alike.

    >>> told_apart([Entrywise("sum", 0, 16.0)], [Entrywise("sum", 0, 64.0)], 4.0)
    [Entrywise(how='summed', axis=0, scale=1.0, given=1.0)]
    """
    sums, others = ([use for use in met if isinstance(use, Entrywise) and use.how in HOW] for met in (first, second))
    same = [use[:2] for use in sums] == [use[:2] for use in others]
    ratios = [_ratio(a, b, grown) for a, b in zip(sums, others, strict=True)] if same else [math.nan] * len(sums)
    found = [use for use in first if use not in sums]
    for use, ratio in zip(sums, ratios, strict=True):
        if math.isclose(ratio, 1, rel_tol=0.02):
            found += [Entrywise("mean", use.axis)] if use.how == "product" else []
        elif use.how != "product":
            powers = (grown, grown**0.5)  # of a sum; divided by √N, which stands for its weights' initialisation
            known = use.how != "sum" or any(math.isclose(ratio, power, rel_tol=0.02) for power in powers)
            how = HOW[use.how] if known else "unclear"
            found.append(Entrywise(how, use.axis))
    return found


def _ratio(narrow: Entrywise, wide: Entrywise, grown: float) -> float:
    """By how much a sum grows with the width, but for what stands for an initialisation."""
    if not narrow.scale or not narrow.given:
        return math.nan
    size, given = wide.scale / narrow.scale, wide.given / narrow.given
    return size / given if math.isclose(given, grown**-0.5, rel_tol=0.02) else size
