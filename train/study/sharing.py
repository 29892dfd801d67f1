"""What a command left in a folder, as one archive for others, and theirs as a folder here."""

import ast
import importlib.metadata
import os
import re
import sys
from pathlib import Path
from typing import Any

from limits.kept.archive import LARGEST, LIST, can_be_named, pack_files, unpack_files
from limits.kept.identity import version
from limits.kept.store import DamagedError, has_checksum, read_npz, write_whole
from train.evaluate.report import numbers_in

ATTACHABLE = 25 * 10**6  # bytes: what trackers and mail commonly take
_ROOMS = ("configs", "launch", "limits", "train", "zoo")
_NAMED = re.compile(
    r"(report|predicted)\.(json|html)|(config|limit)\.json|(log|test)\.jsonl|(figure_\d+|evidence)\.png"
)
_ARRAYS = re.compile(r"(cells/)?[^/]+\.npz")
_UNFINISHED = re.compile(r"(^|/)\.")  # locks, parts of files, whatever hides


def pack(folder: Path, archive: Path, checkpoints: bool = False, cells: bool = True) -> tuple[list[str], list[str]]:
    """Writes what the house's commands left in a folder into a new archive: (files in it, files left out).

    Reports, numbers, the config with its file, logs, and where they are asked for checkpoints. Whatever else lies there, links,
    what has lost its checksum and names that other systems do not have ("what?.py") stay out.
    """
    there = sorted(_files(folder))
    config = numbers_in(folder / "config.json") or numbers_in(folder / "report.json").get("run") or {}
    kept = [name for name in there if _belongs(folder, name, config, checkpoints, cells)]
    if not any(_NAMED.fullmatch(name) or name.startswith("cells/") for name in kept):
        raise ValueError(
            f"{folder} holds no report, config or cells of a command of limit-zoo: there is nothing to pack."
        )
    about = {"made_by": version(), **{name: config[name] for name in ("code", "versions", "command") if name in config}}
    data = pack_files(folder, kept, about)
    if os.path.lexists(archive):
        raise FileExistsError(
            f"{archive} is there already, and nothing is written over it: name another with --archive."
        )
    write_whole(archive, data)
    return kept, [name for name in there if name not in kept and name != LIST and not _UNFINISHED.search(name)]


def not_packed(file: Path) -> list[str]:
    """Modules of one's own that a config's file imports: no archive has them. The file is read, not executed."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (OSError, SyntaxError, ValueError):
        return []
    named = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    named += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    known = {"", *_ROOMS, *sys.stdlib_module_names, *importlib.metadata.packages_distributions()}
    return sorted({each.partition(".")[0] for each in named} - known)


def unpack(archive: Path, folder: Path, largest: int = LARGEST) -> dict[str, Any]:
    """Writes the files of an archive into a new folder, each checked against its sum, and returns the archive's list."""
    if archive.stat().st_size > largest:
        raise ValueError(
            f"{archive} has {archive.stat().st_size:,} bytes, more than {largest:,}: --largest takes more."
        )
    return unpack_files(archive.read_bytes(), folder, largest)


def _files(folder: Path) -> list[str]:
    """All that lies in a folder but links to folders, as paths with slashes."""
    found = []
    for place, _, names in os.walk(folder, followlinks=False):
        found += [(Path(place) / name).relative_to(folder).as_posix() for name in names]
    return found


def _belongs(folder: Path, name: str, config: dict[str, Any], checkpoints: bool, cells: bool) -> bool:
    file = folder / name
    if file.is_symlink() or not file.is_file() or _UNFINISHED.search(name) or not can_be_named(name):
        return False
    if name.startswith("checkpoints/"):
        return checkpoints
    if _ARRAYS.fullmatch(name) or name == "cells/data.json":
        return (cells or not name.startswith("cells/")) and (name.endswith(".json") or _whole(file))
    drawn = name.endswith(".png") and name.removesuffix("png") + "npz" in os.listdir(folder)
    return bool(_NAMED.fullmatch(name)) or drawn or name == config.get("config_file")


def _whole(file: Path) -> bool:
    data = file.read_bytes()
    try:
        read_npz(data).close()
    except DamagedError:
        return False
    return has_checksum(data)
