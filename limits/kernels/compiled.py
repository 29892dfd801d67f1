"""Compilation of the kernel recursions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from zoo.once import jitted


def options(backend: str) -> dict[str, str] | None:
    """Of XLA's compiler, for the kernel recursions: barriers hold.

    Loops over little stay as they are: CPUs make one function of them, in which a barrier is an error.
    """
    kept = "cse_barrier_expander,small-while-loop-hoisting"
    return {"xla_disable_hlo_passes": kept} if backend == "cpu" else None


def compiled(function: Callable[..., Any], static_argnums: int) -> Callable[..., Any]:
    """`jax.jit` whose optimization barriers hold on CPUs too.

    XLA up to jaxlib 0.10 removes barriers on CPUs before it fuses: it then writes the sums of a convolution, and the
    activation before them, into every place that reads them, six times slower to run and five times to compile.
    """

    @functools.cache
    def made(backend: str) -> Any:
        return jitted(static_argnums=static_argnums, compiler_options=options(backend))(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return made(jax.default_backend())(*arguments)

    return call


def written_out(array: Any) -> Any:
    """The same array, which XLA writes to memory where it stands, rather than work it out again in all that reads it.

    Its fusions on CPUs repeat a chain of entry-by-entry steps for every later step of a derivative, and barriers do not hold
    there. The two ways of a condition that is not known before it runs do: NaN in the first entry, or none.
    """
    first = array[(0,) * array.ndim]
    return jax.lax.cond(first == first, lambda a: a, lambda a: a * jnp.nan, array)


_OWN = "of_own_numbers_"


def of_own_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit` of a function whose numbers are its own, as coefficients are: no arguments of what is compiled (`alike`).

    >>> has_own_numbers(jax.make_jaxpr(of_own_numbers(lambda x: 0.3 * x))(1.0).eqns[0])
    True
    """

    @functools.wraps(function)
    def named(*arguments: Any) -> Any:
        return function(*arguments)

    named.__name__ = _OWN + function.__name__.strip("_<>")
    return functools.wraps(function)(jax.jit(named))


def has_own_numbers(eqn: Any) -> bool:
    """Whether an equation is a call of such a function."""
    return str(eqn.params.get("name", "")).startswith(_OWN)
