"""The residual scale ρ that carries signals: where the output answers most to a change of the input."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.depth.checks import number
from limits.depth.entropy import uniform_variance
from limits.depth.output_response import largest_response
from limits.depth.response import branch_scales, checked_kernel, squares, variance_layer
from limits.kernels.hermite import derivative
from zoo import activation_function, checks


@checks.arguments(
    k0=checks.matrix,
    activation=checks.activation,
    depth=checks.count(),
    w_std=checks.real,
    b_std=checks.real,
    condition=checks.choice("response", "entropy"),
)
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
    k0, phi, (w, b) = checked_kernel(k0), activation_function(activation), squares("optimal_scale", w_std, b_std)
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


@checks.arguments(
    variance=checks.matrix,
    activation=checks.activation,
    depth=checks.real,
    target=checks.number(positive=True),
    w_std=checks.real,
    b_std=checks.real,
)
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
    q, (w, b) = np.asarray(variance, np.float64), squares("estimated_scale", w_std, b_std)
    target = number("estimated_scale", "target", target)
    if not (np.isfinite(q) & (q + b > 0) & (q >= 0)).all():
        raise ValueError(f"estimated_scale: variance must be finite and > 0 (≥ 0 with a bias), got {variance!r}.")
    if not depth > 0:
        raise ValueError(f"estimated_scale: depth must be > 0, or infinity; got {depth!r}.")
    with jax.enable_x64(True):
        a = w * float(derivative(activation_function(activation))(jnp.zeros(()))) ** 2
    if a == 0:
        raise ValueError("The estimate takes φ as linear near 0, and φ'(0) = 0 here: use optimal_scale.")
    ratio = np.maximum((a * target + b) / (a * q + b), 1.0)
    return np.asarray(np.sqrt((np.log(ratio) if np.isinf(depth) else np.expm1(np.log(ratio) / depth)) / a))


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
