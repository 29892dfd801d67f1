"""The state of networks with positions (pixels, tokens): covariances between positions of two inputs."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from limits.kernels.special import safe_sqrt, snapped
from limits.kernels.state import Affine, activate, add, dense


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Positions:
    """Covariance k and tangent kernel ntk of two sets of inputs, and the covariances k1, k2 of each input with itself.

    With `cross`, k and ntk hold all pairs of positions, [n1, n2, X, Y, X', Y'] (tokens have one axis, [n1, n2, T, T']);
    else only equal positions, [n1, n2, X, Y], which is all that a flattened readout needs. k1 is
    [n1, 1, …] and k2 [1, n2, …], with all pairs if `within` (pooling and attention need them), else their variances.

    Covariances are carried as they are: a correlation within 1e-16 of 1 is 1, unlike in `State`.
    """

    k: jax.Array
    ntk: jax.Array
    k1: jax.Array
    k2: jax.Array
    cross: bool = dataclasses.field(metadata={"static": True})
    within: bool = dataclasses.field(metadata={"static": True})

    @property
    def covariance(self) -> jax.Array:
        """k, under the name it has in `State`."""
        return self.k

    def linear(self, function: Callable[[jax.Array, bool], jax.Array]) -> "Positions":
        """A linear map of the signal, given as a map of (covariances, whether they hold all pairs)."""
        return dataclasses.replace(
            self,
            k=function(self.k, self.cross),
            ntk=function(self.ntk, self.cross),
            k1=function(self.k1, self.within),
            k2=function(self.k2, self.within),
        )


def spatial_axes(a: jax.Array, pairs: bool) -> int:
    """How many axes positions have."""
    return (a.ndim - 2) // (2 if pairs else 1)


def images(x1: jax.Array, x2: jax.Array, cross: bool, within: bool) -> Positions:
    """Φ⁰ = x_a·x'_a' / C of inputs [n, *positions, C], with no tangent kernel yet.

    >>> images(jnp.ones((2, 4, 4, 3)), jnp.ones((1, 4, 4, 3)), cross=True, within=False).k.shape
    (2, 1, 4, 4, 4, 4)
    """
    c = x1.shape[-1]

    def product(left: jax.Array, right: jax.Array, pairs: bool, one: str, two: str) -> jax.Array:
        here, there = "xyz"[: left.ndim - 2], "uvw"[: left.ndim - 2]
        out = here + there if pairs else here
        rule = f"{one}{here}c,{two}{there if pairs else here}c->{one if one == two else one + two}{out}"
        return jnp.einsum(rule, left, right, precision=jax.lax.Precision.HIGHEST) / c

    k = product(x1, x2, cross, "n", "m")
    k1, k2 = product(x1, x1, within, "n", "n")[:, None], product(x2, x2, within, "n", "n")[None]
    return Positions(k, jnp.zeros_like(k), k1, k2, cross, within)


def matrix(k: jax.Array) -> jax.Array:
    """Covariances of all pairs as [n1, n2, positions, positions]: loops over two axes are faster than over four."""
    d = spatial_axes(k, True)
    return k.reshape(*k.shape[:2], math.prod(k.shape[2 : 2 + d]), -1)


def variances(k: jax.Array, pairs: bool) -> jax.Array:
    """The variance at every position, [n1, n2, positions], of the covariances of an input with itself."""
    return jnp.diagonal(matrix(k), axis1=2, axis2=3) if pairs else k.reshape(*k.shape[:2], -1)


def beside(v1: jax.Array, v2: jax.Array, pairs: bool) -> tuple[jax.Array, jax.Array]:
    """Values at the positions [n1, n2, positions] of either input, laid out to meet in `matrix` (in [.., positions])."""
    return (v1[..., :, None], v2[..., None, :]) if pairs else (v1, v2)


def correlate(k: jax.Array, r1: jax.Array, r2: jax.Array) -> jax.Array:
    """The gap 1 − k / (r1 r2), in [0, 2]; what rounding leaves of equal or opposite signals is taken as none."""
    product = r1 * r2
    return snapped(jnp.where(product > 0, 1 - k / jnp.where(product > 0, product, 1), 0))


@dense.register
def _(state: Positions, layer: Affine, has_bias: bool) -> Positions:
    ntk = layer.w * state.ntk + layer.w_tangent * state.k
    b = layer.b if has_bias else 0.0
    k, k1, k2 = (layer.w * a + b for a in (state.k, state.k1, state.k2))
    return dataclasses.replace(state, k=k, k1=k1, k2=k2, ntk=ntk + layer.b_tangent if has_bias else ntk)


@activate.register
def _(state: Positions, dual: Callable) -> Positions:
    r1, r2 = (safe_sqrt(variances(a, state.within)) for a in (state.k1, state.k2))

    def bend(k: jax.Array, pairs: bool, left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
        left, right = beside(left, right, pairs)
        flat = matrix(k) if pairs else k.reshape(*k.shape[:2], -1)
        s1, s2, gap, slope = dual(left, right, correlate(flat, left, right))
        return (s1 * s2 * (1 - gap)).reshape(k.shape), slope.reshape(k.shape)

    k, slope = bend(state.k, state.cross, r1, r2)
    (k1, _), (k2, _) = (bend(a, state.within, r, r) for a, r in ((state.k1, r1), (state.k2, r2)))
    return jax.lax.optimization_barrier(dataclasses.replace(state, k=k, ntk=state.ntk * slope, k1=k1, k2=k2))


@add.register
def _(state: Positions, branch: Positions, scale: Any) -> Positions:
    square = scale**2
    return jax.tree.map(lambda a, b: a + square * b, state, branch)


def layer_norm(state: Positions, epsilon: float, gain: Any = 0.0, bias: Any = 0.0, mean: Any = None) -> Positions:
    """û = (h − <h>) / sqrt(<(h − <h>)²> + ε):  K ← K / (r r'),  Θ ← Θ / (r r') + gain · K + bias.

    gain, bias: the learning-rate factors of a trainable gain and bias that a dense layer follows (0: not trained). `mean`
    [positions] is the part of h that is not centred over neurons, the same for all inputs.

    Reference: derived in Yang (2020), Tensor programs II; the derivative of the normaliser drops out between neurons.
    """
    if mean is not None:
        m1, m2 = beside(mean.reshape(1, 1, -1), mean.reshape(1, 1, -1), True)
        taken = (m1 * m2).reshape(1, 1, *state.k.shape[2:])
        state = dataclasses.replace(state, k=state.k - taken, k1=state.k1 - taken, k2=state.k2 - taken)
    r1, r2 = (jnp.sqrt(variances(a, state.within) + epsilon) for a in (state.k1, state.k2))

    def scaled(a: jax.Array, pairs: bool, left: jax.Array, right: jax.Array) -> jax.Array:
        left, right = beside(left, right, pairs)
        product = left * right
        flat = matrix(a) if pairs else a.reshape(*a.shape[:2], -1)
        return (flat / jnp.where(product > 0, product, 1)).reshape(a.shape)

    k = scaled(state.k, state.cross, r1, r2)
    ntk = scaled(state.ntk, state.cross, r1, r2) + gain * k + bias
    k1, k2 = scaled(state.k1, state.within, r1, r1), scaled(state.k2, state.within, r2, r2)
    return dataclasses.replace(state, k=k, ntk=ntk, k1=k1, k2=k2)
