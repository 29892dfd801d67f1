"""The infinite-width twin of `zoo/mlp.py`."""

import dataclasses
from typing import Any

from limits.kernel_twin import KernelTwin
from limits.twin import register_twin
from limits.walk import Walk
from zoo import MLP


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
