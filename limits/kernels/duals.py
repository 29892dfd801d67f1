"""Which Gaussian average serves an activation: its closed form, or a Hermite series long enough for the data."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.activations import Dual, as_kinked, as_piecewise_linear, closed_form
from limits.kernels.hermite import (
    STEEP,
    TOWARDS_ZERO,
    derivative,
    hermite,
    infinite_square,
    orders_needed,
    quadrature_error,
)
from limits.types import Provenance

CLOSED = 0
NO_SLOPE = f"The slope of the activation {STEEP} the tangent kernel, is infinite."


def dual_for(phi: Any, largest_r: float) -> tuple[int, Provenance]:
    """(orders of the Hermite series, or 0 for a closed form; what that makes of the result)."""
    if closed_form(phi) is not None:
        return CLOSED, _closed(phi, largest_r)
    if not np.isfinite(largest_r):
        raise ValueError(f"The signal overflows before the last layer (largest standard deviation {largest_r}).")
    orders, missing = orders_needed(phi, largest_r)
    return orders, series_provenance(orders, missing, quadrature_error(phi, largest_r))


def _closed(phi: Any, largest_r: float) -> Provenance:
    kinked = None if as_piecewise_linear(phi) else as_kinked(phi)
    lost = kinked.lost(largest_r) if kinked else 0.0
    if lost < 1e-10:
        return Provenance("exact", "closed form")
    return Provenance(
        "approximate",
        f"closed form; rounding of about {lost:.0e} of E φ² a layer, for signals so large beside the kinks of φ",
    )


def has_infinite_slope(phi: Any) -> bool:
    """Whether E φ'(r z)² is infinite for what φ does at 0, so that networks have no tangent kernel in the limit.

    >>> has_infinite_slope(jnp.tanh), has_infinite_slope(lambda x: abs(x) ** 0.5)
    (False, True)
    """
    if closed_form(phi) is not None:
        return False
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return infinite_square(np.asarray(derivative(phi)(jnp.asarray(TOWARDS_ZERO))))


def series_provenance(orders: int, missing: float, wrong: float) -> Provenance:
    """What a Hermite series makes of a result: `missing` of it dropped, its coefficients' squares `wrong` by so much.

    >>> series_provenance(1024, 1e-3, 0.0).detail
    "Hermite orders beyond 1024 dropped: at correlation c an error below 2.1e-03 |c|^1024 of E φ² and E φ'² a layer"
    """
    if max(missing, wrong) < 1e-10:
        return Provenance("exact", f"quadrature and {orders} Hermite orders, to rounding")
    parts = []
    if missing >= 1e-10:
        parts.append(
            f"Hermite orders beyond {orders} dropped: at correlation c an error below {2.1 * missing:.1e} |c|^{orders} "
            "of E φ² and E φ'² a layer"
        )
    if wrong >= 1e-10:
        infinite = " (it may be infinite: does the function become infinitely steep somewhere?)" if wrong > 0.1 else ""
        parts.append(f"quadrature: an error of about {wrong:.1e} of E φ² and E φ'² a layer{infinite}")
    return Provenance("approximate", "; ".join(parts))


def dual(phi: Any, orders: int) -> Dual:
    """The average that `dual_for` chose."""
    closed = closed_form(phi) if orders == CLOSED else None
    return hermite(phi, orders) if closed is None else closed
