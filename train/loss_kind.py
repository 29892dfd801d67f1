"""Whether a loss is a mean over samples, over the targets that count, or over neither."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.step import are_classes, counted
from train.variables import loss_of

SPREAD = 0.5  # of the logarithm of what outputs are multiplied by: equal losses would be any mean


def kinds(loss: Callable[[Any, Any], Any], net: Any, outputs: Any, targets: Any) -> jax.Array:
    """Whether the loss of a batch is the mean over its samples, and that over its targets that count: [2, 2].

    First where all targets count, then where some are −1, whatever the batch itself has: what some of its samples happen to be
    decides nothing. Outputs are multiplied by random numbers, so that losses differ, where the loss is finite then.

    >>> from train.losses import cross_entropy
    >>> y = jnp.array([0, 1, 1, 0])
    >>> kinds(cross_entropy, None, jnp.eye(4)[:, :2], y).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    >>> kinds(lambda f, y: cross_entropy(f, y) ** 0.5, None, jnp.eye(4)[:, :2], y).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    twice = lambda a: jnp.concatenate([a, a])  # noqa: E731 of one sample alone every loss is its mean
    if len(jax.tree.leaves(targets)[0]) == 1:
        outputs, targets = jax.tree.map(twice, (outputs, targets))
    classes = are_classes(outputs, targets)
    targets = jnp.where(targets < 0, jnp.maximum(targets.max(), 0), targets) if classes else targets
    spread = jax.tree.map(_spread, outputs)
    finite = jnp.isfinite(loss_of(loss, net, spread, targets))  # as log(1 − p) of probabilities may not be
    outputs = jax.tree.map(lambda a, b: jnp.where(finite, a, b), spread, outputs)
    if not classes:
        found = _near(loss, net, outputs, targets)
        return jnp.stack([found, found])
    return jnp.stack(
        [_near(loss, net, outputs, y) for y in (targets, jnp.where(_left_out(targets.shape), -1, targets))]
    )


def _spread(a: Any) -> Any:
    if not jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return a * jnp.exp(SPREAD * jax.random.normal(jax.random.key(0), a.shape)).astype(a.dtype)


def _left_out(shape: tuple[int, ...]) -> np.ndarray:
    """Every other sample; of samples with several targets as many of each as its number says, and never all."""
    if len(shape) == 1 or not (each := int(np.prod(shape[1:])) - 1):
        return np.broadcast_to((np.arange(shape[0]) % 2 == 1).reshape(-1, *[1] * (len(shape) - 1)), shape)
    many = 1 + np.arange(shape[0]) % each
    many[0] = 0
    return (np.arange(each + 1) < many[:, None]).reshape(shape)


def _near(loss: Callable[[Any, Any], Any], net: Any, outputs: Any, targets: Any) -> jax.Array:
    def one(*sample: Any) -> tuple[Any, Any]:
        batch = alone(*sample)
        return loss_of(loss, net, *batch), counted(*batch)

    losses, weights = jax.vmap(one)(outputs, targets)
    there = jnp.where(weights > 0, losses, 0)  # of a sample without a target that counts the loss may be 0/0
    means = jnp.stack([losses.mean(), jnp.average(there, weights=weights + 1e-30)])
    return _which(loss_of(loss, net, outputs, targets), means, jnp.abs(there).mean())


def alone(*one: Any) -> Any:
    """One sample of each as a batch."""
    return jax.tree.map(lambda a: a[None], one)


def _which(whole: Any, means: Any, scale: Any) -> Any:
    """Which of these means [2] of the losses of a batch's samples its loss is; both where it is not finite.

    >>> _which(np.array(2.0), np.array([2.5, 2.0]), np.array(2.5)).tolist()
    [0.0, 1.0]
    >>> _which(np.array(2.0), np.zeros(2), np.array(0.0)).tolist()
    [0.0, 0.0]
    """
    found = abs(whole - means) <= 1e-3 * jnp.maximum(abs(whole), scale)
    return jnp.asarray(found | ~jnp.isfinite(whole), jnp.float32)
