"""Higher cumulants of pre-activations over data, in networks with weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.cumulants import higher_cumulants
from zoo import checks


@checks.arguments(
    net=checks.module, x=checks.array(None, None), layer=checks.count(), members=checks.count(), seed=checks.key
)
def signal_cumulants(net: Any, x: Any, layer: int, members: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(mean |skewness|, mean excess kurtosis) over the neurons of z^(layer), layer = 1 … depth, [members] random networks.

    Over the inputs x [n, D]. Independent weights give O(N^(−1/2)) for the first and O(1/N) for the second at most.

    >>> from zoo import MLP
    >>> x = np.random.default_rng(0).normal(size=(500, 8))
    >>> signal_cumulants(MLP(width=8, depth=2, parameterization="standard"), x, layer=2, members=3)[1].shape
    (3,)
    """
    if not 1 <= layer <= net.depth:
        raise ValueError(f"signal_cumulants: layer must lie between 1 and {net.depth}, got {layer}.")

    @jax.jit
    def signals(key: Any) -> jax.Array:
        return net.apply(net.init(key, inputs[:1]), inputs, intermediates=True)[1]["h"][layer - 1]

    with jax.enable_x64(True):
        inputs = jnp.asarray(x, jnp.float64)
        found = [higher_cumulants(signals(key)) for key in jax.random.split(jax.random.key(seed), members)]
    return np.array([np.abs(skew).mean() for skew, _ in found]), np.array([kurtosis.mean() for _, kurtosis in found])
