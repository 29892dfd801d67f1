"""Batches of labelled images: handwritten digits, or a data set of TFDS that lies on this machine."""

from collections.abc import Iterator

import numpy as np

from train.data import digits, minibatches
from train.stream.normalise import by_image
from train.stream.records import tfds_source


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
    source = tfds_source(dataset, size=size)
    count = min(len(source), n_train or len(source))
    if batch > count:
        raise ValueError(f"A batch of {batch} cannot be drawn from the {count} images of {dataset}.")
    random, order = np.random.default_rng(seed), np.zeros(0, int)
    for _ in range(steps):
        if len(order) < batch:  # what is left of an epoch is left out, as in train.data.shuffled_batches
            order = random.permutation(count)
        rows, order = order[:batch], order[batch:]
        images, labels = source.read(rows)
        yield by_image(images), labels
