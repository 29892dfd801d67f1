"""Parameters of layers without a trace of their initialisers at every call."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax


def parameter(layer: nn.Module, name: str, init: Callable[[], Any], shape: tuple[int, ...], dtype: Any) -> Any:
    """The layer's parameter, started by init(); one that is there and has this shape as it is.

    Flax would trace the initialiser at every call to see its shape, which takes as long as the layer itself.
    """
    here = layer.get_variable("params", name) if layer.has_variable("params", name) else None
    if isinstance(here, jax.Array) and here.shape == shape:
        return here
    return layer.param(name, init(), shape, dtype)
