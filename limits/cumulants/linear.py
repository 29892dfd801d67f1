"""Cumulants through z = W y + b: every index is multiplied by W, and b moves the mean."""

from typing import Any

import jax.numpy as jnp

from limits.cumulants.cumulants import Cumulants
from zoo import checks


@checks.arguments(
    cumulants=checks.Check("Cumulants", lambda v: isinstance(v, Cumulants)),
    weights=checks.array(None, None),
    bias=checks.array(None),
)
def through_linear(cumulants: Cumulants, weights: Any, bias: Any = None) -> Cumulants:
    """Cumulants of z = W y + b, with W [outputs, inputs]; exact for every distribution.

        μ_z = W μ_y + b,   G^(n)_z = W ⊗ … ⊗ W G^(n)_y

    >>> import numpy as np
    >>> through_linear(Cumulants(np.ones(2), np.eye(2)), np.array([[1.0, 2.0]]), np.ones(1)).covariance.tolist()
    [[5.0]]
    """
    mean, covariance, third, fourth = cumulants
    w = jnp.asarray(weights)
    mean = w @ mean if bias is None else w @ mean + bias
    third = None if third is None else jnp.einsum("ai,bj,ck,ijk->abc", w, w, w, third, optimize="optimal")
    if fourth is not None:
        fourth = jnp.einsum("ai,bj,ck,dl,ijkl->abcd", w, w, w, w, fourth, optimize="optimal")
    return Cumulants(mean, w @ covariance @ w.T, third, fourth)


def repeated(cumulants: Cumulants, weights: Any) -> tuple[Any, Any]:
    """(G3_iij, G4_iijj) [N, N] of z = W y, without the arrays of N³ and N⁴ entries; None for what is not kept.

    All that a quadratic activation needs of the third and fourth cumulants.
    """
    w, inputs = jnp.asarray(weights), cumulants.mean.shape[-1]
    squares = (w[:, :, None] * w[:, None, :]).reshape(len(w), inputs**2)
    third = None if cumulants.third is None else squares @ cumulants.third.reshape(inputs**2, inputs) @ w.T
    fourth = None if cumulants.fourth is None else squares @ cumulants.fourth.reshape(inputs**2, inputs**2) @ squares.T
    return third, fourth
