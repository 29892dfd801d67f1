"""What a result depends on, as one word: equal words for equal content, in every process; another word for anything else."""

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import io
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kept.places import globals_of, is_own_module, named_version, names_in, package_of

RESULTS = 20  # raised when mended code gives other numbers: what was kept before is then computed again

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
# What a person writes into a class.
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_WRITTEN = (*_FUNCTIONS, type, *_PLAIN, tuple, list, dict, np.ndarray, jax.Array)
# What a dataclass writes itself (its fields count by their values), and names that say where code stands, not what it does.
_MADE = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__replace__", "__getstate__")

_NNX_TRACES = ("_object__state", "_pytree__state", "_trace_state")  # when an NNX module was made, not what it is


class UnreadableError(TypeError):
    """Something whose content cannot be told."""


def version() -> str:
    """This package's version, with the number of its results.

    >>> version().endswith(f"+results{RESULTS}")
    True
    """
    return f"{version_of('limit-zoo')}+results{RESULTS}"


def version_of(package: str) -> str:
    """What is installed; "checkout" of a package that runs from its files alone.

    >>> version_of("jax") == jax.__version__
    True
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def numerics() -> tuple[Any, ...]:
    """jax's version, and those of its settings that numbers depend on: part of the identity of what jax computes."""
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
    return jax.__version__, jax.default_backend(), *(str(getattr(jax.config, name, None)) for name in names)


def identity(*things: Any) -> str:
    """A word of 20 letters for the content of `things` and the package's version.

    Values count by value (arrays with dtype and shape), definitions and other objects by class and fields, functions by what
    they do: code, constants, defaults, closure, and the globals they use, in turn. Functions and classes of this package count by
    name and version, those of libraries by name and the library's version. Names, comments and places in files do not count.

    >>> identity(lambda x: x + 1) == identity(lambda x: x + 1) != identity(lambda x: x + 2)
    True
    >>> makers = [lambda a=a: lambda x: a * x for a in (1.0, 1.0, 2.0)]
    >>> words = [identity(make()) for make in makers]
    >>> words[0] == words[1] != words[2]
    True
    >>> identity(np.zeros(2)) == identity(np.zeros(2, np.float32)), identity((1,)) == identity([1])
    (False, False)

    What has no content to go by (a generator, an open file, a lock) is refused by a TypeError; where a function merely uses such
    a thing it counts by its class.
    """
    return _Reader().digest((version(), things)).hex()[:20]


def of_known_code(*things: Any) -> str | None:
    """`identity` of what holds code of this package and of libraries only; None where it holds some of one's own."""
    reader = _Reader()
    found = reader.digest((version(), things)).hex()[:20]
    return None if reader.own else found


