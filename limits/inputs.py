"""Checks of inputs that come from a caller."""

from typing import Any

import numpy as np


def as_rows(x: Any, name: str, dtype: Any = np.float64) -> np.ndarray:
    """x as an array [n, D]: inputs of any shape are flattened; NaN and infinities are refused.

    >>> as_rows([[[1, 2], [3, 4]]], "x").shape
    (1, 4)
    """
    rows = np.asarray(x, dtype)
    if rows.ndim < 2 or not rows.size:
        raise ValueError(
            f"{name} must hold samples along its first axis, [n, …] with n ≥ 1; its shape is {rows.shape}."
        )
    bad = int(rows.size - np.isfinite(rows).sum())
    if bad:
        raise ValueError(f"{name} holds {bad} values that are NaN or infinite (of {rows.size}); remove them first.")
    return rows.reshape(len(rows), -1)


def check_same_width(x1: np.ndarray, x2: np.ndarray) -> None:
    """Raises unless both have the same number of features."""
    if x1.shape[1] != x2.shape[1]:
        raise ValueError(f"x1 has {x1.shape[1]} features a sample and x2 has {x2.shape[1]}: they must have the same.")
