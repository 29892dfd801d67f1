"""Signals whose activations are as near to uniform as a Gaussian allows: the maximum-entropy condition."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.hermite import derivative
from zoo import activation_function, checks

_REACH = 60.0  # φ' of a saturating activation is 0 to rounding beyond


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
