"""The curve of the limit itself: the loss of an infinitely wide network, for a sweep of finite ones to converge to."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import Task, twin
from limits.fields.sweeps import Plan, sweeps
from limits.losses import point_loss
from limits.rich import check_learns
from limits.training import Training


def check_has_limit(net: Any) -> None:
    """Raises, with the reason, unless this network has a limit with feature learning."""
    check_learns(twin(net))


def limit_losses(
    net: Any,
    task: Task,
    steps: int,
    learning_rate: Any,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    batches: Any = None,
    samples: int = 1024,
    replicas: int = 4,
) -> np.ndarray:
    """The loss on each step's batch before the step, [replica, step], by `limits.rich`; infinite where it diverges.

    A network that is linear has one exact sweep, in place of replicas.

    >>> from zoo import MLP
    >>> net = MLP(width=8, depth=1, activation="tanh", parameterization="mup")
    >>> losses = limit_losses(net, Task([[1.0, 0.5]], [1.0]), 3, 0.2, samples=64, replicas=2)
    >>> losses.shape, losses[:, 0].tolist()
    ((2, 3), [0.5, 0.5])
    """
    check_has_limit(net)
    training = Training.of(task, steps, learning_rate, momentum, weight_decay, True, batches=batches)
    plan = Plan(net, task, training, np.arange(steps))
    try:
        seen, _ = sweeps(plan, samples, replicas)
    except FloatingPointError:
        return np.full((replicas, steps), np.inf)
    rows, loss = jnp.asarray(training.rows(len(task.x_train))), point_loss(task.loss)
    f, y = jnp.asarray(seen["f"], float), jnp.asarray(task.y_train, float)
    every_step = jax.vmap(lambda f, rows: loss(f[rows], y[rows]))
    curves = np.asarray(jax.jit(jax.vmap(lambda f: every_step(f, rows)))(f), np.float64)
    return np.broadcast_to(curves, (replicas, steps)) if len(curves) == 1 else curves
