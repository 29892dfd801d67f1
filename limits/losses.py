"""The losses of a `Task`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


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
