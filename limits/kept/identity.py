"""What a result depends on, as one word: equal words for equal content, in every process; another word for anything else."""

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import logging
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kept.content import UnreadableError as UnreadableError
from limits.kept.content import attributes, of_cell, of_class, of_dataclass, of_module, of_object, of_wrapper, wrapped
from limits.kept.deeply import deeply
from limits.kept.places import (
    bound_anew,
    globals_of,
    is_handed_on,
    is_own_module,
    named_version,
    names_in,
    package_of,
    package_of_class,
)
from limits.kept.sources import sources

RESULTS = 31  # raised when mended code gives other numbers: what was kept before is then computed again

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_default_dtype_bits",
    "jax_random_seed_offset",
)
_GLOBAL_NUMBERS = np.random.mtrand._rand  # pyright: ignore[reportAttributeAccessIssue]
_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    np.ufunc,
)
_CHECKERS = ("/jaxtyping/", "<@beartype(")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


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
    return jax.__version__, jax.default_backend(), *(str(getattr(jax.config, name, None)) for name in _SETTINGS)


def identity(*things: Any) -> str:
    """A word of 20 letters for the content of `things` and the package's version.

    Values count by value (arrays with dtype and shape), definitions and other objects by class and fields, functions by what
    they do: code, constants, defaults, closure, and the globals they use, in turn. Functions and classes of this package count by
    name and version, those of libraries by name and the library's version. Names, comments and places in files do not count. Of a
    module of one's own counts what functions use of it; all that it holds where it is handed on, and its text where it is
    imported inside a function, also by a word that the function has (`importlib.import_module("mine")`). What is looked up when
    code runs (a module by a word that is put together, a file that is read, `os.environ`, the name or annotations of a
    function) is not seen.

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
    return _read(things)[0]


def of_known_code(*things: Any) -> str | None:
    """`identity` of what holds code of this package and of libraries only; None where it holds some of one's own."""
    found, own = _read(things)
    return None if own else found


