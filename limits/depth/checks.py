"""One check of the numbers given to functions of depth."""

import math
from typing import Any

import numpy as np

from zoo.messages import did_you_mean

RESIDUAL = ("none", "fixed", "decreasing")


def number(owner: str, field: str, value: Any, positive: bool = True) -> float:
    """`value` as a float, NumPy's and JAX's too; raises unless it is one finite number > 0 (≥ 0 if not `positive`).

    >>> number("phase", "b_std", np.float32(0.5), positive=False)
    0.5
    """
    try:
        found = math.nan if isinstance(value, (str, bytes)) or np.ndim(value) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not 0 <= found < 1e150 or (positive and found == 0):
        raise ValueError(f"{owner}: {field} must be one finite number {'> 0' if positive else '≥ 0'}, got {value!r}.")
    return found


def standard_deviations(owner: str, w_std: Any, b_std: Any) -> tuple[float, float]:
    """(w_std, b_std) as floats, checked as network definitions check them: w_std > 0, b_std ≥ 0.

    >>> standard_deviations("phase", 1, np.float64(0.0))
    (1.0, 0.0)
    """
    return number(owner, "w_std", w_std), number(owner, "b_std", b_std, positive=False)


def check_residual(residual: str) -> None:
    """Raises for a word that names no residual form."""
    if residual not in RESIDUAL:
        raise ValueError(f'Unknown residual "{residual}". {did_you_mean(residual, RESIDUAL)}')
