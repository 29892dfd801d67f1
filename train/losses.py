"""Losses for training: means over samples, as `Task` has them, with the usual additions."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from limits.losses import check_shapes, point_loss


def cross_entropy(outputs: Any, targets: Any, smoothing: float = 0.0, z_loss: float = 0.0) -> jax.Array:
    """−Σ_c p_c log softmax(f)_c, p = (1 − smoothing) · target + smoothing / classes, plus z_loss · (log Σ exp f)².

    targets: class probabilities [n, classes], or whole numbers [n]. The second term keeps the normaliser near 1 in
    low precision (Chowdhery et al. 2022, PaLM, section 5).

    >>> float(cross_entropy(jnp.zeros((3, 2)), jnp.eye(2)[jnp.array([0, 1, 1])])) == float(jnp.log(2.0))
    True
    """
    if jnp.issubdtype(targets.dtype, jnp.integer):
        targets = jax.nn.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype)
    check_shapes(outputs, targets)
    targets = (1 - smoothing) * targets + smoothing / outputs.shape[-1]
    loss = optax.softmax_cross_entropy(outputs, targets)
    if z_loss:
        loss = loss + z_loss * jax.nn.logsumexp(outputs, axis=-1) ** 2
    return loss.mean()


mse = point_loss("mse")  # ½ |f − y|², summed over outputs
