"""Which digits are to train on and which to test on: those of scikit-learn, without importing it."""

from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from sklearn.model_selection import train_test_split

from train.data.stratified import stratified
from train.data.tasks import handwritten


def test_the_digits_are_those_of_scikit_learn():
    bunch: Any = sklearn.datasets.load_digits()
    rows = train_test_split(np.arange(1797), test_size=0.2, stratify=bunch.target, random_state=0)
    for split, chosen in zip(("train", "test"), rows, strict=True):
        images, labels = handwritten(split)
        np.testing.assert_array_equal(images[..., 0], bunch.images[chosen])
        np.testing.assert_array_equal(labels, bunch.target[chosen])
        assert (images.dtype, labels.dtype) == (bunch.images.dtype, bunch.target.dtype)


@pytest.mark.parametrize("n", [10, 33, 50])
def test_any_split_is_that_of_scikit_learn(n: int):
    for seed in range(5):  # among them classes of equal size, whose odd samples are drawn
        labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(5), [20, 20, 20, 20, 17]))
        rows = train_test_split(np.arange(97), test_size=n, stratify=labels, random_state=seed)
        for found, expected in zip(stratified(labels, n, seed), rows, strict=True):
            np.testing.assert_array_equal(found, expected)
