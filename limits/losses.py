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
    if kind == "mse":
        return lambda f, y: 0.5 * jnp.mean(jnp.sum((f - y) ** 2, axis=-1))
    return lambda f, y: jnp.mean(optax.losses.softmax_cross_entropy(f, y))
