"""Weights that a program writes one after the other, as a cell those of its gates, to multiply signals by all at once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

EACH = ("convert_element_type", "copy", "copy_p", "stop_gradient", "sharding_constraint", "neg", "mul", "div")


@dataclasses.dataclass(frozen=True)
class Joined:
    """Matrices, and arrays, along an axis."""

    parts: tuple[Any, ...]
    axis: int

    @property
    def sizes(self) -> list[int]:
        """Along that axis."""
        return [part.shape[self.axis] for part in self.parts]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all of them."""
        first = self.parts[0].shape
        return (*first[: self.axis], sum(self.sizes), *first[self.axis + 1 :])


def through_joined(eqn: Any, values: Sequence[Any], rule: Callable[[list[Any]], Any]) -> Any:
    """What an equation makes of values of which one is `Joined`, by `rule` for each of its parts; None where it does not.

    [W₁ W₂]ᵀ a = (W₁ᵀ a, W₂ᵀ a) where the axis is left over, and W₁ᵀ a₁ + W₂ᵀ a₂ where it is summed.
    """
    at = next(i for i, value in enumerate(values) if isinstance(value, Joined))
    joined, name = values[at], eqn.primitive.name
    others = [value for i, value in enumerate(values) if i != at]
    if any(isinstance(value, Joined) for value in others):
        return None
    each = lambda parts: [rule([*values[:at], part, *values[at + 1 :]]) for part in parts]  # noqa: E731
    if name in EACH and all(jnp.size(value) == 1 for value in others):
        return Joined(tuple(each(joined.parts)), joined.axis)
    if name == "transpose":
        return Joined(tuple(each(joined.parts)), list(eqn.params["permutation"]).index(joined.axis))
    if name != "dot_general":
        return None
    contracted, beside = (pair[at] for pair in eqn.params["dimension_numbers"])
    if joined.axis in beside:
        return None
    if joined.axis in contracted:
        theirs = eqn.params["dimension_numbers"][0][1 - at][list(contracted).index(joined.axis)]
        signals = jnp.split(others[0], np.cumsum(joined.sizes)[:-1], theirs)
        pairs = [
            (part, signal) if at == 0 else (signal, part) for part, signal in zip(joined.parts, signals, strict=True)
        ]
        return sum(rule(list(pair)) for pair in pairs)
    left = [i for i in range(len(joined.parts[0].shape)) if i not in (*contracted, *beside)]
    before = 0 if at == 0 else jnp.ndim(others[0]) - len(contracted) - len(beside)
    return jnp.concatenate(each(joined.parts), len(beside) + before + left.index(joined.axis))
