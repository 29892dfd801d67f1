"""What stands in an object and in a class: what a person put there, without what Python and Flax keep beside it."""

import copyreg
import dataclasses
import enum
import functools
import io
import random
import sys
import types
import weakref
from typing import Any

import numpy as np

from limits.kept.places import package_of_class

# What a dataclass writes itself (its fields count by their values).
_MADE = (
    "__init__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
)
# What Python and Flax keep in a class, and what says where a Linen module stands, not what it is.
_HELD = ("__annotate__", "__annotate_func__", "_abc_impl", "_pytree__nodes")
_OF_LINEN = ("_state", "_parent_ref", "_id", "scope", "parent")
_OF_ENUM = ("_member_map_", "_value2member_map_", "_hashable_values_", "_unhashable_values_", "_unhashable_values_map_")
_OF_MEMBER = ("_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_")
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_VALUES = (bool, int, float, complex, str, bytes)
_BARE = (dict, list, tuple, set, frozenset, np.ndarray, types.MappingProxyType)
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_DOCUMENTATION = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__annotations__",
    "__type_params__",
    "__wrapped__",
)
_OF_JIT = ("_fun", "_jit_info", "ctxtag")  # the function again, and where it stands
# What Python puts into a module.
_OF_MODULE = (
    *vars(types.ModuleType("")), "__file__", "__cached__", "__path__", "__builtins__", "__annotations__", "__annotate__",
    "__conditional_annotations__", "__warningregistry__",
)  # fmt: skip
_NNX_TRACES = ("_object__state", "_pytree__state", "_trace_state")  # when an NNX module was made, not what it is


class UnreadableError(TypeError):
    """Something whose content cannot be told."""


def of_cell(cell: Any) -> Any:
    """What a closure holds under one of its names."""
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return "unbound"


def of_class(thing: type) -> dict[str, Any]:
    """What a person wrote into a class of one's own; of an enumeration its methods and what its members hold.

    >>> class Own:
    ...     factor = 2
    ...     def act(self, x): return self.factor * x
    >>> sorted(of_class(Own))
    ['act', 'factor']
    """
    skipped = (*_HELD, *(_OF_LINEN if _is_linen(thing) else ()))
    held = {name: each for name, each in vars(thing).items() if name not in skipped or isinstance(each, _FUNCTIONS)}
    held = {name: each for name, each in held.items() if _is_written(name, each)}
    if dataclasses.is_dataclass(thing):
        held = {name: each for name, each in held.items() if name not in _MADE or not _is_generated(each)}
        fields = [(each.name, _default(each), each.init, each.kw_only, dict(each.metadata)) for each in dataclasses.fields(thing)
                  if each.name not in skipped]  # fmt: skip
        held["fields, in order"] = fields
    if not issubclass(thing, enum.Enum):
        return held
    members = {name: _of_member(each) for name, each in thing.__members__.items()}
    return {name: each for name, each in held.items() if name not in (*_OF_ENUM, *members)} | {"members": members}


def of_wrapper(thing: Any) -> dict[str, Any]:
    """What a wrapped function holds beside what it wraps: the rule of its derivative, say."""
    return {name: each for name, each in _stored(thing).items() if name not in (*_DOCUMENTATION, *_OF_JIT)}


def wrapped(thing: Any) -> Any:
    """The function that an object says it wraps, or None."""
    inner = _stored(thing).get("__wrapped__")
    return inner if callable(inner) else None


def of_module(thing: types.ModuleType) -> dict[str, Any]:
    """What stands in a module of one's own, without modules inside it, which whoever imports them puts there."""
    inside = [name for name in vars(thing) if f"{thing.__name__}.{name}" in sys.modules]
    return {name: each for name, each in vars(thing).items() if name not in (*_OF_MODULE, *inside)}


def of_dataclass(thing: Any) -> dict[str, Any]:
    """The fields, and what else was put into an object whose class is one's own."""
    skipped = _OF_LINEN if _is_linen(type(thing)) else ()
    names = [field.name for field in dataclasses.fields(thing) if field.name not in skipped]
    if package_of_class(type(thing)) is None:
        names += [name for name in _held(thing) if name not in (*names, *skipped)]
    return {name: getattr(thing, name, None) for name in names}


def of_object(thing: Any) -> dict[str, Any]:
    """The fields of an object that is no dataclass; else what `copy` would make it again from."""
    if isinstance(thing, io.IOBase):
        raise _unreadable(thing)
    if isinstance(thing, weakref.WeakKeyDictionary | weakref.WeakValueDictionary | weakref.WeakSet | weakref.ref):
        return {}  # what others hold, and for as long as they do
    held = {name: each for name, each in _stored(thing).items() if name not in _NNX_TRACES}
    kind: Any = next((kind for kind in _VALUES if isinstance(thing, kind)), None)
    if kind is not None:
        return held | {"value": kind(thing)}
    if held and not isinstance(thing, random.Random):
        return held
    try:
        made: Any = copyreg.dispatch_table.get(type(thing), lambda thing: thing.__reduce_ex__(2))(thing)
    except TypeError as error:
        raise _unreadable(thing) from error
    if isinstance(made, str):
        return held | {"made from": made}
    arguments, state, items, pairs = (*made[1:5], *(None,) * (4 - len(made[1:5])))
    return held | {"made from": (arguments, state, list(items or ()), list(pairs or ()))}


def attributes(thing: Any) -> dict[str, Any]:
    """What was put into a value (an array, a dict, a partial) beside its value."""
    return {} if type(thing) in _BARE else _held(thing)


def _of_member(member: enum.Enum) -> tuple:
    return member.value, {name: each for name, each in vars(member).items() if name not in _OF_MEMBER}


def _default(field: dataclasses.Field) -> tuple:
    absent = dataclasses.MISSING
    return tuple(None if each is absent else (each,) for each in (field.default, field.default_factory))


def _is_written(name: str, value: Any) -> bool:
    if isinstance(value, _SLOTS):
        return False
    return not (name.startswith("__") and name.endswith("__")) or callable(value) or hasattr(value, "__get__")


def _is_generated(function: Any) -> bool:
    """Whether a dataclass wrote it."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return getattr(getattr(function, "__code__", None), "co_qualname", "").startswith("__create_fn__")


def _is_linen(kind: type) -> bool:
    return any(base.__module__ == "flax.linen.module" and base.__name__ == "Module" for base in kind.__mro__)


def _held(thing: Any) -> dict[str, Any]:
    """What stands in an object itself, but for what it has worked out from the rest."""
    held = getattr(thing, "__dict__", {})
    made = {name for name in held if isinstance(getattr(type(thing), name, None), functools.cached_property)}
    return {name: each for name, each in held.items() if name not in made}


def _stored(thing: Any) -> dict[str, Any]:
    """The same, with what stands in slots."""
    slots = [name for base in type(thing).__mro__ for name in _as_tuple(vars(base).get("__slots__", ()))]
    held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | _held(thing)
    return {name: each for name, each in held.items() if name not in ("__weakref__", "__dict__")}


def _unreadable(thing: Any) -> UnreadableError:
    return UnreadableError(
        f"The content of {thing!r} (a {type(thing).__name__}) cannot be read, so results that depend on it cannot be kept: "
        "use a function, a dataclass or values in its place, or give no folder."
    )


def _as_tuple(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
