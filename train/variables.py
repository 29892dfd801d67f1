"""A model's variables: what is trained, what only changes with the forward pass, and how a step changes both."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax


def split(variables: Any) -> tuple[Any, dict[str, Any]]:
    """(what is trained, other collections) of what `init` returned: {"params": …} and, say, {"batch_stats": …}.

    >>> split({"params": 1, "batch_stats": 2}), split([1, 2])
    (({'params': 1}, {'batch_stats': 2}), ([1, 2], {}))
    """
    if not (isinstance(variables, Mapping) and "params" in variables):
        return variables, {}
    return {"params": variables["params"]}, {name: part for name, part in variables.items() if name != "params"}


def forward(
    net: Any, trained: Any, state: dict[str, Any], x: Any, collect: tuple[str, ...] = (), **options: Any
) -> tuple[Any, dict[str, Any]]:
    """(outputs, other collections after it, with those to `collect`), in training mode where there are batch statistics."""
    if not state and not collect:
        return net.apply(trained, x, **options), state
    mode = {"train": True} if "batch_stats" in state else {}
    outputs, state = net.apply({**trained, **state}, x, mutable=[*state, *collect], **mode, **options)
    return outputs, dict(state)


def update(tx: optax.GradientTransformation, gradient: Any, memory: Any, trained: Any) -> tuple[Any, Any]:
    """(updates, memory) of the optimiser, whose memory keeps its types.

    A traced hyperparameter is a float32 array, which would promote the memory of bfloat16 weights.
    """
    updates, after = tx.update(gradient, memory, trained)
    return updates, jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, memory)


def descend(
    net: Any, tx: optax.GradientTransformation, loss_fn: Callable[[Any, Any], Any], carry: tuple, batch: tuple
) -> tuple[tuple, Any]:
    """((what is trained, other collections, the optimiser's memory) after a batch (inputs, targets), the loss before it)."""
    trained, state, memory = carry

    def objective(trained: Any) -> Any:
        outputs, after = forward(net, trained, state, batch[0])
        return loss_fn(outputs, batch[1]), after

    (loss, state), gradient = jax.value_and_grad(objective, has_aux=True)(trained)
    updates, memory = update(tx, gradient, memory, trained)
    return (optax.apply_updates(trained, updates), state, memory), loss
