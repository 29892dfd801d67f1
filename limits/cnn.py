"""The infinite-width twin of `zoo/cnn.py`."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from limits import kernels as algebra
from limits.kernel_twin import KernelTwin
from limits.kernels.propagation import Walk
from limits.twin import register_twin
from zoo import CNN
from zoo.definition import check_images


@register_twin(CNN)
@dataclasses.dataclass(frozen=True)
class CNNTwin(KernelTwin):
    """NNGP and NTK of a convolutional network: as for `MLP`, at pairs of positions a, a',

        q^(l+1)_aa' = w² mean_o E[φφ']_(a+o)(a'+o) + b²,   K^(l+1)_aa' = w² mean_o (E[φ'φ'] K^l)_(a+o)(a'+o) + q^(l+1)_aa'

    with o over the offsets of the window (zero outside the image). A flattened readout takes the mean over a = a', and no
    other pairs are carried; pooling takes means over windows of a and of a', a global average over all pairs.

    >>> import numpy as np
    >>> from limits import twin
    >>> twin(CNN(width=8, depth=2, readout="average")).kernels(np.ones((2, 6, 6, 3))).ntk.shape
    (2, 2)

    Reference: Novak et al. (2019), Bayesian deep convolutional networks with many channels are Gaussian processes.
    """

    net: CNN

    @property
    def _pairs(self) -> tuple[bool, bool]:
        """Which pairs of positions matter: between inputs, and within each."""
        pooled = bool(self.net.pool_after)
        return pooled or self.net.readout == "average", pooled

    def _prepare(self, x: np.ndarray) -> np.ndarray:
        check_images(self.net, x)
        jax.eval_shape(self.net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *x.shape[1:]), "float32"))
        return x

    def _shape(self) -> Any:
        return super()._shape().clone(width=1, outputs=1)

    def _positions(self, x: Any) -> int:
        return math.prod(x.shape[1:-1]) ** (2 if self._pairs[0] else 1)

    def _start(self, x1: jax.Array, x2: jax.Array) -> Any:
        return algebra.images(x1, x2, *self._pairs)

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        net = self.net
        plain = (
            set(range(2, net.depth + 1))
            if net.strides == 1 and net.padding != "VALID" and not net.pool_after
            else set()
        )

        def layer(state: Any, l: int, role: str) -> Any:
            state = algebra.convolve(state, net.kernel, net.stride(l), net.padding)
            state = walk.activate(walk.mark(walk.dense(state, role)))
            return algebra.pool(state, net.pool_size, net.pool == "sum") if l in net.pool_after else state

        state = layer(state, 1, "input")
        if plain:  # layers alike: one loop, compiled once
            state = walk.repeat(lambda s, _: layer(s, 2, "hidden"), state, net.depth - 1)
        else:
            for l in range(2, net.depth + 1):
                state = layer(state, l, "hidden")
        flatten = net.readout == "flatten"
        return tuple(algebra.over_positions(a, state.cross, flatten) for a in (state.k, state.ntk))  # pyright: ignore
