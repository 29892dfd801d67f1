"""Weights that a program adds to others before it multiplies signals by them, as W + A B of a change of low rank."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from limits.fields.joined import EACH, Joined
from limits.fields.unseen import Unseen

SUMS = ("add", "add_any", "sub")
_PRODUCTS = ("dot_general", "conv_general_dilated")
_PLACES = ("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "rev")


@dataclasses.dataclass(frozen=True)
class Added:
    """The sum of these: matrices that are never drawn, and arrays, of one shape."""

    parts: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sum."""
        return next(part.shape for part in self.parts if isinstance(part, Unseen | Joined))


def through_added(eqn: Any, values: Sequence[Any], rule: Callable[[list[Any]], Any]) -> Any:
    """What an equation makes of weights that it adds, or of a sum of them, by `rule` for each part; None where it does not.

    (W + D)ᵀ a = Wᵀ a + Dᵀ a, and what moves axes, or multiplies by a number, does so with each part.
    """
    name = eqn.primitive.name
    if name in SUMS:
        whole = eqn.outvars[0].aval
        left, right = (_parts(value, whole) for value in values)
        if any(part.shape != whole.shape for part in (*left, *right)):  # one for all taps, or all that lie side by side
            return None
        return Added((*left, *(map(_negated, right) if name == "sub" else right)))
    at = next(i for i, value in enumerate(values) if isinstance(value, Added))
    others = [value for i, value in enumerate(values) if i != at]
    numbers = all(jnp.size(value) == 1 for value in others if not isinstance(value, Unseen | Joined | Added))
    if any(isinstance(value, Unseen | Joined | Added) for value in others):
        return None
    if name not in (*_PRODUCTS, *_PLACES) and not (name in EACH and numbers and (name != "div" or at == 0)):
        return None
    each = [rule([*values[:at], part, *values[at + 1 :]]) for part in values[at].parts]
    if name in _PRODUCTS:
        return sum(each[1:], each[0])
    return Added(tuple(part for one in each for part in (one.parts if isinstance(one, Added) else (one,))))


def _parts(value: Any, like: Any) -> tuple[Any, ...]:
    """What a term of a sum adds to it."""
    if isinstance(value, Added):
        return value.parts
    return (value if isinstance(value, Unseen | Joined) else jnp.broadcast_to(value, like.shape),)


def _negated(part: Any) -> Any:
    if isinstance(part, Joined | Added):
        return dataclasses.replace(part, parts=tuple(map(_negated, part.parts)))
    return dataclasses.replace(part, factor=-part.factor) if isinstance(part, Unseen) else -part
