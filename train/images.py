"""Batches of labelled images: handwritten digits, or a data set of TFDS that lies on this machine."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from train.data import digits, minibatches, on_sphere


def image_batches(
    dataset: str, batch: int, steps: int, seed: int = 0, size: int | None = None, n_train: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(images [batch, height, width, channels], labels as one-hot rows) of every step, epochs in a new order each.

    dataset: "digits", or a name of TFDS such as "cifar10", read as array_record without TensorFlow, its
    images centred. All have mean square 1. `size` resizes those of TFDS. n_train: only so many of them.

    >>> x, y = next(image_batches("digits", 4, steps=1, n_train=100))
    >>> x.shape, y.shape
    ((4, 8, 8, 1), (4, 10))
    """
    if dataset == "digits":
        task = digits(n_train or 1500, 0, classes=range(10), targets="one_hot", loss="cross_entropy", seed=seed)
        yield from minibatches(task, batch, steps, seed)
        return
    source, classes = _source(dataset)
    count = min(len(source), n_train or len(source))
    if batch > count:
        raise ValueError(f"A batch of {batch} cannot be drawn from the {count} images of {dataset}.")
    random, order = np.random.default_rng(seed), np.zeros(0, int)
    for _ in range(steps):
        if len(order) < batch:  # what is left of an epoch is left out, as in train.data.shuffled_batches
            order = random.permutation(count)
        rows, order = order[:batch], order[batch:]
        records = [source[int(row)] for row in rows]
        images = np.stack([_resized(record["image"], size) for record in records]).astype(np.float32) / 255
        labels = np.array([record["label"] for record in records])
        yield on_sphere(images - images.mean((1, 2, 3), keepdims=True)), np.eye(classes, dtype=np.float32)[labels]


def _source(dataset: str) -> tuple[Any, int]:
    """(records by number, number of classes)."""
    import tensorflow_datasets as tfds  # slow to import, and digits do without

    try:
        builder: Any = tfds.builder(dataset, file_format="array_record")
        return builder.as_data_source(split="train"), builder.info.features["label"].num_classes
    except (KeyError, AssertionError, tfds.core.DatasetNotFoundError):
        raise FileNotFoundError(
            f'The data set "{dataset}" is not on this machine. On one that has a network and TensorFlow, prepare it with '
            f"tfds build {dataset} --file_format=array_record, and copy it to ~/tensorflow_datasets (or set TFDS_DATA_DIR)."
        ) from None


def _resized(image: np.ndarray, size: int | None) -> np.ndarray:
    if size is None or image.shape[:2] == (size, size):
        return image
    from PIL import Image  # comes with matplotlib

    whole = image[..., 0] if image.shape[-1] == 1 else image
    return np.asarray(Image.fromarray(whole).resize((size, size))).reshape(size, size, -1)
