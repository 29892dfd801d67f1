"""Where samples come from: arrays in memory (digits, synthetic tasks), or a data set of TFDS, read as array_record without
TensorFlow. All have one face."""

import abc
import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from limits import Task
from limits.inputs import task_of
from train.data.tasks import TASKS, handwritten, make_task
from zoo import checks
from zoo.messages import did_you_mean


class Source(abc.ABC):
    """Samples by number.

    `source[i]` is one sample as it is stored, {"image": [height, width, channels], "label": int}; `read(rows)` is many:
    inputs as they are stored, and float32 targets [n, outputs]. `normalise` is what `train.data.normalise` does to the
    inputs unless told otherwise (None: nothing). `classes` is None where targets are not labels; a sample is then {"input",
    "target"}.
    """

    name: str
    shape: tuple[int, ...]  # of one input
    classes: int | None
    normalise: str | None

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, labels or targets) of these rows, as they are stored."""

    @property
    def outputs(self) -> int:
        """How many numbers a target has."""
        return self.classes or self.stored(np.zeros(1, int))[1].shape[1]

    @property
    def doubt(self) -> str:
        """What speaks against taking the inputs as `normalise` does, in a sentence; or an empty one."""
        return ""

    def again(self) -> "Source":
        """What is read of anew where it may be another: itself."""
        return self

    def weights(self, rows: np.ndarray) -> np.ndarray:
        """What each of these rows counts in a mean over samples."""
        return np.ones(len(rows), np.float32)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        (x,), (y,) = self.stored(np.array([int(index)]))
        return {"input": x, "target": y} if self.classes is None else {"image": x, "label": int(y)}

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets) of these rows."""
        inputs, targets = self.stored(rows)
        return inputs, targets.astype(np.float32) if self.classes is None else one_hot(targets, self.classes)


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """Float32 rows; a label of −1, as TFDS marks what nobody labelled, is a row of zeros.

    >>> one_hot(np.array([2, -1]), 3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    return (labels[:, None] == np.arange(classes)).astype(np.float32)


def check_labels(name: str, labels: np.ndarray, classes: int) -> None:
    """Raises unless all are numbers of classes from 0 on, or −1 for those that nobody gave.

    >>> check_labels("own", np.array([1, 2, 3]), 3)
    Traceback (most recent call last):
    ...
    ValueError: The data "own": 1 of 3 labels are none of 3 classes 0 … 2 (−1: unlabelled), such as 3. 1-based? Give labels − 1.
    """
    if labels.dtype.kind not in "biuf" and str(labels.dtype) != "bfloat16":
        raise ValueError(f'The data "{name}": labels are an array of {labels.dtype}; give whole numbers.')
    known = (labels == np.floor(labels)) & (labels >= -1) & (labels < classes)
    if known.all():
        return
    from_one = ~np.isnan(labels).any() and labels.min() == 1 and labels.max() == classes
    few = ", ".join(f"{each:g}" for each in np.unique(labels[~known])[:3])
    hint = "1-based? Give labels − 1." if from_one else "Give whole numbers from 0 on, or more classes."
    raise ValueError(
        f'The data "{name}": {(~known).sum()} of {len(labels)} labels are none of {classes} classes 0 … {classes - 1} '
        f"(−1: unlabelled), such as {few}. {hint}"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays(Source):
    """Samples in memory: inputs [n, …], and labels [n] (−1: none) of so many classes or, with classes=None, targets [n, outputs].

    >>> data = Arrays("two", np.zeros((2, 4, 4, 1)), np.array([0, 2]), classes=3)
    >>> len(data), data[1]["label"], data.read(np.array([1]))[1].tolist()
    (2, 2, [[0.0, 0.0, 1.0]])
    """

    name: str
    inputs: np.ndarray
    targets: np.ndarray
    classes: int | None = None
    normalise: str = "none"

    def __post_init__(self) -> None:
        inputs, targets = (a if hasattr(a, "shape") else np.asarray(a) for a in (self.inputs, self.targets))
        what = "targets" if self.classes is None else "labels"
        least = int(self.classes is not None)  # a task may have no test points
        if not (inputs.ndim and targets.ndim and len(inputs) == len(targets) >= least):
            raise ValueError(
                f'The data "{self.name}" need inputs [n, …] and {what} of one length n ≥ {least}; got inputs of shape '
                f"{tuple(inputs.shape)} and {what} of shape {tuple(targets.shape)}."
            )
        if inputs.dtype.kind not in "biuf" and str(inputs.dtype) != "bfloat16":
            raise ValueError(f'The data "{self.name}": inputs are an array of {inputs.dtype}; give real numbers.')
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "targets", self._targets(targets))

    def _targets(self, given: Any) -> Any:
        """Targets [n, …], or labels [n]."""
        if self.classes is None:
            if given.ndim > 1:
                return given
            raise ValueError(
                f'The data "{self.name}": targets have shape {tuple(given.shape)}; give [n, outputs], which targets[:, None] '
                "is. Of labels say how many classes there are: Arrays(name, inputs, labels, classes)."
            )
        checks.count()(f'The data "{self.name}": classes (None: targets are no labels)', self.classes)
        if given.ndim == 2 and given.shape[1] == 1:  # as those of Keras are
            given = given[:, 0]
        if given.ndim > 1:
            raise ValueError(
                f'The data "{self.name}": labels have shape {tuple(given.shape)}; give whole numbers [n] (labels.argmax(1) of '
                "one-hot rows), or with classes=None targets [n, outputs]."
            )
        if given.dtype.kind == "O":  # as pandas has them
            given = np.array(given.tolist())
        check_labels(self.name, np.asarray(given), self.classes)
        return given

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of one input."""
        return self.inputs.shape[1:]

    @property
    def outputs(self) -> int:
        """How many numbers a target has."""
        return self.classes or self.targets.shape[1]

    def __len__(self) -> int:
        return len(self.inputs)

    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, labels or targets) of these rows."""
        return self.inputs[rows], self.targets[rows]


@dataclasses.dataclass(frozen=True, eq=False)
class Files(Source):
    """Images of a data set of TFDS, read from disk one by one: `records` by number, in `classes`; `size`: see `fitted`."""

    name: str
    records: Any
    shape: tuple[int, ...]
    classes: int
    size: int | None = None
    normalise: str = "image"

    def __len__(self) -> int:
        return len(self.records)

    def stored(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(images, labels) of these rows."""
        records = [self.records[row] for row in rows.tolist()]
        images = [fitted(record["image"], self.size) for record in records]
        return np.stack(images), np.array([int(record["label"]) for record in records])


