"""Residual networks: that of the depth theory, and the practical one. The infinite-width twins are in `limits/resnet.py`."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.activations import activation_function
from zoo.checks import choice
from zoo.definition import (
    Network,
    by_layer,
    check_fields,
    check_images,
    check_layers,
    counts,
    definition,
    of_layer,
    scale,
    size,
)
from zoo.geometry import PADDINGS, check_window, mean_pool
from zoo.layers import Conv, Dense, Norm, field, layer, output
from zoo.parameterization import Parameterization, parameterization


@definition(
    **by_layer(),
    branch_layers=size,
    kernel=size,
    stages=size,
    beta=scale,
    form=choice("dense", "conv"),
    residual=choice("uniform", "decreasing", "fixed"),
    padding=choice(*PADDINGS),
    readout=choice("flatten", "average"),
)
class ResNet(Network):
    """The residual network of the depth theory, dense or convolutional: a read-in and blocks without normalisation.

        h¹ = W⁰ x,   h^(l+1) = h^l + s_l F^l(h^l),   f = readout φ(h^L) / γ,   F(h) = W φ(h)

    with the scales and biases of `MLP` (`CNN`) in every layer, the branches' own included. L = `depth` counts the
    read-in: there are L − 1 blocks. `residual` sets the branch scale s: "uniform" β L^(−α), "decreasing" β (l+1)^(−α)
    for block l = 1, 2, …, "fixed" β in L blocks (the ρ of the literature on residual scales). α is the
    parameterization's field: 1/2 in `ntk` and `mup`, 0 in `standard` (`Parameterization.mup.replace(alpha=1.0)` for
    another). `branch_layers` = K > 1 gives F(h) = W^K φ(… W¹ φ(h)); `zero_init` starts the last of them at zero.

    form="conv" has convolutions with window `kernel`. With `stages` = S > 1 its blocks are dealt to S stages, as evenly as
    possible; between two stages the map is averaged over 2 × 2 and h ← W φ(h) doubles the channels. Then L counts these
    doubling layers in place of the read-in, L = S − 1 + blocks ("fixed": L blocks), and `width` is that of the last
    stage. `readout` as in `CNN`. Where layers differ, tuples have an entry for each h^l, in order (the read-in, blocks, doubling
    layers): w_std and b_std of what makes it, and of the readout last; `activation` of what is applied to it.

    >>> net = ResNet(width=16, depth=4, parameterization="mup")
    >>> net.branches, net.branch_scale
    (3, 0.5)
    >>> jax.jit(net.init_with_output)(jax.random.key(0), jnp.ones((5, 10)))[0].shape
    (5, 1)

    Reference: Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks.
    """

    form: str = "dense"
    residual: str = "uniform"
    beta: Any = 1.0
    branch_layers: int = 1
    zero_init: bool = False
    kernel: int = 3
    padding: str = "SAME"
    stages: int = 1
    readout: str = "flatten"
    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type
    remat: bool = False  # the backward pass computes the inside of a branch again instead of keeping it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padding == "VALID" and self.kernel > 1:
            raise ValueError('ResNet: a branch must keep the shape of its input; use padding="SAME" or "CIRCULAR".')
        if self.stages > 1 and self.form == "dense":
            raise ValueError(f'ResNet: stages are for form="conv"; got {self.stages} with form="dense".')
        if self.branches < 0 or self.width % 2 ** (self.stages - 1):
            raise ValueError(
                f"ResNet: {self.stages} stages need a depth of at least {self.stages - 1} and a width that is a multiple "
                f"of {2 ** (self.stages - 1)}; got depth {self.depth} and width {self.width}."
            )
        check_layers(self, self.stages + self.branches)

    @property
    def images(self) -> bool:
        """Whether inputs are images."""
        return self.form == "conv"

    @property
    def branches(self) -> int:
        """The number of residual branches."""
        return self.depth if self.residual == "fixed" else self.depth - max(self.stages - 1, 1)

    @property
    def branch_scale(self) -> Any:
        """The factor of every branch: one number, or an array [branches] where they differ."""
        return branch_scale(self)

    @property
    def blocks_by_stage(self) -> tuple[int, ...]:
        """How many blocks each stage has."""
        each, more = divmod(self.branches, self.stages)
        return tuple(each + (s < more) for s in range(self.stages))

    @nn.compact
    def __call__(self, x: jax.Array, intermediates: bool = False) -> Any:  # noqa: D102
        if self.form == "dense":
            x = x.reshape(x.shape[0], -1)
        else:
            check_images(self, x)
        scales = jnp.broadcast_to(jnp.asarray(self.branch_scale, float), (self.branches,))
        hs = [field(self, "h1", self._layer(self.width >> (self.stages - 1), "input", "read_in", 1)(x))]
        block, run = 0, nn.remat(ResNet._branch, static_argnums=(2, 3, 4)) if self.remat else ResNet._branch
        for stage, count in enumerate(self.blocks_by_stage):
            width = self.width >> (self.stages - 1 - stage)
            if stage > 0:
                check_window("ResNet", hs[-1].shape[1:-1], 2, "VALID", f"the pooling before stage {stage + 1}")
                phi = self._phi(len(hs))
                h = self._layer(width, "hidden", f"double_{stage}", len(hs) + 1)(phi(mean_pool(hs[-1], 2)))
                hs.append(field(self, f"h{len(hs) + 1}", h))
            for _ in range(count):
                branch = run(self, hs[-1], width, f"block_{block + 1}", len(hs) + 1)
                h = hs[-1] + jnp.asarray(scales[block], branch.dtype) * branch
                hs.append(field(self, f"h{len(hs) + 1}", h))
                block += 1
        phis = tuple(self._phi(l)(h) for l, h in enumerate(hs, start=1))
        a = phis[-1]
        if self.form == "conv":
            a = a.mean((1, 2)) if self.readout == "average" else a.reshape(len(a), -1)
        return output(self, a, hs, phis, intermediates)

    def _phi(self, l: int) -> Any:
        return activation_function(of_layer(self.activation, l))

    def _branch(self, h: jax.Array, width: int, name: str, l: int) -> jax.Array:
        phi = self._phi(l - 1)
        for k in range(1, self.branch_layers + 1):
            last = self.zero_init and k == self.branch_layers
            h = self._layer(width, "branch", f"{name}_{k}", l, zero_init=last)(phi(h))
        return h

    def _layer(self, features: int, role: str, name: str, l: int, **options: Any) -> Any:
        if self.form == "dense":
            return layer(self, Dense, features, role, name, l, **options)
        return layer(self, Conv, features, role, name, l, size=self.kernel, padding=self.padding, **options)


def branch_scale(net: "ResNet | HeResNet") -> Any:
    """β times L^(−α), (l + 1)^(−α) for branch l, or 1, as `residual` says."""
    p = parameterization(net.parameterization)
    if net.residual == "decreasing":
        return net.beta * decreasing(net.branches, p.alpha)
    return net.beta if net.residual == "fixed" else net.beta * p.branch_factor(net.depth)


def decreasing(branches: int, alpha: Any) -> jax.Array:
    """(l + 1)^(−α) for branch l = 1, 2, …

    >>> decreasing(3, 1.0).round(3).tolist()
    [0.5, 0.3330000042915344, 0.25]
    """
    return jnp.arange(2, branches + 2, dtype=float) ** -alpha


@definition(
    stages=counts,
    windows=counts,
    expansion=size,
    beta=scale,
    norm=choice("batch", "layer", "spatial", None),
    residual=choice("uniform", "decreasing"),
    order=choice("post", "pre"),
    stem=choice("imagenet", "small"),
    padding=choice("SAME", "CIRCULAR"),
)
class HeResNet(nn.Module):
    """The practical residual network for images (He et al.): stages of blocks, the first of each halving the image.

    A branch is one convolution for every entry of `windows`, each followed by `norm` ("batch", "layer", "spatial" or
    None, see `Norm`); windows=(1, 3, 1) with expansion=4 is the bottleneck. `width` counts the channels of the first
    stage, and every later stage has twice those of the one before; its branches end in `expansion` times as many.
    Shortcuts are the identity, or a 1 × 1 convolution (with norm) where the shape changes. order="post" is
    x ← φ(shortcut(x) + s F(x)), "pre" is h ← shortcut(h) + s F(φ(h)); s = β L^(−α) with L the number of blocks, or
    β (l + 1)^(−α) in block l with residual="decreasing", and α the parameterization's (0 in `standard`). `zero_init` starts
    every branch at zero: the last gain, or without norm the last weights. stem="imagenet" is a 7 × 7 convolution and a
    max-pool, both with stride 2; "small" a 3 × 3 one.
    `train=True` normalises by the batch and updates the collection "batch_stats" (make it mutable).

    >>> net = HeResNet(width=8, stages=(1,), outputs=10, stem="small")
    >>> variables = jax.jit(net.init)(jax.random.key(0), jnp.ones((2, 4, 4, 3)))
    >>> f, state = net.apply(variables, jnp.ones((2, 4, 4, 3)), train=True, mutable=["batch_stats"])
    >>> f.shape
    (2, 10)

    Reference: He, Zhang, Ren, Sun (2015), Deep residual learning for image recognition.
    """

    width: int
    stages: tuple[int, ...] = (2, 2, 2, 2)
    outputs: int = 1
    activation: Any = "relu"
    w_std: Any = 2**0.5
    b_std: Any = 0.0
    parameterization: str | Parameterization = "standard"
    gamma: Any = 1.0
    bias_init: str = "zeros"
    beta: Any = 1.0
    windows: tuple[int, ...] = (3, 3)
    expansion: int = 1
    norm: str | None = "batch"
    order: str = "post"
    stem: str = "imagenet"
    padding: str = "SAME"
    zero_init: bool = False
    norm_affine: bool = True
    residual: str = "uniform"
    dtype: Any = None  # of the computation, such as "bfloat16"; parameters stay in the default float type
    remat: bool = False  # the backward pass computes the inside of a branch again instead of keeping it

    images = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.zero_init and self.norm is not None and not self.norm_affine:
            raise ValueError(
                "HeResNet: zero_init starts the gain of a norm at zero, and norm_affine=False has no gain."
            )
        super().__post_init__()

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return sum(self.stages)

    @property
    def branches(self) -> int:
        """The number of residual branches."""
        return self.depth

    @property
    def branch_scale(self) -> Any:
        """The factor of every branch: one number, or an array [branches] where they differ."""
        return branch_scale(self)

    def strides(self, stage: int, block: int) -> tuple[int, ...]:
        """The stride of every layer of a branch: the first block of a later stage halves the image, once."""
        halves = [i for i, window in enumerate(self.windows) if window > 1 or len(set(self.windows)) == 1][:1]
        return tuple(2 if stage > 0 and block == 0 and i in halves else 1 for i in range(len(self.windows)))

    @nn.compact
    def __call__(self, x: jax.Array, intermediates: bool = False, train: bool = False) -> Any:  # noqa: D102
        check_images(self, x)
        phi, post = activation_function(self.activation), self.order == "post"
        size, stride = (7, 2) if self.stem == "imagenet" else (3, 1)
        h = self._conv(self.width, size, stride, "input", "stem", x, train)
        if self.stem == "imagenet":
            h = nn.max_pool(phi(h) if post else h, (3, 3), (2, 2), "SAME")
        hs = [field(self, "h1", h)]
        h = phi(hs[0]) if post and self.stem == "small" else hs[0]
        branch = nn.remat(HeResNet._branch, static_argnums=(2, 3, 4)) if self.remat else HeResNet._branch
        scales = jnp.broadcast_to(jnp.asarray(self.branch_scale, float), (self.branches,))
        for stage, count in enumerate(self.stages):
            for block in range(count):
                a = branch(self, h, stage, block, train)
                if h.shape != a.shape:
                    step, name = max(self.strides(stage, block)), f"stage_{stage + 1}_block_{block + 1}_shortcut"
                    h = self._conv(a.shape[-1], 1, step, "hidden", name, h, train)
                hs.append(field(self, f"h{len(hs) + 1}", h + jnp.asarray(scales[len(hs) - 1], a.dtype) * a))
                h = phi(hs[-1]) if post else hs[-1]
        a = (h if post else phi(h)).mean((1, 2))
        return output(self, a, hs, [phi(h) for h in hs], intermediates)

    def _branch(self, h: jax.Array, stage: int, block: int, train: bool) -> jax.Array:
        phi, strides = activation_function(self.activation), self.strides(stage, block)
        widths = [self.width * 2**stage] * (len(self.windows) - 1) + [self.width * 2**stage * self.expansion]
        for k, (features, window, stride) in enumerate(zip(widths, self.windows, strides, strict=True), start=1):
            h = h if self.order == "post" and k == 1 else phi(h)
            last = self.zero_init and k == len(self.windows)
            h = self._conv(
                features, window, stride, "branch", f"stage_{stage + 1}_block_{block + 1}_{k}", h, train, last
            )
        return h

    def _conv(
        self, features: int, size: int, stride: int, role: str, name: str, x: jax.Array, train: bool, last: bool = False
    ) -> jax.Array:
        """A convolution and its norm; a norm brings its own bias."""
        options = {"size": size, "strides": stride, "padding": self.padding, "zero_init": last and self.norm is None}
        if self.norm is None:
            return layer(self, Conv, features, role, name, **options)(x)
        y = layer(self, Conv, features, role, name, use_bias=False, **options)(x)
        p = parameterization(self.parameterization)
        norm = Norm(
            self.norm, self.width, p, self.norm_affine, in_branch=role == "branch", zero_init=last, name=f"{name}_norm"
        )
        return norm(y, train)
