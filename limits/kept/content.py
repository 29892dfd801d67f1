"""What stands in an object and in a class: what a person put there, without what Python and Flax keep beside it."""

import dataclasses
import enum
import functools
import io
import types
from typing import Any

from limits.kept.places import package_of_class

# What a dataclass writes itself (its fields count by their values).
_MADE = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__", "__getstate__")
# What Python and Flax keep in a class, and what says where code stands, not what it does.
_HELD = ("__annotate__", "__annotate_func__", "_abc_impl", "_state", "_parent_ref", "_id", "scope", "parent")
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
_OF_JIT = ("_fun", "_jit_info")  # the function again, and where it stands
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
    """What a person wrote into a class of one's own; of an enumeration its methods and the values of its members.

    >>> class Own:
    ...     factor = 2
    ...     def act(self, x): return self.factor * x
    >>> sorted(of_class(Own))
    ['act', 'factor']
    """
    generated = _MADE if dataclasses.is_dataclass(thing) else ()
    held = {name: each for name, each in vars(thing).items() if name not in generated and _is_written(name, each)}
    if not issubclass(thing, enum.Enum):
        return held
    own = {name: each for name, each in held.items() if not (name.startswith("_") and name.endswith("_"))}
    return own | {name: each.value for name, each in thing.__members__.items()}


def of_wrapper(thing: Any) -> dict[str, Any]:
    """What a wrapped function holds beside what it wraps: the rule of its derivative, say."""
    return {name: each for name, each in vars(thing).items() if name not in (*_DOCUMENTATION, *_OF_JIT)}


def of_dataclass(thing: Any) -> dict[str, Any]:
    """The fields, and what else was put into an object whose class is one's own.

    A Linen module's parent and scope are where it stands, not what it is.
    """
    names = [field.name for field in dataclasses.fields(thing) if field.name != "parent"]
    if package_of_class(type(thing)) is None:
        names += sorted(_held(thing).keys() - {*names, *_HELD})
    return {name: getattr(thing, name, None) for name in names}


def of_object(thing: Any) -> dict[str, Any]:
    """The fields of an object that is no dataclass; else what `copy` would make it again from."""
    slots = [name for base in type(thing).__mro__ for name in _as_tuple(getattr(base, "__slots__", ()))]
    held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | _held(thing)
    held = {name: each for name, each in held.items() if name not in ("__weakref__", "__dict__", *_NNX_TRACES)}
    if isinstance(thing, io.IOBase):
        raise _unreadable(thing)
    if held:
        return held
    try:
        made = thing.__reduce_ex__(2)
    except TypeError as error:
        raise _unreadable(thing) from error
    return {"made from": made if isinstance(made, str) else [each for each in made[1:3] if each is not None]}


def _is_written(name: str, value: Any) -> bool:
    if name in _HELD or name.startswith("_pytree__") or isinstance(value, _SLOTS):
        return False
    return not (name.startswith("__") and name.endswith("__")) or callable(value) or hasattr(value, "__get__")


def _held(thing: Any) -> dict[str, Any]:
    """What stands in an object itself, but for what it has worked out from the rest."""
    held = getattr(thing, "__dict__", {})
    made = {name for name in held if isinstance(getattr(type(thing), name, None), functools.cached_property)}
    return {name: each for name, each in held.items() if name not in made}


def _unreadable(thing: Any) -> UnreadableError:
    return UnreadableError(
        f"The content of {thing!r} (a {type(thing).__name__}) cannot be read, so results that depend on it cannot be kept: "
        "use a function, a dataclass or values in its place, or give no folder."
    )


def _as_tuple(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
