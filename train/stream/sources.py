"""Where samples come from: arrays in memory (digits, synthetic tasks), or a data set of TFDS. All have one face."""

import abc
import dataclasses
from typing import Any

import numpy as np
import sklearn.datasets

from limits import Task
from limits.inputs import task_of
from train.data import TASKS, make_task
from zoo import checks
from zoo.messages import did_you_mean


class Source(abc.ABC):
    """Samples by number.

    `source[i]` is one sample as it is stored, {"image": [height, width, channels], "label": int}; `read(rows)` is many:
    inputs as they are stored, and float32 targets [n, outputs]. `normalise` is what `train.stream.normalise` does to the
    inputs unless told otherwise. `classes` is None where targets are not labels; a sample is then {"input", "target"}.
    """

    name: str
    shape: tuple[int, ...]
    classes: int | None
    outputs: int
    normalise: str

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> dict[str, Any]: ...

    @abc.abstractmethod
    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets) of these rows."""


def one_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """Float32 rows; a label of −1, as TFDS marks what nobody labelled, is a row of zeros.

    >>> one_hot(np.array([2, -1]), 3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    return (labels[:, None] == np.arange(classes)).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays(Source):
    """Samples in memory: inputs [n, …], and labels [n] of so many classes or, with classes=None, targets [n, outputs].

    >>> data = Arrays("two", np.zeros((2, 4, 4, 1)), np.array([0, 2]), classes=3)
    >>> len(data), data[1]["label"], data.read(np.array([1]))[1].tolist()
    (2, 2, [[0.0, 0.0, 1.0]])
    """

    name: str
    inputs: np.ndarray
    targets: np.ndarray
    classes: int | None = None
    normalise: str = "none"

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of one input."""
        return self.inputs.shape[1:]

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers a target has."""
        return self.classes or self.targets.shape[1]

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        if self.classes is None:
            return {"input": self.inputs[index], "target": self.targets[index]}
        return {"image": self.inputs[index], "label": int(self.targets[index])}

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, targets) of these rows."""
        targets = self.targets[rows]
        return self.inputs[rows], targets.astype(np.float32) if self.classes is None else one_hot(targets, self.classes)


source_of = checks.Check("what train.stream.source returns", lambda v: hasattr(v, "shape") and hasattr(v, "read"))


def _of(split: str, parts: dict[str, Any], name: str) -> Any:
    if split not in parts:
        raise ValueError(f'"{name}" has no split "{split}". {did_you_mean(split, parts)}')
    return parts[split]


def digits_source(split: str = "train") -> Arrays:
    """8 × 8 handwritten digits in [0, 1]: 1,437 to train, 360 to test, every class in its proportion in both.

    The split is one for all: it does not depend on the seed of a run, so that accuracies of runs are of the same images. It is
    `sklearn.model_selection.train_test_split(range(1797), test_size=0.2, stratify=labels, random_state=0)`.

    >>> [len(digits_source(split)) for split in ("train", "test")]
    [1437, 360]
    """
    from sklearn.model_selection import train_test_split  # slow to import

    bunch: Any = sklearn.datasets.load_digits()
    train, test = train_test_split(np.arange(len(bunch.target)), test_size=0.2, stratify=bunch.target, random_state=0)
    rows = _of(split, {"train": train, "test": test}, "digits")
    images = (bunch.images[rows, ..., None] / 16).astype(np.float32)
    return Arrays("digits", images, bunch.target[rows], 10, "sphere")


def task_source(task: Task, split: str = "train") -> Arrays:
    """The points and targets of a task, as they are.

    >>> from train.data import sphere
    >>> task_source(sphere(8, 4, dim=3), "test")[0]["input"].shape
    (3,)
    """
    parts = {"train": (task.x_train, task.y_train), "test": (task.x_test, task.y_test)}
    return Arrays(task.name, *_of(split, parts, task.name))


@checks.arguments(name=checks.word | task_of, split=checks.word)
def source(name: str | Task, split: str = "train", **options: Any) -> Source:
    """The samples of this name.

    - "digits": `digits_source`, its split the same for all seeds;
    - "gaussian_teacher", "xor_mixture", "sphere" with the options of `train.data`, or any `Task`: inputs and targets;
    - any other name: a classification data set of TFDS, `train.stream.records.tfds_source` (options data_dir, size, memory),
      whose splits are those of TFDS: "train", "test", "train[:90%]".

    >>> source("digits", "test").shape, source("sphere", n_train=5, dim=3).shape
    ((8, 8, 1), (3,))
    """
    if isinstance(name, Task):
        return task_source(name, split)
    if not name[0].isalpha():
        raise ValueError(f'source: name must be that of data, and begin with a letter; got "{name}".')
    if name == "digits":
        if options:
            raise TypeError(f'source: the data "digits" have no option "{next(iter(options))}"; they have a split.')
        return digits_source(split)
    if name in TASKS:
        return task_source(make_task(name, **options), split)
    from train.stream.records import tfds_source

    return tfds_source(name, split, **options)
