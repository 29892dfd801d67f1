"""Layers that know the role of their parameters: `Dense`, `Conv` and `Norm`."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo import checks
from zoo.definition import of_layer
from zoo.geometry import pads
from zoo.parameterization import ROLES, Parameterization, parameterization
from zoo.parameters import parameter

_written_out = ContextVar("written_out", default=False)
_LARGEST_PATCHES = 2**26  # entries that may be held for a convolution as a matrix product


def scaled_normal(std: Any) -> nn.initializers.Initializer:
    """N(0, std²) entries: standard normals times std, so that one key gives one network in every parameterization."""

    def init(key: jax.Array, shape: Any, dtype: Any = None) -> jax.Array:
        return jnp.asarray(std, dtype) * jax.random.normal(key, shape, dtype)

    return init


class HasRoles:
    """What all layers with parameters say: `param_roles`, and scales(name, inputs) → (standard deviation, multiplier)."""

    param_roles: Any
    scales: Any
    path: Any

    def multipliers(self, inputs: int) -> dict[str, Any]:
        """The forward multiplier of each parameter, for so many input features."""
        return {name: self.scales(name, inputs)[1] for name in self.param_roles}


class Linear(HasRoles, nn.Module):
    """What `Dense` and `Conv` share: y = m_w (W x) + m_b b, with scales and multipliers m from the parameterization.

    `width` is the definition's N: what the exponents are powers of. b_std = 0 means no bias; `bias_init="zeros"` gives
    a bias that starts at zero and is trained with its multiplier; `zero_init` the same for weights and bias. Parameters
    have the default float type (float64 under `jax.enable_x64`); `dtype` is that of the computation, if it is another.
    """

    features: int
    role: str
    width: int
    parameterization: Parameterization
    w_std: Any = 1.0
    b_std: Any = 0.0
    use_bias: bool | None = None  # None: where b_std is not 0 (say it where b_std is traced)
    bias_init: str = "normal"
    zero_init: bool = False
    dtype: Any = None

    @property
    def param_roles(self) -> dict[str, str]:
        """The role of each parameter, by its name."""
        return {"kernel": self.role, **({"bias": "bias"} if self.has_bias else {})}

    @property
    def in_branch(self) -> bool:
        """Whether it lies in a residual branch, whose parameters share one depth factor."""
        return self.role == "branch"

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias."""
        return bool(self.b_std != 0) if self.use_bias is None else self.use_bias

    @property
    def window(self) -> tuple[int, ...]:
        """The axes of the weights before (inputs, outputs)."""
        return ()

    def scales(self, name: str, inputs: int) -> tuple[Any, Any]:
        """(standard deviation at initialisation, forward multiplier) of a parameter, for so many input features."""
        if name == "bias":
            return self.parameterization.scales("bias", 1, self.width, self.b_std)
        fan_in = inputs * math.prod(self.window)
        return self.parameterization.scales(self.role, fan_in, self.width, self.w_std)

    def product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        """W x."""
        return x @ kernel

    def patches(self, x: jax.Array) -> jax.Array:
        """What the weights multiply: `weigh(x)` is patches(x) @ weights [inputs, features]."""
        return x

    def weigh(self, x: jax.Array) -> jax.Array:
        """W x with the layer's own weights. `limits.fields` replaces it by a matrix that is never drawn."""
        inputs, store = x.shape[-1], jax.dtypes.canonicalize_dtype(float)
        kernel = parameter(
            self, "kernel", lambda: self._start("kernel", inputs), (*self.window, inputs, self.features), store
        )
        return self.product(x, jnp.asarray(kernel, x.dtype))

    def _start(self, name: str, inputs: int) -> nn.initializers.Initializer:
        zeros = self.zero_init or (name == "bias" and self.bias_init == "zeros")
        return nn.initializers.zeros if zeros else scaled_normal(self.scales(name, inputs)[0])

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:  # noqa: D102
        if self.role not in ROLES:
            raise ValueError(f'{type(self).__name__}: role must be one of {", ".join(ROLES)}, got "{self.role}".')
        inputs, store = x.shape[-1], jax.dtypes.canonicalize_dtype(float)
        dtype = store if self.dtype is None else self.dtype
        if self.has_variable("params", "kernel"):
            *window, expected, _ = jnp.shape(self.get_variable("params", "kernel"))
            if tuple(window) != self.window:
                had, has = (" × ".join(map(str, each)) for each in (window, self.window))
                raise ValueError(
                    f"{'.'.join(self.path)} was initialised with a window of {had} and now has {has}: initialise again."
                )
            if expected != inputs:
                raise ValueError(
                    f"{'.'.join(self.path)} was initialised for {expected} input features and now gets {inputs}: use "
                    "inputs x of the shape that init saw, or initialise again."
                )
        _, multiplier = self.scales("kernel", inputs)
        y = jnp.asarray(multiplier, dtype) * self.weigh(jnp.asarray(x, dtype))
        if self.has_bias:
            _, multiplier = self.scales("bias", 1)
            bias = jnp.asarray(parameter(self, "bias", lambda: self._start("bias", 1), (self.features,), store), dtype)
            y = y + jnp.expand_dims(jnp.asarray(multiplier, dtype) * bias, range(y.ndim - 1))
        return y


