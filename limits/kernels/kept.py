"""Big kernels on disk: blocks in whole .npy files, each with a checksum, so that an interrupted computation goes on."""

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import math
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from limits.kept.identity import identity
from limits.kept.store import DamagedError, locked, open_inside, sealed, set_aside, unsealed, write_whole
from zoo import checks

_FIRST_LINE = "row, column and checksums of finished blocks; checksum of the line:"
_NO_ALLOCATION = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems that do not know how


def kernel_dtype(x: np.ndarray) -> np.dtype:
    """In which kernels of inputs are kept: theirs, or float64 of whole numbers.

    >>> kernel_dtype(np.zeros(3, "float32")).name, kernel_dtype(np.zeros(3, int)).name
    ('float32', 'float64')
    """
    return x.dtype if x.dtype.kind == "f" else np.dtype("float64")


def mirrored(part: Any) -> Any:
    """A block [a, b, *positions, *positions] of a symmetric kernel, as it stands on the other side of the diagonal.

    >>> mirrored(np.zeros((1, 2, 3, 4))).shape
    (2, 1, 4, 3)
    """
    k = part.ndim // 2 - 1
    return part.transpose(1, 0, *range(2 + k, 2 + 2 * k), *range(2, 2 + k))


class UnfinishedError(RuntimeError):
    """This share is finished, and those of others are not: the message says how many blocks are missing."""


@checks.arguments(folder=checks.path, index=checks.count(0), of=checks.count())
@dataclasses.dataclass(frozen=True)
class Share:
    """A folder of kernels that `of` processes, or jobs of an array, fill together: this one is the `index`-th, from 0.

    `twin(net).kernels(x, folder=Share(DIR, 1, 4))` computes every fourth block. The process that finds all finished returns the
    kernels; for the others that is an `UnfinishedError`, after which the same call, or one with the folder alone, has them.

    >>> Share("kernels", 1, 4)
    Share(folder='kernels', index=1, of=4)
    """

    folder: Any
    index: int
    of: int

    def __post_init__(self) -> None:
        checks.count(0, self.of - 1)("Share: index", self.index)

    def __fspath__(self) -> str:
        return os.fspath(self.folder)

    def __truediv__(self, name: str) -> "Share":
        return Share(Path(self.folder) / name, self.index, self.of)


