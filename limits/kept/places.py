"""Where code lies: in this package, in a library, or with the user; and what it uses by name."""

import dis
import functools
import itertools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("zoo", "limits", "train", "launch")
_OF_PYTHON = 1 << 9  # of classes made while programs run; others are of C, whose modules do not show all of them
_LIBRARIES = ("site-packages", "dist-packages", str(Path(dis.__file__).parent))


def package_of(file: str) -> str | None:
    """Where in this package or a library a file lies; None for code of one's own (a script, a config, a notebook, a test)."""
    path = Path(file)
    if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS:
        return path.relative_to(ROOT).as_posix()
    for mark in itertools.chain(_LIBRARIES, filter(_installed, sys.path)):
        if mark in file and (mark in _LIBRARIES or _is_installed(path, mark)):
            inside = Path(file.partition(mark)[2].lstrip("/\\"))
            return f"{inside.as_posix()} {named_version(inside.parts[0].removesuffix('.py'))}"
    return file if file.startswith("<frozen") else None  # of Python itself


@functools.cache  # every folder is asked for each time: of more of them than are kept none would be found
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
    file = getattr(thing, "__file__", None) or next(iter(getattr(thing, "__path__", ())), None)
    return isinstance(thing, types.ModuleType) and file is not None and package_of(file) is None


def package_of_class(of: type) -> str | None:
    """Where in a package its code lies; None for a class of one's own, and for one that a library made of others (`nn.remat`)."""
    if of.__flags__ & _OF_PYTHON and not _stands_there(of):
        return None
    module = sys.modules.get(of.__module__)
    return "builtins" if of.__module__ == "builtins" else package_of(getattr(module, "__file__", None) or "")


def _stands_there(of: type) -> bool:
    """Whether its module has this very class under its name."""
    found: Any = sys.modules.get(of.__module__)
    for name in of.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is of


def names_in(code: types.CodeType) -> set[str]:
    """The names of globals and attributes in this code, and in code inside it."""
    return set(code.co_names).union(*map(names_in, code_inside(code)))


def globals_of(code: types.CodeType) -> set[str]:
    """The names of globals that this code, or code inside it, reads."""
    found = {each.argval for each in steps_of(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*map(globals_of, code_inside(code)))


def bound_anew(code: types.CodeType) -> set[str]:
    """The variables of functions around it that this code binds anew (`nonlocal`)."""
    return {each.argval for each in steps_of(code) if each.opname == "STORE_DEREF"} & {*code.co_freevars}


def steps_of(code: types.CodeType) -> list[dis.Instruction]:
    """Its instructions, those that only lengthen an argument left out."""
    return [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]


def is_handed_on(name: str, code: types.CodeType) -> bool:
    """Whether this code, or code inside it, uses a variable in another way than by attributes that are written out.

    >>> import math
    >>> functions = (lambda x: math.sin(x)), (lambda x: getattr(math, x))
    >>> [is_handed_on("math", each.__code__) for each in functions]
    [False, True]
    """
    for step, after in itertools.pairwise(steps_of(code)):
        loaded = _of_kind(step, "LOAD")
        if not step.opname.endswith("DEREF"):  # of what functions inside share, they are given the place
            loaded = [each for each in loaded if each not in (*code.co_cellvars, *code.co_freevars)]
        if name in loaded[:-1] or (name in loaded[-1:] and after.opname not in ("LOAD_ATTR", "LOAD_METHOD")):
            return True
    return any(is_handed_on(name, each) for each in code_inside(code))


def _of_kind(step: dis.Instruction, kind: str) -> list[str]:
    """The variables that an instruction loads, or stores; some of Python's later ones do two things at once."""
    variables = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    kinds = [each for each in step.opname.split("_") if each in ("LOAD", "STORE")]
    if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_CONST", "STORE_ATTR")) or not kinds:
        return []
    return [name for name, each in zip(variables, kinds, strict=False) if each == kind]


def code_inside(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of functions and classes that are written inside it."""
    return (each for each in code.co_consts if isinstance(each, types.CodeType))
