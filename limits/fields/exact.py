"""Linear networks without sampling: coordinates of their own stand for independent Gaussian vectors."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from zoo.layers import Linear


def unit_vectors(first: Any, count: int, size: int, blocks: int, dtype: Any) -> jax.Array:
    """`count` vectors of mean square 1 in every one of `blocks` parts, each part along a coordinate of its own.

    Independent Gaussian vectors in infinitely many dimensions are orthogonal, and all that a linear network asks of its
    vectors are inner products: so a coordinate each, from `first` on, stands for them exactly.

    >>> unit_vectors(1, 1, 6, 2, "float32").tolist()
    [[0.0, 1.7320507764816284, 0.0, 0.0, 0.0, 1.7320507764816284]]
    """
    part = size // blocks
    at = jnp.asarray(first).astype(jnp.int32) + jnp.arange(count * blocks).reshape(count, blocks)
    return (math.sqrt(part) * jax.nn.one_hot(at, part, dtype=dtype)).reshape(count, size)


@dataclasses.dataclass
class Coordinates:
    """Hands out coordinates, each once, while a network is initialised."""

    used: int = 0

    def take(self, count: int) -> int:
        """The first of `count` coordinates that nothing else uses."""
        first, self.used = self.used, self.used + count
        return first

    def matrix(self, capacity: int, window: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where the images of a matrix come from: of directions of inputs, and of outputs (a part an offset)."""
        return (self.take(capacity), 1), (self.take(capacity * window), window)

    def weights(self, module: Linear, inputs: int) -> None:
        """Puts exact vectors in place of a layer's drawn weights."""
        kernel = module.get_variable("params", "kernel")
        std, _ = module.scales("kernel", inputs)
        if module.role == "readout":  # [positions · neurons, outputs]
            parts, outputs = kernel.shape[0] // module.width, kernel.shape[1]
            rows = unit_vectors(self.take(parts * outputs), outputs, kernel.shape[0], parts, kernel.dtype).T
        else:  # [window, channels, neurons]
            count = math.prod(kernel.shape[:-1])
            rows = unit_vectors(self.take(count), count, kernel.shape[-1], 1, kernel.dtype)
        module.put_variable("params", "kernel", std * rows.reshape(kernel.shape))

    def bias(self, module: Linear) -> None:
        """Puts an exact vector in place of a drawn bias; that of the readout vanishes in the limit."""
        if not module.has_bias or module.bias_init == "zeros" or module.zero_init:
            return
        bias = module.get_variable("params", "bias")
        std = 0.0 if module.role == "readout" else module.scales("bias", 1)[0]
        module.put_variable("params", "bias", std * unit_vectors(self.take(1), 1, bias.shape[0], 1, bias.dtype)[0])