class _Reader:
    """One walk through an object graph. What is met again inside itself counts by how deep it stands."""

    def __init__(self) -> None:
        self.inside: dict[int, int] = {}
        self.functions = 0  # that this place is inside of
        self.own = False  # whether code of one's own was met, which may do what is not read here
        self.done: dict[int, tuple[Any, bytes]] = {}  # with the object, whose id would else be given away again

    def digest(self, thing: Any) -> bytes:
        if isinstance(thing, _PLAIN) and type(thing) in _PLAIN:
            return _hash(type(thing).__name__, repr(thing))
        key = id(thing)
        if key in self.done:
            return self.done[key][1]
        if key in self.inside:
            return _hash("again", str(len(self.inside) - self.inside[key]))
        self.inside[key] = len(self.inside)
        function = isinstance(thing, types.FunctionType)
        self.functions += function
        try:
            found = _hash(*self.words(thing))
        except UnreadableError:
            if not self.functions:
                raise
            # A progress bar, say, or a lock: no part of the result.
            found = _hash("unreadable", type(thing).__qualname__)
        finally:
            del self.inside[key]
            self.functions -= function
        self.done[key] = (thing, found)
        return found

    def words(self, thing: Any) -> Iterator[str | bytes | memoryview]:
        """What a thing consists of."""
        if isinstance(thing, np.ndarray | np.generic | jax.Array):
            yield from self.array(thing)
        elif isinstance(thing, np.dtype):
            yield from ("dtype", str(thing))
        elif isinstance(thing, types.ModuleType):
            self.own |= is_own_module(thing)
            yield from ("module", thing.__name__, named_version(thing.__name__))
        elif isinstance(thing, type):
            yield from self.type(thing)
        elif isinstance(thing, types.CodeType):
            yield from self.code(thing, thing.co_consts)
        elif isinstance(thing, types.FunctionType):
            yield from self.function(thing)
        elif isinstance(thing, types.MethodType):
            yield from ("method", self.digest(thing.__self__), self.digest(thing.__func__))
        elif isinstance(thing, functools.partial):
            yield from ("partial", *map(self.digest, (thing.func, thing.args, thing.keywords)))
        elif isinstance(
            thing, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType | np.ufunc
        ):
            owner = getattr(thing, "__self__", None)
            bound = owner is not None and not isinstance(owner, types.ModuleType)
            yield from ("builtin", getattr(thing, "__qualname__", repr(thing)), self.digest(owner) if bound else "")
        elif isinstance(thing, staticmethod | classmethod):
            yield from (type(thing).__name__, self.digest(thing.__func__))
        elif isinstance(thing, property):
            yield from ("property", self.digest((thing.fget, thing.fset)))
        elif isinstance(thing, enum.Enum):
            yield from ("enum", type(thing).__qualname__, thing.name)
        elif isinstance(thing, dict | types.MappingProxyType):
            pairs = sorted(self.digest(key) + self.digest(value) for key, value in thing.items())
            yield from (self.digest(type(thing)), *pairs)
        elif isinstance(thing, set | frozenset):
            yield from ("set", *sorted(map(self.digest, thing)))
        elif isinstance(thing, tuple | list):
            yield from (self.digest(type(thing)), *map(self.digest, thing))
        elif isinstance(thing, slice | range):
            yield from (type(thing).__name__, repr(thing))
        elif isinstance(thing, logging.Logger):
            yield from ("logger", thing.name)
        elif type(thing) is np.lib.npyio.NpzFile:
            yield from ("npz", *(self.digest(part) for name in sorted(thing.files) for part in (name, thing[name])))
        elif isinstance(thing, Path):
            yield from ("path", str(thing))
        else:
            yield from self.object(thing)

    def array(self, thing: Any) -> Iterator[str | bytes | memoryview]:
        if isinstance(thing, jax.Array) and jnp.issubdtype(thing.dtype, jax.dtypes.prng_key):
            yield from ("key", str(jax.random.key_impl(thing)))
            thing = jax.random.key_data(thing)
        values = np.asarray(thing)
        if values.dtype.hasobject:
            yield from ("array", str(values.shape), *map(self.digest, values.ravel().tolist()))
        else:
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
            yield from ("array", str(values.dtype), str(values.shape), data)

    def function(self, thing: types.FunctionType) -> Iterator[str | bytes | memoryview]:
        """A function of a package by its name, one's own by its code and the globals it uses; both with closure and defaults."""
        inner = getattr(thing, "__wrapped__", None)
        if callable(inner) and "/jaxtyping/" in thing.__code__.co_filename:
            yield self.digest(inner)  # it checks types, and holds changing things
            return
        cells = [_content(cell) for cell in thing.__closure__ or ()]
        yield from ("function", self.digest((thing.__defaults__, thing.__kwdefaults__, cells)))
        code = thing.__code__
        if (package := package_of(code.co_filename)) is not None:
            yield from (package, code.co_qualname)
            return
        self.own = True
        constants = [None if i == 0 and each == thing.__doc__ else each for i, each in enumerate(code.co_consts)]
        yield from self.code(code, tuple(constants))
        attributes = set(names_in(code))
        for name in sorted(globals_of(code)):
            if name in thing.__globals__:
                value = thing.__globals__[name]
                own = is_own_module(value)
                yield from (name, self.module_parts(value, attributes, {}) if own else self.digest(value))

    def module_parts(self, module: types.ModuleType, attributes: set[str], met: dict[int, int]) -> bytes:
        """Of a module of one's own, what is used of it; modules import one another, so each is looked into once."""
        if id(module) in met:
            return _hash("met", str(met[id(module)]))
        met[id(module)] = len(met)
        used = sorted(name for name in attributes if hasattr(module, name))
        values = [getattr(module, name) for name in used]
        parts = [self.module_parts(v, attributes, met) if is_own_module(v) else self.digest(v) for v in values]
        return _hash("parts", *(word for pair in zip(used, parts, strict=True) for word in pair))

    def code(self, code: types.CodeType, constants: tuple) -> Iterator[str | bytes | memoryview]:
        """What is executed; not its name, file and lines."""
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        yield from ("code", code.co_code, code.co_exceptiontable, str((counts, names)), *map(self.digest, constants))

    def type(self, thing: type) -> Iterator[str | bytes | memoryview]:
        """A class of a package by its name, one's own by its methods, attributes and bases."""
        module = sys.modules.get(thing.__module__)
        package = "builtins" if thing.__module__ == "builtins" else package_of(getattr(module, "__file__", None) or "")
        if package is not None and "<locals>" not in thing.__qualname__:
            yield from ("class", package, thing.__module__, thing.__qualname__)
            return
        self.own = True
        yield from ("own class", *map(self.digest, thing.__bases__))
        generated = _MADE if dataclasses.is_dataclass(thing) else ()
        for name, value in sorted(vars(thing).items()):
            written = isinstance(value, _WRITTEN) and name not in generated
            if not written or (name.startswith("__") and not isinstance(value, types.FunctionType)):
                continue  # annotations, slots, what Python and Flax keep in a class
            yield from (name, self.digest(value.func if isinstance(value, functools.cached_property) else value))

    def object(self, thing: Any) -> Iterator[str | bytes | memoryview]:
        """Its class and fields; a compiled or wrapped function is what it wraps."""
        inner = getattr(thing, "__wrapped__", None)
        if callable(inner):
            yield from ("wrapped", type(thing).__name__, self.digest(inner))
            return
        yield self.digest(type(thing))
        if dataclasses.is_dataclass(thing):  # a Linen module's parent and scope are where it stands, not what it is
            fields = [field.name for field in dataclasses.fields(thing) if field.name != "parent"]
            yield from (word for name in fields for word in (name, self.digest(getattr(thing, name, None))))
            return
        if isinstance(thing, np.random.Generator):
            yield self.digest(thing.bit_generator.state)
            return
        state = _state(thing)
        yield from (word for name in sorted(state) for word in (name, self.digest(state[name])))


def _hash(*words: str | bytes | memoryview) -> bytes:
    """Words with their lengths: no two lists of words run into one another."""
    digest = hashlib.blake2b(digest_size=16)
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return "unbound"


def _state(thing: Any) -> dict[str, Any]:
    """The fields of an object that is no dataclass; else what `copy` would make it again from."""
    slots = [name for base in type(thing).__mro__ for name in _as_tuple(getattr(base, "__slots__", ()))]
    held = {name: getattr(thing, name) for name in slots if hasattr(thing, name)} | getattr(thing, "__dict__", {})
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


def _unreadable(thing: Any) -> UnreadableError:
    return UnreadableError(
        f"The content of {thing!r} (a {type(thing).__name__}) cannot be read, so results that depend on it cannot be kept: "
        "use a function, a dataclass or values in its place, or give no folder."
    )


def _as_tuple(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
