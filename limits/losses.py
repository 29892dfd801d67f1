"""The losses of a `Task`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax


def point_loss(kind: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The loss of outputs [n, k] and targets, mean over samples.

    >>> float(point_loss("mse")(jnp.zeros((2, 1)), jnp.ones((2, 1))))
    0.5
    """

    def loss(f: jax.Array, y: jax.Array) -> jax.Array:
        if f.shape != y.shape:  # they would be broadcast
            raise ValueError(
                f"The network's outputs have shape {f.shape} and the task's targets {y.shape}: give the network {y.shape[-1]} "
                "outputs, [n, outputs]."
            )
        return 0.5 * jnp.mean(jnp.sum((f - y) ** 2, axis=-1)) if kind == "mse" else _cross_entropy(f, y)

    return loss


def _cross_entropy(f: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean(optax.losses.softmax_cross_entropy(f, y))