def fitted(image: np.ndarray, size: int | None) -> np.ndarray:
    """The largest square in the middle, resized to size × size (bicubic); None: the image as it is.

    >>> fitted(np.zeros((20, 30, 3), np.uint8), 10).shape
    (10, 10, 3)
    """
    if size is None or image.shape[:2] == (size, size):
        return image
    from PIL import Image, ImageOps  # comes with matplotlib

    whole = image[..., 0] if image.shape[-1] == 1 else image
    return np.asarray(ImageOps.fit(Image.fromarray(whole), (size, size))).reshape(size, size, -1)


SOURCES: dict[
    str, Callable[..., Source]
] = {}  # by name: of (split, **options); `train.data.text` and `languages` add theirs

source_of = checks.Check("what train.data.source returns", lambda v: hasattr(v, "shape") and hasattr(v, "read"))


def _of(split: str, parts: dict[str, Any], name: str) -> Any:
    if split not in parts:
        raise ValueError(f'"{name}" has no split "{split}". {did_you_mean(split, parts)}')
    return parts[split]


def digits_source(split: str = "train") -> Arrays:
    """8 × 8 handwritten digits in [0, 1]: the fixed split of `train.data.tasks.handwritten`.

    >>> [len(digits_source(split)) for split in ("train", "test")]
    [1437, 360]
    """
    images, labels = handwritten(_of(split, {"train": "train", "test": "test"}, "digits"))
    return Arrays("digits", (images / 16).astype(np.float32), labels, 10, "sphere")


def task_source(task: Task, split: str = "train") -> Arrays:
    """The points and targets of a task, as they are.

    >>> from train.data import sphere
    >>> task_source(sphere(8, 4, dim=3), "test")[0]["input"].shape
    (3,)
    """
    parts = {"train": (task.x_train, task.y_train), "test": (task.x_test, task.y_test)}
    if task.mask_train is not None or task.mask_test is not None:
        raise ValueError(
            f"source: {task.name} has targets at positions of which some do not count, and a source has no masks: train on it by "
            "`ensemble`, or leave the masks out."
        )
    return Arrays(task.name, *_of(split, parts, task.name))


