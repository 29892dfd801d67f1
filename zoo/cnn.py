"""Convolutional networks. The infinite-width twin is in `limits/cnn.py`."""

from typing import Any

import flax.linen as nn
import jax

from zoo.activations import activation_function
from zoo.checks import Check, choice
from zoo.definition import Network, by_layer, check_images, check_layers, counts, definition, of_layer, size
from zoo.geometry import PADDINGS, check_window, mean_pool, out_size
from zoo.layers import Conv, field, layer, output


@definition(
    **by_layer(),
    kernel=size,
    pool_size=size,
    strides=size | counts,
    pool_after=Check("a tuple of layers, such as (2,)", lambda v: isinstance(v, tuple)),
    padding=choice(*PADDINGS),
    pool=choice("average", "sum"),
    readout=choice("flatten", "average"),
)
class CNN(Network):
    """A convolutional network with `depth` conv layers of `width` channels, for images [n, height, width, channels].

        h^l_a = w_std (k² C)^(-1/2) Σ_o W^l_o x^(l−1)_(s a + o) + b_std b^l,   x^l = pool φ(h^l),   f = readout(x^depth) / γ

    with a the position, o the offsets in a window of k × k, k = `kernel`, s the stride, C the channels before.
    `padding`: "SAME" (zeros outside the image, which count in k²), "VALID" or "CIRCULAR". `strides`: one for all layers
    or one a layer. `pool_after` names layers (1 … depth) whose activations are pooled over windows of `pool_size` that do
    not overlap (what is left over at the edge is dropped): pool="average", or "sum" (the average times the number of
    positions). `readout`: "flatten" has weights for every position, "average" averages over positions first. The other
    fields are those of `MLP`.

    `apply(..., intermediates=True)` returns (f, {"h": pre-activations by layer, "phi": activations by layer (before
    pooling), "features": what enters the readout, [n, F]}).

    >>> net = CNN(width=16, depth=2, readout="average")
    >>> params = jax.jit(net.init)(jax.random.key(0), jax.numpy.ones((5, 8, 8, 3)))
    >>> net.apply(params, jax.numpy.ones((5, 8, 8, 3))).shape
    (5, 1)
    """

    kernel: int = 3
    strides: int | tuple[int, ...] = 1
    padding: str = "SAME"
    pool: str = "average"
    pool_after: tuple[int, ...] = ()
    pool_size: int = 2
    readout: str = "flatten"
    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type

    images = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self)
        if isinstance(self.strides, tuple) and len(self.strides) != self.depth:
            raise ValueError(f"CNN: strides has {len(self.strides)} entries for {self.depth} layers; give one a layer.")
        if not set(self.pool_after) <= set(range(1, self.depth + 1)):
            raise ValueError(f"CNN: pool_after {self.pool_after} must name layers from 1 to {self.depth}.")

    def stride(self, l: int) -> int:
        """The stride of layer l = 1 … depth."""
        return self.strides[l - 1] if isinstance(self.strides, tuple) else self.strides

    def check_layer(self, l: int, shape: tuple[int, ...]) -> None:
        """Raises if the windows of layer l do not fit on its inputs of this shape."""
        check_window("CNN", shape, self.kernel, self.padding, f"layer {l}")
        if l in self.pool_after:
            after = tuple(out_size(n, self.kernel, self.stride(l), self.padding) for n in shape)
            check_window("CNN", after, self.pool_size, "VALID", f"the pooling after layer {l}")

    @nn.compact
    def __call__(self, x: jax.Array, intermediates: bool = False) -> Any:  # noqa: D102
        check_images(self, x)
        hs, phis = [], []
        for l in range(1, self.depth + 1):
            self.check_layer(l, x.shape[1:-1])
            window = {"size": self.kernel, "strides": self.stride(l), "padding": self.padding}
            conv = layer(self, Conv, self.width, "input" if l == 1 else "hidden", f"conv_{l}", l, **window)
            hs.append(field(self, f"h{l}", conv(x)))
            x = activation_function(of_layer(self.activation, l))(hs[-1])
            phis.append(x)
            if l in self.pool_after:
                x = mean_pool(x, self.pool_size) * (self.pool_size**2 if self.pool == "sum" else 1)
        x = x.mean((1, 2)) if self.readout == "average" else x.reshape(len(x), -1)
        return output(self, x, hs, phis, intermediates)
