"""What is kept on disk: written whole, with a checksum, and read only where the checksum holds."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console

from zoo import checks

_MARK = b"limit-zoo blake2b "
_DIGEST = 64  # letters
# What passes, of a file that may be whole: lost permission, too many open files, too little memory, shared storage that is away.
_NOT_OF_THE_FILE = (
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN
)  # fmt: skip
_ABOUT = "about"  # the entry that says which cell this is, and how its arrays hang together


class DamagedError(ValueError):
    """A kept file that is not what was written."""


@checks.arguments(folder=checks.path, say=checks.function)
class Store:
    """Cells in a folder, one .npz file each: trees of arrays, numbers and words, under a name that says what they depend on.

    The name should hold `limits.kept.identity.identity(…)` of all that the content depends on. A file that does not match its
    checksum, or is another cell's, is renamed to NAME.damaged-1, said, and counts as missing; one that may not be read now, for
    permission or memory, is an error. numpy.load reads the files too.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     store.put("sweep_1f", {"f": np.ones(2), "steps": (1, 2), "note": None})
    ...     store.get("sweep_1f"), store.get("sweep_2a")
    ({'f': array([1., 1.]), 'steps': (1, 2), 'note': None}, None)
    """

    def __init__(self, folder: str | Path, say: Callable[[str], None] | None = None) -> None:
        self.folder, self.say = Path(folder), say or _to_stderr

    def file(self, name: str) -> Path:
        """Where a cell is, or would be."""
        return self.folder / f"{name}.npz"

    def put(self, name: str, value: Any) -> None:
        """Keeps a cell: after an interruption the file is the old one or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.file(name), pack(name, value))

    def get(self, name: str) -> Any:
        """The cell, or None where there is none that can be trusted."""
        try:
            return unpack(name, self.file(name).read_bytes())
        except FileNotFoundError:
            return None
        except (DamagedError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _NOT_OF_THE_FILE:
                raise
            set_aside(self.file(name), str(error), self.say)
            return None

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """For one process at a time: another one that wants this cell waits, and finds it finished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / f".{name}.lock", f"{self.file(name)}", self.say) as alone:
            if alone:  # what an interrupted one was writing
                for part in self.folder.glob(f".{glob.escape(self.file(name).name)}.*.part"):
                    part.unlink(missing_ok=True)
            yield


@contextlib.contextmanager
def locked(file: Path, what: str, say: Callable[[str], None] | None = None) -> Iterator[bool]:
    """One process, or thread, at a time; the others say so and wait. False where the file system has no locks."""
    with open_inside(file) as handle:
        alone = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (say or _to_stderr)(f"{what}: another process is at work on it; waiting for it to finish.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # no locks: both compute, and the last one's equal result stays
            alone = False
        yield alone


def pack(name: str, value: Any) -> bytes:
    """A tree of dict, tuple, list, None, numbers, words and arrays as a .npz file whose last bytes are its checksum."""
    arrays: dict[str, np.ndarray] = {}
    about = json.dumps({"cell": name, "tree": _encode(value, arrays)})
    return npz_bytes({_ABOUT: np.array(about), **arrays})


def unpack(name: str, data: bytes) -> Any:
    """What `pack` made into bytes; DamagedError if they are not those, or another cell's."""
    if not has_checksum(data):
        raise DamagedError("it has no checksum at its end: it is cut off, or an older version wrote it")
    with read_npz(data) as file:
        about = json.loads(str(file[_ABOUT])) if _ABOUT in file.files else {"cell": "of something else"}
        if about["cell"] != name:
            raise DamagedError(f"it holds the cell {about['cell']}, not {name}")
        return _decode(about["tree"], file)


def npz_bytes(arrays: dict[str, np.ndarray], compressed: bool = False) -> bytes:
    """A .npz file that ends with the checksum of all before it: the comment of a zip file."""
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, allow_pickle=False, **arrays)
    with zipfile.ZipFile(buffer, "a") as file:
        file.comment = _MARK + b"0" * _DIGEST
    whole = buffer.getbuffer()
    whole[-_DIGEST:] = _digest(whole[:-_DIGEST])
    return bytes(whole)


