"""Rules of a walk for what only arranges the entries of an array."""

from typing import Any

from zoo.held import Axis, Held, reshaped


class ShapeRules:
    """By primitive: what comes out of an array that is made of parameters."""

    def _slice(self, eqn: Any, held: Held | None, *_: Any) -> Held | None:
        """Where one entry of an axis is taken, it is one layer of several."""
        if held is None:
            return None
        before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
        one = [i for i in range(len(before)) if after[i] == 1 < before[i]]
        axes = tuple(Axis() if i in one else axis for i, axis in enumerate(held.axes))
        return Held(axes, held.taken.union(*(held.axes[i] for i in one)))

    _dynamic_slice = _slice

    def _pad(self, _: Any, value: Any, *fill: Any) -> Any:
        return value

    def _optimization_barrier(self, _: Any, *values: Any) -> list[Any]:
        return list(values)

    def _split(self, eqn: Any, held: Held) -> list[Held | None]:
        return [held] * len(eqn.outvars)

    def _transpose(self, eqn: Any, held: Held) -> Held:
        return Held(tuple(held.axes[i] for i in eqn.params["permutation"]), held.taken)

    def _broadcast_in_dim(self, eqn: Any, held: Held, *_: Any) -> Held:
        axes = [Axis()] * len(eqn.params["shape"])
        for i, j in enumerate(eqn.params["broadcast_dimensions"]):
            axes[j] = held.axes[i]
        return Held(tuple(axes), held.taken)

    def _squeeze(self, eqn: Any, held: Held) -> Held:
        gone = eqn.params["dimensions" if eqn.primitive.name == "squeeze" else "axes"]
        return Held(tuple(axis for i, axis in enumerate(held.axes) if i not in gone), held.taken)

    def _reshape(self, eqn: Any, held: Held, *_: Any) -> Held:
        before, order = eqn.invars[0].aval.shape, eqn.params["dimensions"]
        order = range(len(before)) if order is None else order  # as convolutions under vmap move them first
        axes, before = tuple(held.axes[i] for i in order), tuple(before[i] for i in order)
        return Held(reshaped(axes, before, eqn.outvars[0].aval.shape), held.taken)