@checks.arguments()
class Dense(Linear):
    """A linear map of the last axis.

    >>> layer = Dense(3, role="input", width=3, parameterization=Parameterization.ntk)
    >>> layer.init(jax.random.key(0), jnp.ones((1, 4)))["params"]["kernel"].shape
    (4, 3)
    """


@contextlib.contextmanager
def convolutions() -> Iterator[None]:
    """Inside, a `Conv` is a convolution on every backend, for those who read the program rather than run it."""
    token = _written_out.set(True)
    try:
        yield
    finally:
        _written_out.reset(token)


@checks.arguments()
class Conv(Linear):
    """A convolution of inputs [n, *positions, channels] with a window of `size` along every axis of positions.

    The fan-in is (positions in the window) × channels, also where the window reaches over the edge: there the missing
    inputs count as zeros ("SAME"), or come from the other side ("CIRCULAR"), or are not asked for ("VALID").

    >>> layer = Conv(3, "input", 3, Parameterization.ntk, size=5, strides=2)
    >>> layer.init_with_output(jax.random.key(0), jnp.ones((1, 8, 8, 2)))[0].shape
    (1, 4, 4, 3)
    """

    size: int = 3
    strides: int = 1
    padding: str = "SAME"
    dimensions: int = 2

    @property
    def window(self) -> tuple[int, ...]:  # noqa: D102
        return (self.size,) * self.dimensions

    def _padded(self, x: jax.Array) -> tuple[jax.Array, list[tuple[int, int]]]:
        """x, wrapped round if that is the padding; and how many zeros are missing along each axis of positions."""
        if x.ndim != self.dimensions + 2:
            raise ValueError(f"Conv needs inputs [n, {self.dimensions} axes of positions, channels], got {x.shape}.")
        edges = [pads(n, self.size, self.strides, self.padding) for n in x.shape[1:-1]]
        if self.padding == "CIRCULAR":
            return jnp.pad(x, [(0, 0), *edges, (0, 0)], mode="wrap"), [(0, 0)] * self.dimensions
        return x, edges

    def product(self, x: jax.Array, kernel: jax.Array) -> jax.Array:  # noqa: D102
        small = x.size * math.prod(self.window) < _LARGEST_PATCHES
        if small and jax.default_backend() == "cpu" and not _written_out.get():
            # Members of an ensemble have weights of their own, and grouped convolutions are slow on a CPU.
            return self.patches(x) @ kernel.reshape(-1, kernel.shape[-1])
        x, edges = self._padded(x)
        letters = "XYZ"[: self.dimensions]
        layout = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
        return jax.lax.conv_general_dilated(
            x, kernel, (self.strides,) * self.dimensions, edges, dimension_numbers=layout
        )

    def patches(self, x: jax.Array) -> jax.Array:
        """What the window sees at every position, [n, *positions, size² · channels]: y = patches · weights."""
        x, edges = self._padded(x)
        x = jnp.pad(x, [(0, 0), *edges, (0, 0)])
        spans = [(n - self.size) // self.strides * self.strides + 1 for n in x.shape[1:-1]]

        def seen(offsets: tuple[int, ...]) -> jax.Array:
            window = x
            for axis, (offset, span) in enumerate(zip(offsets, spans, strict=True), start=1):
                window = jax.lax.slice_in_dim(window, offset, offset + span, self.strides, axis)
            return window

        return jnp.concatenate([seen(o) for o in itertools.product(range(self.size), repeat=self.dimensions)], axis=-1)


@checks.arguments()
class Norm(HasRoles, nn.Module):
    """Normalisation, then gain and bias a channel (`affine`). kind, and what mean and variance are taken over:

    "layer": the features (at every position); "rms": the same without mean and bias; "spatial": the positions (of every
    channel); "batch": inputs and positions (of every channel) where `train`, else their running averages, in the collection
    "batch_stats".

    >>> layer = Norm("layer", width=3, parameterization=Parameterization.ntk)
    >>> layer.init_with_output(jax.random.key(0), jnp.array([[1.0, 2.0, 3.0]]))[0].round(2).tolist()
    [[-1.2200000286102295, 0.0, 1.2200000286102295]]
    """

    kind: str
    width: int
    parameterization: Parameterization
    affine: bool = True
    epsilon: float = 1e-6
    momentum: float = 0.9
    in_branch: bool = False
    zero_init: bool = False  # of the gain
    dtype: Any = None

    @property
    def param_roles(self) -> dict[str, str]:
        """The role of each parameter, by its name."""
        return {name: "norm" for name in (("scale", "bias") if self.kind != "rms" else ("scale",)) if self.affine}

    def scales(self, name: str, inputs: int) -> tuple[Any, Any]:
        """(start of the gain, forward multiplier) of a parameter; the bias starts at zero."""
        std, multiplier = self.parameterization.scales("norm", 1, self.width, 1.0)
        return (0.0 if name == "bias" else std), multiplier

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:  # noqa: D102
        store = jax.dtypes.canonicalize_dtype(float)
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else store
        y = self.normalise(jnp.asarray(x, store), train)
        if self.affine:
            std, multiplier = self.scales("scale", 1)
            start = nn.initializers.zeros if self.zero_init else nn.initializers.constant(std)
            gain = self.param("scale", start, x.shape[-1:], store)
            y = y * jnp.expand_dims(gain * multiplier, range(x.ndim - 1))
            if self.kind != "rms":
                bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], store)
                y = y + jnp.expand_dims(bias * multiplier, range(x.ndim - 1))
        return jnp.asarray(y, dtype if self.dtype is None else self.dtype)

    def normalise(self, x: jax.Array, train: bool) -> jax.Array:
        """x, before gain and bias."""
        if self.kind == "rms":
            return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + self.epsilon)
        mean, variance = self._moments(x, train)
        return (x - mean) * jax.lax.rsqrt(variance + self.epsilon)

    def _moments(self, x: jax.Array, train: bool) -> tuple[jax.Array, jax.Array]:
        axes = {"layer": (-1,), "spatial": tuple(range(1, x.ndim - 1)), "batch": tuple(range(x.ndim - 1))}
        if self.kind not in axes:
            raise ValueError(f'Norm: kind must be "layer", "rms", "spatial" or "batch", got "{self.kind}".')
        over = _SYNCHRONISED.get() if self.kind == "batch" and train else None
        mean = _mean(x, axes[self.kind], over)
        variance = _mean((x - mean) ** 2, axes[self.kind], over)
        if self.kind != "batch":
            return mean, variance
        shape = mean.shape
        kept = [
            self.variable("batch_stats", name, start, shape) for name, start in (("mean", jnp.zeros), ("var", jnp.ones))
        ]
        if not train:
            return kept[0].value, kept[1].value
        if not self.is_initializing():
            for variable, now in zip(kept, (mean, variance), strict=True):
                variable.value = self.momentum * variable.value + (1 - self.momentum) * now
        return mean, variance


