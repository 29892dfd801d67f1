"""A module that meets one matrix several times a pass."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from limits.fields.network import REVEALED
from zoo import Dense, Norm, parameterization


class Recurrent(nn.Module):
    """One matrix met three times a pass, under `nn.scan` or written out; batch normalisation on request."""

    width: int = 64
    parameterization: str = "mup"
    gamma: float = 2.0
    shared: bool = True
    batch_norm: bool = False
    outputs: int = 1

    @nn.compact
    def __call__(self, x: Any, intermediates: bool = False, train: bool = False) -> Any:
        p = parameterization(self.parameterization)
        h = Dense(self.width, "input", self.width, p)(x)
        if self.shared:
            again = Dense(self.width, "hidden", self.width, p)
            for _ in range(3):
                h = h + 0.5 * again(jnp.tanh(h))
        else:
            h = _scanned(self.width, p)(h)
        if self.batch_norm:
            h = Norm("batch", self.width, p)(h, train)
        a = jnp.tanh(h)
        f = Dense(1, "readout", self.width, p)(a) / p.output_scale(self.width, self.gamma)
        return (f, {"h": (h,), "phi": (a,), "features": a}) if intermediates else f


def _scanned(width: int, p: Any) -> Any:
    class Block(nn.Module):
        @nn.compact
        def __call__(self, h: Any, _: Any) -> Any:
            return h + 0.5 * Dense(width, "hidden", width, p)(jnp.tanh(h)), None

    axes = {"variable_axes": {"params": 0, REVEALED: 0}, "split_rngs": {"params": True, "reveal": True}}
    blocks = nn.scan(nn.remat(Block), **axes, length=3)()
    return lambda h: blocks(h, None)[0]
