"""Weights that a program adds to others before it multiplies signals by them, as W + A B of a change of low rank."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from limits.fields.joined import EACH, Joined
from limits.fields.unseen import Unseen

SUMS = ("add", "add_any", "sub", "reduce_sum")
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

    (W + D)ᵀ a = Wᵀ a + Dᵀ a, and what moves axes, sums over them, or multiplies by a number, does so with each part.
    """
    name = eqn.primitive.name
    if name == "reduce_sum":
        return _reduced(values[0], eqn.params["axes"], rule)
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
    return added(each)


def added(parts: Sequence[Any]) -> Any:
    """The sum of these: an array, or one that stands for it."""
    if not any(isinstance(part, Unseen | Joined | Added) for part in parts):
        return sum(parts[1:], parts[0])
    flat = tuple(part for one in parts for part in (one.parts if isinstance(one, Added) else (one,)))
    return flat[0] if len(flat) == 1 else Added(flat)


def _reduced(value: Joined | Added, axes: Sequence[int], rule: Callable[[list[Any]], Any]) -> Any:
    """Its sum over axes."""
    each = [rule([part]) for part in value.parts]
    if isinstance(value, Added) or value.axis in axes:
        return added(each)
    return Joined(tuple(each), value.axis - sum(k < value.axis for k in axes))


def _parts(value: Any, like: Any) -> tuple[Any, ...]:
    """What a term of a sum adds to it."""
    if isinstance(value, Added):
        return value.parts
    return (value if isinstance(value, Unseen | Joined) else jnp.broadcast_to(value, like.shape),)


def _negated(part: Any) -> Any:
    if isinstance(part, Joined | Added):
        return dataclasses.replace(part, parts=tuple(map(_negated, part.parts)))
    return dataclasses.replace(part, factor=-part.factor) if isinstance(part, Unseen) else -part
