"""The infinite-width twins of `zoo/resnet.py`."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from limits import kernels as algebra
from limits.finite.sampled_kernels import sampled_kernels
from limits.inputs import as_samples, check_same_shape
from limits.kept.precision import full_products
from limits.kernel_twin import KernelTwin
from limits.kernels.propagation import Walk
from limits.twin import register_twin
from limits.types import Kernels
from zoo import HeResNet, ResNet
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


@register_twin(HeResNet)
@dataclasses.dataclass(frozen=True)
class HeResNetTwin(KernelTwin):
    """NNGP and NTK of the practical residual network.

    A closed form exists where every sum of a shortcut and a branch is Gaussian: order="pre", stem="small", and norm=None
    or "layer" without gain and bias. It is that of `ResNetTwin`, with strides and 1 × 1 shortcuts. Otherwise (a
    non-linearity on the shortcut, a maximum, batch normalisation, which makes a neuron's signal depend on the whole
    batch, or gains inside the residual stream) kernels are Monte-Carlo, `limits.finite.sampled_kernels`, with standard errors in
    `nngp_sem`, `ntk_sem`; with norm="batch" they are those of training mode on the batch of all inputs given.

    >>> from limits import twin
    >>> net = HeResNet(width=8, stages=(1, 1), norm=None, order="pre", stem="small", parameterization="ntk")
    >>> twin(net).kernels(np.ones((2, 4, 4, 1))).provenance["ntk"].kind
    'exact'
    """

    net: HeResNet

    @property
    def closed(self) -> bool:
        """Whether there is a closed form."""
        net = self.net
        plain_norm = net.norm is None or (net.norm == "layer" and not net.norm_affine)
        return net.order == "pre" and net.stem == "small" and plain_norm

    @full_products()
    def kernels(self, x1: Any, x2: Any = None, members: int = 32, seed: int = 0, **options: Any) -> Kernels:
        """As of `KernelTwin`, with its options, where there is a closed form; else from `members` networks a width."""
        if self.closed or "nngp" in self._absent or "ntk" in self._absent:
            return super().kernels(x1, x2, **options)
        if options:
            raise ValueError(
                f"kernels of this network are Monte-Carlo: they take members and seed, not {', '.join(options)}."
            )
        first = as_samples(x1, "x1")
        if x2 is None:
            batch = self.net.norm == "batch"
            return sampled_kernels(self.net, first, self.readout, members, seed, batch, self.trained)
        second = as_samples(x2, "x2")
        check_same_shape(first, second)
        both = self.kernels(np.concatenate([first, second]), members=members, seed=seed)
        n = len(first)
        errors = {name: part[:n, n:] for name, part in both.errors.items()}
        return Kernels(both.nngp[:n, n:], both.ntk[:n, n:], both.provenance, errors)

    def layers(self, x: Any) -> Any:
        """Φ^l and G^l, where there is a closed form; else nothing is recorded by layer."""
        return super().layers(x) if self.closed else ([], [])

    def _prepare(self, x: np.ndarray) -> np.ndarray:
        check_images(self.net, x)
        return x

    def _shape(self) -> Any:
        return super()._shape().clone(width=1, outputs=1, beta=1.0)

    def _positions(self, x: Any) -> int:
        return math.prod(x.shape[1:-1]) ** 2

    def _start(self, x1: jax.Array, x2: jax.Array) -> Any:
        return algebra.images(x1, x2, cross=True, within=False)

    def _walk(self, state: Any, walk: Walk) -> tuple[Any, Any]:
        net = self.net

        def conv(state: Any, size: int, stride: int, role: str) -> Any:
            state = algebra.convolve(state, size, stride, net.padding)
            if net.norm is None:
                return walk.dense(state, role)
            layer = dataclasses.replace(walk.layers[role], b=0.0, b_tangent=0.0)  # a norm takes the bias's place
            return algebra.layer_norm(algebra.dense(state, layer, False), 1e-6)

        state, block = walk.mark(conv(state, 3, 1, "input")), 0
        for stage, count in enumerate(net.stages):
            for i in range(count):
                strides, branch = net.strides(stage, i), state
                for k, (window, stride) in enumerate(zip(net.windows, strides, strict=True), start=1):
                    last = net.zero_init and k == len(net.windows)
                    branch = conv(walk.activate(branch), window, stride, "zero" if last else "branch")
                if i == 0 and (stage > 0 or net.expansion > 1):
                    state = conv(state, 1, math.prod(strides), "hidden")
                state = walk.mark(walk.add(state, branch, walk.scales[block]))
                block += 1
        state = walk.activate(state)
        return tuple(algebra.over_positions(a, True, False) for a in (state.k, state.ntk))  # pyright: ignore
