"""Ensembles at their own widths, against what the limit says of them to first order in 1/N."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from train.evaluate.statistics import hotelling, joint_dof
from train.evaluate.verdict import PRECISION, Observed


@dataclasses.dataclass(frozen=True)
class FiniteWidth:
    """One observable of one family at one depth, at every width: distances over the size of the limit.

    away: of the ensemble's mean from the limit; predicted: of the prediction from it; left: of the ensemble's mean from the
    prediction, with `sem`, and the p of Hotelling's test that nothing is left; p_limit: that the mean is the limit itself.
    """

    observable: str
    label: str
    depth: int
    widths: tuple[int, ...]
    away: tuple[float, ...]
    predicted: tuple[float, ...]
    left: tuple[float, ...]
    sem: tuple[float, ...]
    p: tuple[float, ...]
    p_limit: tuple[float, ...]
    level: float

    @classmethod
    def of(cls, row: Observed, widths: Sequence[int], level: float) -> "FiniteWidth":
        """Of measured projections, where the limit has predictions."""
        size, at = float(np.linalg.norm(row.expected)), tuple(widths)
        found = [_at(row, width, samples, size) for width, samples in zip(at, row.samples, strict=True)]
        away, predicted, left, sem, p, p_limit = zip(*found, strict=True)
        return cls(row.observable, row.label, row.depth, at, away, predicted, left, sem, p, p_limit, level)

    def verdict(self, i: int) -> str:
        """What is found at the i-th width."""
        if self.p[i] < self.level:
            return "more is left"
        return "undecided" if self.sem[i] > PRECISION else "agrees"

    @property
    def since(self) -> int | None:
        """The width from which on networks agree with the prediction; None: not even the widest."""
        first = None
        for i in reversed(range(len(self.widths))):
            if self.verdict(i) != "agrees":
                break
            first = self.widths[i]
        return first

    @property
    def sentence(self) -> str:
        """What was found."""
        if self.since is None and self.verdict(-1) == "undecided":
            return (
                f"undecided at width {self.widths[-1]}: the standard error of means less predictions is {self.sem[-1]:.1%} where "
                f"{PRECISION:.0%} is asked for (more members and replicas help)"
            )
        if self.since is None:
            return f"more than the correction of order 1/N is left at width {self.widths[-1]}: {self.left[-1]:.1%}"
        i = self.widths.index(self.since)
        left = f"{self.left[i]:.1%} ± {self.sem[i]:.1%}"
        sizes = f"means are {self.away[i]:.1%} off the limit at width {self.since}, and {left} with it"
        if any(p < self.level for p in self.p_limit[i:]) and self.left[i] < self.away[i]:
            return f"from width {self.since} on, the correction of order 1/N explains the deviation from the limit ({sizes})"
        return f"from width {self.since} on, means agree with the limit corrected to order 1/N ({sizes})"


def _at(row: Observed, width: int, samples: np.ndarray, size: float) -> tuple[float, float, float, float, float, float]:
    each = row.limit.at_width(row.observable, width)
    assert each is not None  # asked of those that have predictions
    said, mean = row.functional(each), samples.mean(0)
    cov, of_said = np.atleast_2d(np.cov(samples.T)) / len(samples), np.atleast_2d(np.cov(said.T)) / len(said)
    left, away = mean - said.mean(0), mean - row.expected
    p = hotelling(left, cov + of_said, joint_dof((cov, len(samples)), (of_said, len(said))))[1]
    p_limit = hotelling(away, cov + row.uncertainty, joint_dof((cov, len(samples)), (row.uncertainty, len(said))))[1]
    norms = [float(np.linalg.norm(v)) / size for v in (away, said.mean(0) - row.expected, left)]
    return norms[0], norms[1], norms[2], float(np.trace(cov + of_said)) ** 0.5 / size, p, p_limit
