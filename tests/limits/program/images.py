"""Plain modules on images and on tokens."""

import functools

import flax.linen as nn
import jax.numpy as jnp
from note import Plain
from stock import GAUSS, Conv, Dense, DenseGeneral, X, gelu, readout


class MNIST(Plain):
    """Flax's example, with average pooling."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Conv(self.width, (3, 3))(x))
        h = nn.avg_pool(h, (2, 2), strides=(2, 2))
        h = nn.relu(Conv(2 * self.width, (3, 3))(h))
        h = nn.avg_pool(h, (2, 2), strides=(1, 1))
        return readout(nn.relu(Dense(4 * self.width)(h.reshape(len(h), -1))))


class WideBlock(nn.Module):
    """relu, convolution, twice; a 1×1 convolution where the shape changes."""

    features: int
    strides: int = 1

    @nn.compact
    def __call__(self, h):
        y = Conv(self.features, (3, 3), strides=self.strides)(nn.relu(h))
        y = Conv(self.features, (3, 3))(nn.relu(y))
        if y.shape != h.shape:
            h = Conv(self.features, (1, 1), strides=self.strides, use_bias=False)(h)
        return h + y


class WideResNet(Plain):
    """Two blocks, the second with stride 2 and twice the features."""

    @nn.compact
    def __call__(self, x):
        h = Conv(self.width, (3, 3))(x)
        h = WideBlock(2 * self.width, 2)(WideBlock(self.width)(h))
        return readout(nn.relu(h).mean((1, 2)))


class ConvNeXt(Plain):
    """A depthwise convolution, whose weights are drawn for each neuron, then norm, MLP and layer scale."""

    @nn.compact
    def __call__(self, x):
        h = Conv(self.width, (2, 2), strides=2)(x)
        y = Conv(self.width, (3, 3), feature_group_count=self.width)(h)
        y = Dense(self.width)(gelu(Dense(4 * self.width)(nn.LayerNorm()(y))))
        h += self.param("layer_scale", nn.initializers.constant(0.5), (self.width,))[None, None, None] * y
        return readout(nn.LayerNorm()(h.mean((1, 2))))


class UNet(Plain):
    """One step down and up, and a skip connection that is concatenated."""

    @nn.compact
    def __call__(self, x):
        skip = nn.relu(Conv(self.width, (3, 3))(x))
        h = nn.relu(Conv(2 * self.width, (3, 3))(nn.avg_pool(skip, (2, 2), strides=(2, 2))))
        h = jnp.repeat(jnp.repeat(h, 2, 1), 2, 2)
        h = nn.relu(Conv(self.width, (3, 3))(jnp.concatenate([h, skip], -1)))
        return readout(h.mean((1, 2)))


class Decoder(Plain):
    """A convolution down, and transposed ones up again, one of them with its window reversed."""

    @nn.compact
    def __call__(self, x):
        up = functools.partial(nn.ConvTranspose, self.width, kernel_init=GAUSS, padding="VALID")
        h = jnp.tanh(Conv(self.width, (2, 2), strides=(2, 2))(x))
        h = nn.relu(up((3, 3), strides=(2, 2))(h))
        return readout(nn.relu(up((2, 1), strides=(1, 3), transpose_kernel=True)(h)).mean((1, 2)))


class ClassToken(Plain):
    """A token of parameters before the others, and positions that are learned; it is read."""

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        token = self.param("token", nn.initializers.normal(1.0), (1, 1, self.width))
        h = jnp.concatenate([jnp.broadcast_to(token, (len(x), 1, self.width)), h], axis=1)
        h = h + self.param("positions", nn.initializers.normal(0.5), (1, h.shape[1], self.width))
        h = h + Dense(self.width)(nn.relu(h)).mean(1, keepdims=True)
        return readout(nn.relu(Dense(self.width)(h))[:, 0])


class Circular(Plain):
    """Circular padding and a stride, then the mean over positions."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Conv(self.width, (3, 3), padding="CIRCULAR")(x))
        h = nn.relu(Conv(self.width, (3, 3), strides=(2, 2), padding="CIRCULAR")(h))
        return readout(h.mean((1, 2)))


class FixedMixer(Plain):
    """A mixer block whose tokens are mixed by constants."""

    @nn.compact
    def __call__(self, x):
        h, count = Dense(self.width)(x), x.shape[1]
        mix = jnp.cos(jnp.arange(1.0 * count**2)).reshape(count, count)
        h += jnp.einsum("ts,nsc->ntc", mix, nn.LayerNorm()(h))
        h += Dense(self.width)(gelu(Dense(2 * self.width)(nn.LayerNorm()(h))))
        return readout(nn.LayerNorm()(h).mean(1))


class Mixer(Plain):
    """A mixer block: one MLP along tokens serves all channels, another all tokens."""

    @nn.compact
    def __call__(self, x):
        h, count = Dense(self.width)(x), x.shape[1]
        y = nn.LayerNorm()(h).swapaxes(1, 2)
        h += Dense(count)(gelu(Dense(self.width)(y))).swapaxes(1, 2)
        h += Dense(self.width)(gelu(Dense(2 * self.width)(nn.LayerNorm()(h))))
        return readout(nn.LayerNorm()(h).mean(1))


class Transformer(Plain):
    """Causal attention of two heads with logits q·k/d, RMSNorm, and a gated MLP; the last token is read."""

    @nn.compact
    def __call__(self, x):
        h, d = Dense(self.width)(x), self.width // 2
        q, k, v = (DenseGeneral((2, d), use_bias=False, name=name)(nn.RMSNorm()(h)) for name in "qkv")
        logits = jnp.einsum("nqhd,nkhd->nhqk", q, k) / d
        causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))[None, None]
        weights = nn.softmax(jnp.where(causal, logits, -1e9))
        h += DenseGeneral(self.width, axis=(-2, -1), use_bias=False)(jnp.einsum("nhqk,nkhd->nqhd", weights, v))
        y = nn.RMSNorm()(h)
        y = nn.silu(Dense(2 * self.width, use_bias=False)(y)) * Dense(2 * self.width, use_bias=False)(y)
        h += Dense(self.width, use_bias=False)(y)
        return readout(nn.RMSNorm()(h)[:, -1])


ON_POSITIONS = {
    "MNIST": (MNIST, X(3, (6, 6, 1))),
    "WideResNet": (WideResNet, X(3, (4, 4, 2))),
    "ConvNeXt": (ConvNeXt, X(3, (4, 4, 2))),
    "UNet": (UNet, X(3, (4, 4, 2))),
    "Decoder": (Decoder, X(3, (4, 4, 2))),
    "ClassToken": (ClassToken, X(3, (4, 5))),
    "Circular": (Circular, X(3, (4, 4, 2))),
    "FixedMixer": (FixedMixer, X(3, (4, 5))),
    "Transformer": (Transformer, X(3, (4, 5))),
}
