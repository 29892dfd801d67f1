"""What is compiled once a process, also for definitions that hold arrays, which have no hash."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import flax.linen as nn

from limits.kept.identity import identity
from limits.kept.places import package_of, package_of_class
from zoo.abstract import variables_of
from zoo.once import forget, forgettable

T = TypeVar("T")

_CODE: dict[Any, str] = {}  # by function and class: what it was
# Functions and classes that change what they read when they are traced: counters, random numbers.
_MOVING = set[Any]()
_MOST = 256


def forget_other_code(net: Any, x: Any = None) -> None:
    """Forgets what was found of networks where code of this one does another thing than it did when it was met before.

    Networks are equal by class and fields; their code may read numbers outside of both, which somebody has changed. Where it
    changes them itself, as is seen of a trace for an input like x, it is not watched any more.
    """
    now = _words(net)
    changed = [part for part, word in now.items() if _CODE.get(part, word) != word]
    if changed or len(_CODE) > _MOST:
        forget()
        _CODE.clear()
        if x is not None:
            with contextlib.suppress(Exception):  # whatever it says of such an input, it says where it is run
                variables_of(net, x)
            after = _words(net)
            _MOVING.update(part for part in changed if after.get(part) != now[part])
            now = after
    elif not now.keys() <= _CODE.keys():  # what zoo found of it, before anybody could ask whether it was another
        forget(only_zoo=True)
    _CODE.update(now)


def _words(net: Any) -> dict[Any, str]:
    """What the functions and classes of one's own in a network do, as words."""
    found: dict[Any, str] = {}
    with contextlib.suppress(RecursionError):  # of what holds itself
        for part in _code(net):
            with contextlib.suppress(Exception):  # whatever has no hash, or no content, at all or any more
                if part not in _MOVING:
                    found[part] = identity(part)
    return found


def _code(thing: Any) -> Iterator[Any]:
    """Functions and classes in a definition."""
    if isinstance(thing, type | types.FunctionType):
        if (package_of_class(thing) if isinstance(thing, type) else package_of(thing.__code__.co_filename)) is None:
            yield thing  # that of packages stays as it is
    elif isinstance(thing, types.MethodType):
        yield from _code((thing.__func__, thing.__self__))
    elif isinstance(thing, Mapping):
        yield from _code([*thing.values()])
    elif isinstance(thing, functools.partial):
        yield from _code((thing.func, *thing.args, *thing.keywords.values()))
    elif isinstance(thing, tuple | list):
        for each in thing:
            yield from _code(each)
    elif isinstance(thing, nn.Module) or callable(thing):
        yield from _code((type(thing), getattr(thing, "__wrapped__", None)))
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
