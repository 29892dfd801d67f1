"""Small networks whose dense layers are used in all the ways there are."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from zoo import MLP, Dense, Parameterization

random = np.random.default_rng(0)
VECTORS, IMAGES = random.normal(size=(5, 4)), random.normal(size=(4, 3, 4))  # [n, d]; [n, positions, d]
F64: dict[str, Any] = {"param_dtype": jnp.float64}


class Plain(nn.Module):
    """Flax's own layers, with and without bias, and a parameter beside them."""

    @nn.compact
    def __call__(self, x):
        gain = self.param("gain", nn.initializers.normal(), (1, 6), jnp.float64)
        return nn.Dense(3, use_bias=False, **F64)(jnp.tanh(nn.Dense(6, **F64)(x)) * jnp.exp(gain))


class Twice(nn.Module):
    """One layer used twice in a row, and once more beside."""

    @nn.compact
    def __call__(self, x):
        shared = nn.Dense(4, **F64)
        return nn.Dense(2, **F64)(jnp.tanh(shared(jnp.sin(shared(x)))) + shared(x))


class Tokens(nn.Module):
    """The same weights at every position, which then mix."""

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(nn.Dense(5, **F64)(x))
        mixed = Dense(3, "hidden", 5, Parameterization.mup, w_std=1.3, b_std=0.4)(h @ h.swapaxes(1, 2) @ h)
        return nn.Dense(2, **F64)(mixed.mean(1))


class TokensFirst(nn.Module):
    """Positions ahead of samples: the layer's first axis is not the batch, even where both have one length."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, **F64)(jnp.tanh(nn.Dense(5, **F64)(x.swapaxes(0, 1))).mean(0))


class Embedded(nn.Module):
    """A layer of parameters alone: its input has a first axis of positions and no batch."""

    @nn.compact
    def __call__(self, x):
        table = self.param("table", nn.initializers.normal(1.0), x.shape[1:], jnp.float64)
        return nn.Dense(2, **F64)(jnp.tanh(x + nn.Dense(4, **F64)(table)[None]).mean(1))


class Bag(nn.Module):
    """The same weights at every position, for one sample [positions, d] or many."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, **F64)(jnp.tanh(nn.Dense(5, **F64)(x)).mean(-2))


class Pairs(nn.Module):
    """A layer inside a module whose argument is no array."""

    @nn.compact
    def __call__(self, x):
        class Product(nn.Module):
            @nn.compact
            def __call__(self, pair):
                return nn.Dense(2, **F64)(pair[0] * pair[1])

        return Product()((x, jnp.sin(x)))


class Mapped(nn.Module):
    """One layer over the positions by Flax's vmap."""

    @nn.compact
    def __call__(self, x):
        shared = nn.vmap(nn.Dense, variable_axes={"params": None}, split_rngs={"params": False}, in_axes=1, out_axes=1)
        return nn.Dense(2, **F64)(jnp.tanh(shared(5, **F64)(x)).mean(1))


class Doubled(nn.Dense):
    """A child of Flax's layer that does something else with the weights."""

    @nn.compact
    def __call__(self, inputs):
        kernel = self.param("kernel", nn.initializers.normal(), (inputs.shape[-1], self.features), jnp.float64)
        return jnp.tanh(inputs @ (2 * kernel))


class Tied(nn.Module):
    """Weights used inside the layer and outside of it."""

    @nn.compact
    def __call__(self, x):
        layer = nn.Dense(4, **F64)
        return nn.tanh(layer(x)) @ layer.variables["params"]["kernel"].T


class Remat(nn.Module):
    """A layer whose call is traced a second time."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, **F64)(jnp.tanh(nn.remat(nn.Dense)(5, **F64)(x)))


DEEP = MLP(6, 2, 3, "erf", w_std=1.3, b_std=0.4, parameterization="mup", gamma=2.0)
MODELS = {
    "mlp": (DEEP, VECTORS),
    "mlp of images": (MLP(6, 1, b_std=0.3, bias_init="zeros"), IMAGES),
    "flax": (Plain(), VECTORS),
    "used twice": (Twice(), VECTORS),
    "tokens": (Tokens(), IMAGES),
    "as many tokens as samples": (Tokens(), IMAGES[:3]),
    "tokens first": (TokensFirst(), IMAGES),
    "as many tokens first as samples": (TokensFirst(), IMAGES[:3]),
    "as many embedded tokens as samples": (Embedded(), IMAGES[:3]),
    "pairs": (Pairs(), VECTORS),
    "mapped": (Mapped(), IMAGES),
    "child of Dense": (Doubled(2), VECTORS),
    "tied": (Tied(), VECTORS),
    "remat": (Remat(), VECTORS),
}


def numbers(shapes, seed=1):
    """Normal numbers: parameters of trained networks have no initialisation's scales."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(0.7 * draw.normal(size=leaf.shape)), shapes)


def variables(net, x, seed=1) -> Any:
    return numbers(jax.eval_shape(net.init, jax.random.key(0), jnp.asarray(x[:1])), seed)
