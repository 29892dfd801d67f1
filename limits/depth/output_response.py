"""The largest response of the output over residual scales, element by element."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from limits import kernels as algebra
from limits.depth.response import advance, branch_scales, checked_kernel, orders_for, squares, start, variance_layer
from limits.depth.slopes import slope
from limits.kernels.hermite import derivative
from zoo import activation_function, checks

# Of ln ρ; at ρ = 1 all branches together multiply a signal by about e.
_GRID = np.linspace(np.log(3e-3), np.log(30), 17)
_ROUGH, _FINE = 64, 1024  # Hermite orders: to find about where the optimum lies, and the optimum
_LARGEST = 1e8  # variance of a signal up to which an optimum is searched
_SMALLEST = 1e-14  # from which it is found
_REFINEMENTS = 4  # each 8 times finer, and a parabola at the end: ρ to about 1e-8


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
    with jax.enable_x64(True):
        height = _heights(phi, depth, w, b, signal)
        grid = np.log(_unit(phi, k1, w, depth)) + _GRID[:, None]
        found = height(grid, _ROUGH)
        end = np.logical_and.accumulate(np.isfinite(found)).sum(0) - 1
        best = np.where(np.arange(len(_GRID))[:, None] <= end, found, -np.inf).argmax(0)
        lost = (end < 0) | ((best == end) & (np.min(np.broadcast_arrays(*signal[:2], end)[:-1], axis=0) < _SMALLEST))
        if lost.any():
            lost = np.concatenate([np.broadcast_to(part, end.shape)[lost] for part in signal[:2]])
            raise ValueError(
                f"The response to signals of variance {lost.min():.3g} to {lost.max():.3g} cannot be worked out: averages carry "
                f"variances from about {_SMALLEST:.0e} to {_LARGEST:.0e}. Scale the inputs to variances near 1."
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


def _heights(phi: Any, depth: int, w: float, b: float, signal: tuple) -> Callable[[np.ndarray, int], np.ndarray]:
    """(ln ρ [m, n], Hermite orders at most) → log |χ^out|, [m, n]."""
    largest, traced = np.concatenate(signal[:2]), tuple(jnp.asarray(part) for part in signal)

    def height(ln_rho: np.ndarray, at_most: int) -> np.ndarray:
        orders = min(at_most, orders_for(phi, largest, np.full(depth, np.exp(ln_rho.max())), w, b, True))
        rho = jnp.exp(jnp.asarray(ln_rho))
        return np.asarray(_log_response(phi, orders, b > 0, len(signal) == 1, traced, rho, depth, w, b))

    return height


@checks.arguments(
    k0=checks.matrix,
    activation=checks.activation,
    depth=checks.count(),
    rho=checks.matrix,
    w_std=checks.real,
    b_std=checks.real,
)
def log_response(
    k0: Any, depth: int, rho: Any, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf"
) -> np.ndarray:
    """log |χ^out| of one pair of samples over many ρ, [2, n]: of K_aa and of K_ab; k0 [2, 2], rho [n].

    >>> log_response([[0.05, 0.03], [0.03, 0.05]], 10, np.array([0.1, 0.3])).shape
    (2, 2)
    """
    k0, phi, (w, b) = checked_kernel(k0), activation_function(activation), squares("log_response", w_std, b_std)
    if k0.shape != (2, 2):
        raise ValueError(f"log_response takes the kernel of two samples, [2, 2]; got {k0.shape}.")
    branch_scales(depth, 1.0)
    rho = np.atleast_1d(np.asarray(rho, np.float64))
    if rho.ndim != 1 or not rho.size or not (np.isfinite(rho) & (rho >= 0)).all():
        raise ValueError(f"log_response: rho must be one or more finite numbers ≥ 0, got {rho}.")
    rho = rho[:, None]
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
