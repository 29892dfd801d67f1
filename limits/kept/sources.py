"""The text of modules of one's own that functions import when they run: read, not run, so that asking changes nothing."""

import ast
import functools
import importlib.util
import types
from collections.abc import Iterable, Iterator
from pathlib import Path

from limits.kept.places import code_inside, names_in, package_of, steps_of

# Functions of Python that find a module by its name, a word.
_BY_WORD = {"import_module", "__import__", "find_spec", "run_module", "resolve_name"}


def sources(code: types.CodeType, package: str | None, words: Iterable[object] = ()) -> Iterator[str]:
    """Names and contents of the modules of one's own that this code imports, and of those that they import, in turn.

    All that stands in a file counts but for comments and how it is laid out. Where modules are asked for by a word, it may be any
    in the code, or of `words`, the values of its variables.
    """
    found, asked = dict[str, str](), list(_imported(code, package))
    if _BY_WORD & names_in(code):
        asked += _named([*_constants(code), *words], package)
    while asked:
        name = asked.pop()
        file = None if name in found else _file(name)
        if file is not None:
            found[name], inside = _read(file, name, file.stat().st_mtime_ns)
            asked += inside
    for name in sorted(found):
        yield from (name, found[name])


def _imported(code: types.CodeType, package: str | None) -> Iterator[str]:
    steps = steps_of(code)
    for level, parts, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            yield from _names(level.argval, step.argval, parts.argval or (), package)
    for each in code_inside(code):
        yield from _imported(each, package)


def _constants(code: types.CodeType) -> Iterator[object]:
    for each in code.co_consts:
        yield from each if isinstance(each, tuple | frozenset) else (each,)
    for each in code_inside(code):
        yield from _constants(each)


def _named(words: Iterable[object], package: str | None) -> Iterator[str]:
    """What those among words may read that could be the name of a module."""
    for each in words:
        name = each.lstrip(".") if isinstance(each, str) else ""
        if name and all(map(str.isidentifier, name.split("."))):
            yield from _names(len(str(each)) - len(name), name, (), package)


def _names(level: int, name: str, parts: tuple[str, ...], package: str | None) -> list[str]:
    """What `from …name import parts` may read: the folders on the way, the module, and parts that are modules themselves."""
    try:
        whole = importlib.util.resolve_name("." * level + name, package) if level else name
    except ImportError:  # which says so where it is run
        return []
    words = whole.split(".")
    return [".".join(words[: i + 1]) for i in range(len(words))] + [f"{whole}.{part}" for part in parts]


def _file(name: str) -> Path | None:
    """Where a module of one's own lies."""
    top, *rest = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a script, which has none
        return None
    if spec is None:
        return None
    file, folders = Path(spec.origin or ""), [Path(each) for each in spec.submodule_search_locations or ()]
    for part in rest:
        inside = [each / part for each in folders]
        files = [
            each for folder in inside for each in (folder / "__init__.py", folder.with_suffix(".py")) if each.is_file()
        ]
        file, folders = files[0] if files else Path(), [each for each in inside if each.is_dir()]
    return file if file.is_file() and package_of(str(file)) is None else None


@functools.lru_cache(maxsize=1000)
def _read(file: Path, name: str, changed: int) -> tuple[str, list[str]]:
    """(content, what it imports) of a module."""
    del changed
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # no text of Python
        return file.read_bytes().hex(), []
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    asked = list[str]()
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            asked += [part for alias in each.names for part in _names(0, alias.name, (), package)]
        elif isinstance(each, ast.ImportFrom):
            asked += _names(each.level, each.module or "", tuple(alias.name for alias in each.names), package)
    called = {getattr(each, "id", getattr(each, "attr", None)) for each in ast.walk(tree)}
    if _BY_WORD & {each for each in called if isinstance(each, str)}:
        asked += _named([each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)], package)
    return ast.dump(tree), asked