_SYNCHRONISED: ContextVar[str | None] = ContextVar("synchronised", default=None)


@contextlib.contextmanager
def synchronised(axis: str) -> Iterator[None]:
    """Batch statistics are of all devices along a mapped axis, in a forward pass traced inside (`jax.pmap`, `jax.shard_map`).

    Under `jax.jit` an array is whole, however it is sharded, and nothing is needed.
    """
    token = _SYNCHRONISED.set(axis)
    try:
        yield
    finally:
        _SYNCHRONISED.reset(token)


def _mean(x: jax.Array, axes: tuple[int, ...], over: str | None) -> jax.Array:
    mean = jnp.mean(x, axis=axes, keepdims=True)
    return mean if over is None else jax.lax.pmean(mean, over)


def field(module: nn.Module, name: str, value: jax.Array) -> jax.Array:
    """Marks an intermediate by name: adds the entry of collection "perturbations" of that name, if there is one.

    The gradient with respect to that entry, at zero, is the gradient with respect to the intermediate.
    """
    if module.has_variable("perturbations", name):
        return value + module.get_variable("perturbations", name)
    return value


def layer(net: Any, cls: type, features: int, role: str, name: str, l: int = 0, **options: Any) -> Any:
    """A `Dense` or `Conv` of this definition: scales, biases, parameterization and precision are the definition's.

    l: its number, from 1 (0: the readout), for definitions whose layers differ.
    """
    p = parameterization(net.parameterization)
    common = {"bias_init": net.bias_init, "dtype": net.dtype, "name": name, **options}
    return cls(features, role, net.width, p, of_layer(net.w_std, l), of_layer(net.b_std, l), **common)


def output(
    net: Any,
    features: jax.Array,
    hs: Sequence[jax.Array] = (),
    phis: Sequence[jax.Array] = (),
    intermediates: bool = False,
) -> Any:
    """f = (readout of features [n, F]) / γ, in the default float type; with `intermediates`, what it was made of too."""
    f = layer(net, Dense, net.outputs, "readout", "readout")(features)
    scale = parameterization(net.parameterization).output_scale(net.width, net.gamma)
    f = jnp.asarray(f, jax.dtypes.canonicalize_dtype(float)) / scale
    return (f, {"h": tuple(hs), "phi": tuple(phis), "features": features}) if intermediates else f
