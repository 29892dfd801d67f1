"""Fixed points of the signal in depth, the phase they make, its depth scales, and the edge of chaos."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from limits.depth.averages import NETWORK, QUADRATURE, accurate_orders, moment, power_slope, slopes_at_zero, squares
from limits.kernels import Affine, State, activate, dense, dual
from limits.kernels.activations import as_piecewise_linear, called
from limits.kernels.hermite import derivative
from limits.types import AbsentError
from zoo import activation_function, checks
from zoo.once import forgettable, jitted

if TYPE_CHECKING:
    import scipy.optimize

_LARGEST_EDGE = 1e4  # beyond, activations that end linearly have χ − 1 below the error of quadrature; or 100 b_std²
_DYING = 1e-14  # a variance below which a layer is that of φ's first power, to rounding
CRITICAL = 1e-8  # |χ − 1| below which a network is called critical


@checks.arguments(**NETWORK)
def variance_map(activation: Any, w_std: float, b_std: float) -> Callable[[Any], np.ndarray]:
    """q ↦ σ_b² + σ_w² E φ(√q Z)², the variance of the next layer.

    >>> float(variance_map("relu", 2**0.5, 0.5)(1.0))
    1.2500000000000002
    """
    w, b = squares(w_std, b_std)

    def ahead(q: Any) -> np.ndarray:
        if not (np.asarray(q, float) >= 0).all():
            raise ValueError(f"variance_map: variances must be ≥ 0, got {q}.")
        return np.asarray(b + w * moment(activation, q))

    return ahead


@checks.arguments(**NETWORK, q=checks.number(positive=True))
def correlation_map(activation: Any, w_std: float, b_std: float, q: float) -> Callable[[Any], tuple[Any, Any]]:
    """1 − c ↦ (1 − f(c), f'(c)) for two inputs of variance q, where f is the correlation of the next layer.

        f(c) = (σ_b² + σ_w² E φφ') / q_next,   f'(c) = σ_w² q E[φ'φ'] / q_next

    At a fixed point q_next = q and f' is the q̇ of the tangent kernel. 1 − c is what is mapped, so that no digit is lost
    near c = 1.

    >>> gap, slope = correlation_map("relu", 2**0.5, 0.0, 1.0)(1 - 0.5)
    >>> round(1 - gap.item(), 6), round(slope.item(), 6)  # (c arcsin c + √(1−c²))/π + c/2, arcsin(c)/π + 1/2
    (0.608998, 0.666667)
    """
    phi, q, (w, b) = activation_function(activation), float(q), squares(w_std, b_std)
    orders, growth = accurate_orders(phi, math.sqrt(q))[0], q / float(variance_map(phi, w_std, b_std)(q))

    def mapped(gap: Any) -> tuple:
        if not (np.abs(np.asarray(gap, float) - 1) <= 1 + 1e-12).all():
            raise ValueError(f"correlation_map: 1 − c must lie between 0 and 2, got {gap}.")
        with jax.enable_x64(True):
            gaps = jnp.asarray(np.ravel(gap), float)
            end, slope = _layer(gaps, math.sqrt(q), w, b, phi, orders, b > 0)
            return np.asarray(end).reshape(np.shape(gap)), growth * np.asarray(slope).reshape(np.shape(gap))

    return mapped


@jitted(static_argnames=("phi", "orders", "has_bias"))
def _layer(gap: jax.Array, r: Any, w: Any, b: Any, phi: Any, orders: int, has_bias: bool) -> tuple:
    """(1 − c, σ_w² E φ'φ') after one layer."""
    both = jnp.full((1,), r)
    state = activate(State(both, both, gap, jnp.ones_like(gap)), dual(phi, orders))
    end = dense(state, Affine(w, b, 0.0, 0.0), has_bias)
    return end.gap, end.ntk


@dataclasses.dataclass(frozen=True)
class Phase:
    """What infinite depth makes of a network's signals.

    name: "ordered" (χ < 1), "critical" (χ = 1) or "chaotic" (χ > 1), with χ = σ_w² E φ'(√q* Z)², the factor of the
    gradient's variance and of the tangent kernel's diagonal a layer. q: the variance's fixed point q*. c: the correlation
    c* that two inputs approach (not a number where each pair keeps its own, or nothing is passed on), and `slope` the factor
    f'(c*) with which they do. curvature, third: f''(1) and f'''(1), the j-th derivative being σ_w² q*^(j−1) E φ^(j)(√q* Z)²
    (infinite where φ has a kink). variance_slope: dq'/dq at q*; above 1 the fixed point is repelling and only a signal that
    starts there stays. Where q* = 0 all are of a signal that goes to 0.
    """

    name: str
    q: float
    c: float
    chi: float
    slope: float
    curvature: float
    third: float
    variance_slope: float

    @property
    def depth_scale(self) -> float:
        """ξ = −1/log f'(c*), the layers over which two inputs forget their angle as e^(−l/ξ); infinite where slower."""
        return scale(self.slope)

    @property
    def gradient_depth_scale(self) -> float:
        """1/|log χ|, the layers over which gradients vanish or explode by a factor e (in their square)."""
        return scale(self.chi)


def scale(factor: float) -> float:
    """Layers after which factor^l has changed by e.

    >>> round(scale(0.5), 4), scale(1.0), scale(0.0)
    (1.4427, inf, 0.0)
    """
    if factor <= 0:
        return 0.0
    return math.inf if abs(factor - 1) < CRITICAL else 1 / abs(math.log(factor))


@checks.arguments(**NETWORK, start=checks.number(positive=True))
def fixed_variance(activation: Any, w_std: float, b_std: float, start: float = 1.0) -> float:
    """q*, to which the variance goes from `start`: the next root of q = σ_b² + σ_w² E φ² in its direction.

    0 where it dies out, infinity where it grows without end (`searched` says how far either was looked for).

    >>> round(fixed_variance("tanh", 1.30415, 0.2), 4)
    0.5121
    """
    phi, start, (w, b) = activation_function(activation), float(start), squares(w_std, b_std)
    if as_piecewise_linear(phi) is not None:
        factor = w * float(moment(phi, 1.0))
        if abs(factor - 1) < 1e-12:
            return start if b == 0 else math.inf
        return b / (1 - factor) if factor < 1 else math.inf
    ahead = variance_map(phi, w_std, b_std)
    rise = float(ahead(start)) - start
    if abs(rise) <= 1e-15 * start:
        return start
    low, high = searched(phi, w_std, b_std, start)
    grid = between(start, high) if rise > 0 else between(low, start)[::-1]
    found = first_root(lambda q: (q - ahead(q)) * np.sign(rise), grid)
    return found if found is not None else math.inf if rise > 0 else 0.0


def searched(phi: Any, w_std: float, b_std: float, start: float = 1.0) -> tuple[float, float]:
    """The variances between which fixed points are looked for: a thousandth of what a layer makes of the signal 0, and a
    million times what it makes of `start`. So both follow from the numbers given.

    >>> round(searched("tanh", w_std=2.0, b_std=100.0, start=50.0)[0], 9)
    10.0
    """
    ahead = variance_map(phi, w_std, b_std)
    least, most = float(ahead(0.0)), max(1.0, start, float(ahead(start)))
    low = 1e-3 * least if least > 0 else _DYING
    return min(low, start), min(1e6 * most, 1e300)


def between(low: float, high: float, per_decade: int = 40) -> np.ndarray:
    """Variances from low to high, both among them."""
    grid = np.geomspace(low, high, 2 + math.ceil(per_decade * math.log10(high / low)))
    return np.concatenate([[low], grid[1:-1], [high]])


def first_root(function: Callable[[Any], np.ndarray], grid: np.ndarray) -> float | None:
    """Where the function first rises to 0 or above along the grid, between two of its points; None: nowhere.

    >>> first_root(lambda q: q * q - 2, np.arange(4.0))
    1.414213562373095
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        values = function(grid)
    ends = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if not len(ends):
        return None
    i = ends[0]
    return _root(lambda q: float(function(np.array([q]))[0]), float(grid[i]), float(grid[i + 1]))


def bisected(low_yet: Callable[[np.ndarray], Any], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Between arrays low and high, each number up to which `low_yet` holds.

    >>> bisected(lambda q: q * q < 2, np.zeros(2), np.full(2, 4.0)).round(9).tolist()
    [1.414213562, 1.414213562]
    """
    for _ in range(60):
        middle = (low + high) / 2
        below = low_yet(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))  # pyright: ignore[reportArgumentType]


@checks.arguments(**NETWORK, start=checks.number(positive=True))
def phase(activation: Any, w_std: float, b_std: float = 0.0, start: float = 1.0) -> Phase:
    """Fixed points, χ and depth scales of a deep network, from signals of variance `start`.

    Positively homogeneous activations (relu) without bias keep every norm ratio: their correlations follow the critical
    map at any w_std, so that `slope` is 1 and the depth scale infinite although χ is not 1; the same holds where a relu
    network's variance explodes (q* = ∞) and the bias is forgotten. Linear networks keep every correlation. A signal that dies
    (q* = 0) sees φ near 0 alone, so that its correlations are those of a linear network, or of leaky relu if φ has a kink at
    0; or where φ'(0) = 0, those of the first power in φ.

    >>> found = phase("tanh", w_std=2.0, b_std=0.3)
    >>> found.name, round(found.c, 4), round(found.slope, 3)
    ('chaotic', 0.2639, 0.86)
    >>> found = phase("tanh", w_std=0.5)  # the signal dies, and angles stay
    >>> found.name, found.chi, found.depth_scale, found.gradient_depth_scale == scale(0.25)
    ('ordered', 0.25, inf, True)

    Reference: Poole et al. (2016); Schoenholz et al. (2017), Deep information propagation.
    """
    phi, (w, b) = activation_function(activation), squares(w_std, b_std)
    q = fixed_variance(phi, w_std, b_std, start)
    if as_piecewise_linear(phi) is not None and (b == 0 or math.isinf(q)):
        chi = w * float(moment(phi, 1.0, 1))
        kink = float(moment(phi, 1.0, 2))
        kept = kink == 0 and (b == 0 or chi > 1 + CRITICAL)  # variances that grow by b > 0 alone end at one angle
        return Phase(_name(chi), q, math.nan if kept else 1.0, chi, 1.0, kink, kink, chi)
    if math.isinf(q):
        raise AbsentError(
            f"The variance grows without end at w_std {w_std:g}, b_std {b_std:g}, or at least beyond "
            f"{searched(phi, w_std, b_std, start)[1]:.3g}, up to where a fixed point was looked for from {start:g} on: there is "
            "no phase. Take a smaller w_std, or another start."
        )
    if q == 0:
        return _dying(phi, w_std)
    chi, curvature, third = (w * q ** (j - 1) * float(moment(phi, q, j)) for j in (1, 2, 3))
    if _has_kink(phi, 10 * math.sqrt(q)):
        curvature = third = math.inf
    with jax.enable_x64(True):
        spread = w * float(power_slope(phi, QUADRATURE, jnp.asarray([q]))[0])
    if chi <= 1 + CRITICAL:
        return Phase(_name(chi), q, 1.0, chi, chi, curvature, third, spread)
    gap, slope = _chaotic_point(correlation_map(phi, w_std, b_std, q), chi, curvature)
    return Phase("chaotic", q, 1 - gap, chi, slope, curvature, third, spread)


def _dying(phi: Callable, w_std: float) -> Phase:
    """That of signals whose variance goes to 0: of φ at small ones."""
    below, above = slopes_at_zero(phi)
    chi = float(w_std) ** 2 * (below**2 + above**2) / 2
    if math.isinf(chi):
        raise AbsentError(
            f"The variance falls below {_DYING:g} at w_std {w_std:g}, as far as was searched, and does not go to 0, "
            "where φ has an infinite slope: the phase is unknown. Take a larger w_std, or b_std > 0."
        )
    if chi > 0:
        kink = 0.0 if math.isclose(below, above, rel_tol=1e-6) else math.inf
        return Phase(_name(chi), 0.0, 1.0 if kink else math.nan, chi, 1.0, kink, kink, chi)
    size = float(moment(phi, _DYING))
    if size < 1e-290:  # nothing comes through, or too little to compare
        return Phase("ordered", 0.0, math.nan, 0.0, math.nan, math.nan, math.nan, 0.0)
    first, curvature, third = (_DYING**j * float(moment(phi, _DYING, j)) / size for j in (1, 2, 3))
    gap, slope = _chaotic_point(correlation_map(phi, w_std, 0.0, _DYING), first, curvature)
    return Phase("ordered", 0.0, 1 - gap, 0.0, slope, curvature, third, 0.0)


def _has_kink(phi: Callable, reach: float) -> bool:
    """Whether φ' jumps within ±reach: its largest step on a grid is followed by halving, and stays where it is a jump."""
    with jax.enable_x64(True):
        slope = lambda x: np.asarray(derivative(phi)(jnp.asarray(x)))  # noqa: E731
        x = np.linspace(-reach, reach, 20_000)  # an even number of points: 0 is not among them
        steps = np.abs(np.diff(slope(x)))
        i, most = int(steps.argmax()), float(steps.max())
        low, high = x[i], x[i + 1]
        for _ in range(30):
            ends = np.array([low, (low + high) / 2, high])
            left, right = np.abs(np.diff(slope(ends)))
            low, high, last = (ends[0], ends[1], left) if left > right else (ends[1], ends[2], right)
    return most > 0 and bool(last > most / 2)  # pyright: ignore[reportPossiblyUnboundVariable]


def _name(chi: float) -> str:
    return "critical" if abs(chi - 1) <= CRITICAL else "ordered" if chi < 1 else "chaotic"


def _chaotic_point(step: Callable, chi: float, curvature: float) -> tuple[float, float]:
    """(1 − c*, f'(c*)). f is convex on [0, 1] with f(1) = 1 and f'(1) > 1: it has one other fixed point there.

    All its derivatives are ≥ 0, so that 1 − c* is at least 2 (χ − 1) / f''(1).
    """
    away = lambda gap: float(step(gap)[0]) - gap  # noqa: E731
    low = min(1e-3, 1e-3 * (chi - 1), (chi - 1) / curvature if 0 < curvature < math.inf else 1.0)
    gap = 1.0 if away(1.0) >= -1e-15 else _root(away, low, 1.0)
    return gap, float(step(gap)[1])


@checks.arguments(activation=NETWORK["activation"], b_std=NETWORK["b_std"])
def edge_of_chaos(activation: Any, b_std: Any) -> float:
    """The w_std at which a network with this b_std is critical, χ = 1: the smallest root q of

        q = σ_b² + E φ(√q Z)² / E φ'(√q Z)²,   σ_w² = 1 / E φ'(√q Z)².

    For gelu, silu and others that bend upwards, that fixed point can be repelling (`Phase.variance_slope` > 1): the network
    is critical for signals of variance q alone, and `phase` from another start says where they go.

    >>> round(edge_of_chaos("tanh", 0.2), 5), round(edge_of_chaos("relu", 0.0), 5)
    (1.30415, 1.41421)

    Reference: Hayou, Doucet, Rousseau (2019), On the impact of the activation function on deep neural networks training.
    """
    return _edge_of_chaos(activation, float(b_std))


@forgettable
@functools.lru_cache(maxsize=256)
def _edge_of_chaos(activation: Any, b_std: float) -> float:
    phi, name = activation_function(activation), called(activation)
    if as_piecewise_linear(phi) is not None:
        if b_std > 0:
            raise AbsentError(
                f"{name}: no edge of chaos at b_std {b_std:g}. A positively homogeneous φ has χ = 1 only where the "
                "variance map is q + b_std², which has no fixed point: take b_std = 0."
            )
        slope = float(moment(phi, 1.0, 1))
        if slope == 0:
            raise AbsentError(f"{name} is 0 everywhere: χ = 0 at every w_std, and there is no edge of chaos.")
        return 1 / math.sqrt(slope)
    if b_std == 0 and float(phi(jnp.zeros(()))) == 0:
        slope = math.sqrt(float(moment(phi, 0.0, 1)))
        where = f"w_std = 1/√E φ'² = {1 / slope:g}" if 0 < slope < math.inf else "no w_std"
        raise AbsentError(
            f"{name}: at b_std 0 the edge is degenerate, {where} with variance q* = 0, which signals approach slower "
            "than any exponential; none of the theorems about the edge hold there. Take b_std > 0, such as 0.05."
        )

    def beyond(q: Any) -> Any:
        return q - b_std**2 - moment(phi, q) / moment(phi, q, 1)

    grid = between(b_std**2 or 1e-10, max(_LARGEST_EDGE, 100 * b_std**2))  # no fixed point is below b_std²
    q = first_root(beyond, grid)
    if q is None:
        raise AbsentError(
            f"{name}: no edge of chaos at b_std {b_std:g}. E φ²/E φ'² + b_std² stays above q for every variance q from "
            f"{grid[0]:.3g} to {grid[-1]:.3g}, as far as was searched, so no w_std has χ = 1 at a fixed point among these: try "
            "another b_std, or another activation."
        )
    return 1 / math.sqrt(float(moment(phi, q, 1)))
