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
from limits.kernels.special import safe_sqrt
from zoo import activation_function

_GRID = np.geomspace(3e-3, 30, 49)  # times the scale at which all branches together move the response by a factor of e
_LARGEST = 1e8  # variance of a signal up to which an optimum is searched
_GOLDEN = (5**0.5 - 1) / 2


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
    phi: Any, depth: int, w: float, b: float, k1: np.ndarray, k2: np.ndarray | None = None, k12: np.ndarray | None = None
) -> np.ndarray:
    """argmax over ρ of χ^out for each of n elements: variances k1 [n], or pairs (k1, k2, k12)."""
    with jax.enable_x64(True):
        scale = _unit(phi, k1, w, depth)
        grid = scale[None, :] * _GRID[:, None]
        at = np.concatenate([k1, k1 if k2 is None else k2])
        orders = orders_for(phi, at, np.full(depth, grid[-1].max()), w, b, True)
        static = (phi, orders, b > 0, k2 is None)
        signal = tuple(jnp.asarray(part) for part in ((k1,) if k2 is None or k12 is None else (k1, k2, k12)))
        numbers = depth, w, b
        height = np.asarray(_log_response(*static, signal, jnp.asarray(grid), *numbers))
        end = np.logical_and.accumulate(np.isfinite(height)).sum(0) - 1
        best = np.where(np.arange(len(_GRID))[:, None] <= end, height, -np.inf).argmax(0)
        inside, each = (best > 0) & (best < end), np.arange(len(k1))
        around = np.clip(best, 1, len(_GRID) - 2)
        low, high = np.log(grid[around - 1, each]), np.log(grid[around + 1, each])
        refined = np.exp(np.asarray(_refine(*static, signal, jnp.asarray(low), jnp.asarray(high), *numbers)))
    return np.where(inside, refined, np.where(best == 0, 0.0, np.inf))


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
    variance: Any, depth: int, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", target: float = 0.25
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
    ratio = np.maximum((a * target + float(b_std) ** 2) / (a * np.asarray(variance, np.float64) + float(b_std) ** 2), 1.0)
    return np.sqrt((np.log(ratio) if np.isinf(depth) else np.expm1(np.log(ratio) / depth)) / a)


def _unit(phi: Any, q: np.ndarray, w: float, depth: int) -> np.ndarray:
    """1 / sqrt(σ_w² L <φ'²>), roughly: the ρ at which L branches multiply a signal by about e."""
    steps = np.asarray(jax.vmap(lambda r: jnp.mean(derivative(phi)(r * jnp.linspace(-2, 2, 41)) ** 2))(jnp.sqrt(jnp.asarray(q))))
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


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _refine(
    phi: Any, orders: int, has_bias: bool, alone: bool, signal: tuple, low: jax.Array, high: jax.Array, depth: Any, w: Any, b: Any
) -> jax.Array:
    """The maximum between low and high (of ln ρ), by golden section."""

    def height(at: jax.Array) -> jax.Array:
        return _log_response(phi, orders, has_bias, alone, signal, jnp.exp(at), depth, w, b)

    def narrower(_: Any, bracket: tuple) -> tuple:
        low, high, left, right, at_left, at_right = bracket
        down = at_left > at_right  # the maximum lies left of `right`
        low, high = jnp.where(down, low, left), jnp.where(down, right, high)
        new = jnp.where(down, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        value = height(new)
        return (
            low, high, jnp.where(down, new, right), jnp.where(down, left, new),
            jnp.where(down, value, at_right), jnp.where(down, at_left, value),
        )  # fmt: skip

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    begin = (low, high, left, right, height(left), height(right))
    low, high, *_ = jax.lax.fori_loop(0, 34, narrower, begin)
    return (low + high) / 2


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
