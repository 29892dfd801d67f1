"""Kernels of the fields inside a network, finite or infinite."""

from typing import Any

import jax
import jax.numpy as jnp

from zoo import parameterization


def feature_kernels(phis: Any) -> tuple:
    """Φ^l = <φ φ'> over the neurons of each layer, and over its positions.

    >>> feature_kernels([jnp.array([[1.0, 1.0], [1.0, -1.0]])])[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    flat = [a.reshape(len(a), -1) for a in phis]
    return tuple(a @ a.T / a.shape[-1] for a in flat)


def gradient_scale(net: Any) -> Any:
    """g = √N γ ∂f/∂h in the mean-field normalisation, so that G^l is O(1): the factor of ∂f/∂h."""
    p = parameterization(net.parameterization)
    return p.output_scale(net.width, getattr(net, "gamma", 1.0)) * net.width ** ((1 - 2 * p.a - p.b) / 2 + 0.5)


def gradient_kernels(net: Any, slopes: Any) -> tuple:
    """G^l = <g g'> over neurons, of slopes ∂f_k/∂h^l [outputs, n, …, neurons], averaged over outputs and positions.

    With g of `gradient_scale`, the tangent kernel of a dense network is Σ_l G^l (w² Φ^(l−1) + b²).
    """
    scale, out = gradient_scale(net), []
    for g in slopes:
        k, n = g.shape[:2]
        flat = g.reshape(k, n, -1, g.shape[-1])
        square = jnp.asarray(scale**2 / net.width / k, g.dtype) / flat.shape[2]
        out.append(square * jnp.einsum("knpm,kjpm->nj", flat, flat))
    return tuple(out)


def output_basis(f: Any) -> jax.Array:
    """The cotangents [outputs, n, outputs] that give ∂f_k of all n inputs at once, where inputs do not mix."""
    n, outputs = f.shape
    return jnp.broadcast_to(jnp.eye(outputs, dtype=f.dtype)[:, None, :], (outputs, n, outputs))
