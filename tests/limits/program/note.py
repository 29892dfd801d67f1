"""The ten modules of section 7 of the theory note, and what the note says of their kernels."""

import flax.linen as nn
import jax.numpy as jnp
from stock import GAUSS, Conv, Dense, X, gelu, readout, tokens


class Plain(nn.Module):
    """A network of a width."""

    width: int


class MLP(Plain):
    @nn.compact
    def __call__(self, x):
        return readout(nn.relu(Dense(self.width)(gelu(Dense(self.width)(x)))))


class LNRes(Plain):
    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(2):
            h += 0.5 * Dense(self.width)(nn.relu(nn.LayerNorm()(h)))
        return readout(nn.LayerNorm()(h))


class PostLN(Plain):
    @nn.compact
    def __call__(self, x):
        return readout(nn.swish(Dense(self.width)(nn.LayerNorm()(nn.relu(Dense(self.width)(x))))))


class Gated(Plain):
    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        return readout(nn.sigmoid(Dense(self.width)(h)) * jnp.tanh(Dense(self.width)(h)))


class GLU(Plain):
    @nn.compact
    def __call__(self, x):
        a, b = jnp.split(Dense(2 * self.width)(jnp.tanh(Dense(self.width)(x))), 2, -1)
        return readout(a * nn.sigmoid(b))


class Tied(Plain):
    @nn.compact
    def __call__(self, x):
        u, shared = Dense(self.width)(x), Dense(self.width)
        h = nn.relu(u)
        for _ in range(3):
            h = nn.relu(shared(h) + u)
        return readout(h)


class CNN(Plain):
    @nn.compact
    def __call__(self, x):
        h = nn.avg_pool(nn.relu(Conv(self.width, (3, 3))(x)), (2, 2), (2, 2))
        return readout(nn.relu(Conv(self.width, (3, 3), strides=2)(h)))


class Block(Plain):
    @nn.compact
    def __call__(self, h, _):
        return h + 0.5 * Dense(self.width)(nn.relu(h)), None


class Scan(Plain):
    @nn.compact
    def __call__(self, x):
        blocks = nn.scan(nn.remat(Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return readout(nn.relu(blocks(self.width)(Dense(self.width)(x), None)[0]))


class Mixed(Plain):
    @nn.compact
    def __call__(self, x):
        a, b = Dense(self.width)(x), Dense(self.width)(x)
        return readout(a * jnp.tanh(a + b))


def scaled_attention(q, k, v, **options):
    """Attention with logits q·k/d."""
    return nn.dot_product_attention(q / jnp.sqrt(q.shape[-1]), k, v, **options)


class Tokens(Plain):
    @nn.compact
    def __call__(self, t):
        embedding = nn.Embed(7, self.width, embedding_init=nn.initializers.normal(1.0))
        positions = self.param("positions", nn.initializers.normal(0.5), (t.shape[1], self.width))
        h = embedding(t) + positions[None]
        attention = nn.MultiHeadDotProductAttention(2, kernel_init=GAUSS, attention_fn=scaled_attention)
        h += attention(nn.LayerNorm()(h))
        h += Dense(self.width)(gelu(Dense(4 * self.width)(nn.LayerNorm()(h))))
        return readout(nn.LayerNorm()(h).mean(1))


TEN = {
    "MLP": (MLP, X(3, (7,))),
    "LNRes": (LNRes, X(3, (7,))),
    "PostLN": (PostLN, X(3, (7,))),
    "Gated": (Gated, X(3, (7,))),
    "GLU": (GLU, X(3, (7,))),
    "Tied": (Tied, X(3, (7,))),
    "CNN": (CNN, X(3, (6, 6, 2))),
    "Scan": (Scan, X(3, (7,))),
    "Mixed": (Mixed, X(3, (7,))),
    "Tokens": (Tokens, tokens(3, 4, 7)),
}
# nngp (0, 0), (0, 1), (0, 2), then ntk (0, 0), (0, 1), (0, 2)
NOTE = {
    "MLP": (0.1194670354, 0.0200022082, 0.0520565261, 2.0783103460, 1.2316818155, 1.4739519856),
    "LNRes": (0.9999988353, -0.5427243425, 0.3192410146, 8.2232155529, 2.4825898247, 5.6029772669),
    "PostLN": (0.3557735086, -0.0541315873, 0.0952290503, 4.3451243583, 1.2278086326, 2.2435572145),
    "Gated": (0.0531072898, 0.0009958429, 0.0212221704, 1.4603419712, 1.1795063236, 1.2786755837),
    "GLU": (0.0817133154, -0.0541566936, 0.0177434071, 1.7055060273, 1.1904779897, 1.4429354870),
    "Tied": (0.5705195508, 0.0752392750, 0.2703593858, 4.3719201055, 1.4455010197, 2.3121049921),
    "CNN": (0.0218717929, 0.0167456226, 0.0164827574, 1.6217770099, 1.4314633051, 1.4495993568),
    "Scan": (0.4332382839, 0.0329942882, 0.1912798143, 3.1466315166, 1.2501530347, 1.8935364199),
    "Mixed": (0.3730393734, 0.2350532641, 0.1162194038, 2.8642882221, 0.8537548795, 1.3309147458),
    "Tokens": (0.3955939688, 0.3116544364, 0.1748205742, 6.6432594666, 6.0825215522, 5.3492327086),
}
