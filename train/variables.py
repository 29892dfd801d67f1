"""A model's variables: what is trained, what only changes with the forward pass, and how a step changes both."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from zoo.modules import made_by
from zoo.plain import PlainNetwork
from zoo.rescaled import within


def split(variables: Any) -> tuple[Any, dict[str, Any]]:
    """(what is trained, other collections) of what `init` returned: {"params": …} and, say, {"batch_stats": …}.

    >>> split({"params": 1, "batch_stats": 2}), split([1, 2])
    (({'params': 1}, {'batch_stats': 2}), ([1, 2], {}))
    """
    if not (isinstance(variables, Mapping) and "params" in variables):
        return variables, {}
    return {"params": variables["params"]}, {name: part for name, part in variables.items() if name != "params"}


def takes_train(net: Any) -> bool:
    """Whether its forward pass is told by an argument `train` that it is trained.

    >>> from zoo import MLP, HeResNet
    >>> takes_train(MLP(8, 1)), takes_train(HeResNet(8, (1,), 2))
    (False, True)
    """
    model = within(net)
    if isinstance(model, PlainNetwork):
        model = made_by(model.make, model.width)
    call = model.__call__ if isinstance(model, nn.Module) else model.apply
    return "train" in inspect.signature(call).parameters


def forward(
    net: Any, trained: Any, state: dict[str, Any], x: Any, collect: tuple[str, ...] = (), **options: Any
) -> tuple[Any, dict[str, Any]]:
    """(outputs, other collections after it, with those to `collect`).

    In training mode where there are batch statistics, or keys for dropout (`rngs`) and an argument `train` that asks for them.
    """
    mode = {"train": True} if "batch_stats" in state or ("rngs" in options and takes_train(net)) else {}
    if not state and not collect:
        return net.apply(trained, x, **mode, **options), state
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
