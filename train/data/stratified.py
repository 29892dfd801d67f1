"""Samples divided in two, every class in its proportion in both."""

import numpy as np


def stratified(labels: np.ndarray, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(rows of all but n samples, rows of n samples), each in a random order.

    Those of scikit-learn's `train_test_split(range(len(labels)), test_size=n, stratify=labels, random_state=seed)`, whose import
    takes a second.

    >>> [part.tolist() for part in stratified(np.array([0, 0, 0, 1, 1, 1]), 2)]
    [[2, 5, 1, 3], [0, 4]]
    """
    random = np.random.RandomState(seed)
    counts = np.bincount(labels)
    first = _shares(counts, len(labels) - n, random)
    second = _shares(counts - first, n, random)
    parts: tuple[list[int], list[int]] = ([], [])
    for k, (count, a, b) in enumerate(zip(counts, first, second, strict=True)):
        rows = np.flatnonzero(labels == k)[random.permutation(count)]
        parts[0].extend(rows[:a])
        parts[1].extend(rows[a : a + b])
    return random.permutation(parts[0]), random.permutation(parts[1])


def _shares(counts: np.ndarray, n: int, random: np.random.RandomState) -> np.ndarray:
    """Of n draws, how many fall to each class: the whole part of its share, and one more by the largest remainders."""
    shares = counts / counts.sum() * n
    found = np.floor(shares)
    remainders, left = shares - found, int(n - found.sum())
    for value in np.unique(remainders)[::-1]:
        if left:
            equal = np.flatnonzero(remainders == value)
            found[random.choice(equal, min(len(equal), left), replace=False)] += 1
            left -= min(len(equal), left)
    return found.astype(int)
