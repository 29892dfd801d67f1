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

    def __init__(self, file: Path, start: int = 0, also: str = "", name: str = "") -> None:
        self._file = None
        self._others: list[Any] = []
        if jax.process_index() != 0:
            return
        kept = [line for line in read_records(file) if line["step"] < start] if file.exists() else []
        part = file.with_name(f".{file.name}")
        part.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        part.replace(file)
        self._file = file.open("a", encoding="utf-8")
        self._others = [_OTHERS[each](file.parent, name) for each in also.split(",") if each]

    def write(self, step: int, numbers: Mapping[str, Any]) -> None:
        """A line; what is not finite is written as null."""
        if self._file is None:
            return
        plain = {key: _finite(value) for key, value in numbers.items()}
        self._file.write(json.dumps({"step": step, **plain}) + "\n")
        self._file.flush()
        for other in self._others:
            other(step, numbers)

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()


def read_records(file: Path) -> list[dict[str, Any]]:
    """All whole lines: one that was cut off by the end of its process is left out."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
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
