"""Numbers with 95 % intervals, and what they say: True, False, or None (undecided). What is not a number never says yes.

>>> rng = np.random.default_rng(0)
>>> grown = mean(1 + 0.1 * rng.normal(size=(20, 3)))
>>> grown.above(0), grown.above(2), grown.near(1, 0.2), mean(np.full((20, 3), np.nan)).above(0)
(True, False, True, None)
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from train.evaluate.statistics import slope

if TYPE_CHECKING:
    import scipy.stats

GROUPS = 16  # of the jackknife


def every(*verdicts: bool | None) -> bool | None:
    """All of these: False where one is false, else None where one is undecided or there are none.

    >>> every(True, True), every(True, None), every(None, False), every()
    (True, None, False, None)
    """
    if any(verdict is not None and not verdict for verdict in verdicts):
        return False
    return None if not verdicts or None in verdicts else True


@dataclasses.dataclass(frozen=True)
class Interval:
    """Numbers, one or many, with the 95 % interval [low, high] of each; exact ones have none. Verdicts are on all of them."""

    value: Any
    low: Any
    high: Any

    @classmethod
    def around(cls, value: Any, error: Any, freedom: float = np.inf) -> "Interval":
        """From standard errors with so many degrees of freedom."""
        value, margin = np.asarray(value, float), scipy.stats.t.ppf(0.975, freedom) * np.asarray(error, float)
        return cls(value, value - margin, value + margin)

    def above(self, bound: Any = 0.0) -> bool | None:
        """Whether all are above it: False where one interval lies below, None where one holds both or is not a number."""
        low, high = np.asarray(self.low - bound), np.asarray(self.high - bound)
        return True if low.size and (low > 0).all() else False if (high < 0).any() else None

    def below(self, bound: Any = 0.0) -> bool | None:
        """Whether all are below it."""
        return (-self).above(-bound)

    def near(self, expected: Any, tolerance: Any) -> bool | None:
        """Whether all are the expected number to the tolerance, from both sides."""
        return every(self.above(expected - tolerance), self.below(expected + tolerance))

    def alike(self, factor: float) -> bool | None:
        """Whether any two of these (positive, independent) differ by less than the factor."""
        logs = self.log()
        parts = [Interval(*(np.ravel(each)[i] for each in logs.ends)) for i in range(np.size(logs.value))]
        return every(*((b - a).near(0, np.log(factor)) for a, b in itertools.combinations(parts, 2)))

    def log(self) -> "Interval":
        """Logarithms; of what is not positive, not a number."""
        return Interval(*(np.log(np.where(np.asarray(each) > 0, each, np.nan)) for each in self.ends))

    def times(self, factor: Any) -> "Interval":
        """The numbers times exact ones."""
        low, high = np.minimum(self.low * factor, self.high * factor), np.maximum(self.low * factor, self.high * factor)
        return Interval(self.value * factor, low, high)

    def at(self, *index: Any) -> "Interval":
        """Some of them."""
        return Interval(*(np.asarray(each)[index] for each in self.ends))

    @property
    def ends(self) -> tuple[Any, Any, Any]:
        """(value, low, high)."""
        return self.value, self.low, self.high

    def __neg__(self) -> "Interval":
        return Interval(-self.value, -self.high, -self.low)

    def __sub__(self, other: "Interval") -> "Interval":
        """The difference of independent numbers."""
        value = self.value - other.value
        down = np.hypot(self.value - self.low, other.high - other.value)
        return Interval(value, value - down, value + np.hypot(self.high - self.value, other.value - other.low))

    def __format__(self, form: str) -> str:
        form = form or ".3g"
        rows = zip(*(np.ravel(each) for each in self.ends), strict=True)
        return ", ".join(
            f"{v:{form}}" if low == v == high else f"{v:{form}} [{low:{form}}, {high:{form}}]" for v, low, high in rows
        )

    def __str__(self) -> str:
        return f"{self}"


def exact(values: Any) -> Interval:
    """Numbers that do not scatter."""
    values = np.asarray(values, float)
    return Interval(values, values, values)


def mean(samples: Any, axis: int = 0, own: Any = 0.0) -> Interval:
    """Of independent samples, Student's interval; `own`: standard errors of each sample, where they say more than the scatter.

    One sample alone has no interval: nothing is said of it.
    """
    samples = np.moveaxis(np.asarray(samples, float), axis, 0)
    n, value = len(samples), samples.mean(0)
    if n < 2:
        return Interval(value, value - np.inf, value + np.inf)
    scatter = Interval.around(value, samples.std(0, ddof=1) / n**0.5, n - 1)
    own = np.broadcast_to(np.moveaxis(np.asarray(own, float), axis, 0) if np.ndim(own) else own, samples.shape)
    other = Interval.around(value, np.sqrt((own**2).sum(0)) / n)
    return Interval(value, np.minimum(scatter.low, other.low), np.maximum(scatter.high, other.high))


def median(samples: Any, axis: int = 0) -> Interval:
    """Of independent samples, by the sign test: at least six of them."""
    samples = np.sort(np.moveaxis(np.asarray(samples, float), axis, 0), axis=0)
    n, value = len(samples), np.median(samples, axis=0)
    out = int(scipy.stats.binom.ppf(0.025, n, 0.5))  # so many from either end
    if out < 1:
        return Interval(value, value - np.inf, value + np.inf)
    return Interval(value, samples[out - 1] + 0 * value, samples[n - out] + 0 * value)


def share(hit: Any, count: int) -> Interval:
    """Of so many points, Wilson's interval.

    >>> print(share(0.9, 100))
    0.9 [0.826, 0.945]
    """
    hit, z = np.asarray(hit, float), scipy.stats.norm.ppf(0.975)
    middle = (hit + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(np.maximum(hit * (1 - hit), 0) / count + z**2 / (4 * count**2))
    return Interval(hit, np.minimum(middle - half, hit), np.maximum(middle + half, hit))


def jackknife(number: Callable[..., Any], *samples: Any) -> Interval:
    """A smooth function of samples (members first, as many in each), by leaving out groups of members."""
    arrays, value = [np.asarray(each) for each in samples], np.asarray(number(*samples), float)
    count = len(arrays[0])
    if count < 2:
        return Interval(value, value - np.inf, value + np.inf)
    groups = np.arange(count) % (n := min(count, GROUPS))
    left = np.array([number(*(each[groups != g] for each in arrays)) for g in range(n)], float)
    return Interval.around(value, np.sqrt((n - 1) / n * ((left - left.mean(0)) ** 2).sum(0)), n - 1)


def power(x: Any, y: Any) -> float:
    """The exponent of y ~ x^e; not a number where y is not positive, or for a single point.

    >>> round(power([1, 2, 4], [3.0, 12.0, 48.0]), 3)
    2.0
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    return float(slope(np.log(x), np.log(y))) if len(x) > 1 and (y > 0).all() else float("nan")
