"""Several models of the same sizes, weighed."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy

from train.evaluate.interval import Interval
from train.transfer.fit import DrawnSizes, JointFit

if TYPE_CHECKING:
    import scipy.special


def weights_of(fits: Sequence[JointFit]) -> np.ndarray:
    """By how probable each makes the data: how well it predicts every size from those before it."""
    scores = np.array([each.evidence + math.log(each.model.share) for each in fits])
    return np.exp(scores - scipy.special.logsumexp(scores))


def drawn(fits: Sequence[JointFit], weights: np.ndarray, count: int, random: np.random.Generator) -> list[DrawnSizes]:
    """So many draws, of each model as many as it has weight."""
    counts = random.multinomial(count, weights)
    return [each.draws(int(n), random) for each, n in zip(fits, counts, strict=True) if n]


def over(draws: Sequence[DrawnSizes], value: Callable[[DrawnSizes], np.ndarray]) -> np.ndarray:
    """Of all draws."""
    return np.concatenate([value(each) for each in draws])


def within(values: np.ndarray, level: float) -> Interval:
    """The median of draws, and the interval that holds this share of them."""
    edges = (100 * (1 - level) / 2, 50, 100 * (1 + level) / 2)
    low, middle, high = np.percentile(values, edges, axis=0, method="inverted_cdf")
    return Interval(middle, low, high)
