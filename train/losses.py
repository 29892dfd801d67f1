"""Losses for training: means over samples, as `Task` has them, with the usual additions."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from limits.losses import check_shapes, point_loss


def cross_entropy(outputs: Any, targets: Any, smoothing: float = 0.0, z_loss: float = 0.0) -> jax.Array:
    """−Σ_c p_c log softmax(f)_c, p = (1 − smoothing) · target + smoothing / classes, plus z_loss · (log Σ exp f)².

    targets: class probabilities [n, classes], or whole numbers [n], or one a position [n, t], the mean then being over those
    that are not negative. The second term keeps the normaliser near 1 in low precision (Chowdhery et al. 2022, PaLM,
    section 5).

    >>> float(cross_entropy(jnp.zeros((3, 2)), jnp.eye(2)[jnp.array([0, 1, 1])])) == float(jnp.log(2.0))
    True
    """
    if jnp.issubdtype(targets.dtype, jnp.integer):
        return _of_labels(outputs, targets, smoothing, z_loss)
    check_shapes(outputs, targets)
    targets = (1 - smoothing) * targets + smoothing / outputs.shape[-1]
    loss = optax.softmax_cross_entropy(outputs, targets)
    if z_loss:
        loss = loss + z_loss * jax.nn.logsumexp(outputs, axis=-1) ** 2
    return loss.mean()


def _of_labels(outputs: Any, targets: Any, smoothing: float, z_loss: float) -> jax.Array:
    if outputs.shape[:-1] != targets.shape:
        raise ValueError(
            f"The network's outputs have shape {outputs.shape} and the targets, whole numbers, {targets.shape}: these must be "
            f"{outputs.shape[:-1]}, a class for every row of outputs."
        )
    counts = targets >= 0
    normaliser = jax.nn.logsumexp(outputs, axis=-1)
    at = jnp.take_along_axis(outputs, jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    loss = normaliser - (1 - smoothing) * at - (smoothing * outputs.mean(-1) if smoothing else 0)
    loss = loss + z_loss * normaliser**2 if z_loss else loss
    return jnp.sum(loss * counts) / jnp.maximum(counts.sum(), 1)


mse = point_loss("mse")  # ½ |f − y|², summed over outputs
