"""The forward–backward equations without an expansion in the conjugate kernels: averages over tilted Gaussians."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from limits.kernels.activations import as_piecewise_linear
from limits.kernels.hermite import derivative
from limits.posterior.averages import Draws, contraction, quadratic
from limits.posterior.equations import padded
from limits.posterior.linear import linear_backward, linear_forward
from limits.types import AbsentError

_FAR = 1e3  # how far out the weight must have begun to fall


@dataclasses.dataclass(frozen=True)
class Tilted:
    """N(h | 0, C) exp((w/N) φᵀC̃φ) as weights of draws of N(0, C); effective: of how many equal ones they are worth."""

    h: np.ndarray
    features: np.ndarray
    weights: np.ndarray

    @property
    def effective(self) -> float:
        """1 / Σ p²."""
        return float(1 / np.sum(self.weights**2))


def tilted(draws: Draws, c: np.ndarray, force: np.ndarray, w: float, width: float) -> Tilted:
    """The weights p ∝ exp((w/N) φᵀC̃φ), Σ p = 1.

    Bounded φ: always integrable. Otherwise the exponent grows like −½ hᵀC⁻¹h, and whichever draw's direction finds that the
    tilt outgrows the Gaussian shows that the average does not exist.
    """
    h = draws.signals(c, len(force))
    far = 0.5 * _FAR**2 * np.sum(draws.z[:, : len(force)] ** 2, axis=1)
    grown = w / width * quadratic(draws.features(_FAR * h), force)
    if (grown > far).any():
        raise AbsentError(
            f"exp((w/N) φᵀC̃φ) outgrows the Gaussian in {int((grown > far).sum())} of {len(h)} directions (width {width:g}, "
            f"largest eigenvalue of C̃ {np.linalg.eigvalsh(force)[-1]:.3g}): its average does not exist. Take a larger width "
            'or noise, order="leading", or a bounded activation.'
        )
    features = draws.features(h)
    exponent = w / width * quadratic(features, force)
    p = np.exp(exponent - exponent.max())
    return Tilted(h, features, p / p.sum())


def tilted_kernel(
    mean: np.ndarray, draws: Draws, c: np.ndarray, force: np.ndarray, w: float, b: float, width: float
) -> np.ndarray:
    """C^(l+1) = w <φφᵀ>_P + b with P(h) ∝ N(h | 0, C^(l)) exp((w/N) φᵀC̃^(l+1)φ).

    mean is <φφᵀ> over N(0, C). Linear φ: in closed form. Otherwise mean and the first order in C̃ come as in `kernel_ahead`, and
    the draws give what is beyond.
    """
    if draws.linear:
        return linear_forward(c, padded(force, len(c)), _slope(draws) ** 2 * w, b, width)
    found = tilted(draws, c, force, w, width)
    q = quadratic(found.features, force)
    beyond = found.weights - (1 + w / width * (q - q.mean())) / len(q)
    first = w / width * contraction(draws, c, force)
    return w * (mean + first + (found.features * beyond[:, None]).T @ found.features) + b


def tilted_force(
    leading: np.ndarray, draws: Draws, c: np.ndarray, force: np.ndarray, w: float, width: float
) -> np.ndarray:
    """C̃^(l)_ab = w C̃_ab <φ_a'φ_b'>_P + δ_ab w <φ_a''(C̃φ)_a>_P + 2 (w²/N) <φ_a'(C̃φ)_a φ_b'(C̃φ)_b>_P, C̃ of layer l + 1.

    `leading` is the same with N(0, C) for P and without the last term. It is N/2 times the average of the second derivative
    of exp((w/N) φᵀC̃φ), over that of itself; linear φ: in closed form.
    """
    if draws.linear:
        return linear_backward(c, force, _slope(draws) ** 2 * w, width)
    check_smooth(draws)
    found = tilted(draws, c, force, w, width)
    first = derivative(draws.phi)
    with jax.enable_x64(True):
        h = jnp.asarray(found.h)
        slopes, bends = np.asarray(first(h)), np.asarray(derivative(first)(h))
    pulled = found.features @ force
    beyond = (found.weights - 1 / len(pulled))[:, None]
    back = leading + w * force * ((slopes * beyond).T @ slopes) + np.diag(w * (beyond * bends * pulled).sum(0))
    g = slopes * pulled
    return back + 2 * w**2 / width * (g * found.weights[:, None]).T @ g


def check_smooth(draws: Draws) -> None:
    """Raises where φ has no second derivative."""
    if not draws.linear and as_piecewise_linear(draws.phi) is not None:
        raise AbsentError(
            'order="full" needs a second derivative under a sampled average, and this activation has a kink: use '
            'order="leading", or a smooth activation.'
        )


def _slope(draws: Draws) -> float:
    found = as_piecewise_linear(draws.phi)
    assert found is not None
    return found.positive
