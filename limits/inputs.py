"""Checks of inputs that come from a caller."""

from typing import Any

import numpy as np


def as_samples(x: Any, name: str, dtype: Any = np.float64) -> np.ndarray:
    """x as an array [n, …] with n ≥ 1; NaN and infinities are refused.

    >>> as_samples([[1, 2]], "x").shape
    (1, 2)
    """
    samples = np.asarray(x, dtype)
    if samples.ndim < 2 or not samples.size:
        raise ValueError(
            f"{name} must hold samples along its first axis, [n, …] with n ≥ 1; its shape is {samples.shape}."
        )
    bad = int(samples.size - np.isfinite(samples).sum())
    if bad:
        raise ValueError(f"{name} holds {bad} values that are NaN or infinite (of {samples.size}); remove them first.")
    return samples


def check_same_shape(x1: np.ndarray, x2: np.ndarray) -> None:
    """Raises unless samples of both have the same shape."""
    if x1.shape[1:] != x2.shape[1:]:
        raise ValueError(
            f"x1 has samples of shape {x1.shape[1:]} and x2 of shape {x2.shape[1:]}: they must have the same."
        )
