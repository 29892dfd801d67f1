"""How a curve of losses over sizes goes to its limit: models of its floor and of the place of its minimum, linear in what is
unknown.

With u = (N₀/N)^e along each axis of sizes, N₀ the smallest one measured (so that u is 1 there and 0 at the limit),

    floor = m + b u + c u²,    place = x + a (z − 1),    z = (1 − u)/(1 − u₁)

where z is 0 at the smallest and 1 at the largest size measured; u₁ is that one's u. Theory says e = 1, for widths and, with
branches scaled by L^(−1/2) or 1/L, for depths; data may ask for another one (`EXPONENTS`). e = 0 is a place that goes on for
ever, z = log N. c is expected to be no larger than `REMAINDER` · b.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

EXPONENTS = {0.5: 0.2, 1.0: 0.6, 2.0: 0.2}  # and how plausible each is before there are data
REMAINDER = 0.5
Size = tuple[float, int]


def order(size: Size) -> float:
    """How large a size is: what it costs, up to a factor."""
    return size[0] ** 2 * size[1]


@dataclasses.dataclass(frozen=True)
class Model:
    """Exponents e of the floor and of the drift (0: a drift that does not level off), and how plausible they are at first."""

    floor: float
    drift: float
    share: float

    @property
    def words(self) -> str:
        """For a table."""
        drift = "log size" if self.drift == 0 else f"size^−{self.drift:g}"
        return f"loss: size^−{self.floor:g}, optimum: {drift}"


def models() -> list[Model]:
    """Those that level off."""
    pairs = itertools.product(EXPONENTS.items(), EXPONENTS.items())
    return [Model(floor, drift, p * q) for (floor, p), (drift, q) in pairs]


def endless() -> list[Model]:
    """Those of an optimum that moves by as much with every doubling."""
    return [Model(floor, 0.0, p) for floor, p in EXPONENTS.items()]


@dataclasses.dataclass(frozen=True)
class Axis:
    """Width or depth, from the smallest to the largest size measured."""

    name: str
    first: float
    last: float

    @classmethod
    def of(cls, sizes: Sequence[Size]) -> "list[Axis]":
        """Those along which these sizes differ; infinite ones are not measured."""
        found = []
        for i, name in enumerate(("width", "depth")):
            values = [size[i] for size in sizes if math.isfinite(size[0])]
            if len(set(values)) > 1:
                found.append(cls(name, min(values), max(values)))
        return found

    def size(self, size: Size) -> float:
        """Of both numbers the one that is meant."""
        return size[self.name == "depth"]

    def small(self, size: Size, e: float) -> float:
        """u: 1 at the smallest size, 0 at the limit."""
        return (self.first / self.size(size)) ** e

    def far(self, size: Size, e: float) -> float:
        """z: 0 at the smallest size, 1 at the largest."""
        if e == 0:
            return math.log(self.size(size) / self.first) / math.log(self.last / self.first)
        return (1 - self.small(size, e)) / (1 - (self.first / self.last) ** e)


def columns(axes: Sequence[Axis], sizes: Sequence[Size], e: float) -> tuple[np.ndarray, np.ndarray]:
    """([size, 1 and u of each axis], [size, u² and products]), what the floor is linear in."""
    u = np.array([[axis.small(size, e) for axis in axes] for size in sizes], float).reshape(len(sizes), len(axes))
    pairs = list(itertools.combinations_with_replacement(range(len(axes)), 2))
    more = np.stack([u[:, i] * u[:, j] for i, j in pairs], 1) if pairs else np.zeros((len(sizes), 0))
    return np.column_stack([np.ones(len(sizes)), u]), more


def distances(axes: Sequence[Axis], sizes: Sequence[Size], e: float) -> np.ndarray:
    """z − 1 [size, axis], what the place is linear in."""
    return np.array([[axis.far(size, e) - 1 for axis in axes] for size in sizes], float).reshape(len(sizes), len(axes))
