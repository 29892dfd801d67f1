"""What is made anew for every call, and the same: programs that are compiled for the first serve the others."""

import dataclasses
import functools
import sys
import types
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

from limits.kept.places import package_of, package_of_class

T = TypeVar("T")

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_MOST = 256  # things that are remembered, and numbers of an array that are compared
_FIRST = dict[Any, Any]()  # by content
_CHECKERS = ("/jaxtyping/", "<@beartype(")


class _UnknownError(Exception):
    """Content that may change unseen, or that only its owner knows."""


def first_alike(thing: T) -> T:
    """What was met first of this content: functions of libraries, with numbers, words and definitions behind them.

    The thing itself where code, or an object, of one's own is in it, which may do what is not seen.

    >>> import optax
    >>> first_alike(optax.adam(0.25)) is first_alike(optax.adam(0.25)) is not first_alike(optax.adam(0.5))
    True
    """
    key = _content(thing)
    if key is None or any(thing is first for first in _FIRST.values()):  # programs of that are those of what it was
        return thing
    if key not in _FIRST or _content(_FIRST[key]) != key:  # somebody has changed what it holds
        if len(_FIRST) >= _MOST:
            return thing
        if key in _FIRST:
            _FIRST[object()] = _FIRST[key]  # still known as one that there are programs of
        _FIRST[key] = thing
    return _FIRST[key]


def _content(thing: Any) -> Any:
    """A key for what it holds; None where that cannot be told."""
    try:
        return _key(thing)
    except (_UnknownError, RecursionError, ValueError):  # ValueError: of a variable that has no value
        return None


def _key(thing: Any) -> Any:
    if type(thing) in _PLAIN:
        return type(thing), repr(thing)
    if isinstance(thing, np.generic | np.ndarray | jax.Array):
        return _of_array(thing)
    if isinstance(thing, tuple | list) and (type(thing) in (tuple, list) or package_of_class(type(thing))):
        return type(thing), *map(_key, thing)
    if type(thing) is dict:
        return dict, *((_key(name), _key(value)) for name, value in thing.items())
    if isinstance(thing, functools.partial):
        return functools.partial, _key(thing.func), _key(thing.args), _key(thing.keywords)
    if isinstance(thing, types.FunctionType):
        return _of_function(thing)
    if isinstance(thing, type) and package_of_class(thing):
        return thing
    if dataclasses.is_dataclass(thing) and package_of_class(type(thing)):  # definitions, parameterizations
        names = [field.name for field in dataclasses.fields(thing) if field.name not in ("parent", "name")]
        return type(thing), *((name, _key(getattr(thing, name))) for name in names)
    if _stands_in_library(thing):
        return thing
    raise _UnknownError


def _of_array(array: Any) -> Any:
    """Of few numbers."""
    if isinstance(array, Tracer) or getattr(array.dtype, "kind", "") not in tuple("biufc") or array.size > _MOST:
        raise _UnknownError
    if isinstance(array, jax.Array) and array.is_deleted():
        raise _UnknownError
    numbers = np.asarray(array)
    return type(array), getattr(array, "weak_type", None), str(numbers.dtype), numbers.shape, numbers.tobytes()


def _of_function(function: Any) -> Any:
    if any(mark in function.__code__.co_filename for mark in _CHECKERS) and hasattr(function, "__wrapped__"):
        return _key(function.__wrapped__)
    if package_of(function.__code__.co_filename) is None or function.__dict__.keys() - {"__wrapped__"}:
        raise _UnknownError
    cells = tuple(_key(cell.cell_contents) for cell in function.__closure__ or ())
    given = _key(function.__defaults__), _key(function.__kwdefaults__)
    return function.__module__, function.__qualname__, function.__code__, given, cells


def _stands_in_library(thing: Any) -> bool:
    """Whether this is what a library has under its name: jnp.sqrt, np.exp, a function of C. Random numbers are no such thing."""
    owner = getattr(thing, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        return False
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    named = module is not None and getattr(module, getattr(thing, "__name__", ""), None) is thing
    file = getattr(module, "__file__", None)
    return named and callable(thing) and (file is None or package_of(file) is not None)
