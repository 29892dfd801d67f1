"""Arrays of one's own in a file, as samples and as a task: x_train, y_train, x_test, y_test of an .npz, as Keras keeps them."""

import dataclasses
import functools
import hashlib
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from limits import Task
from train.data.normalise import normalisation
from train.data.sources import SOURCES, Arrays
from train.data.tasks import TASKS
from zoo import checks
from zoo.messages import did_you_mean

_MADE = "np.savez(path, x_train=…, y_train=…, x_test=…, y_test=…) makes it"
_STEP = checks.Check(
    "a name, or (name, options)", lambda v: isinstance(v, str) or (isinstance(v, tuple | list) and len(v) == 2)
)
_LARGE, _LOOKED_AT = 30.0, 1000  # of inputs, that they are said to be large; so many samples
_FILE = {"path": checks.word, "classes": checks.nothing | checks.count(0)}


@dataclasses.dataclass(frozen=True, eq=False)
class FileArrays(Arrays):
    """Samples of a file, which somebody may write anew while a run waits."""

    @functools.cached_property
    def content(self) -> dict[str, str]:
        """A word for all of them, by which a run that goes on knows them."""
        found = hashlib.blake2b(f"{self.classes}".encode(), digest_size=8)
        for each in (self.inputs, self.targets):
            found.update(f"{each.dtype.str}{each.shape}".encode())
            found.update(np.ascontiguousarray(each).data)
        return {"file": found.hexdigest()}

    @functools.cached_property
    def doubt(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of inputs that are far from size 1 and taken as they are, as images of 16 bits or of floats from 0 to 255."""
        size = float(np.sqrt(np.square(self.inputs[:_LOOKED_AT], dtype=float).mean()))
        if self.normalise != "none" or size < _LARGE:
            return ""
        low, high = self.inputs.min(), self.inputs.max()
        whole = self.inputs.ndim == 2 and self.inputs.dtype.kind in "iu" and low >= 0
        tokens = ' Of tokens normalise="tokens" keeps the whole numbers; of other inputs' if whole else ""
        return (
            f'"{self.name}" has inputs from {low:g} to {high:g} ({self.inputs.dtype}; root mean square {size:.3g}), which are '
            "taken as they are (images of bytes alone are not): kernels go as their square, and learning rates for inputs of "
            f'size 1 are too large.{tokens} normalise="image" brings every sample to mean 0 and size 1.'
        )


@checks.arguments(split=checks.word, **_FILE)
def file_arrays(split: str = "train", path: str = "", classes: int | None = None) -> FileArrays:
    """Samples `x_SPLIT` [n, …] with `y_SPLIT` of an .npz file.

    Whole numbers [n] (or [n, 1]) are labels of as many classes as the largest of all splits asks for, or of so many `classes`;
    −1 is none. Other targets, and with classes=0 all, are numbers as they are ([n] is [n, 1]); so are −1 and 1 alone, while other
    floats that are all whole are asked about. Of bytes, images [n, height, width] are grey ones; images of bytes are normalised
    as those of TFDS, all else (rows of bytes too) is taken as it is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/own.npz", x_train=np.zeros((3, 2)), y_train=[0, 2, 1], x_test=np.ones((1, 2)), y_test=[1])
    ...     data = file_arrays("train", f"{folder}/own.npz")
    >>> len(data), data.shape, data.classes
    (3, (2,), 3)
    """
    arrays = _read(path)
    if f"x_{split}" not in arrays:
        splits = [name[2:] for name in arrays if name.startswith("x_")]
        raise ValueError(f'"{path}" has no split "{split}": {", ".join(arrays)}. {did_you_mean(split, splits)}')
    x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
    if not x.size:
        raise ValueError(f'"{path}": x_{split} of shape {x.shape} holds nothing; leave the split out, or fill it.')
    if x.dtype == np.uint8 and x.ndim == 3:
        x = x[..., None]
    how = "image" if x.dtype == np.uint8 and x.ndim == 4 else "none"
    if x.dtype == np.uint8 and how == "none":  # else they would be brought to [0, 1], as bytes of images are
        x = x.astype(np.float32)
    if count := _classes(path, {name[2:]: a for name, a in arrays.items() if name.startswith("y_")}, classes):
        labels = Arrays(path, x, y, count).targets  # found to be such
        return FileArrays(path, x, labels.astype(int), count, how)
    y = y.astype(float)
    return FileArrays(path, x, y[:, None] if y.ndim == 1 else y, None, how)


def _read(path: str) -> dict[str, np.ndarray]:
    """The arrays x_SPLIT and y_SPLIT of the file, of numbers that are finite."""
    place = Path(path).expanduser()
    if not path or not place.is_file():
        where = "" if place.is_absolute() else f" in {Path.cwd()}"
        raise FileNotFoundError(f'There is no file "{path}" of arrays{where}: give it as path; {_MADE}.')
    if not zipfile.is_zipfile(place):  # NumPy would speak of pickles
        of = {".npy": "one array, without a name", ".csv": "text: read it with numpy.loadtxt"}
        why = of.get(place.suffix.lower(), "another format, or damaged")
        raise ValueError(f'"{path}" cannot be read as arrays of numbers in an .npz file (it is {why}); {_MADE}.')
    try:
        found = np.load(place, allow_pickle=False)
        arrays = {name: found[name] for name in found.files if name[:2] in ("x_", "y_")}
    except (
        AttributeError,
        OSError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:  # one array, another format, objects, damaged
        raise ValueError(f'"{path}" cannot be read as arrays of numbers in an .npz file ({error}); {_MADE}.') from error
    if alone := [name for name in arrays if {"x": "y", "y": "x"}[name[0]] + name[1:] not in arrays]:
        raise ValueError(f'"{path}" has {", ".join(alone)} alone: a split has x_NAME and y_NAME.')
    if not arrays:
        raise ValueError(f'"{path}" has {", ".join(found.files) or "nothing"}, and no x_train, y_train; {_MADE}.')
    for name, a in arrays.items():
        if a.dtype.kind not in "biuf":
            raise ValueError(f'"{path}": {name} is an array of {a.dtype}; give real numbers.')
        if wrong := int(a.size - np.isfinite(a).sum()):
            raise ValueError(
                f'"{path}": {wrong} of {a.size} numbers of {name} are not finite; leave these samples out.'
            )
        if a.dtype.kind == "f" and a.size and (most := max(a.max(), -a.min())) > np.finfo(np.float32).max:
            raise ValueError(f'"{path}": {name} has numbers as large as {most:.3g}, beyond float32: scale them.')
    shapes = {name: a.shape[1:] for name, a in arrays.items() if name[0] == "x" and a.size}
    if len(set(shapes.values())) > 1:
        raise ValueError(
            f'"{path}": samples of all splits must have one shape; got {", ".join(f"{n} {s}" for n, s in shapes.items())}.'
        )
    return arrays


def _classes(path: str, targets: dict[str, np.ndarray], classes: int | None) -> int:
    """How many these labels tell apart; 0 where they are numbers."""
    if classes is not None:
        return classes
    each = [a for a in targets.values() if a.size]
    rows = any(a.ndim > 1 and a.shape[1:] != (1,) for a in each)
    kinds = {a.dtype.kind == "f" for a in each}
    if len(kinds) == 2 and not rows:
        raise ValueError(
            f'"{path}": targets of some splits are whole numbers, and those of others are not: keep them alike, or say how many '
            "classes there are (classes=0: they are numbers)."
        )
    if kinds == {True} and not rows and all((a == np.floor(a)).all() for a in each):
        low, high = min(a.min() for a in each), max(a.max() for a in each)
        signs = all(np.isin(a, (-1, 1)).all() for a in each)
        if low >= -1 and high >= 1 and not signs:
            raise ValueError(
                f'"{path}": targets are floats from {low:g} to {high:g}, all of them whole. Labels? Then say '
                f"classes={high + 1:g}; of numbers to be fitted say classes=0."
            )
    # One by one: NumPy makes floats of unsigned and signed numbers of 64 bits together.
    if not each or rows or kinds == {True} or (seen := {int(v) for a in each for v in np.unique(a)}) == {-1, 1}:
        return 0
    if seen == {-1, 0, 1}:
        raise ValueError(
            f'"{path}": targets are -1, 0 and 1. With classes=2 -1 is a label that nobody gave; with classes=0 they are numbers.'
        )
    low, high = min(seen), max(seen)
    if low < -1 or low > 0:
        raise ValueError(
            f'"{path}": targets are whole numbers from {low} to {high}. Labels begin at 0: take y - ({low}), or say how many '
            "classes there are; of numbers to be fitted say classes=0."
        )
    return max(high + 1, 2)


@checks.arguments(
    path=checks.word,
    classes=checks.nothing | checks.count(0) | checks.several(checks.count(0), least=1, distinct=True),
    n_train=checks.count(1),
    n_test=checks.count(0),
    loss=checks.choice("mse", "cross_entropy"),
    seed=checks.seed,
    normalise=checks.nothing | _STEP,
)
def file_task(
    path: str = "",
    n_train: int = 32,
    n_test: int = 32,
    loss: Literal["mse", "cross_entropy"] = "mse",
    seed: int = 0,
    classes: int | Sequence[int] | None = None,
    normalise: Any = None,
) -> Task:
    """So many points of `file_arrays`, drawn by the seed of its splits "train" and "test".

    Classes are as those of `digits`: an output each, centred (1 − 1/k and −1/k) for "mse", probabilities for "cross_entropy".
    Several `classes`, such as (3, 5): samples of these labels alone; for "mse" one output, ±1, the first half against the rest.
    One in a list, (10,), is the number 10. Samples that nobody labelled (−1) are left out; rows of probabilities (one-hot ones
    too) may be targets of "cross_entropy".
    normalise: of `train.data.normalise`; None: as `file_arrays` says.
    """
    among = () if classes is None or isinstance(classes, int) else tuple(classes)
    count = classes if isinstance(classes, int) else among[0] if len(among) == 1 else None
    among, parts = among[len(among) == 1 :], dict[str, Any]()
    for number, (split, n) in enumerate((("train", n_train), ("test", n_test))):
        if not n:
            continue
        data = file_arrays(split, path, count)
        if among and not max(among) < (data.classes or 0):
            have = f"{data.classes} classes" if data.classes else "targets that are numbers"
            raise ValueError(f'arrays: classes = {among}, and "{path}" has {have}.')
        chosen = np.isin(data.targets, among) if among else data.targets != -1
        there = np.flatnonzero(chosen) if data.classes else np.arange(len(data))
        if n > len(there):
            raise ValueError(
                f'arrays: "{path}" has {len(there)} samples{" with such a label" * (len(there) < len(data))} in "{split}", and '
                f"n_{split} = {n}: ask for fewer."
            )
        if loss == "cross_entropy" and not (data.classes or _probabilities(data.targets)):
            raise ValueError(
                f'arrays: cross-entropy needs labels, and the targets of "{path}" are numbers: loss="mse", or if they count '
                "classes from 0 on say how many, classes=…."
            )
        rows = there[np.random.default_rng((seed, number)).permutation(len(there))[:n]]
        x, y = data.read(rows)
        y = y if data.classes else data.targets[rows]  # with all their digits
        if among:
            y = (
                y[:, among]
                if loss == "cross_entropy"
                else np.where(y[:, among[: len(among) // 2]].any(1), 1.0, -1.0)[:, None]
            )
        centre = 1 / data.classes if data.classes and loss == "mse" and not among else 0
        if normalise is None and data.doubt and split == "train":
            warnings.warn(data.doubt, stacklevel=2)
        parts[f"x_{split}"] = normalisation(data.normalise if normalise is None else normalise)(x)
        parts[f"y_{split}"] = y.astype(float) - centre
    return Task(**parts, loss=loss, name=Path(path).stem)


def _probabilities(rows: np.ndarray) -> bool:
    """Whether these are probabilities of classes: two or more a row, which add up to 1."""
    return rows.ndim == 2 and rows.shape[1] > 1 and bool((rows >= 0).all() and np.allclose(rows.sum(1), 1, atol=1e-5))


SOURCES["arrays"] = file_arrays
TASKS["arrays"] = file_task
