"""Functions of straight pieces: hard tanh, relu6, hard sigmoid, relu(x + 1/2), clip: averages in closed form."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.bivariate import LARGEST, normal_density
from limits.kernels.compiled import of_own_numbers
from limits.kernels.exceedance import exceedance, mean_excess, upper_tail
from limits.kernels.special import gap_behind, safe_sqrt

_MOST = 8  # kinks; of more, pairs take longer than a series
_STEP = 1 / 32 + 2.0**-10  # of the grid on which pieces are looked for; one kink at most lies between two of its points


@dataclasses.dataclass(frozen=True)
class Kinked:
    """φ(x) = value + slope x + Σ_i bend_i (±x − threshold_i)₊ with thresholds ≥ 0: what is added begins away from 0.

    So nothing cancels where signals are small, and all of it vanishes where they are. `kinks`: (sign, threshold, bend) of each.

    >>> hard_tanh = as_kinked(lambda x: np.clip(x, -1, 1))
    >>> hard_tanh.slope, hard_tanh.kinks
    (1.0, ((-1.0, 1.0, 1.0), (1.0, 1.0, -1.0)))
    """

    value: float
    slope: float
    kinks: tuple[tuple[float, float, float], ...]

    def __call__(self, x: Any) -> Any:  # noqa: D102
        larger = jnp.maximum if isinstance(x, jax.Array) else np.maximum
        return self.value + self.slope * x + sum(bend * larger(s * x - t, 0) for s, t, bend in self.kinks)

    @property
    def steepness(self) -> float:
        """Of all parts: times a signal, how large they are before they cancel."""
        return abs(self.slope) + sum(abs(bend) for *_, bend in self.kinks)


class Pieces(NamedTuple):
    """The numbers of a `Kinked` as arrays, which programs take as arguments."""

    value: Any
    slope: Any
    signs: Any
    thresholds: Any
    bends: Any

    @classmethod
    def of(cls, phi: Kinked, dtype: Any) -> "Pieces":
        """These numbers in this type."""
        return cls(*(np.asarray(each, dtype) for each in (phi.value, phi.slope, *zip(*phi.kinks, strict=True))))


def dual(phi: Kinked) -> Callable[..., tuple]:
    """(√E φ(u)², √E φ(v)², 1 − c′, E φ′φ′) of (r1, r2, gap).

    With A_i = threshold_i/r1, B_j = threshold_j/r2, c_ij = ±_i ±_j c, k = r1 r2 c, and what two Gaussians exceed together
    (`exceedance`):

        E φφ′ = value² + slope² k + Σ_i bend_i (value [r1 E(z − A_i)₊ + r2 E(z − B_i)₊] ± slope k [Q(A_i) + Q(B_i)])
                + r1 r2 Σ_ij bend_i bend_j E (z1 − A_i)₊ (z2 − B_j)₊,
        E φ′φ′ = slope² + Σ_i ± slope bend_i [Q(A_i) + Q(B_i)] + Σ_ij ±_i ±_j bend_i bend_j P(z1 > A_i, z2 > B_j).
    """

    def averages(r1: Any, r2: Any, gap: Any, sizes: Any = None) -> tuple:
        pieces = Pieces.of(phi, jnp.result_type(gap))
        s1, s2 = sizes or (safe_sqrt(_square(pieces, r)) for r in (r1, r2))
        return s1, s2, *_bent_and_slope(pieces, r1, r2, gap, s1 * s2)

    return averages


@of_own_numbers
def _square(pieces: Pieces, r: Any) -> Any:
    """E φ(u)²: of kinks on one side E (z − a)₊ (z − b)₊ = (1 + ab) Q(b) − a n(b) for a ≤ b."""
    found = pieces.value**2 + pieces.slope**2 * r * r + _with_line(pieces, r, r, r * r)[0]
    for i, j in itertools.product(range(len(pieces.signs)), repeat=2):
        a, b = (_reached(pieces.thresholds[each], r) for each in (i, j))
        a, b = jnp.minimum(a, b), jnp.maximum(a, b)
        together = jnp.maximum((1 + a * b) * upper_tail(b) - a * normal_density(b), 0)
        same = pieces.signs[i] * pieces.signs[j] > 0
        found = found + jnp.where(same, pieces.bends[i] * pieces.bends[j] * r * r * together, 0)
    return found


@of_own_numbers
def _bent_and_slope(pieces: Pieces, r1: Any, r2: Any, gap: Any, size: Any) -> tuple[Any, Any]:
    r1, r2 = jnp.maximum(r1, r2), jnp.minimum(r1, r2)  # so that inputs exchanged have the same to the last digit
    both, excess = _over_pairs(pieces, r1, r2, gap)
    c = _moment(pieces, r1, r2, r1 * r2 * (1 - gap), excess) / jnp.where(size > 0, size, 1)
    parts = abs(pieces.slope) + jnp.sum(jnp.abs(jnp.asarray(pieces.bends)))  # how large they are before they cancel
    rounding = 16 + 2 * parts**2 * r1 * r2 / jnp.where(size > 0, size, 1)
    # Where more than that cancels, what is left may be anything, and is not taken for a 0 or a 2.
    rounding = jnp.where(rounding * jnp.finfo(gap.dtype).eps < 1e-3, rounding, 16)
    return gap_behind(1 - c, r1, r2, gap, rounding), _slope(pieces, r1, r2, gap, both)


def _moment(pieces: Pieces, r1: Any, r2: Any, k: Any, excess: Any) -> Any:
    return pieces.value**2 + pieces.slope**2 * k + _with_line(pieces, r1, r2, k)[0] + r1 * r2 * excess


def _slope(pieces: Pieces, r1: Any, r2: Any, k: Any, both: Any) -> Any:
    return pieces.slope**2 + _with_line(pieces, r1, r2, k)[1] + both


def _with_line(pieces: Pieces, r1: Any, r2: Any, k: Any) -> tuple[Any, Any]:
    """What kinks and the straight line make together."""
    moment = slope = jnp.zeros_like(k)
    for i in range(len(pieces.signs)):
        a, b = (_reached(pieces.thresholds[i], r) for r in (r1, r2))
        above = pieces.signs[i] * pieces.slope * pieces.bends[i] * (upper_tail(a) + upper_tail(b))
        moment = moment + pieces.bends[i] * pieces.value * (r1 * mean_excess(a) + r2 * mean_excess(b)) + k * above
        slope = slope + above
    return moment, slope


def _reached(threshold: Any, r: Any) -> Any:
    """Threshold / r, at most what nothing exceeds, which it is where there is no signal."""
    some = r > threshold / LARGEST
    return jnp.where(some, threshold / jnp.where(some, r, 1), LARGEST)


def _over_pairs(pieces: Pieces, r1: Any, r2: Any, gap: Any) -> tuple[Any, Any]:
    """The sums over pairs of kinks, of P and of E (z1 − a)₊ (z2 − b)₊."""
    signs, thresholds, bends = map(jnp.asarray, pieces[2:])
    order = np.array([*itertools.product(range(len(signs)), repeat=2)])

    def add(sums: Any, pair: Any) -> tuple[Any, None]:
        i, j = pair
        alike, bend = signs[i] * signs[j], bends[i] * bends[j]
        turned = jnp.where(alike > 0, gap, 2 - gap)
        both, excess = exceedance(_reached(thresholds[i], r1), _reached(thresholds[j], r2), turned)
        return (sums[0] + alike * bend * both, sums[1] + bend * excess), None

    return jax.lax.scan(add, (jnp.zeros_like(gap), jnp.zeros_like(gap)), order)[0]


def of_pieces(phi: Kinked) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(E φφ′, E φ′φ′) of (q1, q2, k, 1 − c or None), with derivatives: those by 1 − c are part of those by k."""

    def of(average: Callable[..., Any], which: int) -> Callable[..., Any]:
        def function(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
            q1, q2, k = jnp.broadcast_arrays(*map(jnp.asarray, (q1, q2, k)))
            gap = _gap(q1, q2, k, 1 - _correlation(q1, q2, k) if gap is None else gap)
            pieces, r1, r2 = Pieces.of(phi, gap.dtype), safe_sqrt(q1), safe_sqrt(q2)
            return average(pieces, r1, r2, k, _over_pairs(pieces, r1, r2, gap)[which])

        return function

    return of(_moment, 1), of(_slope, 0)


def _correlation(q1: Any, q2: Any, k: Any) -> Any:
    size = safe_sqrt(q1 * q2)
    return jnp.clip(jnp.where(size > 0, k / jnp.where(size > 0, size, 1), 0), -1, 1)


@jax.custom_jvp
def _gap(q1: Any, q2: Any, k: Any, gap: Any) -> Any:
    del q1, q2, k
    return gap


@_gap.defjvp
def _(primals: tuple, tangents: tuple) -> Any:
    (q1, q2, k, gap), (dq1, dq2, dk, _) = primals, tangents
    size = safe_sqrt(q1 * q2)
    inverse = jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0)
    along = dk - k / 2 * sum(jnp.where(q > 0, dq / jnp.where(q > 0, q, 1), 0) for q, dq in ((q1, dq1), (q2, dq2)))
    return _gap(q1, q2, k, gap), -inverse * along


