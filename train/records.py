"""What a run writes down: one JSON line a step, by the first process; optionally TensorBoard and Weights & Biases."""

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax


class Records:
    """Appends {"step": …, name: number, …} to `file`. Lines from step `start` on, of a run that got further, are taken away.

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

    def __init__(self, file: Any, start: int = 0, also: str = "", name: str = "") -> None:
        self._file: Any = None
        self._others: list[Any] = []
        self._open = False
        if jax.process_index() != 0:
            return
        kept = [line for line in read_records(file) if line["step"] < start] if file.exists() else []
        self._lines = "".join(json.dumps(line) + "\n" for line in kept)
        self._place = file
        if not _remote(file):
            part = file.with_name(f".{file.name}")
            part.write_text(self._lines, encoding="utf-8")
            part.replace(file)
            self._file = file.open("a", encoding="utf-8")
        self._others = [_OTHERS[each](file.parent, name) for each in also.split(",") if each]
        self._open = True

    def write(self, step: int, numbers: Mapping[str, Any]) -> None:
        """A line; what is not finite is written as null."""
        if not self._open:
            return
        line = json.dumps({"step": step, **{key: _finite(value) for key, value in numbers.items()}}) + "\n"
        if self._file is None:
            self._lines += line
        else:
            self._file.write(line)
            self._file.flush()
        for other in self._others:
            other(step, numbers)

    def flush(self) -> None:
        """Everything is where it belongs: shared storage knows no appending, and gets the whole file anew."""
        if self._open and self._file is None:
            self._place.write_text(self._lines)

    def close(self) -> None:
        """No more lines."""
        self.flush()
        if self._file is not None:
            self._file.close()
        self._open = False


def _remote(file: Any) -> bool:
    return "://" in str(file)


def read_records(file: Any) -> list[dict[str, Any]]:
    """All whole lines: one that was cut off by the end of its process is left out."""
    lines = []
    for line in file.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


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


_OTHERS = {"tensorboard": _tensorboard, "wandb": _wandb}
