"""The samples that regression with kernels takes from a source."""

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from train.data.labels import absent_classes
from train.data.normalise import normalisation
from train.data.sources import Source, source

if TYPE_CHECKING:
    from train.study.regression import Regression

_AT_ONCE = 256  # samples to read on, where some before have no label


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and centred one-hot targets, or real ones, to train and to test on."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @functools.cached_property
    def classes(self) -> bool:
        """Whether a share of wrong classes says anything: targets tell classes apart, more than one, by more than a sample."""
        return min(len(self.x), len(self.x_test)) > 1 and tell_classes(np.concatenate([self.y, self.y_test]))


def tell_classes(y: np.ndarray) -> bool:
    """Whether targets [n, outputs] are classes: ±a of one output, else the larger of two numbers for one output at most.

    >>> tell_classes(np.array([[1.0], [-1.0]])), tell_classes(np.array([[0.3], [-1.0]])), tell_classes(np.eye(3) - 1 / 3)
    (True, False, True)
    """
    low, high = y.min(), y.max()
    one_of_them = (y == high).sum(-1) <= 1 if y.shape[-1] > 1 else high == -low
    return bool(low < high and np.all((y == low) | (y == high)) and np.all(one_of_them))


def samples(data: dict[str, Any], settings: "Regression") -> Samples:
    """Those of a source (`train.data.source`): data has its name, the splits `train` and `test`, and options of it.

    Samples that nobody labelled (−1) are left out, and others read in their place.
    """
    options = {key: value for key, value in data.items() if key not in ("name", "train", "test", "normalise")}
    found = []
    for split, count in ((data.get("train", "train"), settings.n_train), (data.get("test", "test"), settings.n_test)):
        each = source(data["name"], split, **options)
        if not len(each):
            raise ValueError(
                f'config.data: the split "{split}" of {data["name"]} has no samples; regression needs both splits.'
            )
        x, y = _first(each, count or len(each))
        if not len(x):
            raise ValueError(f'config.data: no sample of the split "{split}" of {data["name"]} has a label.')
        if lacks := absent_classes(each, y):
            warnings.warn(f'config.data: the split "{split}" of {data["name"]}: {lacks}', stacklevel=2)
        x = normalisation(data.get("normalise") or each.normalise)(x)
        found += [x.astype(settings.dtype), y - (1 / y.shape[1] if each.classes else 0)]
    return Samples(each.name, *found)


def _first(data: Source, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, targets) of the first samples of a source, so many of those that have a label, or as many as there are."""
    inputs, targets, there, at = [], [], 0, 0
    while there < count and at < len(data):
        until = min(len(data), at + max(count - there, _AT_ONCE * (at > 0)))
        x, y = data.read(np.arange(at, until))
        if data.classes and not (labelled := y.any(1)).all():
            x, y = x[labelled], y[labelled]
        inputs.append(x[: count - there])
        targets.append(y[: count - there])
        there, at = there + len(inputs[-1]), until
    if len(inputs) == 1:  # not a second copy of a whole data set
        return inputs[0], targets[0]
    return np.concatenate(inputs), np.concatenate(targets)
