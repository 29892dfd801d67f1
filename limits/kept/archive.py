"""Files of a folder as one archive to hand on, and back: a zip file with a list of sums, the same bytes whenever it is made.

What comes from a stranger is data: nothing of it is executed, nothing is written outside the folder or over anything; links,
devices, names that point elsewhere, and what unpacks to more than was said or asked for are refused.
"""

import hashlib
import io
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from limits.kept.store import DamagedError, sealed, unsealed, write_whole

LIST = "limit-zoo.json"  # the first entry: what else there is
LARGEST = 2**30  # bytes, unpacked
_MOST = 10_000  # files
_LIST_BYTES = 2**24
_BEGAN = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file knows
_PART = re.compile(r"(?!\.)[\w.,=+@()#'!&%~\[\]{}$^; -]+(?<![. ])")  # a name between slashes, on any system
_PART_BYTES = 200  # of 255 that file systems have, since a file has a longer name while it is written
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # devices, to Windows

# What zipfile raises of bytes that were changed, beside its own error.
_UNREADABLE = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, struct.error, ValueError,
    OverflowError,
)  # fmt: skip


def pack_files(folder: Path, files: Iterable[str], about: Mapping[str, Any]) -> bytes:
    """The archive of these files (paths below the folder, with slashes). about: what else the list is to say.

    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "report.json").write_text("{}")
    ...     data = pack_files(Path(name), ["report.json"], {"by": "me"})
    ...     found = unpack_files(data, Path(name) / "new")
    ...     found["by"], list(found["files"]), (Path(name) / "new/report.json").read_text()
    ('me', ['report.json'], '{}')
    """
    bodies = {name: _body(folder, name) for name in sorted(files)}
    entries = {name: {"bytes": len(body), "blake2b": _sum(body)} for name, body in bodies.items()}
    text = sealed({"format": 1, **about, "files": entries})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in {LIST: text.encode(), **bodies}.items():
            entry = zipfile.ZipInfo(name, _BEGAN)
            entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16  # Unix's, whatever made it
            archive.writestr(entry, body, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def unpack_files(data: bytes, folder: Path, largest: int = LARGEST) -> dict[str, Any]:
    """Writes an archive's files into a folder that is not there yet, all of them or none, and returns its list."""
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} is there already, and nothing is written over it: name a new folder.")
    before = Path(*folder.parts[: len(folder.parts) - folder.parts[::-1].index("..")]) if ".." in folder.parts else None
    if before and not before.exists():  # the folder before a `..` would be made, and left empty
        raise FileNotFoundError(f"{before} is not there: name {folder} without it.")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed, bodies = _read(archive, largest)
    except DamagedError:
        raise
    except _UNREADABLE as error:
        raise DamagedError(f"The archive cannot be read ({error}).") from error
    for above in folder.parents:
        if above.exists() and not above.is_dir():
            raise FileExistsError(f"{above} is a file, and no folder can be made in it: name another place.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path()
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        for name, body in bodies.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(made / name, body)
        made.chmod(0o777 & ~_umask())
        os.rename(made, folder)
    except BaseException as error:
        if made.suffix == ".part":
            shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(folder)
        raise
    return listed


def _read(archive: zipfile.ZipFile, largest: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(its list, all bodies), checked before anything is written."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if not names or names[0] != LIST:
        raise DamagedError(f"The archive does not begin with {LIST}: `limit-zoo pack` did not make it.")
    if len(names) > _MOST:
        raise DamagedError(f"The archive has {len(names):,} entries, more than {_MOST:,}.")
    seen = dict[str, str]()
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise DamagedError(f"The archive has {other[:80]!r} and {name[:80]!r}, which are one name on some systems.")
    if len(seen) < len(names):
        twice = next(name for name in seen.values() if names.count(name) > 1)
        raise DamagedError(f"The archive has two entries of one name, {twice[:80]!r}.")
    for entry in entries:
        check_name(entry.filename)
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG) or entry.is_dir():
            raise DamagedError(f"{entry.filename} in the archive is a link, a folder or a device, no file.")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others are not read bit by bit
            raise DamagedError(
                f"{entry.filename} in the archive is packed in a way that `limit-zoo pack` does not use."
            )
    folded = {name.casefold() for name in names}
    for name in names:
        if above := [str(each) for each in PurePosixPath(name).parents if str(each).casefold() in folded]:
            raise DamagedError(f"The archive has {above[0]} both as a file and as the folder of {name}.")
    text = _bounded(archive, entries[0], min(largest, _LIST_BYTES))
    try:
        listed = unsealed(text)
    except DamagedError as error:
        raise DamagedError(f"{LIST}, the list in the archive, cannot be used: {error}.") from error
    sums = listed.get("files")
    if listed.get("format") != 1:
        raise DamagedError(f"The list of the archive has format {listed.get('format')}, where this version reads 1.")
    if not isinstance(sums, dict):
        raise DamagedError(f"The list of the archive has no table of files: `limit-zoo pack` did not make {LIST}.")
    if set(sums) != set(names[1:]):
        odd = sorted(set(sums) ^ set(names[1:]))
        raise DamagedError(f"The archive and its list differ in {', '.join(odd[:3])}.")
    bodies, left = {LIST: text}, largest
    for entry in entries[1:]:
        said = sums[entry.filename]
        if not isinstance(said, dict) or type(said.get("bytes")) is not int or not 0 <= said["bytes"] <= left:
            raise DamagedError(
                f"The archive unpacks to more than {largest:,} bytes, or {entry.filename} has no size in its list. "
                "--largest takes more."
            )
        left -= said["bytes"]
        body = bodies[entry.filename] = _bounded(archive, entry, said["bytes"])
        if len(body) != said["bytes"] or _sum(body) != said.get("blake2b"):
            raise DamagedError(f"{entry.filename} in the archive does not match its checksum.")
    return listed, bodies


def check_name(name: str) -> None:
    """Raises unless this is a path below a folder, on every system.

    >>> check_name("cells/width_8.npz")
    >>> check_name("../a")
    Traceback (most recent call last):
    limits.kept.store.DamagedError: The archive has an entry '../a', which is no plain path below a folder.
    """
    parts = name.split("/")
    if len(name) > 400 or not all(_PART.fullmatch(part) and not _RESERVED.fullmatch(part) for part in parts):
        raise DamagedError(f"The archive has an entry {name[:80]!r}, which is no plain path below a folder.")
    if (longest := max(len(part.encode()) for part in parts)) > _PART_BYTES:
        raise DamagedError(
            f"The archive has an entry {name[:80]!r}, of which one name has {longest} bytes, more than {_PART_BYTES}."
        )


def can_be_named(name: str) -> bool:
    """Whether `check_name` takes it.

    >>> can_be_named("cells/a.npz"), can_be_named("what?.py")
    (True, False)
    """
    try:
        check_name(name)
    except DamagedError:
        return False
    return True


def _bounded(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int) -> bytes:
    """Its bytes, at most so many and one: sizes that a header claims bind nobody."""
    with archive.open(entry) as file:
        body = file.read(most + 1)
    if len(body) > most:
        raise DamagedError(f"{entry.filename} in the archive has more than the {most:,} bytes that it should.")
    return body


def _body(folder: Path, name: str) -> bytes:
    check_name(name)
    handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
    with open(handle, "rb") as file:
        return file.read()


def _sum(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