def has_checksum(data: bytes) -> bool:
    """Whether these are bytes of `npz_bytes`, whole at their end."""
    return data[: -_DIGEST or None].endswith(_MARK)


def read_npz(data: bytes) -> Any:
    """An open .npz file; DamagedError where its bytes do not match their checksum, or cannot be read."""
    if has_checksum(data) and _digest(memoryview(data)[:-_DIGEST]) != data[-_DIGEST:]:
        raise DamagedError("its bytes do not match its checksum")
    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedError(f"it cannot be read ({error})") from error


def sealed(document: dict[str, Any]) -> str:
    """JSON with a checksum in it, for what people read too.

    >>> unsealed(sealed({"a": 1}))
    {'a': 1}
    """
    document = json.loads(json.dumps(document))  # as it is read: names are words, tuples are lists
    return json.dumps({**document, "checksum": _sum(document)}, indent=1) + "\n"


def unsealed(text: str | bytes) -> dict[str, Any]:
    """What was sealed; DamagedError if it is not that."""
    try:
        document = dict(json.loads(text))
        checksum = document.pop("checksum")
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedError("it is no JSON with a checksum") from error
    if checksum != _sum(document):
        raise DamagedError("its text does not match its checksum")
    return document


def write_whole(file: Path, data: bytes) -> None:
    """Writes a file whole or not at all, through a new file beside it: whoever else writes, and never through a link."""
    part = ""
    try:
        handle, part = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".part", dir=file.parent)
        with open(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())  # else a power cut may leave the new name on an empty file
        os.chmod(part, 0o666 & ~_umask())  # mkstemp's files are private
        os.replace(part, file)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # that of a full disk names no file, and others the one beside
            error.filename, error.filename2 = str(file), None
        raise


def set_aside(
    path: Path, why: str, say: Callable[[str], None] | None = None, then: str = "It is computed again."
) -> Path:
    """Renames what cannot be trusted (never deletes it), says so, and returns where it is now."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    try:
        path.rename(aside)
    except FileNotFoundError:  # another process was faster
        return aside
    (say or _to_stderr)(f"{path} was set aside as {aside.name}: {why}. {then}")
    return aside


def open_inside(file: Path, mode: str = "ab") -> Any:
    """Opens a file that is no symbolic link, for appending or as `mode` says."""
    try:
        return open(file, mode, opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        if file.is_symlink():
            raise _link(file) from error
        raise


def folder_inside(root: Path, *names: str) -> Path:
    """root/names, made where it is missing; refused where a part below root is a symbolic link to somewhere else."""
    folder = Path(root)
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise _link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST // 2).hexdigest().encode()


def _sum(document: dict[str, Any]) -> str:
    return _digest(json.dumps(document, sort_keys=True).encode()).decode()


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The tree as JSON; arrays go into `arrays` and leave their name."""
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, dict):
        return {"dict": [[_encode(key, arrays), _encode(each, arrays)] for key, each in value.items()]}
    if isinstance(value, tuple | list):
        return {
            type(value).__name__ if type(value) in (tuple, list) else "tuple": [_encode(each, arrays) for each in value]
        }
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"A cell holds dicts, tuples, lists, numbers, words and arrays; got a {type(value).__name__}.")
    name, kind = f"array_{len(arrays)}", array.dtype.name
    if array.dtype.kind == "V":  # bfloat16 and the like, which .npy files do not know
        array = array.view(f"u{array.dtype.itemsize}")
    arrays[name] = array
    return {"array": name, "scalar": isinstance(value, np.generic), "dtype": kind}


def _decode(tree: Any, file: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "dict" in tree:
        return {_decode(key, file): _decode(each, file) for key, each in tree["dict"]}
    for kind in (tuple, list):
        if kind.__name__ in tree:
            return kind(_decode(each, file) for each in tree[kind.__name__])
    array = file[tree["array"]]
    if array.dtype.name != tree["dtype"] and hasattr(ml_dtypes, tree["dtype"]):
        array = array.view(getattr(ml_dtypes, tree["dtype"]))
    return array[()] if tree["scalar"] else array


def _link(path: Path) -> ValueError:
    return ValueError(f"{path} is a symbolic link: nothing is written through it. Remove it, or use another folder.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _to_stderr(sentence: str) -> None:
    Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)
