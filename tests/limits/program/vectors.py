"""Plain modules on vectors: gates, ties, norms, sums over words and sets, recurrence, depth."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from note import Plain
from stock import GAUSS, Dense, DenseGeneral, Pair, X, from_nnx, gelu, readout, tokens


class GRU(Plain):
    """Three steps of a cell written out by hand."""

    @nn.compact
    def __call__(self, x):
        def layers(**options):
            return [Dense(self.width, **options) for _ in range(3)]

        (input_z, input_r, input_n), (state_z, state_r, state_n) = layers(), layers(use_bias=False)
        h = jnp.zeros((len(x), self.width))
        for t in range(x.shape[1]):
            z = nn.sigmoid(input_z(x[:, t]) + state_z(h))
            r = nn.sigmoid(input_r(x[:, t]) + state_r(h))
            h = (1 - z) * jnp.tanh(input_n(x[:, t]) + r * state_n(h)) + z * h
        return readout(h)


class DeepSet(Plain):
    """The mean over those members of a set whose last entry is above -0.5."""

    @nn.compact
    def __call__(self, x):
        mask = (x[..., -1:] > -0.5).astype(x.dtype)
        h = nn.relu(Dense(self.width)(nn.relu(Dense(self.width)(x))))
        h = jnp.sum(mask * h, 1) / mask.sum(1)
        return readout(nn.relu(Dense(self.width)(h)))


class Towers(Plain):
    """One tower for both sides; their product over N scales what both sides feed."""

    @nn.compact
    def __call__(self, x):
        first, second = Dense(self.width), Dense(self.width)
        q, k = (nn.relu(second(nn.relu(first(x[:, side])))) for side in (0, 1))
        score = jnp.sum(q * k, -1, keepdims=True) / self.width
        return readout(jnp.tanh(Dense(self.width)(jnp.concatenate([q, k], -1))) * (0.5 + score))


class Experts(Plain):
    """Each input goes to the better two of three experts, by a router that is not trained."""

    @nn.compact
    def __call__(self, x):
        gates = nn.softmax(x @ jnp.cos(jnp.arange(3.0 * x.shape[-1])).reshape(-1, 3))
        gates = jnp.where(gates > gates.min(-1, keepdims=True), gates, 0.0)
        shape = (3, self.width, self.width)
        experts = self.param("experts", nn.initializers.normal(self.width**-0.5), shape)
        h = nn.relu(jnp.einsum("ni,eio->neo", gelu(Dense(self.width)(x)), experts))
        return readout(jnp.einsum("ne,neo->no", gates, h))


class NormInside(Plain):
    """Norms, with their gains and biases, inside of activations."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.LayerNorm()(Dense(self.width)(x)))
        return readout(gelu(nn.LayerNorm()(Dense(self.width)(h))))


class RandomBiases(Plain):
    """Biases that are drawn at random, and gains that start at 0.7."""

    @nn.compact
    def __call__(self, x):
        bias = nn.initializers.normal(0.5)
        h = jnp.tanh(Dense(self.width, bias_init=bias)(x))
        h *= self.param("gain", nn.initializers.constant(0.7), (self.width,))[None]
        h = nn.LayerNorm(scale_init=nn.initializers.constant(0.7))(Dense(self.width, bias_init=bias)(h))
        return readout(nn.silu(Dense(self.width, bias_init=bias)(h)))


class DenseNet(Plain):
    """Features are concatenated to those before."""

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        for _ in range(2):
            h = jnp.concatenate([h, Dense(self.width)(nn.relu(h))], -1)
        return readout(nn.relu(h))


def tied_depths(width):
    """W enters second and fourth, without Flax."""
    shapes = {"first": None, "tied": width, "third": width, "readout": width}

    def init(key, x):
        def layer(key, name):
            rows, columns = shapes[name] or x.shape[-1], 1 if name == "readout" else width
            kernel = jax.random.normal(key, (rows, columns)) / jnp.sqrt(rows)
            return {"kernel": kernel, "bias": jnp.zeros(columns)}

        return {"params": {name: layer(k, name) for k, name in zip(jax.random.split(key, 4), shapes, strict=True)}}

    def apply(variables, x):
        def dense(name, h):
            layer = variables["params"][name]
            return h @ layer["kernel"] + layer["bias"][None]

        h = nn.relu(dense("first", x))
        for name in ("tied", "third", "tied"):
            h = nn.relu(dense(name, h))
        return dense("readout", h)

    return Pair(init, apply)


