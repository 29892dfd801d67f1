"""Kernels of infinitely deep networks: how far they can be trusted, and tables where the direct way takes long."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from limits.depth.tabulated import Table
from limits.types import Provenance

_MEASURED = 32  # inputs on which the solver's error is measured
_TABULATED = 20_000  # pairs, from which on a series is summed for a table only


def in_layer_time(
    solve: Callable[[Any, Any, float], Any],
    x1: np.ndarray,
    x2: np.ndarray | None,
    rows: int,
    tolerance: float,
    base: Provenance,
    series: bool,
) -> tuple[Callable[[Any, Any], Any], Provenance]:
    """(the kernels of a pair of blocks, where they come from) from a solver (x1, x2, tolerance) → kernels.

    The error is measured: on some inputs the equations are solved again, a hundred times more precisely. `series`: the
    activation has no closed form, so that each solution is costly; then many pairs are interpolated (`Table`). `rows` is how
    many inputs are solved for at a time.
    """

    def direct(a: Any, b: Any) -> Any:
        return solve(a, b, tolerance)

    count = min(len(x1), rows, _MEASURED)
    error = solver_error(solve, x1, tolerance, count)
    detail = (
        f"layer-time equations, adaptive solver: error {error:.0e} of the largest entry, measured on {count} inputs"
    )
    pair: Callable[[Any, Any], Any] = direct
    if series and len(x1) * len(x1 if x2 is None else x2) > _TABULATED:
        table = Table.of(direct, x1, x2, tolerance=10 * tolerance)
        pair = table.__call__
        detail += f"; tabulated over |x|, |x'| and their angle: error {table.error:.0e}, measured on pairs worked out directly"
    kind = base.kind if base.kind == "monte_carlo" else "approximate"
    return pair, Provenance(kind, f"{base.detail}; {detail}" if base.detail else detail)


def solver_error(solve: Callable[[Any, Any, float], Any], x: np.ndarray, tolerance: float, count: int) -> float:
    """The largest difference to a solution a hundred times more precise, relative to the largest entry, on `count` inputs."""
    some = x
    if len(x) > count:  # of all sizes, the smallest and the largest among them
        order = np.argsort([np.linalg.norm(a) for a in x])
        some = x[order[np.linspace(0, len(x) - 1, count).round().astype(int)]]
    pairs = zip(solve(some, some, tolerance), solve(some, some, tolerance / 100), strict=True)
    away = [(np.abs(np.asarray(a) - np.asarray(b)).max(), np.abs(np.asarray(b)).max()) for a, b in pairs]
    found = max(float(difference / size) if size else 0.0 for difference, size in away)
    return found if math.isfinite(found) else float("nan")
