"""Whether the packages of limit-zoo are its own: on the package index others have these names too.

One installed beside ours overwrites it file by file, and takes it along when it is removed. So every room has a line
`from zoo.rooms import ROOM as ROOM`, its mark, and looks for the mark of the rooms that it needs when it is imported.
"""

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from pathlib import Path

ROOM = "limit-zoo"
_MARK = "from zoo.rooms import ROOM as ROOM"
_REMEDY = "Give limit-zoo an environment of its own: python3 -m venv ENV && ENV/bin/pip install PATH_OF_LIMIT_ZOO."


def replaced(rooms: Iterable[str]) -> str | None:
    """A sentence about the first of these rooms that is not ours; None where all are.

    >>> replaced(["zoo"])
    >>> replaced(["json"])[:36]
    'The package `json` that Python finds'
    """
    for room in rooms:
        spec = importlib.util.find_spec(room)
        place = spec.origin if spec else None
        try:
            ours = bool(place) and (not str(place).endswith(".py") or _MARK in Path(str(place)).read_text("utf-8"))
        except OSError:  # in an archive
            ours = True
        if not ours:
            where = f"that Python finds ({place})" if place else "has lost its __init__.py, and what is left"
            return f"The package `{room}` {where} is not limit-zoo's: {_who(room)}. {_REMEDY}"
    return None


def namesakes(rooms: Iterable[str]) -> list[str]:
    """Name and version of installed distributions that have a package with the name of a room."""
    found = []
    for room in rooms:
        try:
            other = importlib.metadata.distribution(room)
        except importlib.metadata.PackageNotFoundError:
            continue
        if any(file.parts[0] == room for file in other.files or ()):
            found.append(f"{room} {other.version}")
    return found


def namesake_warning(rooms: Iterable[str]) -> str | None:
    """A sentence where another distribution has a room's name, though ours is the one that is found now."""
    others = namesakes(rooms)
    if not others:
        return None
    return (
        f"{', '.join(others)} is installed in this environment too, and has a package of the same name as limit-zoo's: when it "
        f"is updated or removed, ours is overwritten or goes with it. {_REMEDY}"
    )


def require(*rooms: str) -> None:
    """Raises ImportError where a room is not ours."""
    if flaw := replaced(rooms):
        raise ImportError(flaw)


def _who(room: str) -> str:
    others = namesakes([room])
    return f"the distribution {others[0]} has the same name, and one of the two replaces the other" if others else (
        "another module of that name comes first, or another distribution of that name was here"
    )  # fmt: skip
