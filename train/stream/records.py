"""Classification data sets of TFDS, read as array_record without TensorFlow."""

import dataclasses
import difflib
from typing import Any

import numpy as np

from train.data import TASKS
from train.stream.sources import Arrays, Source, one_hot


@dataclasses.dataclass(frozen=True, eq=False)
class Records(Source):
    """Images read from disk, record by record."""

    name: str
    data: Any
    shape: tuple[int, ...]
    classes: int
    size: int | None = None
    normalise: str = "image"

    @property
    def outputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many numbers a target has."""
        return self.classes

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        record = self.data[int(index)]
        return {"image": fitted(record["image"], self.size), "label": int(record["label"])}

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(images, one-hot labels) of these rows."""
        records = [self.data[row] for row in rows.tolist()]
        images = np.stack([fitted(record["image"], self.size) for record in records])
        return images, one_hot(np.array([record["label"] for record in records]), self.classes)


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


def tfds_source(
    name: str, split: str = "train", data_dir: str | None = None, size: int | None = None, memory: bool = False
) -> Source:
    """A data set with features "image" and "label", prepared as array_record.

    data_dir: where it lies; None: ~/tensorflow_datasets, or what TFDS_DATA_DIR says. size: `fitted` to that square, which
    data sets of images of many sizes need. memory: decode all images once and keep them.
    """
    features, data = _opened(name, split, data_dir)
    labels = getattr(features["label"], "num_classes", None) if {"image", "label"} <= set(features.keys()) else None
    if not labels:
        raise ValueError(
            f'"{name}" has the features {", ".join(features.keys())}; a classification data set has "image" and "label".'
        )
    height, width, channels = features["image"].shape
    if size is None and None in (height, width):
        raise ValueError(f'The images of "{name}" differ in size: give size=…, to which they are cropped and resized.')
    found = Records(name, data, (size or height, size or width, channels), labels, size)
    if not memory:
        return found
    rows = np.arange(len(found))
    images, targets = found.read(rows)
    return Arrays(name, images, targets.argmax(1), labels, found.normalise)


def _opened(name: str, split: str, data_dir: str | None) -> tuple[Any, Any]:
    """(features, records by number)."""
    import tensorflow_datasets as tfds  # slow to import, and the other sources do without

    where = data_dir or "~/tensorflow_datasets (or set TFDS_DATA_DIR)"
    prepare = (
        f"On a machine that has a network and TensorFlow, prepare it with tfds build {name} --file_format=array_record, "
        f"and copy it to {where}."
    )
    try:
        builder: Any = tfds.builder(name, file_format="array_record", data_dir=data_dir)
    except tfds.core.DatasetNotFoundError:
        known = ["digits", *TASKS, *tfds.list_builders(with_community_datasets=False)]
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
