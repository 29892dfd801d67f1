"""The losses of a `Task`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy

from limits.types import Task

if TYPE_CHECKING:
    import scipy.special


def point_loss(kind: str) -> Callable[..., jax.Array]:
    """The loss of outputs [n, k] or [n, t, k] and targets, mean over samples and positions; of those in a mask [n, t] alone.

    >>> float(point_loss("mse")(jnp.zeros((2, 1)), jnp.ones((2, 1))))
    0.5
    >>> float(point_loss("mse")(jnp.zeros((1, 2, 1)), jnp.array([[[1.0], [2.0]]]), jnp.array([[False, True]])))
    2.0
    """

    def loss(f: Any, y: Any, mask: Any = None) -> jax.Array:
        check_shapes(f, y)
        each = 0.5 * jnp.sum((f - y) ** 2, axis=-1) if kind == "mse" else optax.losses.softmax_cross_entropy(f, y)
        return jnp.mean(each) if mask is None else jnp.sum(jnp.where(mask, each, 0)) / jnp.sum(mask)

    return loss


def check_shapes(f: Any, y: Any) -> None:
    """Raises where outputs and targets would be broadcast."""
    if f.shape != y.shape:
        raise ValueError(
            f"The network's outputs have shape {f.shape} and the targets {y.shape}: they must be the same, [samples, outputs] or "
            "[samples, positions, outputs]; "
            "change the network's number of outputs or the targets."
        )


def losses(task: Task, f: np.ndarray, y: np.ndarray, variance: np.ndarray | float = 0.0) -> np.ndarray:
    """The task's loss of outputs f [..., points, k]; a variance [..., points] of Gaussian outputs adds ½ an output (mse)."""
    if task.loss == "mse":
        return np.asarray(0.5 * np.mean(np.sum((f - y) ** 2, axis=-1) + y.shape[1] * variance, axis=-1))
    return np.asarray(-np.mean(np.sum(y * scipy.special.log_softmax(f, axis=-1), axis=-1), axis=-1))
