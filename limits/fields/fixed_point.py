"""Dynamical mean-field theory by an iterated fixed point, as a yardstick for the causal sweep (`launch.bench --what=fields`).

Kernels and responses between all points and times are iterated, damped, until they stand still; every iteration solves
for the fields of all samples from covariances of (points · steps)², and differentiates them with respect to their noise.
A plain MLP, full-batch gradient descent, squared loss.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

JITTER = 1e-5  # of covariances, relative to their mean diagonal
_AT_ONCE = 32  # samples whose derivatives are held


@functools.partial(jax.jit, static_argnames=("depth", "samples", "phi"))
def iterate(
    kernels: Any, key: Any, x: Any, y: Any, rate: Any, gamma: Any, depth: int, samples: int, phi: Any
) -> tuple[Any, ...]:
    """One iteration: fields of all layers from the kernels (Φ, G, A, B, f), and the kernels of these fields.

        h_t = u_t + Σ_(s<t) (A_ts + γ₀ (η/P) Δ_s Φ_ts) g_s,   z_t = r_t + Σ_(s≤t) (B_ts + γ₀ (η/P) Δ_s G_ts) φ(h_s),

    u ~ N(0, Φ^(l−1)), r ~ N(0, G^(l+1)), g = φ'(h) z;  A = <∂φ(h_t)/∂r_s>, B = <∂g_t/∂u_s>. Index: (time, point).
    """
    phis, gs, a, b, f = kernels  # by layer: Φ^0 …, G^1 …, A^0 …, B^0 …
    (t, p), n = f.shape, f.size
    error = jnp.tile(((y - f) * gamma * rate / p).reshape(1, n), (n, 1))  # Δ_s of the column
    time = jnp.repeat(jnp.arange(t), p)
    before, until = time[:, None] > time[None, :], time[:, None] >= time[None, :]
    new_phi, new_g, new_a, new_b = [phis[0]], [gs[depth]], [a[0]], [b[depth]]
    for l in range(1, depth + 1):
        u, r = (_draw(jax.random.fold_in(key, 2 * l + i), cov, samples) for i, cov in enumerate((phis[l - 1], gs[l])))
        to_h = jnp.where(before, a[l - 1] + error * phis[l - 1], 0)
        to_z = jnp.where(until, b[l], 0) + jnp.where(before, error * gs[l], 0)
        solve_one = functools.partial(_fields, to_h, to_z, p, phi)

        def one(noise: Any, solve_one: Any = solve_one) -> Any:
            u, r = noise
            (_, z, s, g) = solve_one(u, r)
            return z, s, g, jax.jacfwd(lambda r: solve_one(u, r)[2])(r), jax.jacfwd(lambda u: solve_one(u, r)[3])(u)

        def some(total: Any, noise: Any, one: Any = one) -> Any:
            z, s, g, left, right = jax.vmap(one)(noise)
            return (total[0] + left.sum(0) / samples, total[1] + right.sum(0) / samples), (z, s, g)

        chunks = tuple(part.reshape(-1, _AT_ONCE, n) for part in (u, r))
        zero = jnp.zeros((n, n), x.dtype)
        (left, right), fields = jax.lax.scan(some, (zero, zero), chunks)
        z, s, g = (part.reshape(samples, n) for part in fields)
        new_phi.append(s.T @ s / samples)
        new_g.insert(l - 1, g.T @ g / samples)
        new_a.append(left)
        new_b.insert(l - 1, right)
        outputs = (z * s).mean(0).reshape(t, p) / gamma
    return new_phi, new_g, new_a, new_b, outputs - outputs[0]  # f(0) = 0 but for sampling


def _fields(to_h: Any, to_z: Any, p: int, phi: Any, u: Any, r: Any) -> tuple[Any, ...]:
    """h, z, φ(h), g of one sample, step by step."""

    def step(fields: Any, i: Any) -> Any:
        h, z, s, g = fields

        def rows(whole: Any) -> Any:
            return jax.lax.dynamic_slice_in_dim(whole, i * p, p)

        def put(whole: Any, part: Any) -> Any:
            return jax.lax.dynamic_update_slice_in_dim(whole, part, i * p, 0)

        now = rows(u) + rows(to_h) @ g
        value, slope = jax.jvp(phi, (now,), (jnp.ones_like(now),))
        s = put(s, value)
        back = rows(r) + rows(to_z) @ s
        return (put(h, now), put(z, back), s, put(g, slope * back)), None

    empty = jnp.zeros_like(u)
    return jax.lax.scan(step, (empty,) * 4, jnp.arange(len(u) // p))[0]


def _draw(key: Any, covariance: Any, samples: int) -> Any:
    jitter = JITTER * jnp.trace(covariance) / len(covariance) * jnp.eye(len(covariance), dtype=covariance.dtype)
    noise = jax.random.normal(key, (samples, len(covariance)), covariance.dtype)
    return noise @ jnp.linalg.cholesky(covariance + jitter).T


def solve(
    x: Any, y: Any, rate: float, gamma: float, depth: int, samples: int, steps: int, key: Any, phi: Any = jnp.tanh,
    damping: float = 0.5, tolerance: float = 3e-3, most: int = 200,
) -> tuple[Any, int]:  # fmt: skip
    """(outputs [time, point], how many iterations it took); the same random numbers in every iteration, so that it settles."""
    p, n = len(x), len(x) * (steps + 1)
    zero, one = jnp.zeros((n, n), x.dtype), jnp.ones((n, n), x.dtype)
    first = jnp.tile(x @ x.T / x.shape[1], (steps + 1, steps + 1))
    kernels: Any = ([first] * (depth + 1), [one] * (depth + 1), [zero] * (depth + 1), [zero] * (depth + 1))
    kernels = (*kernels, jnp.zeros((steps + 1, p), x.dtype))
    moved: Any = jnp.inf
    for count in range(1, most + 1):
        found = iterate(kernels, key, x, y, rate, gamma, depth, samples, phi)
        kernels, moved = _damped(kernels, found, damping if count > 1 else 1.0)
        if float(moved) < tolerance:
            return kernels[-1], count
    raise FloatingPointError(f"The fixed point still moves by {float(moved):.1e} after {most} iterations.")


@jax.jit
def _damped(old: Any, new: Any, share: Any) -> tuple[Any, Any]:
    """(a step towards the new kernels, the largest relative distance between old and new Φ, G, f)."""
    seen, found = ((each[0], each[1], each[-1]) for each in (old, tuple(new)))
    away = jax.tree.map(lambda a, b: jnp.linalg.norm(b - a) / (jnp.linalg.norm(b) + 1e-6), seen, found)
    return jax.tree.map(lambda a, b: a + share * (b - a), old, tuple(new)), jnp.max(jnp.stack(jax.tree.leaves(away)))
