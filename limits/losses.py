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


def point_loss(kind: str) -> Callable[[Any, Any], jax.Array]:
    """The loss of outputs [n, k] and targets, mean over samples.

    >>> float(point_loss("mse")(jnp.zeros((2, 1)), jnp.ones((2, 1))))
    0.5
    """

    def loss(f: Any, y: Any) -> jax.Array:
        check_shapes(f, y)
        return 0.5 * jnp.mean(jnp.sum((f - y) ** 2, axis=-1)) if kind == "mse" else _cross_entropy(f, y)

    return loss


def check_shapes(f: Any, y: Any) -> None:
    """Raises where outputs and targets would be broadcast."""
    if f.shape != y.shape:
        raise ValueError(
            f"The network's outputs have shape {f.shape} and the targets {y.shape}: they must be the same, [samples, outputs]; "
            "change the network's number of outputs or the targets."
        )


def _cross_entropy(f: Any, y: Any) -> jax.Array:
    return jnp.mean(optax.losses.softmax_cross_entropy(f, y))


def losses(task: Task, f: np.ndarray, y: np.ndarray, variance: np.ndarray | float = 0.0) -> np.ndarray:
    """The task's loss of outputs f [..., n, k]; a variance [..., n] of Gaussian outputs adds ½ of it an output (mse)."""
    if task.loss == "mse":
        return np.asarray(0.5 * np.mean(np.sum((f - y) ** 2, axis=-1) + y.shape[1] * variance, axis=-1))
    return np.asarray(-np.mean(np.sum(y * scipy.special.log_softmax(f, axis=-1), axis=-1), axis=-1))
