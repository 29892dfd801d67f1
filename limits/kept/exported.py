"""Programs as JAX traced and lowered them, on disk beside what XLA makes of them: the next run does neither again."""

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from limits.kept.identity import UnreadableError, numerics, of_known_code, version_of
from limits.kept.places import ROOMS, ROOT
from limits.kept.quickly import quickly
from limits.kept.store import pack, unpack, write_whole

FOLDER = "traced"  # in that of JAX's compiled programs
MOST = 1000  # programs, of some ten kilobytes; those used longest ago go first
_LIBRARIES = ("jaxlib", "flax", "optax")
# Settings under which JAX does not compile what it is given, or looks into it.
_LOOKED_INTO = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_enable_checks")


def exported(function: Callable, *what: Any, names: Callable[..., Any] = lambda *args: ()) -> Callable:
    """`quickly(function)`; where JAX keeps compiled programs, what it traces of the function is kept with them.

    what: all that the program depends on beside the shapes and trees of its arguments, of this package and of libraries: nothing
    is kept of what holds code of the user's own, which may depend on more than is read of it. Names of classes are no part
    of that; names(*args) are, such as those of parameters which Flax derives from them. What the function returns consists
    of arrays, dicts, lists and tuples. On several devices, and of what has no identity, nothing is kept.

    >>> exported(lambda a: {"sum": a + 1}, "add one")(1)["sum"].item()
    2
    """
    program, found = quickly(function), dict[Any, Callable | None]()

    def run(*args: Any) -> Any:
        place = folder()
        if place is None:
            return program(*args)
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple(map(_kind, leaves)), numerics()
        if key not in found:
            found[key] = _kept(function, place, (*what, names(*args)), tree, leaves, key[1])
        call = found[key]
        return program(*args) if call is None else call(*leaves)

    return run


def folder() -> Path | None:
    """Where traced programs are kept, if they are."""
    config: Any = jax.config
    place = config.jax_compilation_cache_dir
    if not place or "://" in place or not config.jax_enable_compilation_cache or jax.device_count() > 1:
        return None
    return None if any(getattr(config, name, False) for name in _LOOKED_INTO) else Path(place) / FOLDER


def _kept(function: Callable, place: Path, what: tuple, tree: Any, leaves: list[Any], kinds: tuple) -> Callable | None:
    """The function of the leaves of its arguments, read or traced; None where its trace cannot be written."""
    try:
        versions = [version_of(name) for name in _LIBRARIES]
        word = of_known_code("traced", sources(), versions, numerics(), what, str(tree), kinds)
    except UnreadableError:
        return None
    if word is None:
        return None
    file = place / f"{word}.npz"
    made = _read(file, word)
    if made is None:
        try:
            flat: Any = quickly(lambda *leaves: function(*jax.tree.unflatten(tree, leaves)))
            made = export.export(flat)(*leaves)
            data = pack(word, np.frombuffer(bytes(made.serialize()), np.uint8))
        except (ImportError, NotImplementedError, ValueError, TypeError):
            return (
                None  # callbacks, containers of others: what export does not write. Errors of the function come again
            )
        with contextlib.suppress(OSError):
            place.mkdir(exist_ok=True)
            write_whole(file, data)
            for old in sorted(place.iterdir(), key=lambda each: each.stat().st_mtime)[:-MOST]:
                old.unlink(missing_ok=True)
    return quickly(made.call)


def _read(file: Path, word: str) -> export.Exported | None:
    """What the file holds; None where there is none, or it is damaged: it is then written anew."""
    try:
        data = unpack(word, file.read_bytes())
        with contextlib.suppress(OSError):
            file.touch()
        return export.deserialize(bytearray(data.tobytes()))
    except (OSError, ValueError):  # a DamagedError is one
        return None


def _kind(leaf: Any) -> tuple:
    of = jax.typeof(leaf)
    return of.shape, str(of.dtype), getattr(of, "weak_type", False)


@functools.cache
def sources() -> str:
    """A word for the code of this package, whose functions count by their names where identities are taken."""
    files = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    return hashlib.blake2b(b"\0".join(file.read_bytes() for file in files), digest_size=16).hexdigest()
