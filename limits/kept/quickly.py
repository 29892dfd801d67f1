"""Compilation that is quick, for programs whose time is that of matrix products."""

from collections.abc import Callable
from typing import Any

import jax


def quickly(function: Callable, **how: Any) -> Callable:
    """jax.jit; on a CPU with LLVM's quick passes: compilation takes 15 to 50 % less time, matrix products no more.

    Whoever asks JAX for the least optimisation (`jax_disable_most_optimizations`) gets that.

    >>> int(quickly(lambda a: a + 1)(1))
    2
    """
    least = jax.config.read("jax_disable_most_optimizations")
    options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" and not least else None
    return jax.jit(function, compiler_options=options, **how)
