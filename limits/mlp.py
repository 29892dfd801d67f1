"""The infinite-width twin of `zoo/mlp.py`."""

import dataclasses
from typing import Any

import numpy as np

from limits.inputs import as_samples
from limits.kernel_twin import KernelTwin
from limits.kernels.propagation import Walk
from limits.twin import register_twin
from limits.types import AbsentError
from zoo import MLP, parameterization
from zoo.definition import of_layer


@register_twin(MLP)
@dataclasses.dataclass(frozen=True)
class MLPTwin(KernelTwin):
    """NNGP and NTK of a fully connected network:

        q¹ = w² x·x'/D + b²,   q^(l+1) = w² E φφ' + b²,   K^(l+1) = w² E[φ'φ'] K^l + q^(l+1),

    with Gaussian averages over q^l, w = w_std, b = b_std. See `KernelTwin` for the scale of the output.

    >>> import numpy as np
    >>> from limits import twin
    >>> k = twin(MLP(width=8, depth=1, activation="linear", w_std=2.0)).kernels(np.array([[1.0, 1.0]]))
    >>> k.nngp.item(), k.ntk.item()
    (16.0, 32.0)

    Reference: Lee et al. (2018), Deep neural networks as Gaussian processes; Jacot et al. (2018), Neural tangent kernel.
    """

    net: MLP

    def dense_stack(self, x: Any, width: float | None = None) -> Any:
        """See `stack_of`."""
        self._layers()  # raises where signals have no limit
        return stack_of(self.net, x, width)

    def _shape(self) -> Any:
        return super()._shape().clone(width=1, depth=1, outputs=1)

    def _numbers(self) -> dict[str, Any]:
        return {"depth": self.net.depth}  # traced: one compilation serves all depths

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        def layer(state: Any, _: Any) -> Any:
            return walk.mark(walk.dense(walk.activate(state), "hidden"))

        state = walk.mark(walk.dense(state, "input"))
        state = walk.activate(walk.repeat(layer, state, walk.numbers["depth"] - 1))
        return state.covariance, state.ntk


def stack_of(net: MLP, x: Any, width: float | None = None) -> Any:
    """C^(0) of these inputs and the variances of the layers behind, the readout's over γ² (γ² N^(2d) at width N)."""
    from limits.posterior.equations import Stack

    one, *others = net.activation if isinstance(net.activation, tuple) else (net.activation,)
    if any(other != one for other in others):
        raise AbsentError(
            f"posterior: the correction at finite width is for layers of one activation, and {net.activation} differ. Take "
            "width=None, or sample networks (train.posterior)."
        )
    layers = (*range(1, net.depth + 1), 0)
    w, b = (np.array([float(of_layer(value, l)) ** 2 for l in layers]) for value in (net.w_std, net.b_std))
    b *= net.bias_init != "zeros"
    flat = as_samples(x, "x", np.float64).reshape(len(x), -1)
    scale = parameterization(net.parameterization).output_scale(int(width or 1), net.gamma) ** 2
    last = np.append(np.ones(net.depth - 1), 1 / float(scale))
    return Stack(w[0] * flat @ flat.T / flat.shape[1] + b[0], w[1:] * last, b[1:] * last, one)
