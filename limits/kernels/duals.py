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
    rms,
    series_error,
)
from limits.kernels.kinks import Kinked
from limits.types import Provenance
from zoo.once import once

CLOSED = 0
NO_SLOPE = f"The slope of the activation {STEEP} the tangent kernel, is infinite."


def dual_for(phi: Any, largest_r: float) -> tuple[int, Provenance]:
    """(orders of the Hermite series, or 0 for a closed form; what that makes of the result)."""
    pieces = _kinks_of(phi)
    if pieces is None and closed_form(phi) is not None:
        return CLOSED, Provenance("exact", "closed form")
    if not np.isfinite(largest_r):
        raise ValueError(f"The signal overflows before the last layer (largest standard deviation {largest_r}).")
    if pieces is not None:
        with jax.enable_x64(True):
            lost = float(rounding(pieces, jnp.array([float(largest_r)]))[0])
        if lost < 1e-10:
            return CLOSED, Provenance("exact", "closed form")
    orders, missing = orders_needed(phi, largest_r)
    wrong, off = quadrature_error(phi, largest_r), series_error(phi, largest_r, missing)
    if pieces is not None and lost < max(off, wrong):  # pyright: ignore[reportPossiblyUnboundVariable]
        return CLOSED, Provenance("approximate", ROUNDED.format(lost))
    return orders, series_provenance(orders, off, wrong)


ROUNDED = "closed form of straight pieces, of which large parts cancel: rounding of about {:.0e} of E φ² a layer"


def _kinks_of(phi: Any) -> Kinked | None:
    return None if as_piecewise_linear(phi) else as_kinked(phi)


def depends_on_size(phi: Any) -> bool:
    """Whether how an average is taken, or how exact it is, depends on how large signals are."""
    return closed_form(phi) is None or _kinks_of(phi) is not None


def rounding(phi: Kinked, r: Any) -> Any:
    """The share of E φ² that rounding takes at these standard deviations [n]: of a bounded φ large parts cancel."""
    size = rms(phi, r)
    return jnp.where(size > 0, 1e-15 * (phi.steepness * r / jnp.where(size > 0, size, 1)) ** 2, 0)


def has_infinite_slope(phi: Any) -> bool:
    """Whether E φ'(r z)² is infinite for what φ does at 0, so that networks have no tangent kernel in the limit.

    >>> has_infinite_slope(jnp.tanh), has_infinite_slope(lambda x: abs(x) ** 0.5)
    (False, True)
    """
    if closed_form(phi) is not None:
        return False
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return infinite_square(np.asarray(derivative(phi)(jnp.asarray(TOWARDS_ZERO))))


def series_provenance(orders: int, off: float, wrong: float) -> Provenance:
    """What a Hermite series makes of a result: its last orders are so far `off`, its coefficients' squares `wrong` by so much.

    >>> series_provenance(1024, 1e-3, 0.0).detail
    "Hermite orders beyond 1024 continued from those before: an error of about 1.0e-03 of E φ² and E φ'² a layer"
    """
    if max(off, wrong) < 1e-10:
        return Provenance("exact", f"quadrature and {orders} Hermite orders, to rounding")
    parts = []
    if off >= 1e-10:
        parts.append(
            f"Hermite orders beyond {orders} continued from those before: an error of about {off:.1e} of E φ² and E φ'² a layer"
        )
    if wrong >= 1e-10:
        infinite = " (it may be infinite: does the function become infinitely steep somewhere?)" if wrong > 0.1 else ""
        parts.append(f"quadrature: an error of about {wrong:.1e} of E φ² and E φ'² a layer{infinite}")
    return Provenance("approximate", "; ".join(parts))


def dual(phi: Any, orders: int) -> Dual:
    """The average that `dual_for` chose."""
    closed = closed_form(phi) if orders == CLOSED else None
    return hermite(phi, orders) if closed is None else closed


@once(maxsize=64)
def compiled_dual(phi: Any, orders: int) -> Dual:
    """The same, compiled: where layers are taken one by one, a series would be traced and compiled again for each."""
    return jax.jit(dual(phi, orders))
