"""Compilation of the kernel recursions."""

import functools
from collections.abc import Callable
from typing import Any

import jax


def options(backend: str) -> dict[str, str] | None:
    """Of XLA's compiler, for the kernel recursions."""
    return {"xla_disable_hlo_passes": "cse_barrier_expander"} if backend == "cpu" else None


def compiled(function: Callable[..., Any], static_argnums: int) -> Callable[..., Any]:
    """`jax.jit` whose optimization barriers hold on CPUs too.

    XLA up to jaxlib 0.10 removes barriers on CPUs before it fuses: it then writes the sums of a convolution, and the
    activation before them, into every place that reads them, six times slower to run and five times to compile.
    """

    @functools.cache
    def jitted(backend: str) -> Any:
        return jax.jit(function, static_argnums=static_argnums, compiler_options=options(backend))

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return jitted(jax.default_backend())(*arguments)

    return call
