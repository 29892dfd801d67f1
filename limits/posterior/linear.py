"""Deep linear networks: everything about their kernels in closed form, at every order in the conjugate kernels.

Here C^(l) = w (1/N) Σ_i h_i h_iᵀ + b 11ᵀ, h_i ~ N(0, C^(l−1)): w times a Wishart matrix, plus the bias. `bias` is the variance
b; w is `weight`. All matrices [P, P].

Reference: Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, appendix B.2; Yang et al. (2023), A
theory of representation learning gives a deep generalisation of kernel methods. Divergences: the Kullback–Leibler form is
printed with a transpose for an inverse; the backward equation with its inverse on the other side, where the matrix is not
symmetric, so that in the symmetry relation (wC̃^(l))⁻¹ C̃^(l−1) is the transpose of (wC^(l−1))⁻¹ (C^(l) − b).
"""

from typing import TYPE_CHECKING

import numpy as np
import scipy

from limits.posterior.averages import symmetric, symmetric_root
from limits.types import AbsentError

if TYPE_CHECKING:
    import scipy.linalg


def _gain(c: np.ndarray, force: np.ndarray, weight: float, width: float) -> np.ndarray:
    """(I − 2 (w/N) C̃ C)⁻¹, where the tilted Gaussian exists."""
    inside = np.eye(len(c)) - 2 * weight / width * force @ c
    root = symmetric_root(c)
    smallest = np.linalg.eigvalsh(np.eye(len(c)) - 2 * weight / width * symmetric(root @ force @ root))[0]
    if smallest <= 0:
        raise AbsentError(
            f"C⁻¹ − 2 (w/N) C̃ is not positive definite (relative to C⁻¹ its smallest eigenvalue is {smallest:.3g}, at width "
            f"{width:g}): the tilted Gaussian does not exist. Take a larger width, more noise, or anneal in the width."
        )
    return scipy.linalg.inv(inside)


def cumulant_generating_function(c: np.ndarray, force: np.ndarray, weight: float, bias: float, width: float) -> float:
    """W(C̃ | C) = b 1ᵀC̃1 − N/2 log det(I − 2 (w/N) C̃ C), of the kernel behind a layer with kernel C.

    >>> cumulant_generating_function(np.eye(1), np.zeros((1, 1)), 1.0, 0.0, 10)
    0.0
    """
    return float(bias * force.sum() + width / 2 * np.linalg.slogdet(_gain(c, force, weight, width))[1])


def linear_forward(c: np.ndarray, force: np.ndarray, weight: float, bias: float, width: float) -> np.ndarray:
    """C^(l) = b + w C^(l−1) (I − 2 (w/N) C̃^(l) C^(l−1))⁻¹, the derivative of W in C̃.

    >>> linear_forward(np.eye(1), np.eye(1), 1.0, 0.0, 4).item()
    2.0
    """
    return symmetric(weight * c @ _gain(c, force, weight, width)) + bias


def linear_backward(c: np.ndarray, force: np.ndarray, weight: float, width: float) -> np.ndarray:
    """C̃^(l) = w (I − 2 (w/N) C̃^(l+1) C^(l))⁻¹ C̃^(l+1), the derivative of W in C.

    >>> linear_backward(np.eye(1), np.eye(1), 1.0, 4).item()
    2.0
    """
    return symmetric(weight * _gain(c, force, weight, width) @ force)


def conjugate_of(c_next: np.ndarray, c: np.ndarray, weight: float, bias: float, width: float) -> np.ndarray:
    """C̃ that takes C to C_next: N/2 ((wC)⁻¹ − (C_next − b)⁻¹), the inverse of `linear_forward`.

    >>> conjugate_of(2 * np.eye(1), np.eye(1), 1.0, 0.0, 4).item()
    1.0
    """
    return width / 2 * symmetric(scipy.linalg.inv(weight * c) - scipy.linalg.inv(c_next - bias))


def rate_function(c_next: np.ndarray, c: np.ndarray, weight: float, bias: float, width: float) -> float:
    """Γ(C_next | C) = max over C̃ of tr C̃ C_next − W(C̃ | C), which is N KL(N(0, C_next − b) || N(0, w C)):

        N/2 [tr((wC)⁻¹(C_next − b)) − log det((wC)⁻¹(C_next − b)) − P].

    −Γ is log p(C_next | C) at leading order in N; exactly, the Wishart law has (N − P − 1)/2 in place of the second N/2.

    >>> rate_function(np.eye(2), np.eye(2), 1.0, 0.0, 10)
    0.0
    """
    ratio = scipy.linalg.solve(weight * c, c_next - bias)
    return float(width / 2 * (np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(c)))


def target_direction(c: np.ndarray, c_last: np.ndarray, y: np.ndarray, weight: float, width: float) -> np.ndarray:
    """C^(L) − w C^(L−1) − (Y Yᵀ − K C^(L))/N: at a solution without biases and noise, O(1/N²).

    The kernel of the output moves towards the targets, Y Yᵀ, by 1/N.

    >>> target_direction(np.eye(1), np.eye(1), np.ones((1, 1)), 1.0, 10).item()
    0.0
    """
    return c_last - weight * c - (y @ y.T - y.shape[1] * c_last) / width
