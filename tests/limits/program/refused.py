"""Plain modules that have no limit, or none in closed form."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from images import Mixer
from note import Plain
from stock import GAUSS, Conv, Dense, X, readout, with_keys


class RandomLogits(Plain):
    """Flax's attention: logits q·k/√d stay random."""

    @nn.compact
    def __call__(self, x):
        h = Dense(self.width)(x)
        return readout(nn.MultiHeadDotProductAttention(2, kernel_init=GAUSS)(h).mean(1))


class MaxPool(Plain):
    @nn.compact
    def __call__(self, x):
        h = nn.max_pool(Conv(self.width, (3, 3))(x), (2, 2), strides=(2, 2))
        return readout(nn.relu(Conv(self.width, (3, 3))(h)))


class Dropped(Plain):
    @nn.compact
    def __call__(self, x):
        h = nn.Dropout(0.5, deterministic=False)(Dense(self.width)(x))
        return readout(jnp.tanh(Dense(self.width)(jnp.tanh(h))))


class BatchStatistics(Plain):
    @nn.compact
    def __call__(self, x):
        h = nn.BatchNorm(use_running_average=False)(Dense(self.width)(x))
        return readout(nn.relu(h))


class Transposed(Plain):
    """W, then Wᵀ."""

    @nn.compact
    def __call__(self, x):
        matrix = self.param("matrix", GAUSS, (self.width, self.width))
        h = jnp.tanh(nn.relu(Dense(self.width)(x)) @ matrix)
        return readout(jnp.tanh(h @ matrix.T))


class Converged(Plain):
    """Steps until all inputs' features stand still."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        matrix = self.param("matrix", GAUSS, (self.width, self.width))
        h = jax.lax.while_loop(lambda h: jnp.mean(h**2) > 1e-3, lambda h: jnp.tanh(0.5 * h @ matrix), h)
        return readout(nn.relu(Dense(self.width)(h)))


class TrainedScalar(Plain):
    """One number for all neurons, trained: its gradient stays random."""

    @nn.compact
    def __call__(self, x):
        h = jnp.tanh(Dense(self.width)(x))
        return readout(self.param("scale", nn.initializers.ones, ()) * h)


class NeuronConstants(Plain):
    """Sines along neurons inside an activation."""

    @nn.compact
    def __call__(self, x):
        return readout(nn.relu(Dense(self.width)(x) + jnp.sin(jnp.arange(1.0 * self.width))[None]))


class NormTwice(Plain):
    """relu after a norm after relu: no Gaussian variables."""

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(nn.relu(Dense(self.width)(x)))
        return readout(nn.relu(h - 0.5))


class Stopped(Plain):
    """No gradient through a branch."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(Dense(self.width)(x))
        return readout(nn.relu(Dense(self.width)(jax.lax.stop_gradient(h)) + Dense(self.width)(h)))


VECTORS = X(3, (7,))
# the module, its inputs, and what a refusal should say
REFUSED = {
    "RandomLogits": (RandomLogits, X(3, (4, 5)), "MultiHeadDotProductAttention"),
    "MaxPool": (MaxPool, X(3, (6, 6, 2)), "max"),
    "Dropped": (lambda width: with_keys(Dropped(width)), VECTORS, "Dropout"),
    "BatchStatistics": (lambda width: with_keys(BatchStatistics(width), batch_stats={}), VECTORS, "BatchNorm"),
    "Transposed": (Transposed, VECTORS, "transposed"),
    "Converged": (Converged, VECTORS, "while"),
    "TrainedScalar": (TrainedScalar, VECTORS, "scale"),
    "NeuronConstants": (NeuronConstants, VECTORS, "neurons"),
    "NormTwice": (NormTwice, VECTORS, "LayerNorm"),
    "Stopped": (Stopped, VECTORS, "stop_gradient"),
    "Mixer": (Mixer, X(3, (4, 5)), "Dense"),
}
