"""A user's own file: a language model whose two blocks are scanned, with a loss and batches of its own."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from zoo import Rescaled, scaled

VOCABULARY, BASE = 11, {"width": 8, "depth": 2}


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, h, _):
        before = jnp.cumsum(h, axis=1) / (1 + jnp.arange(h.shape[1]))[None, :, None]
        mixed = nn.Dense(self.width, name="mix")(nn.LayerNorm()(before))
        return h + nn.Dense(self.width, name="out")(nn.gelu(mixed)), None


class LanguageModel(nn.Module):
    width: int
    depth: int

    @nn.compact
    def __call__(self, tokens):
        h = nn.Embed(VOCABULARY, self.width)(tokens)
        blocks = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth)
        h, _ = blocks(self.width, name="blocks")(h, None)
        return nn.Dense(VOCABULARY, use_bias=False, name="readout")(nn.LayerNorm()(h))


def get_config():
    return ConfigDict(
        {
            "name": "language_model",
            "widths": (8, 16),
            "depths": (2,),
            "values": (0.01, 0.04, 0.16),
            "seeds": 2,
            "steps": 40,
            "length": 12,
            "weight_decay": 0.01,
        }
    )


def make(width, depth):
    sizes = {"base": BASE, "target": {"width": width, "depth": depth}}
    return Rescaled.of(LanguageModel, jnp.zeros((1, 4), int), **sizes, branch_outputs="out")


def optimizer(net, learning_rate, weight_decay):
    return scaled(optax.adamw(learning_rate, weight_decay=weight_decay), net)


def loss(outputs, targets):
    return optax.softmax_cross_entropy_with_integer_labels(outputs, targets).mean()


def batches(length):
    random = np.random.default_rng(0)
    while True:
        first = random.integers(VOCABULARY, size=(16, 1))
        tokens = (first + 3 * np.arange(length + 1)) % VOCABULARY  # every third letter
        yield tokens[:, :-1], tokens[:, 1:]
