"""Bytes of text as tokens: the sources of Python's standard library, any file or folder, data sets of TFDS."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from train.data import python_library
from train.data.sources import SOURCES, opened
from train.data.tokens import Windows, windows
from zoo import checks
from zoo.messages import did_you_mean

END = b"\0"  # before the first document, and after each
WINDOWS = {
    "split": checks.word,
    "context": checks.count(),
    "stride": checks.nothing | checks.count(),
}


def packed(documents: Iterable[bytes]) -> np.ndarray:
    """One stream of bytes, in which every document begins after an `END` and ends in one.

    >>> packed([b"a", b"bc"]).tobytes()
    b'\\x00a\\x00bc\\x00'
    """
    return np.frombuffer(END + b"".join(each + END for each in documents), np.uint8)


@checks.arguments(**WINDOWS)
def python_text(
    split: str = "train", context: int = 256, stride: int | None = None, any_version: bool = False
) -> Windows:
    """Windows of the sources of Python's standard library: 50 modules to train on, 5 to test on (`train.data.python_library`).

    >>> bytes(python_text("test", context=32)[0]["input"].tolist())[4:]
    b'Abstract Protocol base class'
    """
    if split not in python_library.MODULES:
        raise ValueError(f'"python" has no split "{split}". {did_you_mean(split, python_library.MODULES)}')
    stream = packed(python_library.documents(split, any_version))
    return windows("python", stream, context, stride, once=split == "test")


@checks.arguments(**WINDOWS, path=checks.word, pattern=checks.word, held_out=checks.number(0, 1))
def file_text(
    split: str = "train",
    path: str = "",
    context: int = 256,
    stride: int | None = None,
    pattern: str = "**/*",
    held_out: float = 0.1,
) -> Windows:
    """Windows of the bytes of a file, or of a folder's files that match `pattern`, in the order of their names; the last
    `held_out` of all bytes are the split "test", the others "train".

    >>> file_text("train", path=__file__, context=16).shape
    (16,)
    """
    if split not in ("train", "test"):
        raise ValueError(f'"text" has no split "{split}". {did_you_mean(split, ("train", "test"))}')
    place = Path(path).expanduser()
    if not path or not place.exists():
        raise FileNotFoundError(f'There is no file or folder "{path}" to read text from: give it as path.')
    files = _files_of(place, pattern) if place.is_dir() else [place]
    texts = [each.read_bytes() for each in files]
    _say_no_text(files, texts)
    stream = packed(texts)
    cut = len(stream) - round(held_out * len(stream))
    part = (
        stream[:cut] if split == "train" else stream[max(cut - 1, 0) :]
    )  # a test needs a byte before its first target
    if len(part) < (2 if split == "test" else context + 1):
        raise ValueError(
            f'path: the part "{split}" of {place} has {len(part)} bytes of {len(files)} files, too '
            f"few for windows of {context}: give more text, or a smaller context."
        )
    return windows(f"text of {place}", part, context, stride, once=split == "test")


def _files_of(folder: Path, pattern: str) -> list[Path]:
    """Those of a folder that match the pattern, in the order of their names; of several names of one file the first.

    Text that is there twice would be tested on after it was trained on.
    """
    try:
        files = sorted(each for each in folder.glob(pattern) if each.is_file())
    except (NotImplementedError, ValueError):  # it begins with "/", or is none
        files = []
    if not files:
        raise ValueError(
            f"path: no file of the folder {folder} matches pattern={pattern!r}. Patterns begin inside the folder, such as "
            '"*.txt", or "**/*.txt" for folders in it too.'
        )
    once: dict[tuple[int, int], Path] = {}
    for each in files:
        about = each.stat()
        once.setdefault((about.st_dev, about.st_ino), each)
    return list(once.values())


def _say_no_text(files: list[Path], texts: list[bytes]) -> None:
    """Warns of files that hold the byte by which documents end, as binary ones do."""
    names = [file.name for file, text in zip(files, texts, strict=True) if END in text]
    if names:
        warnings.warn(
            f"{len(names)} of {len(files)} files of text are binary (with zero bytes): {', '.join(names[:3])}"
            f'{", …" * (len(names) > 3)}. Give a pattern of those that are text, such as pattern="**/*.txt".',
            stacklevel=2,
        )


@checks.arguments(**WINDOWS, name=checks.word)
def tfds_text(
    split: str,
    name: str,
    context: int = 256,
    stride: int | None = None,
    data_dir: str | None = None,
    feature: str = "text",
    once: bool | None = None,
) -> Windows:
    """Windows of the texts of a data set of TFDS, prepared as array_record, such as "tiny_shakespeare", "lm1b". A split's texts
    are read into memory: name a part of a large one, "train[:1%]". once: every target counts once (not in splits of "train…")."""
    features, data = opened(name, split, data_dir)
    if feature not in features:
        raise ValueError(f'"{name}" has the features {", ".join(features.keys())}, and no "{feature}": give feature.')
    texts = (data[i][feature] for i in range(len(data)))
    stream = packed(text.encode() if isinstance(text, str) else bytes(text) for text in texts)
    return windows(name, stream, context, stride, not split.startswith("train") if once is None else once)


SOURCES.update({"python": python_text, "text": file_text, "TFDS text": tfds_text})
