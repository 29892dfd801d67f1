"""Steps of Markov chains that leave a density exact: elliptical slices, and underdamped Langevin dynamics with an accept step."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

MOST = 200  # evaluations a step; the bracket then is 1e-30 wide
ACCEPTED = 0.9  # share of moves, at which the warm-up sets the step size
FRICTION = 1.0  # the prior's own oscillations have frequency 1


def elliptical_slice(
    z: jax.Array, now: jax.Array, key: jax.Array, likelihood: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step for z ~ N(0, 1) a priori, where `now` is its log-likelihood: (z, log-likelihood, evaluations it took).

    A level below `now` and an ellipse through z are drawn, z cos θ + ν sin θ; the bracket of θ shrinks to 0 until a point
    lies above the level. There is no step size, and every step is accepted.

    Reference: Murray, Adams & MacKay (2010), Elliptical slice sampling.
    """
    direction, level, angle, shrinking = jax.random.split(key, 4)
    nu = jax.random.normal(direction, z.shape)
    floor = now + jnp.log(jax.random.uniform(level, minval=jnp.finfo(z.dtype).tiny))
    theta = jax.random.uniform(angle, maxval=2 * jnp.pi)

    def at(theta: jax.Array) -> jax.Array:
        return z * jnp.cos(theta) + nu * jnp.sin(theta)

    def shrink(carry: Any) -> Any:
        theta, low, high, _, count = carry
        low, high = jnp.where(theta < 0, theta, low), jnp.where(theta < 0, high, theta)
        theta = jax.random.uniform(jax.random.fold_in(shrinking, count), minval=low, maxval=high)
        return theta, low, high, likelihood(at(theta)), count + 1

    first = (theta, theta - 2 * jnp.pi, theta, likelihood(at(theta)), jnp.int32(1))
    theta, _, _, found, count = jax.lax.while_loop(lambda c: ~(c[3] > floor) & (c[4] < MOST), shrink, first)
    inside = found > floor  # not so only where the likelihood itself is not a number
    return jnp.where(inside, at(theta), z), jnp.where(inside, found, now), count


@dataclasses.dataclass(frozen=True)
class Dynamics:
    """Of N(u | 0, 1) exp(−Φ(u)): du = p dt,  dp = −(u + ∇Φ) dt − p dt + √2 dB,  with `force` u → (Φ, ∇Φ).

    A step refreshes p, takes `leaps` short steps in each of which u and p turn exactly and ∇Φ kicks, and accepts or refuses
    with the probability that leaves the density exact (refused: p turns round). In warm-up the length of the short steps is
    set to an acceptance of 0.9; it varies by a fifth from step to step, against resonances. The prior alone is followed
    exactly, whatever the number of dimensions.

    Reference: Horowitz (1991), A generalized guided Monte Carlo algorithm.
    """

    force: Callable
    leaps: int

    def start(self, u: Any, key: jax.Array, size: Any) -> Any:
        """The state of a chain at u, with a first guess of the length of a short step."""
        return u, _normals(key, u), *self.force(u), jnp.asarray(size), jnp.asarray(0.0)

    def step(self, state: Any, key: jax.Array, warming: jax.Array) -> Any:
        """(state, what the step says of itself); state = (u, p, Φ, ∇Φ, length, count)."""
        u, p, now, slope, size, count = state
        refresh, vary, accept = jax.random.split(key, 3)
        h = size * jax.random.uniform(vary, minval=0.8, maxval=1.2)
        keep = jnp.exp(-FRICTION * h * self.leaps)
        p = _combine(keep, p, jnp.sqrt(1 - keep**2), _normals(refresh, p))

        def leap(carry: Any, _: Any) -> Any:
            u, p, _, slope = carry
            p = _combine(1.0, p, -h / 2, slope)
            u, p = _combine(jnp.cos(h), u, jnp.sin(h), p), _combine(-jnp.sin(h), u, jnp.cos(h), p)
            after, slope = self.force(u)
            return (u, _combine(1.0, p, -h / 2, slope), after, slope), None

        (new_u, new_p, after, new_slope), _ = jax.lax.scan(leap, (u, p, now, slope), length=self.leaps)
        gain = now + (_square(u) + _square(p)) / 2 - after - (_square(new_u) + _square(new_p)) / 2
        probability = jnp.nan_to_num(jnp.minimum(jnp.exp(gain), 1.0))
        taken = jax.random.uniform(accept) < probability
        kept = (u, jax.tree.map(jnp.negative, p), now, slope)
        u, p, now, slope = jax.tree.map(functools.partial(jnp.where, taken), (new_u, new_p, after, new_slope), kept)
        rate = jnp.where(warming, (count + 1.0) ** -0.6, 0.0)
        size = size * jnp.exp(rate * (probability - ACCEPTED))
        return (u, p, now, slope, size, count + 1), {"acceptance": probability, "step size": h}


def _combine(a: Any, x: Any, b: Any, y: Any) -> Any:
    return jax.tree.map(lambda x, y: a * x + b * y, x, y)


def _square(tree: Any) -> jax.Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.asarray(0.0))


def _normals(key: jax.Array, like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    return structure.unflatten([jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)])
