"""Kernels whose signals have left the range of their numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def check_in_range(kernels: Mapping[str, Any], depth: float) -> None:
    """Raises where entries of these kernels, by name, are infinite or NaN.

    >>> check_in_range({"NNGP": np.ones((2, 2))}, 3)
    """
    broken = {name: int(a.size - np.isfinite(a).sum()) for name, a in kernels.items()}
    where = " and ".join(f"{n} of {kernels[name].size} entries of the {name}" for name, n in broken.items() if n)
    if not where:
        return
    dtype = next(iter(kernels.values())).dtype
    if np.isinf(depth):
        raise FloatingPointError(
            f"{where} are infinite or NaN: at depth inf signals leave the range of {dtype}, or the layer-time equations could "
            "not be solved. Lower w_std or beta; leave out inputs that are zero if the activation is not zero there (their "
            "correlations jump at the first block), or use b_std > 0."
        )
    wider = "" if dtype == np.float64 else ", or use dtype=float64"
    raise FloatingPointError(
        f"{where} are infinite or NaN: at depth {depth} signals have left the range of {dtype}. "
        f'Lower w_std or beta, or scale residual branches (residual="uniform"){wider}.'
    )
