"""The residual scale ρ that carries signals: where the output answers most to a change of the input."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.depth.averages import slope
from limits.depth.entropy import uniform_variance
from limits.depth.response import advance, branch_scales, checked_kernel, orders_for, start, variance_layer
from limits.kernels.hermite import derivative
from zoo import activation_function

_GRID = np.linspace(
    np.log(3e-3), np.log(30), 17
)  # of ln ρ, with ρ = 1 where all branches together multiply a signal by about e
_LARGEST = 1e8  # variance of a signal up to which an optimum is searched
_REFINEMENTS = 4  # each 8 times finer, and a parabola at the end: ρ to about 1e-8


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
    k0, phi, w, b = checked_kernel(k0), activation_function(activation), float(w_std) ** 2, float(b_std) ** 2
    if condition not in ("response", "entropy"):
        raise ValueError(f'condition must be "response" or "entropy", got {condition!r}.')
    n, q = len(k0), np.diagonal(k0)
    branch_scales(depth, 1.0)
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


def largest_response(
    phi: Any,
    depth: int,
    w: float,
    b: float,
    k1: np.ndarray,
    k2: np.ndarray | None = None,
    k12: np.ndarray | None = None,
) -> np.ndarray:
    """argmax over ρ of χ^out for each of n elements: variances k1 [n], or pairs (k1, k2, k12)."""
    with jax.enable_x64(True):
        unit = np.log(_unit(phi, k1, w, depth))
        at = np.concatenate([k1, k1 if k2 is None else k2])
        orders = orders_for(phi, at, np.full(depth, np.exp(unit.max() + _GRID[-1])), w, b, True)
        signal = tuple(jnp.asarray(part) for part in ((k1,) if k2 is None or k12 is None else (k1, k2, k12)))

        def height(ln_rho: np.ndarray) -> np.ndarray:
            rho = jnp.exp(jnp.asarray(ln_rho))
            return np.asarray(_log_response(phi, orders, b > 0, k2 is None, signal, rho, depth, w, b))

        grid = unit + _GRID[:, None]
        found = height(grid)
        end = np.logical_and.accumulate(np.isfinite(found)).sum(0) - 1
        best = np.where(np.arange(len(_GRID))[:, None] <= end, found, -np.inf).argmax(0)
        inside, outside = (best > 0) & (best < end), np.where(best == 0, 0.0, np.inf)
        for _ in range(_REFINEMENTS):
            middle, low, high = _around(grid, best)
            grid = np.linspace(low, high, len(_GRID))
            found = height(grid)
            best = found.argmax(0)
    middle, low, high = _around(grid, best)
    left, top, right = (np.take_along_axis(found, np.clip(best, 1, 15)[None] + step, 0)[0] for step in (-1, 0, 1))
    bend = left - 2 * top + right
    peak = middle + (high - low) / 4 * np.where(bend < 0, (left - right) / np.where(bend < 0, bend, 1), 0)
    return np.where(inside, np.exp(peak), outside)


def _around(grid: np.ndarray, best: np.ndarray) -> list[np.ndarray]:
    """The points of each column at its best one, before and behind it."""
    inner = np.clip(best, 1, len(grid) - 2)[None]
    return [np.take_along_axis(grid, inner + step, 0)[0] for step in (0, -1, 1)]


def log_response(
    k0: Any, depth: int, rho: Any, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf"
) -> np.ndarray:
    """log |χ^out| of one pair of samples over many ρ, [2, n]: of K_aa and of K_ab; k0 [2, 2], rho [n].

    >>> log_response([[0.05, 0.03], [0.03, 0.05]], 10, np.array([0.1, 0.3])).shape
    (2, 2)
    """
    k0, phi, w, b = checked_kernel(k0), activation_function(activation), float(w_std) ** 2, float(b_std) ** 2
    if k0.shape != (2, 2):
        raise ValueError(f"log_response takes the kernel of two samples, [2, 2]; got {k0.shape}.")
    rho = np.atleast_1d(np.asarray(rho, np.float64))[:, None]
    with jax.enable_x64(True):
        orders = orders_for(phi, np.diagonal(k0), np.full(depth, rho.max()), w, b, True)
        k1, k2, k12 = (jnp.asarray([k]) for k in (k0[0, 0], k0[1, 1], k0[0, 1]))
        numbers = jnp.asarray(rho), depth, w, b
        own = _log_response(phi, orders, b > 0, True, (k1,), *numbers)
        both = _log_response(phi, orders, b > 0, False, (k1, k2, k12), *numbers)
        return np.stack([np.asarray(own)[:, 0], np.asarray(both)[:, 0]])


def estimated_scale(
    variance: Any, depth: float, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", target: float = 0.25
) -> np.ndarray:
    """The closed estimate of ρ* for variances K^(0): φ taken as linear up to the last layer, where K^(L) = `target`.

        ρ* ≈ sqrt(R^{1/L} − 1) / (σ_w φ'(0)),   R = (σ_w² φ'(0)² target + σ_b²) / (σ_w² φ'(0)² K^(0) + σ_b²)

    0 where K^(0) is above the target. For depth = inf, what ρ* √L tends to: sqrt(ln R) / (σ_w φ'(0)).

    >>> estimated_scale(0.05, 10, w_std=1.25**0.5, b_std=0.05**0.5).round(4).item()
    0.288

    Reference: Fischer, Dahmen, Helias (2023), eqs. 4.33 and 4.34, with the dynamic range V: target = (V/2)². V is not
    given there; 1/4 is what the appendix uses, from the derivative of an entropy that is minimal at 1/2 (`uniform_variance`).
    """
    with jax.enable_x64(True):
        a = float(w_std) ** 2 * float(derivative(activation_function(activation))(jnp.zeros(()))) ** 2
    if a == 0:
        raise ValueError("The estimate takes φ as linear near 0, and φ'(0) = 0 here: use optimal_scale.")
    ratio = np.maximum(
        (a * target + float(b_std) ** 2) / (a * np.asarray(variance, np.float64) + float(b_std) ** 2), 1.0
    )
    return np.asarray(np.sqrt((np.log(ratio) if np.isinf(depth) else np.expm1(np.log(ratio) / depth)) / a))


def _unit(phi: Any, q: np.ndarray, w: float, depth: int) -> np.ndarray:
    """1 / sqrt(σ_w² L <φ'²>), roughly: the ρ at which L branches multiply a signal by about e."""
    steps = np.asarray(
        jax.vmap(lambda r: jnp.mean(derivative(phi)(r * jnp.linspace(-2, 2, 41)) ** 2))(jnp.sqrt(jnp.asarray(q)))
    )
    return 1 / np.sqrt(w * depth * np.maximum(steps, 1e-12))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _log_response(
    phi: Any, orders: int, has_bias: bool, alone: bool, signal: tuple, rho: jax.Array, depth: Any, w: Any, b: Any
) -> jax.Array:
    """log |χ^out| for elements [n] and ρ [..., n], NaN where signals get too large; `alone`: of variances, else of pairs."""
    signal = tuple(jnp.broadcast_to(part, rho.shape) for part in signal)
    state = signal[0] if alone else start(*signal)

    def layer(state: Any) -> tuple[Any, jax.Array]:
        if alone:
            return variance_layer(phi, orders, state, rho, w, b, True), w * slope(phi, orders, state)
        after, _, dot = advance(phi, state, rho, w, b, True, orders, has_bias)
        return after, w * dot

    def through(_: Any, carry: tuple) -> tuple:
        state, total = carry
        after, gain = layer(state)
        return after, total + jnp.log(jnp.abs(1 + rho**2 * gain))

    state, total = jax.lax.fori_loop(0, depth, through, (state, jnp.zeros_like(rho)))
    largest = state if alone else jnp.maximum(state.r1, state.r2) ** 2
    return jnp.where(largest < _LARGEST, total + jnp.log(jnp.abs(layer(state)[1])), jnp.nan)


def _filling(phi: Any, q: np.ndarray, depth: int, w: float, b: float) -> np.ndarray:
    """ρ with K^(L) = the variance of uniform activations, by bisection in ln ρ (K^(L) grows with ρ); 0 where K^(0) is above."""
    target = uniform_variance(phi)

    @jax.jit
    def reached(rho: jax.Array) -> jax.Array:
        step: Callable = lambda _, q: variance_layer(phi, 1, q, rho, w, b, True)  # noqa: E731
        return jax.lax.fori_loop(0, depth, step, jnp.asarray(q))

    with jax.enable_x64(True):
        low, high = np.full_like(q, -20.0), np.full_like(q, 20.0)
        for _ in range(60):
            middle = (low + high) / 2
            above = np.asarray(reached(jnp.exp(jnp.asarray(middle)))) > target
            low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where(q >= target, 0.0, np.exp((low + high) / 2))
