"""The forward–backward equations of a Bayesian network's kernels, one layer at a time."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.posterior.averages import Draws, contraction, pair_averages, symmetric
from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg


@checks.arguments(
    k0=checks.array(None, None),
    weights=checks.several(checks.number(positive=True)),
    biases=checks.several(checks.number(0)),
    activation=checks.activation,
)
@dataclasses.dataclass(frozen=True, eq=False)
class Stack:
    """Fully connected layers as their kernels see them: C^(0) = k0, C^(l) = w_l <φφᵀ> + b_l 11ᵀ, l = 1 … L; f ~ N(0, C^(L)).

    weights, biases: the variances w_l, b_l of the layer behind the l-th activation, [L]. A readout whose variance is divided
    by γ₀ is `weights[-1] / γ₀`.

    >>> Stack(np.eye(2), [1.2, 1.2], [0.05, 0.05], "erf").depth
    2
    """

    k0: Any
    weights: Any
    biases: Any
    activation: Any = "erf"

    def __post_init__(self) -> None:
        for name in ("k0", "weights", "biases"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        if self.weights.shape != self.biases.shape:
            raise ValueError(
                f"Stack: weights and biases are one variance a layer each; got {self.weights.shape} and {self.biases.shape}."
            )
        _check_covariance(self.k0)

    @property
    def depth(self) -> int:
        """L, the number of activations."""
        return len(self.weights)

    def first(self, samples: int) -> "Stack":
        """The same layers with the first samples only."""
        return dataclasses.replace(self, k0=self.k0[:samples, :samples])


stack_of = checks.Check("a Stack of layers", lambda v: isinstance(v, Stack))


def _check_covariance(k0: np.ndarray) -> None:
    if k0.shape[0] != k0.shape[1]:
        raise ValueError(f"Stack: k0 must be a matrix [P, P]; its shape is {k0.shape}.")
    lowest, size = float(np.linalg.eigvalsh(k0)[0]), float(np.abs(k0).max())
    if not np.allclose(k0, k0.T, rtol=0, atol=1e-6 * size) or lowest < -1e-6 * size * len(k0):
        raise ValueError(
            f"Stack: k0 is no covariance: it must be symmetric, without negative eigenvalues; the lowest is {lowest:.3g}."
        )


def columns(y: Any) -> np.ndarray:
    """Targets [P, outputs]; [P] is one output.

    >>> columns([1.0, -1.0]).shape
    (2, 1)
    """
    y = np.asarray(y, np.float64)
    return y[:, None] if y.ndim == 1 else y


@checks.arguments(stack=stack_of)
def prior_kernels(stack: Stack) -> list[np.ndarray]:
    """C^(0) … C^(L) at infinite width (NNGP).

    >>> [k.round(4).item() for k in prior_kernels(Stack([[0.5]], [1.2, 1.2], [0.05, 0.05]))]
    [0.5, 0.45, 0.427]
    """
    kernels = [stack.k0]
    for w, b in zip(stack.weights, stack.biases, strict=True):
        kernels.append(w * pair_averages(stack.activation, kernels[-1])[0] + b)
    return kernels


@checks.arguments(
    c=checks.array(None, None),
    y=checks.array(None) | checks.array(None, None),
    noise=checks.number(0) | checks.array(None),
)
def output_force(c: np.ndarray, y: np.ndarray, noise: Any) -> np.ndarray:
    """C̃^(L) = ½ A⁻¹ (Y Yᵀ − K A) A⁻¹, A = C^(L) + κ: the derivative of log p(Y | C^(L)), of targets Y [P, K].

    κ is one number, or one a point. The residuals of the process with kernel C^(L) have
    Σ_outputs <Δ_a Δ_b> = 2 κ² C̃_ab + K κ δ_ab.

    >>> output_force(np.ones((1, 1)), np.full((1, 1), 2.0), noise=1.0).item()
    0.25
    """
    c, y = np.asarray(c), columns(y)
    if c.shape != (len(y), len(y)):
        raise ValueError(f"output_force: c must be a matrix [P, P] with P = {len(y)} as in y; its shape is {c.shape}.")
    inverse = symmetric(scipy.linalg.inv(c + np.diag(np.broadcast_to(noise, len(c)))))
    weights = inverse @ y
    return (weights @ weights.T - y.shape[1] * inverse) / 2


def padded(force: np.ndarray, points: int) -> np.ndarray:
    """Forces [..., P, P] with the test points behind, which feel none: [..., points, points].

    >>> padded(np.ones((1, 1)), 2).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    return np.pad(force, [(0, 0)] * (force.ndim - 2) + [(0, points - force.shape[-1])] * 2)


def kernel_ahead(
    mean: np.ndarray, draws: Draws, c: np.ndarray, force: np.ndarray, w: float, b: float, width: float
) -> np.ndarray:
    """C^(l+1) = w <φφᵀ> + b + (w²/N) Σ_cd V_ab,cd C̃^(l+1)_cd over N(0, C^(l)), to first order in C̃^(l+1)."""
    return w * mean + b + w**2 / width * contraction(draws, c, force)


def force_back(force: np.ndarray, own: np.ndarray, across: np.ndarray, w: float) -> np.ndarray:
    """C̃^(l)_ab = w C̃^(l+1)_ab <φ_a'φ_b'> + δ_ab w Σ_c C̃^(l+1)_ac <φ_a''φ_c>; own and across as of `pair_averages`.

    This is Σ_cd C̃_cd ∂C^(l+1)_cd / ∂C^(l)_ab. Divergence: the sum over c is printed with its term c = a alone.

    >>> c, force = np.array([[0.3, 0.1], [0.1, 0.2]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> force_back(force, *pair_averages("erf", c)[1:], 1.0).round(4).tolist()  # C̃_aa is pulled, too
    [[-0.1073, 0.8584], [0.8584, -0.1226]]
    """
    back = w * force * own
    back[np.diag_indices_from(back)] += 2 * w * (force * across).sum(1)
    return back


@checks.arguments(stack=stack_of, kernels=checks.several(checks.array(None, None)), force=checks.array(None, None))
def backpropagated(stack: Stack, kernels: list[np.ndarray], force: np.ndarray) -> list[np.ndarray]:
    """C̃^(0) … C̃^(L) from C̃^(L): at the kernels of infinite width, the derivative of log p(Y) in every layer's kernel.

    >>> stack = Stack(np.eye(2), [1.2], [0.05])
    >>> len(backpropagated(stack, prior_kernels(stack), np.eye(2)))
    2
    """
    forces = [force]
    for c, w in zip(kernels[-2::-1], stack.weights[::-1], strict=True):
        _, own, across = pair_averages(stack.activation, c)
        forces.append(force_back(forces[-1], own, across, w))
    return forces[::-1]
