"""What is compiled once a process, also for definitions that hold arrays, which have no hash."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import flax.linen as nn

from limits.kept.identity import identity
from zoo.once import forget, forgettable

T = TypeVar("T")

_CODE: dict[Any, str] = {}  # by function and class: what it was
_MOST = 256


def forget_other_code(net: Any) -> None:
    """Forgets what was found of networks where code of this one does another thing than it did when it was met before.

    Networks are equal by class and fields; their code may read numbers outside of both, which somebody has changed.
    """
    for part in _code(net):
        with contextlib.suppress(TypeError, ValueError):  # what has no hash is told apart by content; some has none
            now = identity(part)
            if _CODE.setdefault(part, now) != now or len(_CODE) > _MOST:
                forget()
                _CODE.clear()


def _code(thing: Any) -> Iterator[Any]:
    """Functions and classes in a definition."""
    if isinstance(thing, type | types.FunctionType):
        yield thing
    elif isinstance(thing, functools.partial):
        yield from _code((thing.func, *thing.args, *thing.keywords.values()))
    elif isinstance(thing, tuple | list):
        for each in thing:
            yield from _code(each)
    elif isinstance(thing, nn.Module) or callable(thing):
        yield type(thing)
        fields = getattr(thing, "__dataclass_fields__", {})
        yield from _code([getattr(thing, name, None) for name in fields if name not in ("parent", "name")])


def remembered(maxsize: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """`functools.lru_cache` whose arguments are told apart by their content where they cannot be hashed.

    >>> calls = []
    >>> count = remembered(8)(calls.append)
    >>> count([1, 2]), count([1, 2]), count([1, 3]), calls
    (None, None, None, [[1, 2], [1, 3]])
    """

    def wrap(function: Callable[..., T]) -> Callable[..., T]:
        @forgettable
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
