"""From images as they are stored (uint8, or float in [0, 1]) to float32 inputs [n, height, width, channels]."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from train.data.tasks import on_sphere
from zoo import checks
from zoo.messages import did_you_mean


def chosen(table: Mapping[str, Callable[..., Any]], item: Any, what: str) -> Callable[..., Any]:
    """The function of this name with these options (its keyword-only arguments); `item` is "name" or ("name", options).

    >>> def scaled(x, *, factor=2.0):
    ...     return factor * x
    >>> chosen({"scaled": scaled}, ("scaled", {"factor": 3.0}), "change")(2.0)
    6.0
    """
    try:
        name, options = (item, {}) if isinstance(item, str) else item
        options = dict(options)
    except (TypeError, ValueError):
        raise ValueError(f'A step of {what} is "name" or ("name", {{options}}); got {checks.shown(item)}.') from None
    if not isinstance(name, str) or name not in table:
        raise ValueError(f'Unknown {what} "{name}". {did_you_mean(str(name), table)}')
    arguments = inspect.signature(table[name]).parameters.values()
    known = {a.name: a.default for a in arguments if a.kind is inspect.Parameter.KEYWORD_ONLY}
    for option in options:
        if option not in known:
            raise ValueError(f'The {what} "{name}" has no option "{option}". {did_you_mean(option, known)}')
    for option, value in options.items():
        if check := getattr(table[name], "checks", {}).get(option):
            check(f'The {what} "{name}": {option}', value)
    missing = [o for o, default in known.items() if default is inspect.Parameter.empty and o not in options]
    if missing:
        raise ValueError(f'The {what} "{name}" needs {" and ".join(missing)}: ("{name}", {{"{missing[0]}": …}}).')
    return functools.partial(table[name], **options)


def as_float(x: np.ndarray) -> np.ndarray:
    """float32, with 0 … 255 brought to [0, 1]."""
    return x.astype(np.float32) / 255 if x.dtype == np.uint8 else x.astype(np.float32)


def by_image(x: np.ndarray) -> np.ndarray:
    """Each image without its mean, at mean square 1; an image of one colour becomes zeros.

    >>> by_image(np.array([[[[0.0], [1.0]]]])).ravel().tolist()
    [-1.0, 1.0]
    """
    x = as_float(x)
    # The mean of equal float32 numbers is that number if it is taken in float64: of one colour nothing is left to blow up.
    return on_sphere(x - x.mean(tuple(range(1, x.ndim)), np.float64, keepdims=True).astype(np.float32))


def to_sphere(x: np.ndarray) -> np.ndarray:
    """Each image at mean square 1, its mean kept: |x|² = D, as `train.data.digits` has it."""
    return on_sphere(as_float(x))


def by_dataset(x: np.ndarray, *, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """(x − mean) / std with the data set's numbers, one a channel, for images in [0, 1].

    >>> by_dataset(np.full((1, 1, 1, 3), 255, np.uint8), mean=(0.5, 0.5, 0.5), std=(0.25, 0.5, 1.0)).ravel().tolist()
    [2.0, 1.0, 0.5]
    """
    channels = x.shape[-1]
    if {len(mean), len(std)} - {1, channels}:
        raise ValueError(
            f'Normalisation "dataset": {len(mean)} means and {len(std)} deviations for images of {channels} channels.'
        )
    return (as_float(x) - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def tokens(x: np.ndarray) -> np.ndarray:
    """Whole numbers, as they are."""
    return x.astype(np.int32)


NORMALISATIONS: dict[str, Callable[..., np.ndarray]] = {
    "none": as_float,
    "tokens": tokens,
    "image": by_image,
    "sphere": to_sphere,
    "dataset": by_dataset,
}


def normalisation(item: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The function of a name: "none", "tokens", "image", "sphere", or ("dataset", {"mean": …, "std": …}); of None a copy.

    >>> normalisation("none")(np.array([[0, 255]], np.uint8)).tolist()
    [[0.0, 1.0]]
    """
    return functools.partial(np.array) if item is None else chosen(NORMALISATIONS, item, "normalisation")
