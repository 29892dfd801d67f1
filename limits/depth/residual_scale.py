"""The residual scale ρ that carries signals: where the output answers most to a change of the input."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from limits import kernels as algebra
from limits.depth.averages import NETWORK, QUADRATURE, moment, power_slope, squares
from limits.depth.phases import bisected
from limits.depth.response import LAYERS, advance, checked_kernel, orders_for, start, variance_layer, variances
from limits.kernels.hermite import derivative
from zoo import activation_function, checks
from zoo.once import jitted

# Of ln ρ; at ρ = 1 all branches together multiply a signal by about e.
_GRID = np.linspace(np.log(3e-3), np.log(30), 17)
_ROUGH, _FINE = 64, 1024  # Hermite orders: to find about where the optimum lies, and the optimum
LARGEST = 1e8  # variance of a signal up to which an optimum is searched
_SMALLEST = 1e-14  # from which it is found
_REFINEMENTS = 4  # each 8 times finer, and a parabola at the end: ρ to about 1e-8
_REACH = 60.0  # φ' of a saturating activation is 0 to rounding beyond


def largest_response(
    phi: Any,
    depth: int,
    w: float,
    b: float,
    k1: np.ndarray,
    k2: np.ndarray | None = None,
    k12: np.ndarray | None = None,
) -> np.ndarray:
    """argmax over ρ of χ^out for each of n elements: variances k1 [n], or pairs (k1, k2, k12). As in `optimal_scale`."""
    signal = (k1,) if k2 is None or k12 is None else (k1, k2, k12)
    slow = algebra.closed_form(phi) is None and k2 is not None and len(k1) * depth > 500

    def height(ln_rho: np.ndarray, most_orders: int) -> np.ndarray:
        """Log |χ^out|, [m, n], at ln ρ [m, n]."""
        scales, largest = np.full(depth, np.exp(ln_rho.max())), np.concatenate(signal[:2])
        orders, traced = min(most_orders, orders_for(phi, largest, scales, w, b, True)), tuple(map(jnp.asarray, signal))
        rho = jnp.exp(jnp.asarray(ln_rho))
        return np.asarray(_log_response(phi, orders, b > 0, len(signal) == 1, traced, rho, depth, w, b))

    with jax.enable_x64(True):
        grid = np.log(_unit(phi, k1, w, depth)) + _GRID[:, None]
        found = height(grid, _ROUGH)
        end = np.logical_and.accumulate(np.isfinite(found)).sum(0) - 1
        best = np.where(np.arange(len(_GRID))[:, None] <= end, found, -np.inf).argmax(0)
        lost = (end < 0) | ((best == end) & (np.min(np.broadcast_arrays(*signal[:2], end)[:-1], axis=0) < _SMALLEST))
        if lost.any():
            lost = np.concatenate([np.broadcast_to(part, end.shape)[lost] for part in signal[:2]])
            raise ValueError(
                f"The response to signals of variance {lost.min():.3g} to {lost.max():.3g} cannot be worked out: averages carry "
                f"variances from about {_SMALLEST:.0e} to {LARGEST:.0e}. Scale the inputs to variances near 1."
            )
        inside, outside = (best > 0) & (best < end), np.where(best == 0, 0.0, np.inf)
        for _ in track(range(_REFINEMENTS), "residual scales", console=Console(stderr=True), disable=not slow):
            low, _, high = _around(grid, best)
            grid = np.linspace(low, high, len(_GRID))
            found = height(grid, _FINE)
            best = found.argmax(0)
    low, middle, high = _around(grid, best)
    left, top, right = _around(found, best)
    bent = left - 2 * top + right
    vertex = middle + (high - low) / 4 * np.where(bent < 0, (left - right) / np.where(bent < 0, bent, 1), 0)
    return np.where(inside, np.exp(vertex), outside)


def _around(values: np.ndarray, best: np.ndarray) -> list[np.ndarray]:
    """Of each column, the entries before, at and behind its best row."""
    inner = np.clip(best, 1, len(values) - 2)[None]
    return [np.take_along_axis(values, inner + step, 0)[0] for step in (-1, 0, 1)]


@checks.arguments(**NETWORK, **LAYERS | {"k0": checks.array(2, 2)})
def log_response(
    k0: Any, depth: int, rho: Any, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf"
) -> np.ndarray:
    """log |χ^out| of one pair of samples over many ρ, [2, n]: of K_aa and of K_ab; k0 [2, 2], rho [n].

    >>> log_response([[0.05, 0.03], [0.03, 0.05]], 10, np.array([0.1, 0.3])).shape
    (2, 2)
    """
    k0, phi, (w, b) = checked_kernel(k0), activation_function(activation), squares(w_std, b_std)
    rho = np.reshape(np.asarray(rho, np.float64), (-1, 1))
    with jax.enable_x64(True):
        orders = orders_for(phi, np.diagonal(k0), np.full(depth, rho.max()), w, b, True)
        k1, k2, k12 = (jnp.asarray([k]) for k in (k0[0, 0], k0[1, 1], k0[0, 1]))
        numbers = jnp.asarray(rho), depth, w, b
        own = _log_response(phi, orders, b > 0, True, (k1,), *numbers)
        both = _log_response(phi, orders, b > 0, False, (k1, k2, k12), *numbers)
        return np.stack([np.asarray(own)[:, 0], np.asarray(both)[:, 0]])


def _unit(phi: Any, q: np.ndarray, w: float, depth: int) -> np.ndarray:
    """1 / sqrt(σ_w² L <φ'²>), roughly: the ρ at which L branches multiply a signal by about e."""
    steps = np.asarray(
        jax.vmap(lambda r: jnp.mean(derivative(phi)(r * jnp.linspace(-2, 2, 41)) ** 2))(jnp.sqrt(jnp.asarray(q)))
    )
    return 1 / np.sqrt(w * depth * np.maximum(steps, 1e-12))


@jitted(static_argnums=(0, 1, 2, 3))
def _log_response(
    phi: Any, orders: int, has_bias: bool, alone: bool, signal: tuple, rho: jax.Array, depth: Any, w: Any, b: Any
) -> jax.Array:
    """log |χ^out| for elements [n] and ρ [..., n], NaN where signals get too large; `alone`: of variances, else of pairs."""
    signal = tuple(jnp.broadcast_to(part, rho.shape) for part in signal)
    state = signal[0] if alone else start(*signal)

    def layer(state: Any) -> tuple[Any, jax.Array]:
        if alone:
            return variance_layer(phi, orders, state, rho, w, b, True), w * power_slope(phi, orders, state)
        after, _, dot = advance(phi, state, rho, w, b, True, orders, has_bias)
        return after, w * dot

    def through(_: Any, carry: tuple) -> tuple:
        state, total = carry
        after, gain = layer(state)
        return after, total + jnp.log(jnp.abs(1 + rho**2 * gain))

    state, total = jax.lax.fori_loop(0, depth, through, (state, jnp.zeros_like(rho)))
    largest = state if alone else jnp.maximum(state.r1, state.r2) ** 2
    return jnp.where(largest < LARGEST, total + jnp.log(jnp.abs(layer(state)[1])), jnp.nan)


@checks.arguments(activation=checks.activation, variance=checks.matrix)
def uniform_divergence(variance: Any, activation: Any = "erf") -> np.ndarray:
    """D_KL(uniform || p) for z = φ(h), h ~ N(0, s²), with the uniform distribution on the range of φ; s² = variance.

    For erf it is ½ ln 2s² + ½ (1/(2s²) − 1): zero at s² = 1/2, where erf(h) is uniform.

    >>> bool(abs(uniform_divergence(0.5)) < 1e-12), uniform_divergence(0.25).round(4).item()
    (True, 0.1534)

    Reference: Fischer, Dahmen, Helias (2023), appendix C.1. Divergence: there the extremum is called a maximum and put at
    s² = 1/4, by a factor of 2 in the derivative.
    """
    h, density, width = _range(activation_function(activation))
    s2 = np.asarray(variance, np.float64)[..., None]
    with np.errstate(divide="ignore"):
        known = np.where(density > 0, np.log(density * width), 0.0)  # ln φ'
    gaussian = -0.5 * np.log(2 * np.pi * s2) - h * h / (2 * s2)
    step = h[1] - h[0]
    return np.asarray(step * np.sum(density * (known - np.log(width) - gaussian), axis=-1))


@checks.arguments(activation=checks.activation)
def uniform_variance(activation: Any = "erf") -> float:
    """The variance of h at which φ(h) is nearest to uniform: s² = ∫ h² φ'(h) dh / ∫ φ'(h) dh.

    >>> round(uniform_variance("erf"), 9), round(uniform_variance("tanh") / np.pi**2, 9)
    (0.5, 0.083333333)
    """
    h, density, _ = _range(activation_function(activation))
    return float((h[1] - h[0]) * np.sum(h * h * density))


def _range(phi: Callable) -> tuple[np.ndarray, np.ndarray, float]:
    """(points h, φ'(h) / range, range), for the trapezoidal rule; φ must rise monotonically to finite limits."""
    with jax.enable_x64(True):
        h = jnp.linspace(-_REACH, _REACH, 24001)
        values, slopes = np.asarray(phi(h)), np.asarray(derivative(phi)(h))
    width = float(values[-1] - values[0])
    ends = abs(slopes[[0, -1]]) * _REACH > 1e-6 * width
    if not np.isfinite(width) or width <= 0 or ends.any() or (slopes < 0).any():
        raise ValueError(
            "The maximum-entropy condition is for activations that rise monotonically between two finite limits, such as erf "
            f"and tanh; this one goes from {values[0]:.3g} to {values[-1]:.3g} on [−{_REACH:g}, {_REACH:g}]."
        )
    return np.asarray(h), slopes / width, width


@checks.arguments(**NETWORK, k0=LAYERS["k0"], depth=LAYERS["depth"], condition=checks.choice("response", "entropy"))
def optimal_scale(
    k0: Any, depth: int, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", condition: str = "response"
) -> np.ndarray:
    """ρ*(L) for every element of an input kernel k0 [P, P]; 0 and infinity say that there is no inner optimum.

    condition="response": ρ* = argmax χ^out, with χ^out_ab = ∂K^out_ab / ∂K^(0)_ab of the fixed-ρ residual network (see
    `response`; off the diagonal, variances held fixed). 0: the response only falls with ρ, since the inputs saturate φ by
    themselves. Infinity: it still grows at 30 times the scale at which branches matter at all (or at
    signals of variance 10⁸); so it is for activations that do not saturate, for parallel samples, and off the diagonal at L = 1.
    condition="entropy": K^(L)_aa is the variance of the signals whose activations are nearest to uniform
    (`uniform_variance`); only on the diagonal, the rest is NaN.

    >>> optimal_scale([[0.05, 0.03], [0.03, 0.05]], 100, w_std=1.25**0.5, b_std=0.05**0.5).round(3).tolist()
    [[0.097, 0.293], [0.293, 0.097]]

    Reference: Fischer, Dahmen, Helias (2023), Optimal signal propagation in ResNets through residual scaling.
    """
    k0, phi, (w, b) = checked_kernel(k0), activation_function(activation), squares(w_std, b_std)
    n, q = len(k0), np.diagonal(k0)
    found = np.full((n, n), np.nan)
    if condition == "entropy":
        found[np.diag_indices(n)] = _filling(phi, q, depth, w, b)
        return found
    found[np.diag_indices(n)] = largest_response(phi, depth, w, b, q)
    first, second = np.triu_indices(n, 1)
    if len(first):
        best = largest_response(phi, depth, w, b, q[first], q[second], k0[first, second])
        found[first, second] = found[second, first] = best
    return found


@checks.arguments(
    **NETWORK,
    variance=checks.Check(
        "one or more finite numbers > 0 (≥ 0 with a bias)",
        lambda v: np.size(v) and all(0 <= q < np.inf for q in np.ravel(v)),
    ),
    depth=checks.number(positive=True) | checks.Check("infinity", lambda depth: depth == np.inf),
    target=checks.number(positive=True),
)
def estimated_scale(
    variance: Any, depth: float, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", target: float = 0.25
) -> np.ndarray:
    """The closed estimate of ρ* for variances K^(0): φ taken as linear up to the last layer, where K^(L) = `target`.

        ρ* ≈ sqrt(R^{1/L} − 1) / (σ_w φ'(0)),   R = (σ_w² φ'(0)² target + σ_b²) / (σ_w² φ'(0)² K^(0) + σ_b²)

    with the mean of both sides' φ'(0)² where φ has a kink at 0. 0 where K^(0) is above the target. For depth = inf, what ρ* √L
    tends to: sqrt(ln R) / (σ_w φ'(0)).

    >>> estimated_scale(0.05, 10, w_std=1.25**0.5, b_std=0.05**0.5).round(4).item()
    0.288

    Reference: Fischer, Dahmen, Helias (2023), eqs. 4.33 and 4.34, with the dynamic range V: target = (V/2)². V is not
    given there; 1/4 is what the appendix uses, from the derivative of an entropy that is minimal at 1/2 (`uniform_variance`).
    """
    q, (w, b) = np.asarray(variance, np.float64), squares(w_std, b_std)
    if (q + b == 0).any():
        raise ValueError(f"estimated_scale: variance must be > 0 without a bias, got {variance!r}.")
    a = w * float(moment(activation, 0.0, 1))
    if not 0 < a < np.inf:
        slope = "0" if a == 0 else "∞"
        raise ValueError(f"The estimate takes φ as linear near 0, and φ'(0) = {slope} here: use optimal_scale.")
    ratio = np.maximum((a * target + b) / (a * q + b), 1.0)
    return np.asarray(np.sqrt((np.log(ratio) if np.isinf(depth) else np.expm1(np.log(ratio) / depth)) / a))


def _filling(phi: Any, q: np.ndarray, depth: int, w: float, b: float) -> np.ndarray:
    """ρ with K^(L) = the variance of uniform activations, by bisection in ln ρ (K^(L) grows with ρ); 0 where K^(0) is above."""
    target = uniform_variance(phi)

    def short(ln_rho: np.ndarray) -> np.ndarray:
        scales = jnp.broadcast_to(jnp.exp(jnp.asarray(ln_rho)), (depth, len(q)))
        return ~(np.asarray(variances(phi, QUADRATURE, True, jnp.asarray(q), scales, w, b)[-1]) > target)

    with jax.enable_x64(True):
        found = bisected(short, np.full_like(q, -20.0), np.full_like(q, 20.0))
    return np.where(q >= target, 0.0, np.exp(found))
