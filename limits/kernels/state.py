"""The state that the kernel algebra carries through a network, and the two linear steps."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from limits.kernels.special import held, safe_sqrt, snapped


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """Covariance of two sets of inputs at one point of the network, and the tangent kernel up to there.

    The covariance is r1 · r2 · (1 − gap) with r the standard deviations: what is carried is 1 − c, not the correlation
    c, since at depth l the difference is O(1/l²) for relu and a rounded c would lose it. r1 is [n1, 1], r2 [1, n2] and
    gap, ntk [n1, n2] (or anything else that broadcasts so: position pairs, or [n] for the diagonal alone).
    """

    r1: jax.Array
    r2: jax.Array
    gap: jax.Array
    ntk: jax.Array

    @property
    def covariance(self) -> jax.Array:
        """r1 r2 c."""
        return self.r1 * self.r2 * (1 - self.gap)


def inputs(x1: jax.Array, x2: jax.Array) -> State:
    """Φ⁰ = x1·x2 / D of inputs [n1, D] and [n2, D], with no tangent kernel yet.

    Identical rows get gap 0 and opposite ones gap 2: a difference below the rounding of a dot product is taken as none.

    >>> inputs(jnp.eye(2), jnp.eye(2)).gap.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    d = x1.shape[-1]
    norm1, norm2 = (safe_sqrt(jnp.sum(x * x, axis=-1)) for x in (x1, x2))
    u1, u2 = (x / jnp.where(norm > 0, norm, 1)[:, None] for x, norm in ((x1, norm1), (x2, norm2)))
    gap = snapped(1 - jnp.matmul(u1, u2.T, precision=jax.lax.Precision.HIGHEST))
    return State(norm1[:, None] / d**0.5, norm2[None, :] / d**0.5, gap, jnp.zeros_like(gap))


def diagonal_inputs(x: jax.Array) -> State:
    """Φ⁰ of each input with itself: arrays [n]."""
    r = safe_sqrt(jnp.mean(x * x, axis=-1))
    return State(r, r, jnp.zeros_like(r), jnp.zeros_like(r))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Affine:
    """Variances and tangent weights of one dense layer in the limit.

    w, b: the variances w_std² and b_std² at initialisation (b = 0 where biases start at zero). w_tangent, b_tangent:
    what the layer's own parameters add to the tangent kernel, as multiples of the feature covariance and of 1: the
    learning-rate factors of the parameterization enter here.
    """

    w: Any
    b: Any
    w_tangent: Any
    b_tangent: Any


@functools.singledispatch
def dense(state: Any, layer: Affine, has_bias: bool) -> Any:
    """h = W φ + b:  q ← w q + b,  K ← w K + (w_tangent Φ + b_tangent).

    The gap of w q + b, for A = w r1², B = w r2²:
    1 − c' = [b (√A − √B)² / (√(A+b)√(B+b) + √A√B + b) + √A√B (1 − c)] / (√(A+b) √(B+b)), which has no cancellation.
    """
    ntk = layer.w * state.ntk + layer.w_tangent * state.covariance
    root_w = jnp.sqrt(layer.w)
    a1, a2 = root_w * state.r1, root_w * state.r2
    if not has_bias:
        return State(a1, a2, state.gap, ntk)
    r1, r2 = jnp.sqrt(a1 * a1 + layer.b), jnp.sqrt(a2 * a2 + layer.b)
    product, plain = r1 * r2, a1 * a2
    spread = layer.b * (a1 - a2) ** 2 / jnp.where(product > 0, product + plain + layer.b, 1)
    gap = jnp.where(product > 0, (spread + plain * state.gap) / jnp.where(product > 0, product, 1), state.gap)
    return State(r1, r2, gap, ntk + layer.b_tangent)


@functools.singledispatch
def activate(state: Any, dual: Callable) -> Any:
    """φ = φ(h): the covariance by the activation's `dual`, and K ← K · E[φ'φ']."""
    r1, r2, gap, derivative = dual(state.r1, state.r2, state.gap)
    return State(r1, r2, gap, state.ntk * derivative)


@functools.singledispatch
def add(state: Any, branch: Any, scale: Any) -> Any:
    """h + scale · F(h), where F ends in weights of its own: covariances and tangent kernels add.

    With unit vectors (A, B) / R from standard deviations A of h and B of the scaled branch:
    1 − c' = ½ |(A1, B1)/R1 − (A2, B2)/R2|² + (A1 A2 (1 − c) + B1 B2 (1 − c_F)) / (R1 R2), which has no cancellation.
    """
    b1, b2 = scale * branch.r1, scale * branch.r2
    r1, r2 = jnp.sqrt(state.r1**2 + b1**2), jnp.sqrt(state.r2**2 + b2**2)
    d1, d2 = jnp.where(r1 > 0, r1, 1), jnp.where(r2 > 0, r2, 1)
    apart = (state.r1 / d1 - state.r2 / d2) ** 2 + (b1 / d1 - b2 / d2) ** 2
    gap = apart / 2 + (state.r1 * state.r2 * state.gap + b1 * b2 * branch.gap) / (d1 * d2)
    return State(r1, r2, held(gap), state.ntk + scale**2 * branch.ntk)
