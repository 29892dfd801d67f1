"""What kernels that fluctuate do to the mean and the covariance of f, which are not linear in them."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.posterior.averages import Draws, pair_averages
from limits.posterior.equations import Stack, columns

if TYPE_CHECKING:
    import scipy.linalg


def shifts(
    stack: Stack, kernels: list[np.ndarray], draws: Draws, y: np.ndarray, noise: float, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """What Cov(C_ab, C_cd), C = C^(L), adds to f = C_*X A⁻¹ Y, A = C + noise, and to its covariance: of order 1/N.

    Half the second derivatives of both in C, and of the covariance the spread of f, a mean over outputs. To this order kernels
    fluctuate as those of the prior: every layer is an average over N neurons, and what one of them has beyond it,
    w(φφᵀ − <φφᵀ>), changes C^(L) by δ (`_Change`). With R = δ_* − C_*X A⁻¹ δ, summed over layers,

        f: −<R A⁻¹ δ A⁻¹ Y>/N,   covariance: <R (A⁻¹ Y Yᵀ A⁻¹/outputs − A⁻¹) Rᵀ>/N.

    A⁻¹ of the latter is that of one random vector a draw. Linear φ: in closed form, by Wick's theorem.

    >>> stack = Stack(np.eye(1), [1.0], [0.0], "linear")
    >>> of_f, of_cov = shifts(stack, [np.eye(1)] * 2, Draws("linear", np.zeros((1, 1))), np.ones(1), 1.0, 10)
    >>> of_f.round(6).item(), of_cov.round(6).item()  # −½ ½² 2/10, ½² (½² − ½) 2/10
    (-0.025, -0.0125)
    """
    y, c = columns(y), kernels[-1]
    n = len(y)
    factor = scipy.linalg.cho_factor(c[:n, :n] + noise * np.eye(n), lower=True)
    weights = scipy.linalg.cho_solve(factor, y)
    left = np.eye(len(c))
    left[:, :n] -= scipy.linalg.cho_solve(factor, c[:, :n].T).T  # R = left δ
    own_share, variance_share = np.ones_like(c), np.zeros_like(c)  # of δ_ab and δ_aa in the change of C^(L)_ab
    of_f, of_cov = np.zeros((len(c), y.shape[1])), np.zeros_like(c)
    for before, w in zip(kernels[-2::-1], stack.weights[::-1], strict=True):
        mean, own, across = pair_averages(stack.activation, before)
        if draws.linear:
            change: Any = _GaussianChange(w * own_share * mean)
        else:
            phi = draws.features(draws.signals(before, n))
            change = _Change(phi, w * (phi**2 - np.diagonal(mean)), w * own_share, w * own_share * mean, variance_share)
        of_f -= left @ change.twice(factor, weights)
        of_cov += left @ change.spread(factor, weights) @ left.T
        variance_share = w * (own_share * across + variance_share * np.diagonal(own)[:, None])
        own_share = w * own_share * own
    return of_f / width, of_cov / width


class _GaussianChange:
    """δ = h hᵀ − K, h ~ N(0, K)."""

    def __init__(self, k: np.ndarray) -> None:
        self.k = k

    def twice(self, factor: Any, weights: np.ndarray) -> np.ndarray:
        """<δ A⁻¹ δ> times the weights A⁻¹ Y."""
        n = len(weights)
        inside = scipy.linalg.cho_solve(factor, self.k[:n, :n])
        return self.k[:, :n] @ (inside @ weights + np.trace(inside) * weights)

    def spread(self, factor: Any, weights: np.ndarray) -> np.ndarray:
        """<δ (weights weightsᵀ/outputs − A⁻¹) δ>."""
        n = len(weights)
        between = weights @ weights.T / weights.shape[1] - scipy.linalg.cho_solve(factor, np.eye(n))
        return self.k[:, :n] @ between @ self.k[:n] + np.sum(between * self.k[:n, :n]) * self.k


@dataclasses.dataclass(frozen=True)
class _Change:
    """δ_ab = share_ab φ_a φ_b − mean_ab + D_ab v_a + D_ba v_b of every draw, by its products: nothing of size n² a draw."""

    phi: Any
    variances: Any  # v
    share: Any
    mean: Any
    variance_share: Any  # D

    def times(self, u: np.ndarray) -> np.ndarray:
        """Σ_b δ_ab u_b over the first points, for u [draws, n]: [draws, points]."""
        n, phi, v, d = u.shape[1], self.phi, self.variances, self.variance_share
        found = phi * ((phi[:, :n] * u) @ self.share[:n]) - u @ self.mean[:n]
        return found + v * (u @ d[:, :n].T) + (v[:, :n] * u) @ d[:n]

    def twice(self, factor: Any, weights: np.ndarray) -> np.ndarray:
        """<δ A⁻¹ δ> times the weights A⁻¹ Y."""
        n, found = len(weights), []
        for column in weights.T:
            inner = self.times(np.broadcast_to(column, (len(self.phi), n)))[:, :n]
            found.append(self.times(scipy.linalg.cho_solve(factor, inner.T).T).mean(0))
        return np.stack(found, axis=1)

    def spread(self, factor: Any, weights: np.ndarray) -> np.ndarray:
        """<δ (weights weightsᵀ/outputs − A⁻¹) δ>."""
        n, draws = len(weights), len(self.phi)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(n, draws))
        probe = self.times(scipy.linalg.solve_triangular(factor[0], signs, lower=True, trans=1).T)
        found = -probe.T @ probe
        for column in weights.T:
            moved = self.times(np.broadcast_to(column, (draws, n)))
            found += moved.T @ moved / weights.shape[1]
        return found / draws
