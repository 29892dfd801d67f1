"""From which value on training diverges, and where that goes with the size."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from train.transfer.expansion import Axis, Size, distances
from train.transfer.fit import Curve

MOVES = 0.5  # octaves from the smallest to the largest size: how far an edge is expected to move


@dataclasses.dataclass(frozen=True)
class Edge:
    """log₂ of the least value that diverges lies between these at each size; `found`: at sizes that have one."""

    axes: tuple[Axis, ...]
    sizes: tuple[Size, ...]
    stable: np.ndarray
    lost: np.ndarray

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> "Edge":
        """Of the values on the right of the points near each optimum."""
        axes = Axis.of([c.size for c in curves])
        with_edge = [c for c in curves if c.finite and np.isfinite(c.near.walls[1])]
        lost = np.array([c.near.walls[1] for c in with_edge])
        return cls(tuple(axes), tuple(c.size for c in with_edge), np.array([c.near.last for c in with_edge]), lost)

    def draws(self, size: Size, count: int, random: np.random.Generator) -> np.ndarray:
        """At this size: anywhere in the gap at every size, and a straight line in 1/size through these; infinite without any."""
        if not self.sizes:
            return np.full(count, np.inf)
        edges = random.uniform(self.stable, self.lost, (count, len(self.lost)))
        far = distances(self.axes, [*self.sizes, size], 1.0)
        rows = np.column_stack([np.ones(len(far)), far])
        gap = float((self.lost - self.stable).mean())
        ridge = gap / np.sqrt(12) / MOVES * np.eye(rows.shape[1])[1:]
        system = np.concatenate([rows[:-1], ridge])
        drifts = MOVES * random.normal(
            size=(count, len(ridge))
        )  # a draw of what is expected beside, so that it spreads as it should
        drawn = np.linalg.lstsq(system, np.concatenate([edges, drifts * gap / np.sqrt(12) / MOVES], 1).T, rcond=None)[0]
        return rows[-1] @ drawn
