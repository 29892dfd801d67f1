"""What is found out once a process for each network, where that can be told from others."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")

_KEPT: list[Any] = []  # functions with caches


def forgettable(cached: T) -> T:
    """A function with a cache that `forget` empties."""
    _KEPT.append(cached)
    return cached


def forget(only_zoo: bool = False) -> None:
    """Empties the caches of all that is found out of networks: their code is not what it was."""
    for each in _KEPT:
        if not only_zoo or each.__module__.startswith("zoo."):
            each.cache_clear()


def once(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """`functools.lru_cache` that computes anew where an argument has no hash: networks that hold arrays, or numbers being traced.

    >>> calls = []
    >>> length = once(8)(lambda word: calls.append(word) or len(word))
    >>> length("ab"), length("ab"), length([1]), length([1]), calls
    (2, 2, 1, 1, ['ab', [1], [1]])
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        kept = forgettable(functools.lru_cache(maxsize=maxsize)(function))

        @functools.wraps(function)
        def found(*arguments: Any) -> T:
            try:
                hash(arguments)
            except TypeError:
                return function(*arguments)
            return kept(*arguments)

        return found

    return wrap


def jitted(**options: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """`jax.jit` of a function whose static arguments hold functions: where the code of these has changed, it is traced anew.

    >>> jitted(static_argnums=0)(lambda f, x: f(x))(abs, -1).item()
    1
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        @functools.cache
        def made() -> Any:
            @functools.wraps(function)
            def anew(*positional: Any, **named: Any) -> T:  # JAX keeps what it has traced by function
                return function(*positional, **named)

            return jax.jit(anew, **options)

        made.__module__ = function.__module__  # `forget` asks whose it is

        @functools.wraps(function)
        def call(*positional: Any, **named: Any) -> T:
            return made()(*positional, **named)

        forgettable(made)
        return call

    return wrap
