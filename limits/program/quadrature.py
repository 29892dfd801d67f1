"""Gaussian averages over several variables at once: points, the root of their covariance, and the sum over points."""

import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from limits.kernels.special import safe_sqrt
from limits.program import differentiated
from limits.program.continuity import are_continuous
from limits.program.functions import Function
from limits.program.nodes import Node
from limits.program.values import NoLimitError

if TYPE_CHECKING:
    import scipy.stats

_TENSOR = {1: 200, 2: 200}  # Gauss–Hermite points an axis
_FUSED = 4  # variables, up to which programs compile in seconds as they are
_SOBOL = 16  # 2^16 points beyond: tanh of a large signal has poles near the axis, and 20⁴ tensor points are 10 % off

_MOST = 8  # variables: beyond, programs take minutes to compile, and sweeps say as much
_MANY = "an average over {count} Gaussian variables at once, those of both inputs; up to {most} are taken by quadrature"


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
    # Of many variables XLA would work out every entry again wherever it is used, and compile for minutes.
    held = jax.lax.optimization_barrier if n > _FUSED else lambda entry: entry
    for i in range(n):
        row: list[Any] = []
        for j in range(i):
            rest = rows[i][j] - sum((row[k] * lower[j][k] for k in range(j)), 0.0)
            pivot = lower[j][j]
            row.append(held(jnp.where(pivot > 0, rest / jnp.where(pivot > 0, pivot, 1), 0)))
        left = rows[i][i] - sum((part * part for part in row), 0.0)
        row.append(held(safe_sqrt(jnp.where(left > 1e-13 * rows[i][i], left, 0))))
        lower.append(row)
    return lower


def by_quadrature(m: Any, f: Function, g: Function, pairs: bool) -> Any:
    """E[f g] over all their variables at once."""
    whole = m is m.own and not pairs
    variables = [(0, leaf) for leaf in f.random]
    variables += [(1, leaf) for leaf in g.random if not (whole and any(leaf is each for each in f.random))]

    if len(variables) > _MOST:
        raise NoLimitError(_MANY.format(count=len(variables), most=_MOST))

    def place(array: Any, which: int) -> Any:
        array, ranks = jnp.asarray(array), (f.rank, g.rank)
        return array if array.ndim == 0 else m.placed(array, which, ranks[1 - which], pairs)

    covariance = [[_covariance(m, a, b, place, pairs) for b in variables] for a in variables]
    placed = [(id(det), which) for which, function in ((0, f), (1, g)) for det in function.dets]
    dets = tuple(place(det.array, which) for which, function in ((0, f), (1, g)) for det in function.dets)

    def product(x: list[Any], dets: tuple) -> Any:
        found: Any = 1.0
        for which, function in ((0, f), (1, g)):
            values = {}
            for leaf in function.random:
                at = next(i for i, (s, each) in enumerate(variables) if each is leaf and (s == which or whole))
                values[id(leaf)] = x[at]
            found = found * function(values, lambda det, which=which: dets[placed.index((id(det), which))])
        return found

    def placed_points(covariance: Any, coarse: bool = False) -> tuple[list, list, Any, Any]:
        kind = jnp.result_type(*(entry for row in covariance for entry in row))
        z, weights = (jnp.asarray(part, kind) for part in points(len(variables), coarse))
        rank = m.batch + f.rank + (g.rank if pairs else 0)
        rows, z = root(covariance), [z[:, j].reshape(-1, *(1,) * rank) for j in range(len(variables))]
        x = [sum((c * z[j] for j, c in enumerate(row)), 0.0) for row in rows]
        return x, z, rows, weights.reshape(-1, *(1,) * rank)

    def by_rule(function: Any, covariance: Any, dets: tuple, coarse: bool = False) -> Any:
        x, _, _, weights = placed_points(covariance, coarse)
        return (weights * function(x, dets).astype(weights.dtype)).sum(0)  # constants of a function may be of another

    def drawn(covariance: Any, dets: tuple) -> tuple[Any, list, Any]:
        x, z, rows, weights = placed_points(covariance)
        return product(x, dets).astype(weights.dtype), _solved(rows, z), weights

    found = by_rule(product, covariance, dets)
    if m.series.measures:
        key = (f.name, g.name, len(variables), len(points(len(variables))[0]))
        coarse, size = (by_rule(h, covariance, dets, True) for h in (product, lambda *x: jnp.abs(product(*x))))
        m.series.quadrature(key, found, coarse, size, math.prod(found.shape[m.batch :]), m.own.place(f))
    if not m.series.differentiable:
        return found
    if differentiated.is_smooth(f) and differentiated.is_smooth(g):
        return differentiated.of_several(found, product, covariance, dets, by_rule)
    if not are_continuous(m, f, g):
        return differentiated.of_jumps(found, covariance, dets, drawn)
    return found  # of a function with kinks the rule itself is differentiated: its second derivatives are no functions


def _solved(rows: list[list[Any]], z: list[Any]) -> list[Any]:
    """w with Lᵀ w = z; 0 along directions without variance."""
    w: list[Any] = [None] * len(z)
    for i in reversed(range(len(z))):
        rest = z[i] - sum((rows[k][i] * w[k] for k in range(i + 1, len(z))), 0.0)
        pivot = rows[i][i]
        w[i] = jnp.where(pivot > 0, rest / jnp.where(pivot > 0, pivot, 1), 0)
    return w


def _covariance(m: Any, a: tuple[int, Node], b: tuple[int, Node], place: Any, pairs: bool) -> Any:
    if a[0] == b[0]:
        found = m.own.second(a[1], b[1], False)
        return jnp.zeros(()) if found is None else place(found, a[0])
    left, right = (a, b) if a[0] == 0 else (b, a)
    found = m.second(left[1], right[1], pairs)
    return jnp.zeros(()) if found is None else found
