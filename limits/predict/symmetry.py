"""Whether a kernel of points with themselves is one: factorisations read one triangle of a matrix and cannot tell."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

_ASYMMETRY = 1e-5  # of the largest entry: more than rounding of float32
_ROUNDING = 4  # last digits, of types with fewer of them
_ROWS = 512  # that are compared at once


def check_symmetric(owner: str, points: np.ndarray | None = None, /, **kernels: Any) -> None:
    """Raises unless these [n, n] are symmetric up to rounding (what JAX traces is not looked at).

    points: the numbers of those that the kernels are of, where they are parts of larger ones.

    >>> check_symmetric("f", k=np.array([[1.0, 0.5], [0.25, 1.0]]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: f: k is not symmetric: entries across its diagonal differ by up to 0.25, the largest is 1 (k[0, 1] is 0.5 and ...
    """
    for name, given in kernels.items():
        if isinstance(given, Tracer):
            continue
        k = np.asarray(given)
        away, i, j, largest = _furthest(k)
        rounding = _ROUNDING * float(jnp.finfo(k.dtype).eps) if jnp.issubdtype(k.dtype, jnp.floating) else 0.0
        if away <= max(_ASYMMETRY, rounding) * largest or not np.isfinite(largest):
            continue
        a, b = (i, j) if points is None else (int(points[i]), int(points[j]))
        raise ValueError(
            f"{owner}: {name} is not symmetric: entries across its diagonal differ by up to {away:.3g}, the largest is "
            f"{largest:.3g} ({name}[{a}, {b}] is {float(k[i, j]):g} and {name}[{b}, {a}] is {float(k[j, i]):g}). If that is "
            "rounding, or noise of sampling, which kernels(x, x) has and kernels(x) has not, give "
            f"({name} + {name}.T) / 2. Else give the kernel of these points with themselves, all of it: not one triangle, nor "
            "K(x_test, x_train) of as many other points."
        )


def _furthest(k: np.ndarray) -> tuple[float, int, int, float]:
    """By what entries across the diagonal differ at most, where that is, and the largest entry."""
    found, largest = (0.0, 0, 0), 0.0
    for start in range(0, len(k), _ROWS):
        rows = k[start : start + _ROWS].astype(np.float64)
        largest = np.maximum(largest, np.abs(rows).max())  # NaN stays NaN
        with np.errstate(invalid="ignore"):  # of infinite entries
            away = np.abs(rows[:, start:] - k[start:, start : start + _ROWS].T)
        at = int(away.argmax())
        i, j = divmod(at, away.shape[1])
        if away[i, j] > found[0]:
            found = float(away[i, j]), start + i, start + j
    return *found, float(largest)
