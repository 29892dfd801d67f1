"""The residual scale of very deep networks: ρ* √L tends to a number, which an integral gives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.integrate import quad, solve_ivp
from scipy.optimize import brentq

from limits import kernels as algebra
from limits.depth.response import checked_kernel, start
from limits.depth.slopes import curvature, power, slope
from limits.kernels.duals import CLOSED
from zoo import activation_function, checks

_ORDERS = 256  # where there is no closed form: signals stay within the range of φ up to the optimum
_END = 1e4  # of σ_w² ρ² L, where the search for an optimum ends
_LARGEST = 1e8  # variance of a signal, likewise


@checks.arguments(k0=checks.matrix, activation=checks.activation, w_std=checks.number(0), b_std=checks.number(0))
def deep_scale(k0: Any, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf") -> np.ndarray:
    """c with ρ*(L) → c / √L for every element of k0 [P, P]; 0 and infinity as in `optimal_scale`.

    With τ = ρ² l the kernel obeys dK/dτ = v(K) = σ_w² <φφ>_K + σ_b², and ln χ^out changes by d ln <φ'φ'>/dτ + σ_w² <φ'φ'>
    (f' in place of <φ'φ'> on the diagonal); τ* is where that vanishes and c = √τ*. On the diagonal

        c² = ∫ dK / v(K)  from K^(0) to K*,   K* the root of f''(K) v(K) + σ_w² f'(K)²   (`saturation_variance`).

    >>> deep_scale([[0.05]], w_std=1.25**0.5, b_std=0.05**0.5).round(4).item()
    0.9659
    """
    k0, phi, w, b = checked_kernel(k0), activation_function(activation), float(w_std) ** 2, float(b_std) ** 2
    n = len(k0)
    found = np.diag([_own_time(phi, float(q), w, b) for q in np.diagonal(k0)])
    pairs = list(zip(*np.triu_indices(n, 1), strict=True))
    for i, j in track(pairs, "pairs of samples", console=Console(stderr=True), disable=len(pairs) < 50):
        found[i, j] = found[j, i] = _pair_time(phi, k0[[i, j, i], [i, j, j]], w, b)
    return np.sqrt(found)


@checks.arguments(
    activation=checks.activation, above=checks.number(positive=True), w_std=checks.number(0), b_std=checks.number(0)
)
def saturation_variance(w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", above: float = 1e-4) -> float:
    """K*, the last layer's variance at which the output of a deep network responds most: (f' v)' = 0, the first root above.

    Infinity where there is none: φ does not saturate.

    >>> round(saturation_variance(w_std=1.25**0.5, b_std=0.05**0.5), 4)
    0.2511
    """
    phi, w, b = activation_function(activation), float(w_std) ** 2, float(b_std) ** 2
    grid = np.append(above, np.geomspace(max(above, 1e-6), 1e5, 400)[1:])
    signs = _tilt(phi, grid, w, b) <= 0
    if signs[0]:
        return above
    if not signs.any():
        return np.inf
    first = int(signs.argmax())
    return float(brentq(lambda q: _tilt(phi, np.array([q]), w, b)[0], grid[first - 1], grid[first], xtol=1e-14))  # pyright: ignore


def _closed(phi: Any) -> int:
    return CLOSED if algebra.closed_form(phi) is not None else _ORDERS


def _tilt(phi: Any, q: np.ndarray, w: float, b: float) -> np.ndarray:
    """(f' v)'(q), up to a positive factor: < 0 where more variance lowers the response."""
    with jax.enable_x64(True):
        f, first, second = (np.asarray(part) for part in _derivatives(phi, _closed(phi), jnp.asarray(q)))
    flat = abs(second) * q < 1e-10 * abs(first)  # a straight f has no curvature but rounding
    return np.where(flat, 0, second) * (w * f + b) + w * first**2


@functools.partial(jax.jit, static_argnums=(0, 1))
def _derivatives(phi: Any, orders: int, q: jax.Array) -> tuple[jax.Array, ...]:
    return power(phi, orders, q), slope(phi, orders, q), curvature(phi, orders, q)


def _own_time(phi: Any, q: float, w: float, b: float) -> float:
    """τ* of a variance."""
    end = saturation_variance(w**0.5, b**0.5, phi, above=q)
    if not np.isfinite(end) or end <= q:
        return np.inf if end > q else 0.0

    def inverse_speed(k: float) -> float:
        with jax.enable_x64(True):
            return 1 / (w * float(_derivatives(phi, _closed(phi), jnp.asarray([k]))[0][0]) + b)

    return float(quad(inverse_speed, q, end, epsrel=1e-10)[0])


def _pair_time(phi: Any, begin: np.ndarray, w: float, b: float) -> float:
    """τ* of a pair, begin = (K_aa, K_bb, K_ab)."""

    def flow(_: float, k: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(_flow(phi, _closed(phi), b > 0, jnp.asarray(k), w, b)[0])

    def gain(_: float, k: np.ndarray) -> float:
        with jax.enable_x64(True):
            return float(_flow(phi, _closed(phi), b > 0, jnp.asarray(k), w, b)[1])

    if gain(0.0, begin) <= 0:
        return 0.0

    def room(_: float, k: np.ndarray) -> float:
        return 1 - k.max() / _LARGEST

    for event in (gain, room):
        event.terminal, event.direction = True, -1  # pyright: ignore[reportFunctionMemberAccess]
    found = solve_ivp(flow, (0.0, _END / w), begin, events=(gain, room), rtol=1e-9, atol=1e-12, method="LSODA")
    return float(found.t_events[0][0]) if len(found.t_events[0]) else np.inf


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _flow(phi: Any, orders: int, has_bias: bool, k: jax.Array, w: Any, b: Any) -> tuple[jax.Array, jax.Array]:
    """dK/dτ of (K_aa, K_bb, K_ab), and d ln χ^out / dτ."""
    dual = algebra.dual(phi, orders)

    def inner(k: jax.Array) -> jax.Array:
        state = start(k[:1], k[1:2], k[2:])
        return dual(state.r1, state.r2, state.gap)[3][0]

    state = start(k[:1], k[1:2], k[2:])
    s1, s2, gap, _ = dual(state.r1, state.r2, state.gap)
    flow = w * jnp.concatenate([s1 * s1, s2 * s2, s1 * s2 * (1 - gap)]) + b
    dot, change = jax.jvp(inner, (k,), (flow,))
    return flow, change / dot + w * dot
