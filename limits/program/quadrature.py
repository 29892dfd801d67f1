"""Points for Gaussian averages of several variables, and the root of their covariance."""

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import scipy

from limits.kernels.special import safe_sqrt

if TYPE_CHECKING:
    import scipy.stats

_TENSOR = {1: 200, 2: 200}  # Gauss–Hermite points an axis
_SOBOL = 16  # 2^16 points beyond: tanh of a large signal has poles near the axis, and 20⁴ tensor points are 10 % off


@functools.cache
def points(dimensions: int, coarse: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(z [points, dimensions], weights [points]) for averages over N(0, 1): a tensor rule, or Sobol's beyond two.

    `coarse`: with about 3/4 of the points an axis, or half of Sobol's, to see how far the result moves.

    >>> z, w = points(2)
    >>> bool(abs((w * z[:, 0] ** 2 * z[:, 1] ** 4).sum() - 3) < 1e-10)
    True
    """
    if dimensions not in _TENSOR:
        uniform = scipy.stats.qmc.Sobol(dimensions, rng=np.random.default_rng(0)).random_base2(_SOBOL - coarse)
        return scipy.stats.norm.ppf(np.clip(uniform, 1e-12, 1 - 1e-12)), np.full(len(uniform), 1 / len(uniform))
    x, w = np.polynomial.hermite_e.hermegauss(_TENSOR[dimensions] * (3 if coarse else 4) // 4)
    grid = np.meshgrid(*dimensions * [x], indexing="ij")
    weight = np.meshgrid(*dimensions * [w / w.sum()], indexing="ij")
    return np.stack([g.ravel() for g in grid], -1), np.prod([g.ravel() for g in weight], axis=0)


def root(rows: list[list[Any]]) -> list[list[Any]]:
    """L with L Lᵀ = the covariance (rows of arrays), lower triangular; directions without variance get none."""
    n, lower = len(rows), list[list[Any]]()
    for i in range(n):
        row: list[Any] = []
        for j in range(i):
            rest = rows[i][j] - sum((row[k] * lower[j][k] for k in range(j)), 0.0)
            pivot = lower[j][j]
            row.append(jnp.where(pivot > 0, rest / jnp.where(pivot > 0, pivot, 1), 0))
        left = rows[i][i] - sum((part * part for part in row), 0.0)
        row.append(safe_sqrt(jnp.where(left > 1e-13 * rows[i][i], left, 0)))
        lower.append(row)
    return lower