def scales(phi: Kinked, function: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    """(a, b > 0) of a function that is a φ(b x), from its values and slopes at 0 and far out; they may be traced.

    >>> hard_tanh = as_kinked(lambda x: np.clip(x, -1, 1))
    >>> [round(float(each), 6) for each in scales(hard_tanh, lambda x: 3 * jnp.clip(2 * x, -1, 1))]
    [3.0, 2.0]
    """
    far = (1e4 if jnp.asarray(0.0).dtype == jnp.float64 else 64) * (1 + max(t for _, t, _ in phi.kinks))

    def invariants(f: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
        """Those that go as a, and those that go as ab; what is near 0 first, of more digits."""
        points = [jnp.asarray(x, float) for x in (-1e-9, 1e-9, -far, far)]
        lines = [(*jax.jvp(f, (x,), (jnp.ones_like(x),)), x) for x in points]
        return [value - slope * x for value, slope, x in lines], [slope for _, slope, _ in lines]

    with jax.ensure_compile_time_eval():
        usual = [np.array([float(each) for each in kind]) for kind in invariants(phi)]
    found, ratios = invariants(function), []
    for kind, known in zip(found, usual, strict=True):
        there = np.flatnonzero(np.abs(known) > 1e-3 * np.abs(known).max())
        if not len(there):
            return None
        best = int(there[0])
        ratios.append(kind[best] / known[best])
    return ratios[0], ratios[1] / ratios[0]


def as_kinked(function: Callable[[np.ndarray], np.ndarray]) -> Kinked | None:
    """This function as one of straight pieces that meet, if its values say that it is one with 1 to 8 kinks.

    >>> as_kinked(np.tanh) is None, as_kinked(np.sign) is None
    (True, True)
    """
    near, far = np.geomspace(2.0**-10, 16, 224), np.geomspace(17, 1e4, 40)
    x = np.unique(np.r_[-far, -near, np.arange(-16, 16, _STEP), near, far])
    with np.errstate(all="ignore"):
        values = np.asarray(function(x), float)
        slopes = np.diff(values) / np.diff(x)
    if not np.isfinite(values).all():
        return None
    runs = _runs(slopes)
    if not 1 < len(runs) <= _MOST + 1:
        return None
    lines = [_line(x[first : last + 2], values[first : last + 2]) for first, last in runs]
    if any(a[0] == b[0] for a, b in itertools.pairwise(lines)):  # a jump
        return None
    kinks = [(a[1] - b[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(lines)]
    found = _outward(kinks, lines)
    tried = np.random.default_rng(0).uniform(-1, 1, 200) * np.repeat([0.3, 3.0, 15.0, 1000.0], 50)
    tried = np.r_[tried, *(np.array(kinks) + d for d in (-1e-3, -1e-6, 1e-6, 1e-3))]
    expected, given = found(tried), np.asarray(function(tried), float)
    size = 1 + np.abs(given) + np.abs(tried)
    return found if np.all(np.abs(expected - given) < 1e-12 * size) else None


def _runs(slopes: np.ndarray) -> list[tuple[int, int]]:
    """(first, last) of the stretches of two or more intervals of one slope; none, where others are more than kinks explain."""
    same = np.abs(np.diff(slopes)) < 1e-9 * (1 + np.abs(slopes[:-1]))
    if np.count_nonzero(~same) > 2 * _MOST:
        return []
    ends = np.flatnonzero(~same)
    starts, stops = np.r_[0, ends + 1], np.r_[ends, len(slopes) - 1]
    return [(int(a), int(b)) for a, b in zip(starts, stops, strict=True) if b > a]


def _line(x: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """(slope, value at 0), from both ends, in as few digits as say the same."""
    slope = _short((values[-1] - values[0]) / (x[-1] - x[0]))
    nearest = np.argmin(np.abs(x))
    return slope, _short(values[nearest] - slope * x[nearest])


def _short(number: float) -> float:
    rounded = round(float(number), 12)
    return rounded if abs(rounded - number) < 4e-15 * (1 + abs(number)) else float(number)


def _outward(kinks: Sequence[float], lines: Sequence[tuple[float, float]]) -> Kinked:
    """From the line through 0 (the left one of two): a kink at 0 bends to the right."""
    here = sum(t < 0 for t in kinks)
    bends = [b[0] - a[0] for a, b in itertools.pairwise(lines)]
    outward = [(-1.0, -t, bend) for t, bend in zip(kinks[:here], bends[:here], strict=True)]
    outward += [(1.0, abs(t), bend) for t, bend in zip(kinks[here:], bends[here:], strict=True)]
    slope, value = lines[here]
    return Kinked(value, slope, tuple((s, _short(t), bend) for s, t, bend in outward))
