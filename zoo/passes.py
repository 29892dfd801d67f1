"""Forward passes of a model at all of its sizes, each traced once for all that is asked of it."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import unfreeze

from zoo.names import by_name
from zoo.uses import Pass


class LinenInit:
    """A run of a function that initialises Linen models: the shapes it returns, and the forward passes that it makes."""

    def __init__(self, init: Callable[[], Any]) -> None:
        self._init = init
        self._calls: list[tuple[nn.Module, str, Any, Any, Any]] = []
        self.shapes = self._run()

    def _run(self) -> Any:
        running: list[None] = []

        def note(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
            if context.method_name == "setup":
                return run(*args, **kwargs)
            outermost = not running and context.module.is_initializing()
            running.append(None)
            try:
                found = run(*args, **kwargs)
            finally:
                running.pop()
            if outermost:
                with contextlib.suppress(Exception):  # of what holds no arrays nothing is seen
                    variables = jax.tree.map(_shape, unfreeze(context.module.variables))
                    self._calls.append(
                        (context.module.clone(parent=None), context.method_name, args, kwargs, variables)
                    )
            return found

        with nn.intercept_methods(note):
            return jax.eval_shape(lambda: self._init())  # a function of its own: jax keeps what it has traced

    def passes(self) -> list[Pass]:
        """The forward pass of every Linen model whose `init` the function calls."""
        if not self._calls:  # an `init` under jax.jit that was traced before: run its code again
            with jax.disable_jit():
                self._run()
        return [_of_call(*call) for call in self._calls]


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    """Of an array, or of a number of Python."""
    return jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf))


def _of_call(module: nn.Module, method: str, args: Any, kwargs: Any, variables: Any) -> Pass:
    leaves, structure = jax.tree.flatten((args, kwargs))
    shapes = {i: _shape(leaf) for i, leaf in enumerate(leaves) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")}

    def forward(variables: Any, key: Any, given: dict[int, Any]) -> Any:
        args, kwargs = jax.tree.unflatten(structure, [given.get(i, leaf) for i, leaf in enumerate(leaves)])
        rngs = {"params": key, "dropout": key}
        return module.apply(variables, *args, method=method, rngs=rngs, mutable=True, **kwargs)

    return Pass(forward, variables, jax.random.key(0), shapes)


class Models:
    """The models of all sizes: shapes of their parameters, and their forward passes, each traced once."""

    def __init__(self, init: Callable, apply: Callable | None) -> None:
        self._init, self._apply = init, apply
        self._runs: dict[tuple, LinenInit] = {}
        self._passes: dict[tuple, list[Pass]] = {}

    def _run(self, sizes: Mapping[str, Any]) -> LinenInit:
        at = tuple(sorted(sizes.items()))
        if at not in self._runs:
            self._runs[at] = LinenInit(lambda: self._init(jax.random.key(0), **sizes))
        return self._runs[at]

    def shapes(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Of the parameters, by name."""
        return by_name(self._run(sizes).shapes)

    def _passes_of(self, sizes: Mapping[str, Any]) -> list[Pass]:
        at, apply = tuple(sorted(sizes.items())), self._apply
        if at not in self._passes:
            run = self._run(sizes)
            self._passes[at] = run.passes() if apply is None else [Pass(lambda p: apply(p, **sizes), run.shapes)]
        return self._passes[at]

    def seen(self, of: Callable[[Pass], dict[str, Any]], sizes: Mapping[str, Any]) -> dict[str, list[Any]]:
        """What `of` finds of every parameter in the forward passes of this size."""
        if self._apply is not None:
            return {name: [each] for passed in self._passes_of(sizes) for name, each in of(passed).items()}
        found: dict[str, list[Any]] = {}
        with contextlib.suppress(Exception):  # what is not seen here is found from shapes, or asked for
            names = self.shapes(sizes)
            for passed in self._passes_of(sizes):
                for name, each in of(passed).items():
                    inner = name.removeprefix("params.")
                    mine = [one for one in names if one in (name, inner)]
                    mine = mine or [one for one in names if one.endswith(f".{inner}")]
                    if len(mine) == 1:
                        found.setdefault(mine[0], []).append(each)
        return found