class Smooth(Plain):
    """softplus, then tanh + cos."""

    @nn.compact
    def __call__(self, x):
        u = Dense(self.width)(nn.softplus(Dense(self.width)(x)))
        return readout(jnp.tanh(u) + jnp.cos(u))


class BagOfWords(Plain):
    """The mean of words."""

    @nn.compact
    def __call__(self, t):
        h = nn.Embed(9, self.width, embedding_init=nn.initializers.normal(1.0))(t).mean(1)
        return readout(nn.relu(Dense(self.width)(h)))


class MeanGate(Plain):
    """All neurons times one number of their own mean."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        gate = nn.sigmoid(4 * h.mean(-1, keepdims=True) - 1)
        return readout(nn.elu(Dense(self.width)(gate * h)))


class Heads(Plain):
    """Four heads of layers, each with its own matrix."""

    @nn.compact
    def __call__(self, x):
        d = self.width // 4
        h = nn.relu(DenseGeneral((4, d))(nn.relu(Dense(self.width)(x))))
        of_heads = nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=(0,))
        h = jnp.tanh(nn.Einsum((4, d, d), "nhi,hio->nho", use_bias=False, kernel_init=of_heads)(h))
        return readout(nn.relu(DenseGeneral(self.width, axis=(-2, -1))(h)))


class PreNormBlock(Plain):
    @nn.compact
    def __call__(self, h, _):
        return h + 0.5 * Dense(self.width)(gelu(nn.LayerNorm()(h))), None


class ScannedNorms(Plain):
    """Four rematerialised blocks under one nn.scan."""

    @nn.compact
    def __call__(self, x):
        axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}}
        blocks = nn.scan(nn.remat(PreNormBlock), length=4, **axes)
        return readout(jnp.tanh(blocks(self.width)(Dense(self.width)(x), None)[0]))


class SwiGLU(nnx.Module):
    """A residual gated layer, in NNX."""

    def __init__(self, width, rngs):
        self.first = nnx.Linear(7, width, kernel_init=GAUSS, rngs=rngs)
        self.gate, self.value, self.down = (
            nnx.Linear(width, width, use_bias=False, kernel_init=GAUSS, rngs=rngs) for _ in range(3)
        )
        self.readout = nnx.Linear(width, 1, kernel_init=GAUSS, rngs=rngs)

    def __call__(self, x):
        h = self.first(x)
        h += self.down(nnx.silu(self.gate(h)) * self.value(h))
        return self.readout(nnx.relu(h))


class Branches(nnx.Module):
    """Residual branches of factor L^-1/2, in NNX."""

    def __init__(self, width, depth, rngs):
        self.first = nnx.Linear(7, width, kernel_init=GAUSS, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(width, width, kernel_init=GAUSS, rngs=rngs) for _ in range(depth)])
        self.readout = nnx.Linear(width, 1, kernel_init=GAUSS, rngs=rngs)

    def __call__(self, x):
        h = self.first(x)
        for layer in self.layers:
            h += len(self.layers) ** -0.5 * layer(nnx.relu(h))
        return self.readout(h)


VECTORS = X(3, (7,))
ON_VECTORS = {
    "GRU": (GRU, X(3, (3, 4))),
    "DeepSet": (DeepSet, X(3, (5, 4))),
    "Towers": (Towers, X(3, (2, 4))),
    "SwiGLU": (lambda width: from_nnx(lambda rngs: SwiGLU(width, rngs)), VECTORS),
    "Experts": (Experts, VECTORS),
    "NormInside": (NormInside, VECTORS),
    "RandomBiases": (RandomBiases, VECTORS),
    "DenseNet": (DenseNet, VECTORS),
    "TiedDepths": (tied_depths, VECTORS),
    "Smooth": (Smooth, VECTORS),
    "BagOfWords": (BagOfWords, tokens(3, 5, 9)),
    "MeanGate": (MeanGate, VECTORS),
    "Heads": (Heads, VECTORS),
    "ScannedNorms": (ScannedNorms, VECTORS),
    "Branches": (lambda width: from_nnx(lambda rngs: Branches(width, 6, rngs)), VECTORS),
}