@checks.arguments(name=checks.word | task_of, split=checks.word)
def source(name: str | Task, split: str = "train", **options: Any) -> Source:
    """The samples of this name.

    - "digits": `digits_source`, its split the same for all seeds (not that of `train.data.digits`, which its seed draws);
    - "gaussian_teacher", "xor_mixture", "sphere" with the options of `train.data`, or any `Task`: inputs and targets;
    - "arrays": x_train, y_train, x_test, y_test of an .npz file, `train.data.file_arrays`;
    - "python", "text" (bytes, `train.data.text`), "random_hierarchy", "associative_recall" (`train.data.languages`): tokens;
    - any other name: a classification data set of TFDS, `tfds_source` (options data_dir, size, memory), or with the option
      context one of text, `train.data.text.tfds_text`; its splits are those of TFDS: "train", "test", "train[:90%]".

    >>> source("digits", "test").shape, source("sphere", n_train=5, dim=3).shape
    ((8, 8, 1), (3,))
    """
    if isinstance(name, Task):
        return task_source(name, split)
    if name == "digits":
        if options:
            raise TypeError(f'source: the data "digits" have no option "{next(iter(options))}"; they have a split.')
        return digits_source(split)
    if name in SOURCES:
        return SOURCES[name](split, **options)
    if name in TASKS:
        return task_source(make_task(name, **options), split)
    if "context" in options:
        return SOURCES["TFDS text"](split, name, **options)
    if other := [option for option in options if option not in ("data_dir", "size", "memory")]:
        known = sorted({*SOURCES, *TASKS, "digits"} - {"TFDS text"})
        raise ValueError(
            f'source: "{name}" is none of {", ".join(known)}, and a data set of TFDS has no option '
            f'"{other[0]}". Where a config registers it in SOURCES, give that file as --config.'
        )
    return tfds_source(name, split, **options)


def split_of(data: Mapping[str, Any], split: str) -> Any:
    """The samples of one split of the data that a config names in its field `data`."""
    kept = ("name", "train", "test", "augment", "normalise", "on_device")
    return source(data["name"], split, **{name: value for name, value in data.items() if name not in kept})


def tfds_source(
    name: str, split: str = "train", data_dir: str | None = None, size: int | None = None, memory: bool = False
) -> Source:
    """A data set with features "image" and "label", prepared as array_record.

    data_dir: where it lies; None: ~/tensorflow_datasets, or what TFDS_DATA_DIR says. size: `fitted` to that square, which
    data sets of images of many sizes need. memory: decode all images once and keep them.
    """
    features, data = opened(name, split, data_dir)
    labels = getattr(features["label"], "num_classes", None) if {"image", "label"} <= set(features.keys()) else None
    if not labels:
        raise ValueError(
            f'"{name}" has the features {", ".join(features.keys())}; a classification data set has "image" and "label".'
        )
    height, width, channels = features["image"].shape
    if size is None and None in (height, width):
        raise ValueError(f'The images of "{name}" differ in size: give size=…, to which they are cropped and resized.')
    found = Files(name, data, (size or height, size or width, channels), labels, size)
    return Arrays(name, *found.stored(np.arange(len(found))), labels, found.normalise) if memory else found


def opened(name: str, split: str, data_dir: str | None) -> tuple[Any, Any]:
    """(features, records by number) of a data set of TFDS."""
    if not name[:1].isalpha():
        raise ValueError(f'The name of a dataset must be that of data, and begin with a letter; got "{name}".')
    import tensorflow_datasets as tfds  # slow to import, and the other sources do without

    where = data_dir or "~/tensorflow_datasets (or set TFDS_DATA_DIR)"
    prepare = (
        f"On a machine that has a network and TensorFlow, prepare it with tfds build {name} --file_format=array_record, "
        f"and copy it to {where}."
    )
    try:
        builder: Any = tfds.builder(name, file_format="array_record", data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        known = [*TASKS, *SOURCES, *tfds.list_builders(with_community_datasets=False)]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        raise FileNotFoundError(
            f'"{name}" is no task of train.data, no data set that TFDS can build, and not in {where}. '
            f"{'The nearest names: ' + ', '.join(near) + '.' if near else ''}"
        ) from None
    except ValueError as error:
        if "file format" not in str(error).lower():
            raise
        raise FileNotFoundError(f'The data set "{name}" is here, but not as array_record. {prepare}') from error
    try:
        return builder.info.features, builder.as_data_source(split=split)
    except (KeyError, AssertionError, NotImplementedError):  # no splits, no folder, files of another format
        raise FileNotFoundError(f'The data set "{name}" is not on this machine. {prepare}') from None
