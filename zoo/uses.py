"""What parameters are used for, seen where jax traces the model: which of their axes are summed over with activations."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from zoo.held import Axis, Entrywise, Held, Other, Use
from zoo.names import by_name
from zoo.walk import Meetings


class Pass:
    """A forward pass as a program, whose first inputs are the parameters: traced once for all that is asked of it."""

    def __init__(self, function: Callable, params: Any, *arguments: Any) -> None:
        """Of function(params, *arguments); params and arguments may be shapes."""
        self.program: Any = jax.make_jaxpr(function)(params, *arguments)
        self.params = by_name(params)

    @functools.cached_property
    def _meetings(self) -> Meetings:
        jaxpr, count = self.program.jaxpr, len(self.params)
        held: list[Any] = [Held(tuple(Axis({(n, i)}) for i in range(len(w.shape)))) for n, w in self.params.items()]
        keys = [jnp.issubdtype(v.aval.dtype, jax.dtypes.prng_key) for v in jaxpr.invars[count:]]
        walk = Meetings(told=not all(keys))
        walk.scales.constants(jaxpr.constvars, self.program.consts)
        walk.through(jaxpr, [*held, *[Other.FIXED if key else None for key in keys]])
        walk.finish()
        return walk

    def uses(self) -> dict[str, list[Use | Entrywise]]:
        """The uses of every parameter, by name."""
        return {name: self._meetings.found.get(name, []) for name in self.params}

    def counts(self) -> dict[str, int]:
        """How often every parameter meets activations: once for each layer that shares it. Not of numbers without axes.

        >>> import jax.numpy as jnp
        >>> tied = {"bias": jnp.ones(3), "matrix": jnp.eye(3)}
        >>> Pass(lambda w, x: (x @ w["matrix"] + w["bias"]) @ w["matrix"], tied, jnp.ones(3)).counts()
        {'bias': 1, 'matrix': 2}
        """
        return {name: self._meetings.counted[name] for name in self.params}


def uses(function: Callable, params: Any, *arguments: Any) -> dict[str, list[Use | Entrywise]]:
    """The uses of every parameter in function(params, *arguments), by name; params and arguments may be shapes.

    >>> import jax.numpy as jnp
    >>> tied = {"embed": jnp.ones((5, 8))}
    >>> uses(lambda w, x: w["embed"][x] @ w["embed"].T, tied, jnp.zeros((2,), int))["embed"]
    [Use(inputs=(0,), outputs=(1,), stacked=()), Use(inputs=(1,), outputs=(0,), stacked=())]
    """
    return Pass(function, params, *arguments).uses()
