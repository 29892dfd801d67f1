"""Which uses of parameters are outer products of what enters a layer and what comes back to it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.traverse_util
import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from limits.finite.observables import as_numbers
from zoo.layers import Conv, Dense, Linear, Norm
from zoo.vit import Embedding

_KNOWN = (Dense, Conv, Norm, Embedding)  # a subclass may do anything with its parameters


class LayerUse(NamedTuple):
    """One call of a layer with parameters, for one input."""

    path: tuple[str, ...]
    multipliers: dict[str, Any]
    output: jax.ShapeDtypeStruct


class Taps:
    """An interceptor that adds shifts to the outputs of layers with parameters, and notes what enters their gradients.

    To be made inside the function that it watches: calls inside an inner trace (scan, remat, jit, vmap) are left alone, since
    nothing that is met there can be taken out of it. `shifts` are by the number of the call; `cut` puts zeros of these
    shapes in place of what the calls return.
    """

    def __init__(self, shifts: dict[int, Any] | None = None, cut: list[LayerUse] | None = None) -> None:
        self.shifts, self.cut, self.uses, self.seen = {} if shifts is None else shifts, cut, [], {}
        self.features: Any = None  # what enters the readout
        self._trace, self._normalised = get_opaque_trace_state(convention="flax"), None

    def __call__(self, run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        """What flax.linen asks for."""
        module, here = context.module, get_opaque_trace_state(convention="flax") == self._trace
        if isinstance(module, Norm) and context.method_name == "normalise":
            self._normalised = run(*args, **kwargs)
            return self._normalised
        if context.method_name != "__call__" or not isinstance(module, (Linear, Norm, Embedding)):
            return run(*args, **kwargs)
        if here and isinstance(module, Linear) and module.role == "readout":
            self.features = args[0]
        multipliers = module.multipliers(args[0].shape[-1] if isinstance(module, Linear) else 1)
        if not here or type(module) not in _KNOWN or not multipliers:
            return run(*args, **kwargs)
        number = len(self.uses)
        if self.cut is not None:
            self.uses.append(self.cut[number])
            return jnp.zeros(self.cut[number].output.shape, self.cut[number].output.dtype)
        out = run(*args, **kwargs)
        self.uses.append(LayerUse(module.path, multipliers, jax.ShapeDtypeStruct(out.shape, out.dtype)))
        if number in self.shifts:
            self.seen[number] = module.patches(as_numbers(args[0])) if isinstance(module, Linear) else self._normalised
            out = out + self.shifts[number]
        return out


def taken_apart(watched: Callable, params: Any, revealed: Any) -> tuple[list[LayerUse], set[tuple[str, ...]]]:
    """(the calls in order, the paths of layers whose parameters are used in any other way too). Nothing is computed.

    watched(taps, params, revealed) are the outputs for one input; parameters and matrices may be shapes. What outputs depend
    on when all calls return zeros is used elsewhere: inside a scan, by a layer of the user's, or as a bare array.
    """
    uses: list[LayerUse] = []

    def noted(params: Any, revealed: Any) -> Any:
        taps = Taps()
        out = watched(taps, params, revealed)
        uses.extend(taps.uses)
        return out

    jax.eval_shape(noted, params, revealed)
    program = jax.make_jaxpr(lambda *parts: watched(Taps(cut=uses), *parts))(params, revealed).jaxpr
    read = {id(variable) for equation in program.eqns for variable in equation.invars}
    read |= {id(variable) for variable in program.outvars}
    used = iter([id(variable) in read for variable in program.invars])
    elsewhere: set[tuple[str, ...]] = set()
    for tree in jax.tree.map(lambda _: next(used), (params, revealed)):
        flat: Any = flax.traverse_util.flatten_dict(tree)
        elsewhere |= {path[:-1] for path, leaf in flat.items() if any(jax.tree.leaves(leaf))}
    return uses, elsewhere
