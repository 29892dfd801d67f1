"""One walk through a network with covariances instead of signals."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from limits import kernels as algebra


@dataclasses.dataclass
class Walk:
    """The constants of a network's layers, and what is noted on the way through it.

    A twin's `_walk` calls `dense`, `activate`, `add`, `repeat` and `mark` in the order of the network's forward pass. `layers`
    are the constants by role; `dual` the activation's Gaussian average; `scales` the branch scales [branches]; `numbers`
    what else is traced.
    """

    layers: dict[str, algebra.Affine]
    dual: Callable
    has_bias: bool
    scales: Any
    numbers: dict[str, Any]
    unrolled: bool = False  # loops in Python, so that every layer can be marked
    shifts: list[Any] | None = None  # added to the tangent kernel at each mark
    marks: list[Any] = dataclasses.field(default_factory=list)
    largest: Any = 0.0  # standard deviation of any pre-activation

    def dense(self, state: Any, role: str) -> Any:
        """A layer of this role."""
        return algebra.dense(state, self.layers[role], self.has_bias)

    def activate(self, state: Any) -> Any:
        """φ; notes the largest standard deviation."""
        r = state.r1 if isinstance(state, algebra.State) else jnp.sqrt(algebra.variances(state.k1, state.within).max())
        self.largest = jnp.maximum(self.largest, jnp.max(r))
        return algebra.activate(state, self.dual)

    def add(self, state: Any, branch: Any, scale: Any) -> Any:
        """h + scale · F(h)."""
        return algebra.add(state, branch, scale)

    def mark(self, state: Any) -> Any:
        """Notes the state of pre-activations h^l."""
        if self.shifts is not None:
            state = dataclasses.replace(state, ntk=state.ntk + self.shifts[len(self.marks)])
        self.marks.append(state)
        return state

    def repeat(self, step: Callable[[Any, Any], Any], state: Any, over: Any) -> Any:
        """step(state, x) for every x of `over`: the entries of an array, or 0 … count − 1 (a traced count will do)."""
        if self.unrolled:
            for x in range(over) if isinstance(over, int) else over:
                state = step(state, x)
            return state
        marked = len(self.marks)

        def body(x: Any, carry: tuple) -> tuple:
            state, self.largest = carry
            state = step(state, x)
            del self.marks[marked:]  # they belong to the loop
            return state, self.largest

        carry = (state, jnp.asarray(self.largest, state.ntk.dtype))
        if jnp.ndim(over) == 0:
            state, self.largest = jax.lax.fori_loop(0, over, body, carry)
        else:
            (state, self.largest), _ = jax.lax.scan(lambda c, x: (body(x, c), None), carry, over)
        return state
