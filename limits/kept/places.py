"""Where code lies: in this package, in a library, or with the user; and what it uses by name."""

import dis
import functools
import importlib
import importlib.util
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("zoo", "limits", "train", "launch")
_LIBRARIES = ("site-packages", "dist-packages", str(Path(dis.__file__).parent))
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")


def package_of(file: str) -> str | None:
    """Where in this package or a library a file lies; None for code of one's own (a script, a config, a notebook, a test)."""
    path = Path(file)
    if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS:
        return path.relative_to(ROOT).as_posix()
    for mark in (*_LIBRARIES, *filter(_installed, sys.path)):
        if mark in file and (mark in _LIBRARIES or _is_installed(path, mark)):
            inside = Path(file.partition(mark)[2].lstrip("/\\"))
            return f"{inside.as_posix()} {named_version(inside.parts[0].removesuffix('.py'))}"
    return file if file.startswith("<frozen") else None  # of Python itself


@functools.lru_cache
def _installed(folder: str) -> frozenset[str]:
    """What was installed in a folder of its own (`pip install --target`), by the lists that stand beside it."""
    lists = Path(folder).glob("*.dist-info/RECORD") if folder else ()
    return frozenset(
        line.partition(",")[0].partition("/")[0] for each in lists for line in each.read_text().splitlines()
    )


def _is_installed(path: Path, folder: str) -> bool:
    return path.is_relative_to(folder) and path.relative_to(folder).parts[0] in _installed(folder)


def named_version(name: str) -> str:
    """The version that a package which is imported says of itself; "" of others."""
    module = sys.modules.get(name.partition(".")[0])
    return str(getattr(module, "__version__", ""))


def is_own_module(thing: Any) -> bool:
    """Whether it is a module with code of one's own."""
    file = getattr(thing, "__file__", None)
    return isinstance(thing, types.ModuleType) and file is not None and package_of(file) is None


def package_of_class(of: type) -> str | None:
    """Where in a package its code lies; None for a class of one's own."""
    if "<locals>" in of.__qualname__:
        return None
    module = sys.modules.get(of.__module__)
    return "builtins" if of.__module__ == "builtins" else package_of(getattr(module, "__file__", None) or "")


def names_in(code: types.CodeType) -> set[str]:
    """The names of globals and attributes in this code, and in code inside it."""
    return set(code.co_names).union(*map(names_in, _inside(code)))


def globals_of(code: types.CodeType) -> set[str]:
    """The names of globals that this code, or code inside it, reads."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*map(globals_of, _inside(code)))


def is_handed_on(name: str, code: types.CodeType) -> bool:
    """Whether this code, or code inside it, uses a variable in another way than by attributes that are written out.

    >>> import math
    >>> functions = (lambda x: math.sin(x)), (lambda x: getattr(math, x))
    >>> [is_handed_on("math", each.__code__) for each in functions]
    [False, True]
    """
    steps = itertools.pairwise(dis.get_instructions(code))
    after = [next.opname for each, next in steps if each.opname in _LOADS and each.argval == name]
    return not {*after} <= {"LOAD_ATTR", "LOAD_METHOD"} or any(is_handed_on(name, each) for each in _inside(code))


def own_modules_imported(code: types.CodeType, package: str | None) -> Iterator[types.ModuleType]:
    """The modules of one's own that this code, or code inside it, imports when it runs."""
    steps = list(dis.get_instructions(code))
    for level, parts, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            name = "." * level.argval + step.argval
            names = name, *(f"{name}.{part}" if step.argval else name + part for part in parts.argval or ())
            yield from (module for each in names if (module := _own_module(each, package)) is not None)
    for each in _inside(code):
        yield from own_modules_imported(each, package)


def _own_module(name: str, package: str | None) -> types.ModuleType | None:
    """What an import of that name gives, if it is one's own; it is then imported, as it will be when the code runs."""
    try:
        name = importlib.util.resolve_name(name, package)
        top = importlib.util.find_spec(name.partition(".")[0])
        place = top and (top.origin or next(iter(top.submodule_search_locations or ()), None))
        if place is None or place in ("built-in", "frozen") or package_of(place) is not None:
            return None
        module = importlib.import_module(name)
    except Exception:  # an import that fails says so where it is run
        return None
    return module if is_own_module(module) else None


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    return (each for each in code.co_consts if isinstance(each, types.CodeType))
