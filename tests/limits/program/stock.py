"""What the plain modules share: Gaussian weights, inputs, a readout, and pairs of functions as modules."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from flax import nnx

GAUSS = nn.initializers.variance_scaling(1.0, "fan_in", "normal")  # lecun's variance, but not truncated
Dense = partial(nn.Dense, kernel_init=GAUSS)
Conv = partial(nn.Conv, kernel_init=GAUSS)
DenseGeneral = partial(nn.DenseGeneral, kernel_init=GAUSS)
gelu = partial(nn.gelu, approximate=False)


def X(n, shape):
    """Inputs sin(1 + 2i + 0.7j + 0.3ij), j the index in the flattened input."""
    i, j = np.arange(n)[:, None], np.arange(np.prod(shape))[None]
    return np.sin(1 + 2 * i + 0.7 * j + 0.3 * i * j).reshape(n, *shape)


def tokens(n, length, vocabulary):
    """Words t_ij = (i (1, 2, 3, 5, 4)_j + j²) mod vocabulary; the note writes i + 1, but its numbers are those of i."""
    i, j = np.arange(n)[:, None], np.arange(length)[None]
    return (i * np.array([1, 2, 3, 5, 4])[None, :length] + j**2) % vocabulary


def readout(h):
    """One output of the features, inside a compact method."""
    return Dense(1, name="readout")(h.reshape(len(h), -1))


class Pair(NamedTuple):
    """Two functions in the place of a Linen module."""

    init: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


def from_nnx(build):
    """An NNX model, built from its nnx.Rngs, as a pair of functions of its split state."""
    graph, _ = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))

    def init(key, x):
        return nnx.to_pure_dict(nnx.split(build(nnx.Rngs(key)), nnx.Param, ...)[1])

    def apply(variables, x):
        abstract = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))[1]
        nnx.replace_by_pure_dict(abstract, variables)
        return nnx.merge(graph, abstract)(x)

    return Pair(init, apply)


def with_keys(module, **collections):
    """A module whose calls draw random numbers or write to collections, with that said once."""

    def init(key, x):
        return module.init({"params": key, "dropout": key}, x)

    def apply(variables, x):
        out = module.apply(variables, x, rngs={"dropout": jax.random.key(0)}, mutable=list(collections))
        return out[0]

    return Pair(init, apply)