class KeptKernels:
    """Kernels NAME.npy in a folder; blocks.json says which they are, blocks.log the checksums of finished blocks.

    `what`: all that the numbers depend on but the inputs; a folder of other numbers is refused. A block whose bytes do not
    match is copied to NAME_block_I_J.damaged-1.npy, said, and counts as missing.
    """

    def __init__(self, folder: Any, what: Any, names: Sequence[str]) -> None:
        self.folder, self.what, self.names = Path(folder), what, names
        self.share = folder if isinstance(folder, Share) else None

    @contextlib.contextmanager
    def open(
        self, x1: np.ndarray, x2: np.ndarray | None, rows: int, positions: tuple[int, ...] = ()
    ) -> Iterator["Blocks"]:
        """For one process at a time, or one of each share: the blocks of these inputs, or of their positions."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = "blocks" if self.share is None else f"blocks_{self.share.index}_of_{self.share.of}"
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self.folder / f".{part}.lock", f"{self.folder}"))
            begin = (
                contextlib.nullcontext()
                if self.share is None
                else locked(self.folder / ".begin.lock", f"{self.folder}")
            )
            with begin:
                blocks = self._begun(x1, x2, rows, positions, part)
            stack.callback(blocks.close)
            yield blocks

    def _begun(
        self, x1: np.ndarray, x2: np.ndarray | None, rows: int, positions: tuple[int, ...], part: str
    ) -> "Blocks":
        shape = (len(x1), len(x1 if x2 is None else x2), *2 * positions)
        which = identity(self.what, x1, x2, rows)
        begun = self._check_note({"kernels": which, "rows": rows, "shape": list(shape)})
        log = self.folder / f"{part}.log"
        return Blocks(self.folder, which, self.names, shape, kernel_dtype(x1), rows, x2 is None, begun, log, self.share)

    def _check_note(self, note: dict[str, Any]) -> bool:
        """Whether these kernels were begun here; if not, writes down which they are."""
        file, text = self.folder / "blocks.json", sealed(note).encode()
        found = file.read_bytes() if file.exists() else None
        if found == text:
            return True
        if found is not None and found.split() != text.split() and _is_note(found):
            raise ValueError(
                f"{self.folder} holds blocks of other kernels or inputs: give another folder, or empty this one. (Those of "
                "another version of this package count as others.)"
            )
        if found is not None:
            set_aside(file, "its text does not match its checksum")
        write_whole(file, text)
        return False


class Blocks:
    """The files of kernels [n1, n2], or [n1, n2, *positions, *positions]: which blocks are whole, and the means to write more."""

    def __init__(
        self,
        folder: Path,
        which: str,
        names: Sequence[str],
        shape: tuple[int, ...],
        dtype: np.dtype,
        rows: int,
        symmetric: bool,
        begun: bool,
        log: Path,
        share: Share | None = None,
    ) -> None:
        self.folder, self.which, self.names, self.symmetric = folder, which, names, symmetric
        self.shape, self.dtype, self.rows = shape, dtype, rows
        self.log, self.share, self.writing = log, share, threading.Lock()
        sums = self._of_others() | self._read_log()
        self.files = {name: folder / f"{name}.npy" for name in names}
        fresh = [file for file in self.files.values() if not self._is_whole(file, begun or bool(sums))]
        self.handles = {name: open_inside(file, "r+b") for name, file in self.files.items()}
        views = self.arrays()
        self.finished = {at for at, digests in sums.items() if not fresh and self._matches(at, digests, views)}
        self.book = open_inside(self.log)

    def arrays(self) -> list[np.ndarray]:
        """The kernels, as memory maps; who writes into them changes a copy."""
        return [np.load(file, mmap_mode="c") for file in self.files.values()]

    def mine(self, corners: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of all blocks that are this share's to compute."""
        return list(corners if self.share is None else corners[self.share.index :: self.share.of])

    def check_whole(self, corners: Sequence[tuple[int, int]]) -> None:
        """Raises unless all blocks are finished, by whomever."""
        missing = {*corners} - self._of_others().keys() - self.finished
        if missing:
            raise UnfinishedError(
                f"{self.folder}: {self._part} is finished; {len(missing)} of {len(corners)} blocks, of other shares, are not. "
                "Call again when these are (with the folder alone, what is missing is computed)."
            )

    @property
    def _part(self) -> str:
        share = self.share
        return "what was to do" if share is None else f"share {share.index} of {share.of}, counted from 0,"

    def put(self, i: int, j: int, parts: Sequence[np.ndarray]) -> None:
        """Writes a block whose first entry is (i, j), and its mirror image; then it is finished."""
        words = [str(i), str(j)]
        for name, part in zip(self.names, parts, strict=True):
            self._write(name, i, j, part)
            if self.symmetric and i != j:
                self._write(name, j, i, mirrored(part))
            words.append(self._digest(name, i, j, part))
        line = " ".join(words)
        with self.writing:
            self.book.write(f"{line} {self._seal(line)}\n".encode())
            self.book.flush()
            self.finished.add((i, j))

    def close(self) -> None:
        """No more blocks."""
        self.book.close()
        for handle in self.handles.values():
            handle.close()

    def _write(self, name: str, i: int, j: int, part: np.ndarray) -> None:
        """Row by row, not through a memory map: a full disk is an error there, and a killed process here."""
        handle, start = self.handles[name].fileno(), len(self._header())
        entry = self.dtype.itemsize * math.prod(self.shape[2:])
        for r, row in enumerate(np.ascontiguousarray(part, self.dtype)):
            data, at = memoryview(row).cast("B"), start + ((i + r) * self.shape[1] + j) * entry
            while data:
                done = os.pwrite(handle, data, at)
                data, at = data[done:], at + done

    def _header(self) -> bytes:
        about = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, about)
        return buffer.getvalue()

    def _is_whole(self, file: Path, begun: bool) -> bool:
        """Whether there is a file of this shape; else it is made, and what was in its place is set aside."""
        header = self._header()
        size = len(header) + self.dtype.itemsize * math.prod(self.shape)
        if file.exists():
            with open(file, "rb") as held:
                if begun and file.stat().st_size == size and held.read(len(header)) == header:
                    return True
            set_aside(file, "it is not of these kernels, or cut off" if begun else "nothing says what it holds")
        _allocate(file, header, size)
        return False

    def _of_others(self) -> dict[tuple[int, int], list[str]]:
        """The same of other processes' logs, of which one may be writing: lines that are not whole are passed over."""
        found = {}
        for log in self.folder.glob("blocks*.log"):
            for line in [] if log == self.log else log.read_bytes().decode(errors="replace").splitlines():
                words, _, seal = line.rpartition(" ")
                if words and words != _FIRST_LINE and seal == self._seal(words):
                    i, j, *digests = words.split()
                    found[int(i), int(j)] = digests
        return found

    def _read_log(self) -> dict[tuple[int, int], list[str]]:
        """{block: its checksums} of the lines that are whole and of these kernels."""
        if not self.log.exists():
            self._write_log({})
        sums, broken = {}, 0
        text = self.log.read_bytes().decode(errors="replace")
        for line in text.splitlines():
            words, _, seal = line.rpartition(" ")
            if not words or seal != self._seal(words):
                broken += 1
            elif words != _FIRST_LINE:
                i, j, *digests = words.split()
                sums[int(i), int(j)] = digests
        if broken or not text.endswith("\n"):
            set_aside(self.log, f"{max(broken, 1)} of its lines are damaged; their blocks are missing")
            self._write_log(sums)
        return sums

    def _write_log(self, sums: dict[tuple[int, int], list[str]]) -> None:
        """With a first line: a log without lines is damaged."""
        lines = [_FIRST_LINE, *(" ".join([str(i), str(j), *digests]) for (i, j), digests in sums.items())]
        write_whole(self.log, "".join(f"{line} {self._seal(line)}\n" for line in lines).encode())

    def _matches(self, at: tuple[int, int], digests: list[str], views: Sequence[np.ndarray]) -> bool:
        """Whether a finished block still is what was written, above the diagonal and below."""
        i, j = at
        right = True
        for name, whole, digest in zip(self.names, views, digests, strict=True):
            places = [(i, j), (j, i)] if self.symmetric and i != j else [(i, j)]
            for a, b in places:
                part = whole[a : a + self.rows, b : b + self.rows]
                if self._digest(name, i, j, part if (a, b) == at else mirrored(part)) != digest:
                    self._keep_damaged(name, a, b, part)
                    right = False
        return right

    def _keep_damaged(self, name: str, i: int, j: int, part: np.ndarray) -> None:
        copy = self.folder / f"{name}_block_{i}_{j}.npy"
        np.save(copy, part)
        set_aside(copy, f"the block at ({i}, {j}) of {self.files[name].name} does not match its checksum")

    def _digest(self, name: str, i: int, j: int, part: np.ndarray) -> str:
        digest = hashlib.sha256(
            f"{self.which} {name} {i} {j} {part.shape}".encode()
        )  # processors have instructions for it
        digest.update(np.ascontiguousarray(part, self.dtype).data)
        return digest.hexdigest()[:32]

    def _seal(self, line: str) -> str:
        return hashlib.blake2b(f"{self.which} {line}".encode(), digest_size=16).hexdigest()


def _allocate(file: Path, header: bytes, size: int) -> None:
    """All of the file at once, so that a disk that is too small is known before anything is computed."""
    with open(file, "xb", buffering=0) as new:
        try:
            new.write(header)
            os.ftruncate(new.fileno(), size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(new.fileno(), 0, size)
        except OSError as error:
            if error.errno in _NO_ALLOCATION:
                return
            file.unlink()
            disk = os.statvfs(file.parent)
            raise OSError(
                error.errno,
                f"{file} needs {size / 2**30:.2g} GiB, and {disk.f_bavail * disk.f_frsize / 2**30:.2g} GiB are free there "
                f"({os.strerror(error.errno or 0)}): give a folder on another disk, or ask for fewer inputs",
            ) from error


def _is_note(text: bytes) -> bool:
    """Whether this is a whole blocks.json; older versions wrote no checksum."""
    try:
        unsealed(text)
        return True
    except DamagedError:
        with contextlib.suppress(ValueError, TypeError):
            return set(dict(json.loads(text))) == {"kernels", "rows", "shape"}
        return False
