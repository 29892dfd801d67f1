"""What parameters are used for, seen where jax traces the model: which of their axes are summed over with activations."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax

from zoo.held import Axis, Entrywise, Held, Other, Use
from zoo.names import by_name
from zoo.walk import Meetings


def uses(function: Callable, params: Any, *arguments: Any) -> dict[str, list[Use | Entrywise]]:
    """The uses of every parameter in function(params, *arguments), by name; params and arguments may be shapes.

    >>> import jax.numpy as jnp
    >>> tied = {"embed": jnp.ones((5, 8))}
    >>> uses(lambda w, x: w["embed"][x] @ w["embed"].T, tied, jnp.zeros((2,), int))["embed"]
    [Use(inputs=(0,), outputs=(1,), stacked=()), Use(inputs=(1,), outputs=(0,), stacked=())]
    """
    walk, names = _walked(function, params, *arguments)
    return {name: walk.found.get(name, []) for name in names}


def counts(function: Callable, params: Any, *arguments: Any) -> dict[str, int]:
    """How often every parameter meets activations: once for each layer that shares it. Not of numbers without axes.

    >>> import jax.numpy as jnp
    >>> tied = {"bias": jnp.ones(3), "matrix": jnp.eye(3)}
    >>> counts(lambda w, x: (x @ w["matrix"] + w["bias"]) @ w["matrix"], tied, jnp.ones(3))
    {'bias': 1, 'matrix': 2}
    """
    walk, names = _walked(function, params, *arguments)
    return {name: walk.counted[name] for name in names}


def _walked(function: Callable, params: Any, *arguments: Any) -> tuple[Meetings, list[str]]:
    closed = jax.make_jaxpr(function)(params, *arguments)
    named = by_name(params)
    held: list[Any] = [Held(tuple(Axis({(name, i)}) for i in range(len(leaf.shape)))) for name, leaf in named.items()]
    keys = [jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.prng_key) for v in closed.jaxpr.invars[len(held) :]]  # pyright: ignore
    walk = Meetings(told=not all(keys))
    walk.scales.constants(closed.jaxpr.constvars, closed.consts)
    walk.through(closed.jaxpr, [*held, *[Other.FIXED if key else None for key in keys]])
    walk.finish()
    return walk, list(named)


def linen_uses(init: Callable[[], Any], of: Callable[..., dict[str, Any]] = uses) -> list[dict[str, Any]]:
    """Of every Linen model whose `init` this function calls, in the forward pass that `init` makes; of: or its `counts`."""
    calls: list[tuple[nn.Module, str, Any, Any]] = []
    running: list[None] = []

    def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if context.method_name == "setup":
            return run(*args, **kwargs)
        if not running and context.module.is_initializing():
            calls.append((context.module.clone(parent=None), context.method_name, args, kwargs))
        running.append(None)
        try:
            return run(*args, **kwargs)
        finally:
            running.pop()

    with nn.intercept_methods(note):
        jax.eval_shape(lambda: init())
        if not calls:  # an `init` under jax.jit that was traced before: run its code again
            with jax.disable_jit():
                jax.eval_shape(lambda: init())
    return [_of_call(of, *call) for call in calls]


def _of_call(of: Callable, module: nn.Module, method: str, args: Any, kwargs: Any) -> dict[str, Any]:
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")}
    shapes = {i: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for i, leaf in arrays.items()}

    def call(run: Callable, given: dict[int, Any], **options: Any) -> Any:
        args, kwargs = jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        return run(*args, method=method, **options, **kwargs)

    def start(key: Any, given: dict[int, Any]) -> Any:
        return call(functools.partial(module.init, {"params": key, "dropout": key}), given)

    def forward(variables: Any, key: Any, given: dict[int, Any]) -> Any:
        rngs = {"params": key, "dropout": key}
        return call(functools.partial(module.apply, variables), given, rngs=rngs, mutable=True)

    key = jax.random.key(0)
    return of(forward, jax.eval_shape(start, key, shapes), key, shapes)
