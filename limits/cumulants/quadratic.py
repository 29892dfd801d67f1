"""Mean and covariance of z + ε z², for any distribution of which the first four cumulants are given."""

from typing import Any

import jax.numpy as jnp

from zoo import checks


@checks.arguments(
    eps=checks.number(),
    mean=checks.array(None),
    covariance=checks.array(None, None),
    third=checks.array(None, None),
    fourth=checks.array(None, None),
)
def quadratic_moments(eps: float, mean: Any, covariance: Any, third: Any = None, fourth: Any = None) -> tuple[Any, Any]:
    """(mean [N], covariance [N, N]) of φ(z) = z + ε z²; third = G3_iij and fourth = G4_iijj, both [N, N], or None for zero.

        μ'_i = μ_i + ε μ_i² + ε Σ_ii
        Σ'_ij = Σ_ij [1 + 2ε (μ_i + μ_j) + 4ε² μ_i μ_j] + 2ε² Σ_ij²
                + ε (1 + 2ε μ_i) G3_ijj + ε (1 + 2ε μ_j) G3_iij + ε² G4_iijj

    Exact for every distribution: higher cumulants do not enter.

    >>> m, c = quadratic_moments(0.5, jnp.zeros(1), jnp.eye(1))
    >>> m.tolist(), c.tolist()
    ([0.5], [[1.5]])

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eqs. 2.21 and A.26. Divergence:
    there "α" stands for ε, G3_(j,i,j) for G3_(j,i,i), and 2.21 leaves out μ_j.
    """
    slope = 1 + 2 * eps * mean
    out = covariance * slope[:, None] * slope[None, :] + 2 * eps**2 * covariance**2
    if third is not None:
        lean = eps * third * slope[None, :]
        out = out + lean + lean.T
    if fourth is not None:
        out = out + eps**2 * fourth
    return mean + eps * mean**2 + eps * jnp.diagonal(covariance), out
