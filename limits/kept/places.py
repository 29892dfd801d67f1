"""Where code lies: in this package, in a library, or with the user; and what it calls by name."""

import dis
import functools
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


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names of globals and attributes in this code, and in code inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def globals_of(code: types.CodeType) -> set[str]:
    """The names of globals that this code, or code inside it, reads."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(globals_of(each) for each in code.co_consts if isinstance(each, types.CodeType)))
