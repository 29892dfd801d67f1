"""Ensembles at their own widths, against what the limit says of them to first order in 1/N."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from train.evaluate.statistics import hotelling, joint_dof
from train.evaluate.verdict import Observed


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

    @property
    def since(self) -> int | None:
        """The width from which on the predictions hold; None: not even at the largest."""
        holds = [width for width, p in zip(self.widths, self.p, strict=True) if p < self.level]
        above = [width for width in self.widths if not holds or width > max(holds)]
        return above[0] if above else None

    @property
    def explains(self) -> bool:
        """Whether there is a deviation from the limit, at a width where the prediction holds."""
        since = self.since
        pairs = zip(self.widths, self.p_limit, strict=True)
        return since is not None and any(p < self.level and width >= since for width, p in pairs)

    @property
    def sentence(self) -> str:
        """What was found."""
        if self.since is None:
            return f"the correction of order 1/N does not reach width {self.widths[-1]}: {self.left[-1]:.1%} is left"
        i = self.widths.index(self.since)
        sizes = (
            f"off the limit by {self.away[i]:.1%} at width {self.since}, {self.left[i]:.1%} ± {self.sem[i]:.1%} with it"
        )
        if self.explains:
            return f"from width {self.since} on, the correction of order 1/N explains the deviation ({sizes})"
        return f"from width {self.since} on, nothing but the correction of order 1/N is seen ({sizes})"


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
