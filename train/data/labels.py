"""Whole numbers as classes: how many there are, and what a loss makes of one that the network has no output for."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.data.sources import Arrays, Source
from train.data.tokens import TokenSource
from train.step import are_classes

_ROWS = 2  # of a batch, that losses are tried on
_RARE = 1e-3


def classes_in(parts: Iterable[Any]) -> int:
    """How many classes these targets tell apart at least; 0 where they are none, at the first part that shows it.

    Whole numbers may be classes; rows are where every one of them is 1 in one column, and 0 in the others.

    >>> classes_in([np.eye(3), np.eye(3)[:1]]), classes_in([np.array([2, 0])]), classes_in([np.eye(3), np.ones((1, 3))])
    (3, 3, 0)
    """
    found = 0
    for targets in map(np.asarray, parts):
        if np.issubdtype(targets.dtype, np.integer):
            found = max(found, int(targets.max(initial=0)) + 1, 2)
        elif targets.ndim > 1 and np.isin(targets, (0, 1)).all() and (targets.sum(-1) == 1).all():
            found = max(found, targets.shape[-1])
        else:
            return 0
    return found


def some_of(source: Source, most: int) -> list[np.ndarray]:
    """So many of a source's targets, from its beginning to its end; where it says how many classes it has, the first and last."""
    if isinstance(source, TokenSource) or source.classes:
        return [np.array([0, (source.classes or 2) - 1])]
    among = np.unique(np.linspace(0, len(source) - 1, most).astype(int))
    return [source.read(rows)[1] for rows in np.array_split(among, -(-len(among) // 50))]


def absent_classes(data: Source, taken: Any) -> str:
    """Of the first samples of arrays, one-hot, which classes they lack that others have, in a sentence: where that would be rare
    in any other order, as where samples are sorted by class.

    >>> data = Arrays("own", np.zeros((40, 1)), np.repeat(np.arange(4), 10), classes=4)
    >>> absent_classes(data, np.eye(4)[[0] * 8]), absent_classes(data, np.eye(4)[[0, 1, 2, 0, 2, 2, 1, 1]])
    ('the first 8 samples, which are taken, lack 3 of 4 classes (1, 2, 3): are they sorted? Shuffle them.', '')
    """
    if not (isinstance(data, Arrays) and data.classes):
        return ""
    labels, counts = np.unique(data.targets[data.targets >= 0], return_counts=True)
    rows = np.asarray(taken)[:, labels.astype(int)]
    there, labelled = rows.any(0), int(rows.any(1).sum())
    absent, others = labels[~there], counts[there].sum() / max(counts.sum(), 1)
    if not len(absent) or not labelled:
        return ""
    ways = sum(math.lgamma(n + 1) * sign for n, sign in ((len(labels), 1), (len(absent), -1), (there.sum(), -1)))
    if ways + labelled * math.log(others) > math.log(_RARE):  # a bound of the chance
        return ""
    few = ", ".join(f"{label:g}" for label in absent[:5]) + ", …" * (len(absent) > 5)
    return (
        f"the first {len(taken)} samples, which are taken, lack {len(absent)} of {len(labels)} classes ({few}): are they sorted? "
        "Shuffle them."
    )


def check_labels(
    loss: Callable[[Any, Any], Any], outputs: Callable[[], Any], targets: Any, seen: Iterable[Any], what: str
) -> None:
    """Refuses labels `seen` that have no output and that the loss takes for another class, or, counted from 1, for none.

    outputs(), targets: their shapes. Arrays are read from their end at −1, and beyond their end at the last entry, without its
    gradient; one_hot has a row of zeros there. Labels that are left out or taken together on purpose, and losses that are not
    finite, stay.

    >>> import optax
    >>> shapes = lambda: np.zeros((2, 3)), np.zeros(2, int)
    >>> loss = lambda f, y: optax.softmax_cross_entropy_with_integer_labels(f, y).mean()
    >>> check_labels(loss, *shapes, [np.array([0, 2])], "batches")
    >>> check_labels(loss, *shapes, [np.array([0, -1])], "batches")
    Traceback (most recent call last):
    ValueError: batches gives labels from -1 to 0, the network has 3 outputs, and the loss takes -1 for class 2: ...
    """
    integers = [y for y in map(np.asarray, seen) if np.issubdtype(y.dtype, np.integer) and y.size]
    if not integers or not are_classes(shape := outputs(), targets):
        return
    low, high, count = min(int(y.min()) for y in integers), max(int(y.max()) for y in integers), shape.shape[-1]
    try:
        how = _taken(loss, (min(targets.shape[0], _ROWS), *targets.shape[1:]), low, high, count)
    except (TypeError, ValueError):  # the loss is of whole batches alone
        return
    if how:
        raise ValueError(
            f"{what} gives labels from {low} to {high}, the network has {count} outputs, and the loss {how}: classes are whole "
            f"numbers from 0 to {count - 1}. Give as many outputs as there are classes, count these from 0, map them before "
            "they are given, or, where -1 says that there is none, take train.losses.cross_entropy."
        )


def _taken(loss: Callable[[Any, Any], Any], shape: tuple[int, ...], low: int, high: int, count: int) -> str:
    """What a loss makes of the least and of the largest label where they have no output, if it is no use."""

    def of(label: int) -> tuple[float, np.ndarray]:
        f = jax.random.normal(jax.random.key(0), (*shape, count))
        value, slope = jax.value_and_grad(lambda f: loss(f, jnp.full(shape, label)).sum())(f)
        return float(value), np.asarray(slope)

    for label, taken_for in ((low, count + low), (high, count - 1)):
        if 0 <= label < count or not 0 <= taken_for < count:
            continue
        (value, slope), (other, like), (apart, _) = of(label), of(taken_for), of(0 if taken_for else 1)
        same = np.isclose(value, other) and not np.isclose(other, apart)
        if same and (label < 0 or not np.allclose(slope, like)):
            return f"takes {label} for class {taken_for}"
        if low >= 1 and label == count and np.isfinite(value) and like.any() and not slope.any():
            return f"does not depend on outputs where the label is {label}"
    return ""
