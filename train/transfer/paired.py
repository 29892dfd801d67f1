"""Losses of one size in several variants, drawn together: what their seeds share, they err in alike.

Seed s has the same initial keys and the same order of the data in every variant, so that its offsets (how far its losses lie from
the mean over seeds) go together. A floor follows the offsets of each size with a share, w, and two floors have the covariance

    C = Σ_ij w_i v_j c_ij / seeds,    c_ij = c₀ for the same size, c₁ for two sizes

with c₀ and c₁ estimated from all sizes at once. That makes a correlation of what seeds make of both, known as well as so few
seeds tell it (Fisher's transformation); what noise of single points and the choice of the model make is each variant's own. Draws
of each are kept as they are, in an order in which they have that correlation.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from train.transfer.expansion import Size
from train.transfer.fit import Curve, DrawnSizes, JointFit, offset_variances

MOST = 0.999  # of a correlation


@dataclasses.dataclass(frozen=True)
class Floor:
    """The logarithm of the least loss of one size: `draws` of it, the `shares` of the sizes that it was fitted to, and the
    `offsets` [seed] of each of these; the `variance` that these make, and as if of how many independent seeds (`freedom`)."""

    draws: np.ndarray
    shares: Mapping[Size, float]
    offsets: Mapping[Size, np.ndarray]
    variance: float
    freedom: float
    scale: float

    @classmethod
    def of(
        cls,
        drawn: Sequence[DrawnSizes],
        curves: Sequence[Curve],
        fits: Sequence[JointFit],
        weights: np.ndarray,
        size: Size,
    ) -> "Floor":
        """Of models with these weights. What a limit's replicas share with networks' seeds is nothing."""
        share = np.sum([w * each.shares(size) for w, each in zip(weights, fits, strict=True)], axis=0)
        finite = np.array([c.finite for c in curves])
        covariance, share = offset_variances(curves)[np.ix_(finite, finite)], share[finite]
        seeds = np.mean([len(c.offsets) - 1 for c in curves if c.finite]) if finite.any() else 0.0
        sizes = np.trace(covariance) ** 2 / max(float((covariance**2).sum()), 1e-300)
        return cls(
            np.concatenate([each.floor(size) for each in drawn]),
            {c.size: float(w) for c, w in zip([c for c in curves if c.finite], share, strict=True)},
            {c.size: c.offsets for c in curves if c.finite},
            float(share @ covariance @ share),
            float(seeds * sizes),
            float(np.median(np.concatenate([each.scale for each in drawn]))),
        )

    @property
    def median(self) -> float:
        """Of the draws."""
        return float(np.median(self.draws))

    @property
    def from_seeds(self) -> float:
        """The share of the variance of the draws that the offsets of its seeds make."""
        low, high = np.percentile(self.draws, [15.87, 84.13])
        return min(self.variance * self.scale**2 / max((float(high - low) / 2) ** 2, 1e-300), 1.0)


def correlation(one: Floor, other: Floor, count: int, random: np.random.Generator) -> np.ndarray:
    """Draws of that of both."""
    pairs = [(i, j) for i in one.offsets for j in other.offsets]
    products = {same: [0.0, 0] for same in (True, False)}  # sum, and degrees of freedom
    for i, j in pairs:
        n = min(len(one.offsets[i]), len(other.offsets[j]))
        a, b = (each[:n] - each[:n].mean() for each in (one.offsets[i], other.offsets[j]))
        products[i == j][0] += float(a @ b)
        products[i == j][1] += n - 1
    shared = {same: total / max(freedom, 1) for same, (total, freedom) in products.items()}
    covariance = sum(
        one.shares[i] * other.shares[j] * shared[i == j] / max(len(one.offsets[i]), len(other.offsets[j]))
        for i, j in pairs
    )
    likely = np.clip(covariance / max(math.sqrt(one.variance * other.variance), 1e-300), -MOST, MOST)
    error = 1 / math.sqrt(max(min(one.freedom, other.freedom), 1.0))
    alike = np.tanh(np.arctanh(likely) + error * random.normal(size=count))
    return alike * math.sqrt(one.from_seeds * other.from_seeds)


def differences(first: Floor, others: Sequence[Floor], random: np.random.Generator) -> list[np.ndarray]:
    """Of each other one and the first, [draw]."""
    count = min(len(each.draws) for each in (first, *others))

    def ordered(each: Floor, normal: np.ndarray) -> np.ndarray:
        return np.sort(random.permutation(each.draws)[:count])[normal.argsort().argsort()]

    normal = random.normal(size=count)
    found = []
    for other in others:
        alike = correlation(first, other, count, random)
        found.append(
            ordered(other, alike * normal + np.sqrt(1 - alike**2) * random.normal(size=count)) - ordered(first, normal)
        )
    return found
