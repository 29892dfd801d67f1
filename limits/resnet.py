"""The infinite-width twins of `zoo/resnet.py`."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from limits import kernels as algebra
from limits.kernel_twin import KernelTwin
from limits.twin import register_twin
from limits.walk import Walk
from zoo import ResNet
from zoo.definition import check_images


@register_twin(ResNet)
@dataclasses.dataclass(frozen=True)
class ResNetTwin(KernelTwin):
    """NNGP and NTK of the residual network of the depth theory:

        q^(l+1) = q^l + s_l² C^l,   C^l = w² E φφ' + b²,   K^(l+1) = K^l + s_l² (w² E[φ'φ'] K^l + C^l)

    with s_l the branch scale. What a block adds to K beside is its own increment C^l (times s_l²), not the total
    covariance q^(l+1): Hayou, Doucet, Rousseau (The curse of depth in kernel regime) print the latter in their
    proofs. Branches of several layers repeat the inner recursion, so that inner weights count. Convolutional networks
    carry pairs of positions, as in `limits/cnn.py`.

    >>> import numpy as np
    >>> from limits import twin
    >>> net = ResNet(width=8, depth=4, activation="linear", parameterization="mup")
    >>> float(twin(net).kernels(np.ones((1, 1))).nngp.round(6).item())  # (1 + 1/4)³
    1.953125
    """

    net: ResNet
    deepens = True

    @property
    def _pairs(self) -> tuple[bool, bool]:
        """Which pairs of positions matter: between inputs, and within each."""
        pooled = self.net.stages > 1
        return pooled or self.net.readout == "average", pooled

    def _prepare(self, x: np.ndarray) -> np.ndarray:
        if self.net.form == "dense":
            return x.reshape(len(x), -1)
        check_images(self.net, x)
        small = self.net.clone(width=2 ** (self.net.stages - 1), depth=max(self.net.stages, 2), residual="uniform")
        jax.eval_shape(small.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *x.shape[1:]), "float32"))
        return x

    def _shallow(self) -> tuple[Any, int]:
        stages = self.net.stages
        return self.net.clone(depth=max(stages - 1, 1) + stages), stages

    def _shape(self) -> Any:
        return super()._shape().clone(width=2 ** (self.net.stages - 1), outputs=1, beta=1.0)

    def _positions(self, x: Any) -> int:
        if self.net.form == "dense":
            return 1
        return math.prod(x.shape[1:-1]) ** (2 if self._pairs[0] else 1)

    def _start(self, x1: jax.Array, x2: jax.Array) -> Any:
        return algebra.inputs(x1, x2) if self.net.form == "dense" else algebra.images(x1, x2, *self._pairs)

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        net = self.net

        def weights(state: Any, role: str) -> Any:
            if net.form == "conv":
                state = algebra.convolve(state, net.kernel, 1, net.padding)
            return walk.dense(state, role)

        def block(state: Any, scale: Any) -> Any:
            branch = state
            for k in range(1, net.branch_layers + 1):
                last = net.zero_init and k == net.branch_layers
                branch = weights(walk.activate(branch), "zero" if last else "branch")
            return walk.mark(walk.add(state, branch, scale))

        state, done = walk.mark(weights(state, "input")), 0
        for stage, count in enumerate(net.blocks_by_stage):
            if stage > 0:
                state = walk.mark(weights(walk.activate(algebra.pool(state, 2, total=False)), "hidden"))
            state = walk.repeat(block, state, walk.scales[done : done + count])
            done += count
        state = walk.activate(state)
        if net.form == "dense":
            return state.covariance, state.ntk
        return tuple(algebra.over_positions(a, state.cross, net.readout == "flatten") for a in (state.k, state.ntk))  # pyright: ignore
