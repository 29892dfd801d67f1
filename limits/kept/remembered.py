"""What is compiled once a process, also for definitions that hold arrays, which have no hash."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from limits.kept.identity import identity

T = TypeVar("T")


def remembered(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """`functools.lru_cache` whose arguments are told apart by their content where they cannot be hashed.

    >>> calls = []
    >>> count = remembered(8)(calls.append)
    >>> count([1, 2]), count([1, 2]), count([1, 3]), calls
    (None, None, None, [[1, 2], [1, 3]])
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        @functools.lru_cache(maxsize=maxsize)
        def cached(call: _Call) -> T:
            return function(*call.positional, **call.named)

        @functools.wraps(function)
        def remember(*positional: Any, **named: Any) -> T:
            return cached(_Call(positional, named))

        remember.cache_clear = cached.cache_clear  # pyright: ignore[reportAttributeAccessIssue]
        return remember

    return wrap


class _Call:
    """The arguments of one call, as a key of a cache."""

    def __init__(self, positional: tuple, named: dict[str, Any]) -> None:
        self.positional, self.named = positional, named
        self._key: Any = (positional, tuple(sorted(named.items())))
        try:
            self._hash = hash(self._key)
        except TypeError:
            self._key = identity(positional, named)
            self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self._key == other._key
