"""Self-attention on covariances between tokens."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from limits.kernels.positions import Positions
from limits.kernels.random_logits import softmax_averages
from limits.kernels.state import Affine, dense


@dataclasses.dataclass(frozen=True)
class AttentionRule:
    """What the logits do in the limit of wide heads.

    "none": they vanish (1/d logits of independent queries and keys, or queries that start at zero); "fixed": they are
    deterministic (1/d, tied); "random": they stay Gaussian over heads (1/√d). `moving`: their tangent kernel does not
    vanish (1/√d with many heads).
    """

    logits: str
    softmax: bool
    moving: bool


def attend(
    state: Positions, rule: AttentionRule, query: Affine, key: Affine, value: Affine, has_bias: bool, draws: Any
) -> Positions:
    """o_a = Σ_c p_ac v_c, of queries q, keys k, values v that are dense layers of the tokens; p = softmax(s) (or s),
    s_ab = q_a·k_b / d^p:

        K^o_aa' = Σ_cc' E[p_ac p'_a'c'] K^v_cc'
        Θ^o_aa' = Σ_cc' E[p_ac p'_a'c'] Θ^v_cc' + Σ_bb'cc' E[∂p_ac/∂s_ab ∂p'_a'c'/∂s'_a'b'] Θ^s_(ab,a'b') K^v_cc'
        Cov s = K^q_aa' K^k_bb',   Θ^s = Θ^q_aa' K^k_bb' + K^q_aa' Θ^k_bb',   ∂p_c/∂s_b = p_c (δ_cb − p_b)

    With logits that vanish p = 1/T (0 without softmax) and with fixed logits p = softmax(K^q(x, x)); random logits without
    softmax have E[p p'] = Cov s. With softmax these averages are taken over `draws` (see `softmax_averages`).

    Reference: Hron, Bahri, Sohl-Dickstein, Novak (2020), Infinite attention.
    """
    v, q, k = (dense(state, layer, has_bias) for layer in (value, query, key))
    if rule.logits == "random" and rule.softmax:
        mixed = softmax_averages(q, k, v, draws)
    elif rule.logits == "random":
        mixed = _identity(q, k, v)
    else:
        p1, p2 = (_weights(a, rule) for a in (q.k1, q.k2))
        mixed = dataclasses.replace(
            v, k=_mix(p1, v.k, p2), ntk=_mix(p1, v.ntk, p2), k1=_mix(p1, v.k1, p1), k2=_mix(p2, v.k2, p2)
        )
    if rule.moving and rule.logits == "none":
        mixed = dataclasses.replace(mixed, ntk=mixed.ntk + _resting(q, k, v, rule.softmax))
    return mixed


def _weights(k: jax.Array, rule: AttentionRule) -> jax.Array:
    """p [n, 1, T, T], deterministic."""
    if rule.logits == "fixed":
        return jax.nn.softmax(k, axis=-1) if rule.softmax else k
    return jnp.full_like(k, 1 / k.shape[-1]) if rule.softmax else jnp.zeros_like(k)


def _mix(p1: jax.Array, k: jax.Array, p2: jax.Array) -> jax.Array:
    """p k p'ᵀ."""
    return jnp.einsum("nmac,nmcd,nmbd->nmab", p1, k, p2) if p1.shape == p2.shape else p1 @ k @ p2.swapaxes(-1, -2)


def _identity(q: Positions, k: Positions, v: Positions) -> Positions:
    """p = s, Gaussian: E[p_ac p'_a'c'] = K^q_aa' K^k_cc', and ∂p/∂s is the identity."""

    def against(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.sum(left * right, axis=(2, 3), keepdims=True)

    ntk = q.k * (against(k.k, v.ntk) + against(k.ntk, v.k)) + q.ntk * against(k.k, v.k)
    return dataclasses.replace(
        v, k=q.k * against(k.k, v.k), ntk=ntk, k1=q.k1 * against(k.k1, v.k1), k2=q.k2 * against(k.k2, v.k2)
    )


def _resting(q: Positions, k: Positions, v: Positions, softmax: bool) -> jax.Array:
    """What moving logits that start at zero add to Θ: K^q = 0, so Θ^s = Θ^q_aa' K^k_bb', and p is uniform."""
    inner = v.k
    if softmax:  # J K J with J = (1 − 1/T) / T
        tokens = inner.shape[-1]
        inner = inner - inner.mean(2, keepdims=True)
        inner = (inner - inner.mean(3, keepdims=True)) / tokens**2
    return q.ntk * jnp.sum(k.k * inner, axis=(2, 3), keepdims=True)
