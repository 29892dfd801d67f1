"""Multi-layer perceptrons. The infinite-width twin is in `limits/mlp.py`."""

from typing import Any

import flax.linen as nn
import jax

from zoo.activations import activation_function
from zoo.definition import Network, by_layer, check_layers, definition, of_layer
from zoo.layers import Dense, field, layer, output


@definition(**by_layer())
class MLP(Network):
    """A fully connected network with `depth` hidden layers of `width` neurons.

        h¹ = w_std D^(-1/2) W¹ x + b_std b¹
        h^(l+1) = w_std N^(-1/2) W^(l+1) φ(h^l) + b_std b^(l+1),   f = h^(L+1) / γ

    written in the ntk form (W, b ~ N(0, 1)); `parameterization` moves the powers of N between initialisation, forward
    pass and learning rate, and sets γ = gamma · N^d. Inputs of any shape are flattened. w_std and b_std hold for every
    layer, the readout included; b_std = 0 means no bias, `bias_init="zeros"` biases that start at zero. Where layers differ,
    tuples have an entry a layer: depth + 1 for w_std and b_std, the readout's last, and depth for `activation`.

    With w_std = 1 a relu network halves its signal's variance in every layer: kernels decay as 2^(-depth). Use
    w_std = sqrt(2) (or activation="scaled_relu") to keep it.

    `apply(..., intermediates=True)` returns (f, {"h": pre-activations by layer, "phi": activations by layer, "features":
    what enters the readout, [n, F]}).

    >>> net = MLP(width=64, depth=2, activation="erf")
    >>> params = net.init(jax.random.key(0), jax.numpy.ones((5, 10)))
    >>> f, inside = net.apply(params, jax.numpy.ones((5, 10)), intermediates=True)
    >>> f.shape, [h.shape for h in inside["h"]]
    ((5, 1), [(5, 64), (5, 64)])
    """

    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type

    images = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self)

    @nn.compact
    def __call__(self, x: jax.Array, intermediates: bool = False) -> Any:  # noqa: D102
        a, hs, phis = x.reshape(x.shape[0], -1), [], []
        for l in range(1, self.depth + 1):
            dense = layer(self, Dense, self.width, "input" if l == 1 else "hidden", f"hidden_{l}", l)
            hs.append(field(self, f"h{l}", dense(a)))
            a = activation_function(of_layer(self.activation, l))(hs[-1])
            phis.append(a)
        return output(self, a, hs, phis, intermediates)
