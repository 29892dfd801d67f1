"""Inputs and numbers that are larger than those for which the Hermite series of a kernel function were made."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from limits.kernels.traced import outside_traces
from limits.program.accuracy import Measurement, SeriesLengths
from limits.program.closed import look, program_of
from limits.program.values import Refused

SIZE = 2.0  # of inputs for which series are made, where none are given
_INPUTS = 16
_SAID = 1e-4  # errors that are worth a warning
_LOOKS = 4  # of one kernel function; each costs more than many calls of it
_NEAR = 1.1  # numbers that are no further off than by this factor are not looked at again

LARGER = (
    "kernel function: its series are made for {made}, and for these, {given}, have an error of up to about {error:.0e} of E φ² "
    "and E φ'² a layer; with {instead}, it is {left}."
)


def usual(shape: tuple[int, ...], kind: str = "float64") -> np.ndarray:
    """Inputs for which series are made, where none are given; of words one that is as good as any."""
    if kind != "float64":
        return np.zeros((1, *shape), kind)
    return np.random.default_rng(0).normal(size=(_INPUTS, *shape)) * SIZE


@jax.jit
def _sizes(x: Any) -> Any:
    """Of each input the root of its mean square, and its largest number [2, n]."""
    x = jnp.abs(x.reshape(len(x), -1).astype(jnp.asarray(0.0).dtype))
    most = jnp.max(x, 1)
    return jnp.stack([most * jnp.sqrt(jnp.mean((x / jnp.where(most > 0, most, 1)[:, None]) ** 2, 1)), most])


def _largest(x: Any, kind: str) -> np.ndarray:
    """As many as the usual ones, so that nothing is compiled; the largest, by both measures."""
    sizes = np.asarray(_sizes(x))
    at = np.r_[np.argsort(sizes[0])[-_INPUTS // 2 :], np.argsort(sizes[1])[-_INPUTS // 2 :]]
    return np.asarray(x[at[np.arange(_INPUTS) % len(at)]], kind)


@dataclasses.dataclass(frozen=True)
class _Met:
    """Sizes of inputs [2], and numbers over those of the definition, that were looked at together."""

    sizes: np.ndarray
    ratios: dict[str, np.ndarray]

    def covers(self, other: "_Met") -> bool:
        """Whether the other's inputs are no larger, and its numbers lie between the definition's and these."""
        if not (other.sizes <= self.sizes * (1 + 1e-6)).all():
            return False
        for name, theirs in other.ratios.items():
            mine = self.ratios.get(name, np.ones(()))
            inside = (theirs <= np.maximum(mine, 1) * _NEAR) & (theirs >= np.minimum(mine, 1) / _NEAR)
            if not inside.all():
                return False
        return True


def two_largest(x: Any) -> Any:
    """The largest inputs by both measures; the first where they are traced."""
    return x[:1] if isinstance(x, Tracer) else x[np.argmax(_sizes(x), 1)]


def read_as(dtype: Any) -> str:
    """The type of inputs with which a network is read: that of words, or double precision."""
    return "float64" if jnp.issubdtype(dtype, jnp.floating) else str(dtype)


class Larger:
    """What one kernel function has met. It says once that inputs, or numbers it is called with, need longer series than it has.

    Those that are within what was met before cost a pass over the inputs, others a look at the largest of them, a few times.
    """

    def __init__(self, twin: Any, known: dict[str, Any], like: Any) -> None:  # `known`: the definition's own numbers
        self.twin, self.known, self.like = twin, known, like
        self.said, self.looks, self.met = False, 0, dict[tuple[int, ...], list[_Met]]()

    def warn(self, lengths: SeriesLengths, given: Sequence[Any], kind: str, values: dict[str, Any]) -> None:
        """Once, of inputs and numbers that are too large for these series, as far as they are known: others are traced."""
        if not lengths.orders_by_name:
            return
        numbers = {name: value for name, value in values.items() if not _traced(value)}
        for x in given:
            if self.said or isinstance(x, Tracer):
                continue
            if said := outside_traces(self.look, lengths, x, kind, numbers):
                self.said = True
                warnings.warn(said, stacklevel=6)

    def look(self, lengths: SeriesLengths, x: Any, kind: str, values: dict[str, Any]) -> str:
        """What to say of inputs x, as words or numbers of this kind, and of these values; "" if nothing."""
        shape, words = tuple(x.shape[1:]), kind != "float64"
        values = {name: np.asarray(value, float) for name, value in values.items()}
        ratios = {name: np.asarray(np.abs(value / np.asarray(self.known[name]))) for name, value in values.items()}
        here = _Met(np.zeros(2) if words else np.asarray(_sizes(x)).max(1), ratios)
        own = usual(shape, kind) if self.like is None else _largest(np.asarray(self.like, kind), kind)
        if shape not in self.met:
            self.met[shape] = [_Met(np.zeros(2) if words else np.asarray(_sizes(own)).max(1), {})]
        if not np.isfinite(here.sizes).all() or any(each.covers(here) for each in self.met[shape]):
            return ""
        if self.looks == _LOOKS:
            return ""
        self.looks += 1
        self.met[shape] = [each for each in self.met[shape] if not here.covers(each)] + [here]
        moved = {name: value for name, value in values.items() if not np.all(ratios[name] == 1)}
        error, left = self.errors(lengths, own, _largest(x, kind), moved)
        if not error:
            return ""
        made = f"inputs of size {SIZE:g}" if self.like is None else f"`like`, of size {_sizes(own)[0].max():.3g}"
        told = ", ".join(f"{name} = {np.array2string(value, precision=4)}" for name, value in moved.items())
        instead = "twin(net).kernel_function(like=x), where x are inputs such as these"
        return LARGER.format(
            made=f"{made}, and the numbers of the definition" if moved else made,
            given=f"of size {here.sizes[0]:.3g}" + (f" with {told}" if moved else ""),
            error=min(error, 1.0),
            instead=f"{instead}, of a definition with these numbers" if moved else instead,
            left=f"about {min(left, 1.0):.0e}" if left > 1e-10 else "rounding",
        )

    def errors(
        self, lengths: SeriesLengths, own: np.ndarray, x: np.ndarray, values: dict[str, Any]
    ) -> tuple[float, float]:
        """(error of series made for `own` at x and these values, that of series made for these); zeros if not worth a word."""
        try:
            given = {name: tuple(value.tolist()) if np.ndim(value) else float(value) for name, value in values.items()}
            other = self.twin.with_hyperparameters(**given) if values else self.twin
        except (TypeError, ValueError):  # kernels take more than definitions do, as a negative w_std
            return 0.0, 0.0
        with jax.enable_x64(True):
            readings = [
                program_of(each.net_read, x.shape[1:], str(x.dtype), each.trained) for each in (self.twin, other)
            ]
            if any(isinstance(each, Refused) for each in readings):
                return 0.0, 0.0
            (before, least, _), (seen, found, _) = (look(*each) for each in zip(readings, (own, x), strict=True))
            known, renamed = (_renamed(lengths, each) for each in (before, seen))
            error = 0.0 if known is None or renamed is None else seen.error(found, renamed)
            if known is None or error < max(_SAID, 2 * before.error(least, known)):
                return 0.0, 0.0
            return error, seen.error(found, seen.finish(found)[0])


def _traced(value: Any) -> bool:
    return any(isinstance(each, Tracer) for each in jax.tree.leaves(value))


def _renamed(lengths: SeriesLengths, seen: Measurement) -> SeriesLengths | None:
    """The lengths by the names that functions have with these numbers in them; None where these are other functions."""
    if len(lengths.orders_by_name) != len(seen.missing):
        return None
    orders = [count for _, count in lengths.orders_by_name]
    return dataclasses.replace(lengths, orders_by_name=tuple(zip(seen.missing, orders, strict=True)))
