"""Where the target's optimum may lie, by the sizes that were trained, the target's own among them if it was."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from train.evaluate.interval import Interval
from train.transfer.edge import Edge
from train.transfer.expansion import Axis, Model, Size, models
from train.transfer.fit import Curve, DrawnSizes, fit
from train.transfer.mixture import drawn, over, weights_of, within
from train.transfer.sweep import Sweep
from train.transfer.valley import Near

DRAWS = 2000


@dataclasses.dataclass(frozen=True)
class AtTarget:
    """`place` [draw]: log₂ of the target's optimum; `near`: the points of every size that were fitted."""

    draws: list[DrawnSizes]
    place: np.ndarray
    near: Mapping[Size, Near]

    @classmethod
    def of(cls, sweeps: Mapping[Size, Sweep], target: Size, seed: int = 0) -> "AtTarget | None":
        """All sizes fitted together as in `predict`; None where there are too few of them, or they have nothing in common."""
        curves = Curve.all(sweeps)
        axes = Axis.of([c.size for c in curves])
        if len(curves) < 1 + len(axes) or any(
            name not in {axis.name for axis in axes} and target[i] != c.size[i]
            for i, name in enumerate(("width", "depth"))
            for c in curves
        ):
            return None
        random = np.random.default_rng(seed)
        try:
            fits = [fit(curves, model) for model in (models() if axes else [Model(1.0, 1.0, 1.0)])]
        except ValueError:
            return None
        draws = drawn(fits, weights_of(fits), DRAWS, random)
        place = np.minimum(over(draws, lambda d: d.place(target)), Edge.of(curves).draws(target, DRAWS, random))
        return cls(draws, place, {c.size: c.near for c in curves})

    def interval(self, level: float) -> Interval:
        """Of log₂ of the target's optimum."""
        return within(self.place, level)

    def rise(self, size: Size, x: np.ndarray) -> np.ndarray:
        """The logarithm of a size's loss at places x over its least one, [draw, x]."""
        return over(self.draws, lambda d: d.cost(x, size))
