"""Activation functions by name. Those with parameters are frozen dataclasses, so that limits can recognise them."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from zoo import checks
from zoo.checks import shown
from zoo.messages import did_you_mean

Activation = Callable[[jax.Array], jax.Array]


@checks.arguments(negative=checks.number(), positive=checks.number())
@dataclasses.dataclass(frozen=True)
class PiecewiseLinear:
    """φ(x) = positive · x for x > 0, negative · x for x < 0: relu, leaky relu, the absolute value, linear.

    >>> PiecewiseLinear(negative=0.1, positive=1.0)(jnp.array([-2.0, 3.0])).tolist()
    [-0.20000000298023224, 3.0]
    """

    negative: float
    positive: float

    def __call__(self, x: jax.Array) -> jax.Array:  # noqa: D102
        if self.negative == self.positive:
            return self.positive * x
        return jnp.where(x > 0, self.positive * x, self.negative * x)


@checks.arguments(eps=checks.number())
@dataclasses.dataclass(frozen=True)
class Quadratic:
    """φ(x) = x + eps x².

    >>> Quadratic(0.5)(jnp.array(2.0)).item()
    4.0
    """

    eps: float = 0.5

    def __call__(self, x: jax.Array) -> jax.Array:  # noqa: D102
        return x + self.eps * x**2


def erf(x: jax.Array) -> jax.Array:
    """The error function, 2/sqrt(pi) times the integral of exp(-t²) from 0 to x."""
    return jax.lax.erf(x)


def gelu(x: jax.Array) -> jax.Array:
    """x Φ(x) with the Gaussian distribution function Φ itself; `jax.nn.gelu` defaults to a tanh approximation."""
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS: dict[str, Activation] = {
    "linear": PiecewiseLinear(1.0, 1.0),
    "relu": PiecewiseLinear(0.0, 1.0),
    "scaled_relu": PiecewiseLinear(0.0, math.sqrt(2)),
    "leaky_relu": PiecewiseLinear(0.01, 1.0),
    "abs": PiecewiseLinear(-1.0, 1.0),
    "erf": erf,
    "tanh": jnp.tanh,
    "gelu": gelu,
    "sin": jnp.sin,
    "quadratic": Quadratic(0.5),
}
# The same functions under jax's names.
_SAME = {jax.nn.relu: "relu", jax.nn.tanh: "tanh", jax.lax.erf: "erf", jax.scipy.special.erf: "erf", jnp.abs: "abs"}


@checks.arguments()
def activation_function(activation: "str | Activation") -> Activation:
    """The function of that name; a callable passes through (jax's own relu, erf, tanh become ours).

    `scaled_relu` is sqrt(2) relu, which keeps the size of its input; `leaky_relu` has slope 0.01 on the left
    (`PiecewiseLinear(slope, 1.0)` for another); `quadratic` is x + x²/2 (`Quadratic(eps)` for another).

    >>> activation_function("relu")
    PiecewiseLinear(negative=0.0, positive=1.0)
    """
    if isinstance(activation, str):
        name = activation.lower().replace(" ", "_").replace("-", "_")
        if name not in ACTIVATIONS:
            raise ValueError(
                f'Unknown activation "{activation}". {did_you_mean(name, ACTIVATIONS)} Any callable will do too.'
            )
        return ACTIVATIONS[name]
    if not callable(activation):
        raise ValueError(f"activation must be a name or a callable, got {shown(activation)}.")
    try:
        return ACTIVATIONS[_SAME[activation]] if activation in _SAME else activation
    except TypeError:  # an unhashable callable is its own
        return activation
