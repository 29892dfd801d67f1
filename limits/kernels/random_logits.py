"""Averages over Gaussian attention logits, for softmax attention with 1/√d logits and many heads."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from limits.kernels.positions import Positions

if TYPE_CHECKING:
    import scipy.stats


def normal_draws(tokens: int, samples: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points through the inverse Gaussian, [samples, 2, tokens]; another seed is another scrambling.

    >>> normal_draws(3, 8, seed=0).shape
    (8, 2, 3)
    """
    sampler = scipy.stats.qmc.Sobol(2 * tokens, rng=np.random.default_rng(seed))
    points = np.clip(sampler.random(samples), 1e-12, 1 - 1e-12)
    return scipy.stats.norm.ppf(points).reshape(samples, 2, tokens)


def softmax_averages(q: Positions, k: Positions, v: Positions, draws: Any) -> Positions:
    """Σ E[p p'] K^v, and the tangent kernel (`attention.attend` has the equations), by quasi-Monte-Carlo.

    Row a of x and row a' of x' are Gaussian with covariances K^q_aa K^k(x, x), K^q_a'a' K^k(x', x') and between them
    K^q_aa' K^k(x, x'). With K^k(x, x) = L Lᵀ and the singular values D of L⁻¹ K^k(x, x') L'⁻ᵀ = U D Vᵀ they are
    (L U z, L' V (ρ D z + sqrt(1 − ρ² D²) z')) times standard deviations, with ρ = K^q_aa' / sqrt(K^q_aa K^q_a'a').
    The error is that of the mean over `draws` [samples, 2, tokens]; it falls faster than samples^(−1/2).
    """
    draws = jnp.asarray(draws, v.k.dtype)

    def one(q1: Any, q2: Any, k1: Any, k2: Any, q12: Any, tq: Any, k12: Any, tk: Any, v12: Any, tv: Any) -> Any:
        """One pair of inputs; all arguments [T, T]."""
        (root1, inverse1), (root2, inverse2) = _root(k1), _root(k2)
        u, d, vt = jnp.linalg.svd(inverse1 @ k12 @ inverse2.T)
        d = jnp.clip(d, 0, 1)
        first = (draws[:, 0] @ (root1 @ u).T)[:, None, :] * jnp.sqrt(jnp.diagonal(q1))[None, :, None]
        p1 = jax.nn.softmax(first, axis=-1)  # [samples, a, c]: the same for every a'

        def column(args: Any) -> tuple[jax.Array, jax.Array]:
            """All a against one a'."""
            size, cross, motion = args  # K^q_a'a', K^q_aa' [a], Θ^q_aa' [a]
            product = jnp.sqrt(jnp.diagonal(q1) * size)
            rho = (cross / jnp.where(product > 0, product, 1))[None, :, None]
            along = rho * d[None, None]
            rest = jnp.sqrt(jnp.clip(1 - along**2, 0, 1))
            white = along * draws[:, None, 0] + rest * draws[:, None, 1]
            p2 = jax.nn.softmax(jnp.sqrt(size) * (white @ (root2 @ vt.T).T), axis=-1)
            pair = jnp.einsum("sac,sad->acd", p1, p2) / len(draws)
            kernel, tangent = (jnp.einsum("acd,cd->a", pair, a) for a in (v12, tv))
            # Σ_bb' p_b p'_b' Θ^s_bb' (K_bb' − (p K)_b' − (K p')_b + p K p'), K = K^v
            left, right = p1 @ v12, p2 @ v12.T
            middle = jnp.sum(left * p2, axis=-1)
            for speed, moved in ((motion, k12), (cross, tk)):
                along1, along2 = p1 @ moved, p2 @ moved.T
                total = jnp.einsum("acd,cd->a", pair, v12 * moved)
                total = total - jnp.mean(jnp.sum(left * p2 * along1, axis=-1), axis=0)
                total = total - jnp.mean(jnp.sum(right * p1 * along2, axis=-1), axis=0)
                total = total + jnp.mean(middle * jnp.sum(along1 * p2, axis=-1), axis=0)
                tangent = tangent + speed * total
            return kernel, tangent

        kernel, tangent = jax.lax.map(column, (jnp.diagonal(q2), q12.T, tq.T))
        return kernel.T, tangent.T

    def pairs(q12: Any, tq: Any, k12: Any, tk: Any, v12: Any, tv: Any, ends: Any) -> Any:
        shape = v12.shape[:2]
        flat = [jnp.broadcast_to(a, (*shape, *a.shape[2:])).reshape(-1, *a.shape[2:])
                for a in (*ends, q12, tq, k12, tk, v12, tv)]  # fmt: skip
        parts = jax.lax.map(lambda args: one(*args), tuple(flat))
        return [part.reshape(*shape, *part.shape[1:]) for part in parts]

    kernel, tangent = pairs(q.k, q.ntk, k.k, k.ntk, v.k, v.ntk, (q.k1, q.k2, k.k1, k.k2))
    zero1, zero2 = jnp.zeros_like(q.k1), jnp.zeros_like(q.k2)
    k1, _ = pairs(q.k1, zero1, k.k1, zero1, v.k1, zero1, (q.k1, q.k1, k.k1, k.k1))
    k2, _ = pairs(q.k2, zero2, k.k2, zero2, v.k2, zero2, (q.k2, q.k2, k.k2, k.k2))
    return dataclasses.replace(v, k=kernel, ntk=tangent, k1=k1, k2=k2)


def _root(k: jax.Array) -> tuple[jax.Array, jax.Array]:
    """L with L Lᵀ = k, and its pseudo-inverse: tokens may be equal, and k singular."""
    values, vectors = jnp.linalg.eigh(k)
    kept = values > 1e-12 * values[-1]
    root = jnp.sqrt(jnp.where(kept, values, 0))
    return vectors * root[None], (vectors / jnp.where(kept, root, 1)[None] * kept[None]).T
