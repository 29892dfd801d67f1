"""Inputs that are larger than those for which the Hermite series of a kernel function were made."""

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from limits.kept.remembered import remembered
from limits.kernels.traced import outside_traces
from limits.program.accuracy import SeriesLengths
from limits.program.closed import look, program_of

SIZE = 2.0  # of inputs for which series are made, where none are given
_INPUTS = 16
_SAID = 1e-4  # errors that are worth a warning

LARGER = (
    "kernel function: its series are made for inputs of size {size:g}, and for these, of size {given:.3g}, have an error of up "
    "to about {error:.0e} of E φ² and E φ'² a layer; with inputs such as these as twin(net).kernel_function(like=x) it is {left}."
)


def usual(shape: tuple[int, ...]) -> np.ndarray:
    """Inputs for which series are made, where none are given."""
    return np.random.default_rng(0).normal(size=(_INPUTS, *shape)) * SIZE


@jax.jit
def _sizes(x: Any) -> Any:
    """Of each input the root of its mean square, and its largest number [2, n]."""
    x = jnp.abs(x.reshape(len(x), -1).astype(jnp.asarray(0.0).dtype))
    most = jnp.max(x, 1)
    return jnp.stack([most * jnp.sqrt(jnp.mean((x / jnp.where(most > 0, most, 1)[:, None]) ** 2, 1)), most])


@remembered(maxsize=64)
def _usual_sizes(shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(_sizes(usual(shape))).max(1)


class Larger:
    """What one kernel function has met. It says once that inputs need longer series than it has.

    Inputs that are no larger than those met before cost a pass over them, others a look at the largest of them.
    """

    def __init__(self) -> None:
        self.said, self.known = False, dict[tuple[int, ...], np.ndarray]()

    def warn(self, twin: Any, lengths: SeriesLengths, given: Sequence[Any]) -> None:
        """Once, of inputs that are too large for series made without `like`, if they are known: other things may be traced."""
        if lengths.measured or not lengths.orders_by_name:
            return
        for x in given:
            if not self.said and not isinstance(x, Tracer):
                reading = twin.net_read, x.shape[1:], "float64", twin.trained
                if said := outside_traces(self.look, reading, lengths, x):
                    warnings.warn(said, stacklevel=6)

    def look(self, reading: tuple, lengths: SeriesLengths, x: Any) -> str:
        """What to say of inputs x, "" if nothing; `reading`: what `program_of` takes."""
        known, sizes = self.known.setdefault(x.shape[1:], _usual_sizes(x.shape[1:])), np.asarray(_sizes(x))
        if not np.isfinite(sizes).all() or (sizes.max(1) <= known * (1 + 1e-6)).all():
            return ""
        self.known[x.shape[1:]] = np.maximum(known, sizes.max(1))
        # As many as the usual ones, so that nothing is compiled; the largest, by both measures.
        at = np.r_[np.argsort(sizes[0])[-_INPUTS // 2 :], np.argsort(sizes[1])[-_INPUTS // 2 :]]
        chosen = np.asarray(x[at[np.arange(_INPUTS) % len(at)]], float)
        with jax.enable_x64(True):
            (_, least, _), (seen, found, _) = (
                look(program_of(*reading), each) for each in (usual(x.shape[1:]), chosen)
            )
            error = seen.error(found, lengths)
            if error < max(_SAID, 2 * seen.error(least, lengths)):
                return ""
            left = seen.error(found, seen.finish(found)[0])
        self.said = True
        rest = f"about {min(left, 1.0):.0e}" if left > 1e-10 else "rounding"
        return LARGER.format(size=SIZE, given=float(sizes[0].max()), error=min(error, 1.0), left=rest)
