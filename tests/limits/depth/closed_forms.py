"""Tangent kernels of relu networks in closed form."""

import math

import numpy as np
from scipy.special import betaln, digamma, gammaln


def exact_diagonal(depths, residual, w_std=2**0.5, variance=None):
    """log K^L(x, x) without bias (q¹ = `variance`, default σ_w²), with a = σ_w²/2:

        feed-forward at σ_w² = 2:   L q¹
        "fixed":        (1+a)^(L−1) q¹ (1 + (L−1) a/(1+a))
        "decreasing":   P_L q¹ (1 + Σ_{k=2}^L a/(k+a)),   P_L = Γ(L+1+a) / (Γ(L+1) Γ(2+a)) = Π_{k=2}^L (1 + a/k)

    The product starts at k = 2, since the first layer is no block.
    """
    l, a, q1 = np.asarray(depths, float), w_std**2 / 2, w_std**2 if variance is None else variance
    if residual == "fixed":
        return (l - 1) * math.log1p(a) + np.log(q1 * (1 + (l - 1) * a / (1 + a)))
    if residual == "decreasing":
        total = 1 + a * (digamma(l + 1 + a) - digamma(2 + a))
        return gammaln(a) - betaln(l + 1, a) - gammaln(2 + a) + np.log(q1 * total)  # B(L+1, a) does not cancel
    return (l - 1) * math.log(a) + np.log(l * q1)
