"""The infinite-width twin of `HeResNet` in `zoo/resnet.py`."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from limits import kernels as algebra
from limits.inputs import as_samples, check_same_shape
from limits.kernel_twin import KernelTwin
from limits.montecarlo import sampled_kernels
from limits.twin import register_twin
from limits.types import Kernels
from limits.walk import Walk
from zoo import HeResNet
from zoo.definition import check_images


@register_twin(HeResNet)
@dataclasses.dataclass(frozen=True)
class HeResNetTwin(KernelTwin):
    """NNGP and NTK of the practical residual network.

    A closed form exists where every sum of a shortcut and a branch is Gaussian: order="pre", stem="small", and norm=None
    or "layer" without gain and bias. It is that of `limits/resnet.py`, with strides and 1 × 1 shortcuts. Otherwise (a
    non-linearity on the shortcut, a maximum, batch normalisation, which makes a neuron's signal depend on the whole
    batch, or gains inside the residual stream) kernels are Monte-Carlo, `limits.montecarlo`, with standard errors in
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