def _read(things: tuple) -> tuple[str, bool]:
    """(the word for these things, whether code of one's own is among them)."""

    def word() -> tuple[str, bool]:
        reader = _Reader()
        return reader.digest((version(), things)).hex()[:20], reader.own

    try:
        return deeply(word)
    except RecursionError as error:
        raise UnreadableError(
            "What the results depend on is nested too deep to be read (functions in functions, or lists in lists, thousands of "
            "them), so they cannot be kept: flatten it, or give no folder."
        ) from error


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
            yield from self.module(thing)
        elif isinstance(thing, type):
            yield from self.type(thing)
        elif isinstance(thing, types.CodeType):
            yield from self.code(thing, thing.co_consts)
        elif isinstance(thing, types.FunctionType):
            yield from self.function(thing)
        elif isinstance(thing, types.MethodType):
            yield from ("method", self.digest(thing.__self__), self.digest(thing.__func__))
        elif isinstance(thing, functools.partial):
            yield from ("partial", *map(self.digest, (thing.func, thing.args, sorted(thing.keywords.items()))))
            yield from self.named(attributes(thing))
        elif isinstance(thing, _BUILTIN):
            owner = getattr(thing, "__self__", None)
            bound = owner is not None and not isinstance(owner, types.ModuleType)
            name = f"{getattr(thing, '__module__', '')} {getattr(thing, '__qualname__', repr(thing))}"
            yield from ("builtin", name, self.digest(owner) if bound else "")
        elif isinstance(thing, staticmethod | classmethod):
            yield from (type(thing).__name__, self.digest(thing.__func__))
        elif isinstance(thing, property):
            yield from ("property", self.digest((thing.fget, thing.fset)))
        elif isinstance(thing, functools.cached_property):
            yield from ("cached property", self.digest(thing.func))
        elif isinstance(thing, enum.Enum):
            yield from ("enum", self.digest(type(thing)), str(thing.name), self.digest(thing.value))
        elif isinstance(thing, dict | types.MappingProxyType):  # in order: layers are taken in that of their dict
            yield from (
                self.digest(type(thing)),
                *(self.digest(name) + self.digest(each) for name, each in thing.items()),
                *self.named(attributes(thing)),
            )
            yield self.digest(getattr(thing, "default_factory", None))
        elif isinstance(thing, set | frozenset):
            yield from ("set", *sorted(map(self.digest, thing)))
        elif isinstance(thing, tuple | list):
            yield from (self.digest(type(thing)), *map(self.digest, thing), *self.named(attributes(thing)))
        elif isinstance(thing, types.UnionType | types.GenericAlias):
            yield from ("alias", self.digest(typing.get_origin(thing)), self.digest(typing.get_args(thing)))
        elif isinstance(thing, slice | range):
            yield from (type(thing).__name__, repr(thing))
        elif isinstance(thing, logging.Logger):
            yield from ("logger", thing.name)
        elif isinstance(thing, re.Pattern):
            yield from ("pattern", self.digest(thing.pattern), str(thing.flags))
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
        if isinstance(thing, np.ndarray) and type(thing) is not np.ndarray:
            yield from (
                self.digest(type(thing)),
                self.digest(getattr(thing, "mask", None)),
                *self.named(attributes(thing)),
            )
        values = np.asarray(thing)
        if values.dtype.hasobject:
            yield from ("array", str(values.shape), *map(self.digest, values.ravel().tolist()))
        else:
            data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
            yield from (
                "array",
                str(values.dtype) + " weak" * getattr(thing, "weak_type", False),
                str(values.shape),
                data,
            )

    def function(self, thing: types.FunctionType) -> Iterator[str | bytes | memoryview]:
        """A function of a package by its name, one's own by its code and the globals it uses; both with closure and defaults."""
        inner = getattr(thing, "__wrapped__", None)
        if callable(inner) and any(mark in thing.__code__.co_filename for mark in _CHECKERS):
            yield self.digest(inner)  # it checks types, and holds changing things
            return
        code = thing.__code__
        cells = dict(zip(code.co_freevars, map(of_cell, thing.__closure__ or ()), strict=True))
        if (package := package_of(code.co_filename)) is not None:
            yield from ("function", package, code.co_qualname)
            anew = bound_anew(code)  # a schedule of Optax makes floats of its whole numbers when it is called
            held = [float(each) if type(each) is int and name in anew else each for name, each in cells.items()]
            yield self.digest((thing.__defaults__, thing.__kwdefaults__, held))
            return
        self.own = True
        yield from (
            "own function",
            self.digest((thing.__defaults__, thing.__kwdefaults__)),
            *self.named(of_wrapper(thing)),
        )
        constants = [None if i == 0 and each == thing.__doc__ else each for i, each in enumerate(code.co_consts)]
        yield from self.code(code, tuple(constants))
        read = {name: thing.__globals__[name] for name in sorted(globals_of(code)) if name in thing.__globals__}
        for name, value in (read | cells).items():
            yield from (name, self.variable(value, name, code))
        words = (*(read | cells).values(), *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
        yield from sources(code, thing.__globals__.get("__package__"), words)

    def variable(self, value: Any, name: str, code: types.CodeType) -> bytes:
        """What code finds under a name; of a module of one's own what is used of it, all of one that is handed on."""
        by_parts = is_own_module(value) and not is_handed_on(name, code)
        return self.module_parts(value, names_in(code), {}) if by_parts else self.digest(value)

    def module(self, thing: types.ModuleType) -> Iterator[str | bytes]:
        """Of a package by name and version, one's own by all that it holds."""
        if not is_own_module(thing):
            yield from ("module", thing.__name__, named_version(thing.__name__))
            return
        self.own = True
        yield from ("own module", *self.named(of_module(thing)))

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
        package = package_of_class(thing)
        if package is not None:
            yield from ("class", package, thing.__module__, thing.__qualname__)
            return
        self.own |= package_of(getattr(sys.modules.get(thing.__module__), "__file__", None) or "") is None
        yield from ("own class", *map(self.digest, thing.__bases__))
        if type(thing) not in (type, enum.EnumType):
            yield self.digest(type(thing))
        yield from self.named(of_class(thing))

    def used(self, thing: Any) -> bytes:
        """Of what a class or a module holds: what has no content (a lock, an open file) counts by its class."""
        self.functions += 1
        try:
            return self.digest(thing)
        finally:
            self.functions -= 1

    def named(self, things: dict[str, Any]) -> Iterator[str | bytes]:
        return (word for name in sorted(things) for word in (name, self.used(things[name])))

    def object(self, thing: Any) -> Iterator[str | bytes | memoryview]:
        """Its class and fields; of a compiled or wrapped function what it wraps, and what is beside that (its derivative)."""
        yield self.digest(type(thing))
        if thing is _GLOBAL_NUMBERS:  # drawn anew by every process
            return
        if isinstance(thing, np.random.Generator):
            yield self.digest(thing.bit_generator.state)
        elif (inner := wrapped(thing)) is not None:
            yield from (self.digest(inner), *self.named(of_wrapper(thing)))
        else:
            held = of_dataclass(thing) if dataclasses.is_dataclass(thing) else of_object(thing)
            yield from (word for name in sorted(held) for word in (name, self.digest(held[name])))


def _hash(*words: str | bytes | memoryview) -> bytes:
    """Words with their lengths: no two lists of words run into one another."""
    digest = hashlib.blake2b(digest_size=16)
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()
