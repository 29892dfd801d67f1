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


def is_handed_on(name: str | None, code: types.CodeType) -> bool:
    """Whether this code, or code inside it, uses a variable in another way than by attributes that are written out.

    >>> import math
    >>> functions = (lambda x: math.sin(x)), (lambda x: getattr(math, x))
    >>> [is_handed_on("math", each.__code__) for each in functions]
    [False, True]
    """
    for step, after in itertools.pairwise(dis.get_instructions(code)):
        loaded = _of_kind(step, "LOAD")
        if not step.opname.endswith("DEREF"):  # of what functions inside share, they are given the place
            loaded = [each for each in loaded if each not in (*code.co_cellvars, *code.co_freevars)]
        if name in loaded[:-1] or (name in loaded[-1:] and after.opname not in ("LOAD_ATTR", "LOAD_METHOD")):
            return True
    return any(is_handed_on(name, each) for each in _inside(code))


def own_modules_imported(code: types.CodeType, package: str | None) -> Iterator[tuple[types.ModuleType, str | None]]:
    """The modules of one's own that this code, or code inside it, imports when it runs, and the variables that hold them."""
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        if step.opname != "IMPORT_NAME":
            continue
        name = "." * steps[i - 2].argval + step.argval
        parts = steps[i - 1].argval or ()
        stores = [each for after in steps[i + 1 :] for each in _of_kind(after, "STORE")][: max(len(parts), 1)]
        dot = "." if step.argval else ""
        found = [
            (name, None if parts else stores[0]),
            *((name + dot + p, s) for p, s in zip(parts, stores, strict=False)),
        ]
        for each, variable in found:
            if (module := _own_module(each, package)) is not None:
                yield module, variable
    for each in _inside(code):
        yield from own_modules_imported(each, package)


def _of_kind(step: dis.Instruction, kind: str) -> list[str]:
    """The variables that an instruction loads, or stores; some of Python's later ones do two things at once."""
    variables = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    kinds = [each for each in step.opname.split("_") if each in ("LOAD", "STORE")]
    if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_CONST", "STORE_ATTR")) or not kinds:
        return []
    return [name for name, each in zip(variables, kinds, strict=False) if each == kind]


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
