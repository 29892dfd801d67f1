"""Which ridge: leave-one-out scores of many at once, of kernels, of features, and of kernels too large to be inverted."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import scipy

from limits.predict.conjugate_gradients import solve
from limits.predict.symmetry import check_symmetric
from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg

PROBES = 16  # columns of random signs, for a trace


@dataclasses.dataclass(frozen=True, eq=False)
class RidgePath:
    """Scores of ridge regression for each ridge: `loss`, the mean squared error of a point left out, summed over outputs, and
    `error`, the share of points left out whose largest output (or sign, of one output) is wrong.

    `weights` [n, outputs] are α = (K + ridge)⁻¹ y for the best `ridge`, the largest of those with the least loss; predictions are
    k_*·α. `at_end`: whether it is the first or last of those tried. `how` says what the scores are.
    """

    ridges: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    ridge: float
    weights: np.ndarray
    how: str

    @property
    def at_end(self) -> bool:
        """Whether the best ridge is the first or last of those tried."""
        return self.ridge in (self.ridges.min(), self.ridges.max())


_RIDGES = checks.several(checks.number(positive=True), distinct=True)
_KERNEL = checks.Check(  # of any size, memory maps too: nothing of it is read
    "an array [n, n] of real numbers",
    lambda v: v.ndim == 2 and v.shape[0] == v.shape[1] > 0 and np.can_cast(_kind(v.dtype), np.float64),
)


@checks.arguments(
    kernel=_KERNEL,
    y=checks.array(least=1),
    ridges=_RIDGES,
    direct=checks.count(),
    rank=checks.count(0),
    seed=checks.seed,
)
def ridge_path(
    kernel: Any,
    y: Any,
    ridges: Any,
    *,
    direct: int = 4000,
    rank: int = 200,
    tolerance: float = 1e-5,
    seed: int = 0,
    folder: Any = None,
) -> RidgePath:
    """Ridge regression with a kernel for each of `ridges` (of the same unit as the kernel).

    Up to `direct` points by one eigendecomposition, exactly: the residual of point i left out is α_i / B_ii, B = (K + ridge)⁻¹.
    Beyond, by conjugate gradients (`solve`, with its `rank`, `tolerance`, `folder`), B_ii is replaced by tr B / n (generalised
    cross-validation), with tr B from products with random signs.

    >>> path = ridge_path(np.array([[2.0, 1.0], [1.0, 2.0]]), [1.0, 1.0], ridges=(0.1, 1.0))
    >>> path.loss.round(4).tolist(), path.ridge  # (1 − 1/(2 + ridge))²
    ([0.2744, 0.4444], 0.1)

    Reference: Rasmussen & Williams (2006), section 5.4.2; Golub, Heath, Wahba (1979), Generalized cross-validation.
    """
    y = _targets(y, len(kernel))
    ridges = np.sort(np.asarray(list(ridges), float))
    if len(y) > direct:
        return _by_steps(kernel, y, ridges, rank, tolerance, seed, folder)
    whole = np.asarray(kernel, np.float64)
    if not np.isfinite(whole).all():
        raise ValueError(f"ridge_path: kernel has {int((~np.isfinite(whole)).sum())} entries that are NaN or infinite.")
    check_symmetric("ridge_path", kernel=kernel)
    values, vectors = scipy.linalg.eigh(whole)
    # Rounding, beside which a ridge may be small: of eigenvalues that are 0, and of points that have no part in these.
    eps = np.finfo(float).eps
    none = values < eps * values[-1]
    values[none] = 0
    vectors[np.ix_((vectors[:, none] ** 2).sum(1) < len(y) * eps, none)] = 0
    turned, square = vectors.T @ y, vectors**2
    loss, error = [], []
    for ridge in ridges:
        inverse = 1 / (values + ridge)
        left_out = (vectors @ (inverse[:, None] * turned)) / (square @ inverse)[:, None]
        loss.append(float((left_out**2).sum(1).mean()))
        error.append(error_rate(y - left_out, y))
    best = float(ridges[_least(loss)])
    weights = vectors @ (turned / (values + best)[:, None])
    return RidgePath(ridges, np.array(loss), np.array(error), best, weights, "leave-one-out, exact")


def _by_steps(
    kernel: Any, y: np.ndarray, ridges: np.ndarray, rank: int, tolerance: float, seed: int, folder: Any
) -> RidgePath:
    n, k = y.shape
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(n, PROBES))
    loss, error, weights, spread = [], [], [], []
    for ridge in ridges:
        x = solve(kernel, np.concatenate([y, signs], 1), ridge, rank=rank, tolerance=tolerance, folder=folder).x
        traces = (signs * x[:, k:]).sum(0) / n
        left_out = x[:, :k] / traces.mean()
        spread.append(2 * traces.std(ddof=1) / PROBES**0.5 / traces.mean())
        loss.append(float((left_out**2).sum(1).mean()))
        error.append(error_rate(y - left_out, y))
        weights.append(x[:, :k])
    best = _least(loss)
    how = f"generalised cross-validation, its trace from {PROBES} probes (standard error of the loss {max(spread):.1%})"
    return RidgePath(ridges, np.array(loss), np.array(error), float(ridges[best]), weights[best], how)


@checks.arguments(features=checks.array(None, None), y=checks.array(least=1), ridges=_RIDGES)
def feature_ridge(features: Any, y: Any, ridges: Any) -> RidgePath:
    """The same with K = Φ Φᵀ of features Φ [n, m], at the cost of m² n (n² m where that is less):

    `weights` [m, outputs] are those of features.

    >>> feature_ridge(np.array([[1.0], [2.0]]), [1.0, 2.0], ridges=(0.1, 1.0)).weights.round(3).ravel().tolist()  # 5/5.1
    [0.98]
    """
    phi = np.asarray(features, np.float64)
    y = _targets(y, len(phi))
    if len(phi) < phi.shape[1]:  # then Φ Φᵀ is the smaller one
        path, how = ridge_path(phi @ phi.T, y, ridges, direct=len(phi)), "leave-one-out, exact for these features"
        return dataclasses.replace(path, weights=phi.T @ path.weights, how=how)
    ridges = np.sort(np.asarray(list(ridges), float))
    # Of ΦᵀΦ, small singular values would lose half of their digits.
    q, r = np.linalg.qr(phi)
    turn, sizes, rows = scipy.linalg.svd(r)
    known = sizes > len(phi) * np.finfo(float).eps * sizes[0]
    u, sizes, rows = (q @ turn)[:, known], sizes[known], rows[known]
    base, square = u.T @ y, u**2
    # 1 − leverage and the residual, as sums of what is not negative: their ratio is finite where both vanish with the ridge.
    beyond = 1 - square.sum(1)
    # Rounding leaves a few times len(phi) ε of a leverage of 1; as many features as points have no other.
    whole = (beyond < 16 * len(phi) * np.finfo(float).eps) | (u.shape[0] == u.shape[1])
    beyond, rest = np.where(whole, 0, beyond), np.where(whole[:, None], 0, y - u @ base)
    loss, error = [], []
    for ridge in ridges:
        kept = ridge / (sizes**2 + ridge)
        left_out = (rest + u @ (kept[:, None] * base)) / (beyond + square @ kept)[:, None]
        loss.append(float((left_out**2).sum(1).mean()))
        error.append(error_rate(y - left_out, y))
    best = float(ridges[_least(loss)])
    weights = rows.T @ (base / (sizes + best / sizes)[:, None])
    return RidgePath(ridges, np.array(loss), np.array(error), best, weights, "leave-one-out, exact for these features")


@checks.arguments(f=checks.array(None, None), y=checks.array(None, None))
def error_rate(f: Any, y: Any) -> float:
    """The share of wrong signs (one output) or wrong largest outputs.

    >>> error_rate(np.array([[0.2, 0.1], [0.3, 0.4]]), np.array([[1.0, 0.0], [1.0, 0.0]]))
    0.5
    """
    f, y = np.asarray(f), np.asarray(y)
    if f.shape != y.shape:
        raise ValueError(f"error_rate: f and y must have one shape [n, outputs]; got {f.shape} and {y.shape}.")
    wrong = np.sign(f) != np.sign(y) if y.shape[1] == 1 else (f.argmax(1) != y.argmax(1))[:, None]
    return float(wrong.mean())


def _least(loss: list[float]) -> int:
    """The last of those that rounding leaves the least: of one point by itself every ridge has the same score."""
    return int(np.flatnonzero(np.asarray(loss) <= min(loss) * (1 + 1e-9))[-1])


def _kind(dtype: Any) -> Any:
    """The type, or of floating ones that NumPy does not know, such as bfloat16, one that it does."""
    return np.float32 if jnp.issubdtype(dtype, jnp.floating) else dtype


def _targets(y: Any, n: int) -> np.ndarray:
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y
    if y.ndim != 2 or len(y) != n:
        raise ValueError(f"ridge: y must be [n] or [n, outputs] for {n} points; its shape is {y.shape}.")
    return y
