"""A model's variables: what is trained, and what only changes with the forward pass."""

from collections.abc import Mapping
from typing import Any


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
