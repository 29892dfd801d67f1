"""What a run writes down: one JSON line a step, by the first process; optionally TensorBoard and Weights & Biases."""

import importlib
import json
import math
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from limits.kept.store import open_inside, write_whole
from zoo import checks


class Records:
    """Appends {"step": …, name: number, …} to `file`, with a checksum of each line. Lines from step `start` on, of a run that
    got further, are taken away. `mark`: what `self.mark` was when that many steps were done; where the lines before `start` are
    not those, the file is renamed, that is said, and the whole lines among them go into a new one.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> for start in (0, 1):
    ...     records = Records(file, start)
    ...     for step in (start, start + 1):
    ...         records.write(step, {"loss": 0.5})
    ...     records.close()
    >>> [line["step"] for line in read_records(file)]
    [0, 1, 2]
    """

    def __init__(self, file: Any, start: int = 0, also: str = "", name: str = "", mark: Any = None) -> None:
        self._file: Any = None
        self._others: list[Any] = []
        self._open = False
        self.mark = [0, 0]
        if jax.process_index() != 0:
            return
        whole, _ = _lines_of(file)
        kept = [_checked(line) for line in whole if line["step"] < start]
        self._lines = "".join(kept)
        for line in kept:
            self._count(line)
        self._place = file
        if mark is not None and list(mark) != self.mark:
            aside = f"the file was renamed to {set_aside(file)}, and " if file.exists() else ""
            warnings.warn(
                f"{file} is damaged: of {mark[0]} lines before step {start}, {self.mark[0]} are there and whole; {aside}the "
                "run goes on with these.",
                stacklevel=2,
            )
        if not _remote(file):
            write_whole(file, self._lines.encode())
            self._file = open_inside(file, "a+b")
        self._others = [OTHERS[each](file.parent, name) for each in also.split(",") if each]
        self._open = True

    def write(self, step: int, numbers: Mapping[str, Any]) -> None:
        """A line; what is not finite is written as null."""
        if not self._open:
            return
        line = _checked({"step": step, **{key: _finite(value) for key, value in numbers.items()}})
        self._count(line)
        if self._file is None:
            self._lines += line
        else:
            self._file.write(line.encode())
            self._file.flush()
        for other in self._others:
            other(step, numbers)

    def flush(self) -> None:
        """Everything is where it belongs: shared storage knows no appending, and gets the whole file anew, as does a folder whose
        file was taken away or replaced meanwhile."""
        if self._open and self._file is None:
            self._place.write_text(self._lines)
        elif self._open and not _is_at(self._file, self._place):
            self._write_again()

    def close(self) -> None:
        """No more lines."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()
            self._open = False

    def _write_again(self) -> None:
        file, open_still = self._place, self._file
        if not file.parent.is_dir():
            raise OSError(
                f"{file.parent} was moved or removed while the run was writing to it: with --workdir=DIR where it is now, the "
                "same command continues from its latest checkpoint."
            )
        aside = f" what is there now was renamed to {set_aside(file)}, and" if os.path.lexists(file) else ""
        open_still.seek(0)
        write_whole(file, open_still.read())
        open_still.close()
        self._file = open_inside(file, "a+b")
        warnings.warn(
            f"{file} was removed or replaced while the run was writing to it:{aside} it was written again.",
            stacklevel=3,
        )

    def _count(self, line: str) -> None:
        self.mark = [self.mark[0] + 1, zlib.crc32(line.encode(), self.mark[1])]


def _is_at(file: Any, place: Path) -> bool:
    """Whether an open file is the one that lies there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(place))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remote(file: Any) -> bool:
    return "://" in str(file)


def read_records(file: Any) -> list[dict[str, Any]]:
    """All whole lines. One that does not match its checksum is said; one that was cut off by the end of its process is not."""
    lines, damaged = _lines_of(file)
    if damaged:
        more = f" and {len(damaged) - 3} more" * (len(damaged) > 3)
        warnings.warn(
            f"{file} is damaged, and read without line {', '.join(map(str, damaged[:3]))}{more}.", stacklevel=2
        )
    return lines


def set_aside(file: Any) -> str:
    """The name that a file or folder, perhaps in shared storage, has from now on; it is out of the way, and never deleted."""
    number = 1
    while (aside := file.with_name(f"{file.name}.damaged-{number}")).exists():
        number += 1
    file.rename(aside)
    return aside.name


def _checked(line: dict[str, Any]) -> str:
    """A line of the file, whose last entry is the checksum of what stands before it."""
    text = json.dumps(line)
    return f'{text[:-1]}, "crc32": {zlib.crc32(text.encode())}}}\n'


def _lines_of(file: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """(the whole lines without their checksums, the numbers of damaged ones). Those of earlier versions have no checksums."""
    if not file.exists():
        return [], []
    *texts, last = file.read_bytes().decode(errors="replace").split("\n")
    texts += [last] if "}" in last else []  # else it was cut off by the end of its process, or is empty
    summed, found, damaged = any('"crc32": ' in text for text in texts), [], []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            crc = line.pop("crc32", None)
            if not isinstance(line.get("step"), int) or (summed and (crc is None or f"{text}\n" != _checked(line))):
                raise ValueError
            found.append(line)
        except (ValueError, AttributeError):
            damaged.append(number)
    return found, damaged


def _finite(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _tensorboard(folder: Path, name: str) -> Any:
    del name
    try:
        writer = importlib.import_module("tensorboardX").SummaryWriter(str(folder))
    except ImportError:
        raise ValueError(
            "To write for TensorBoard: pip install tensorboardX, or take tensorboard out of config.also."
        ) from None

    def write(step: int, numbers: Mapping[str, Any]) -> None:
        for key, value in numbers.items():
            if isinstance(value, int | float):
                writer.add_scalar(key, value, step)
        writer.flush()

    return write


def _wandb(folder: Path, name: str) -> Any:
    try:
        run = importlib.import_module("wandb").init(dir=str(folder), name=name, resume="allow")
    except ImportError:
        raise ValueError(
            "To write for Weights & Biases: pip install wandb, or take wandb out of config.also."
        ) from None
    return lambda step, numbers: run.log(dict(numbers), step=step)


OTHERS = {"tensorboard": _tensorboard, "wandb": _wandb}
ALSO = checks.Check(
    '"tensorboard", "wandb", or both with a comma',
    lambda v: isinstance(v, str) and not set(v.split(",")) - {"", *OTHERS},
)
