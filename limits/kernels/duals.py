"""Which Gaussian average serves an activation: its closed form, or a Hermite series long enough for the data."""

from typing import Any

import numpy as np

from limits.kernels.activations import Dual, closed_form
from limits.kernels.hermite import hermite, orders_needed
from limits.types import Provenance

CLOSED = 0


def dual_for(phi: Any, largest_r: float) -> tuple[int, Provenance]:
    """(orders of the Hermite series, or 0 for a closed form; what that makes of the result)."""
    if closed_form(phi) is not None:
        return CLOSED, Provenance("exact", "closed form")
    if not np.isfinite(largest_r):
        raise ValueError(f"The signal overflows before the last layer (largest standard deviation {largest_r}).")
    orders, missing = orders_needed(phi, largest_r)
    if missing < 1e-10:
        return orders, Provenance("exact", f"quadrature and {orders} Hermite orders, to rounding")
    return orders, Provenance(
        "approximate",
        f"Hermite orders beyond {orders} dropped: at correlation c an error below {missing:.0e} |c|^{orders} of E φ'² a layer",
    )


def dual(phi: Any, orders: int) -> Dual:
    """The average that `dual_for` chose."""
    closed = closed_form(phi) if orders == CLOSED else None
    return hermite(phi, orders) if closed is None else closed
