"""Kernels of many inputs by those with a few of them, landmarks: Nyström's approximation, with what it leaves."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.waiting import patient_bar
from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg

_ROUNDING = 64  # in units of the last digit; no landmark has less than half of it left


@dataclasses.dataclass(frozen=True, eq=False)
class LowRank:
    """K ≈ Φ Φᵀ: `features` Φ [n, m] of the inputs, numbers of the `landmarks` among them, and what is left.

    `left` = tr(K − Φ Φᵀ) / tr K, from its diagonal. K − Φ Φᵀ is positive semidefinite, so no eigenvalue of it is above
    left × tr K, and no entry above its largest diagonal entry, `largest`. Both hold to the rounding of the kernel's type (64 of
    its last digits: 8e-6 of the diagonal in float32), which is the least that either says.
    """

    features: np.ndarray
    landmarks: np.ndarray
    left: float
    largest: float
    root: np.ndarray  # L, Φ of the landmarks, lower triangular

    def of(self, kernel: Any) -> np.ndarray:
        """Features of other inputs, from their kernel with the landmarks [n_new, m]."""
        return scipy.linalg.solve_triangular(self.root, np.asarray(kernel, np.float64).T, lower=True).T


@checks.arguments(
    kernel=checks.function,
    x=checks.array(least=1),
    diagonal=checks.array(None),
    rank=checks.count(),
    batch=checks.count(),
    seed=checks.seed,
)
def nystrom(
    kernel: Callable[[Any, Any], Any], x: Any, diagonal: Any, rank: int, *, batch: int = 128, seed: int = 0
) -> LowRank:
    """Landmarks are drawn in proportion to what is left of the diagonal, `batch` at a time, up to `rank` of them.

    kernel(a, b) → [len(a), len(b)] of inputs, such as lambda a, b: twin(net).kernels(a, b).nngp, is asked for rank columns and no
    more; `diagonal` is that of x with itself.

    >>> x = np.random.default_rng(0).normal(size=(30, 2))
    >>> low = nystrom(lambda a, b: a @ b.T, x, (x**2).sum(1), rank=2)
    >>> bool(low.left < 1e-11), low.features.shape, np.allclose(low.of(x @ x[low.landmarks].T), low.features)
    (True, (30, 2), True)

    Reference: Chen, Epperly, Tropp, Webber (2023), Randomly pivoted Cholesky: practical approximation of a kernel matrix with few
    entry evaluations.
    """
    x, given = np.asarray(x), np.asarray(diagonal)
    if len(given) != len(x):
        raise ValueError(f"nystrom: diagonal must have an entry for each of the {len(x)} inputs; it has {len(given)}.")
    random, whole, rounding = np.random.default_rng(seed), given.astype(np.float64), _rounding(given)
    left, low, chosen = whole.copy(), np.zeros((len(x), 0)), np.zeros(0, int)
    with patient_bar("landmarks", min(rank, len(x))) as advance:
        while len(chosen) < min(rank, len(x)) and left.max() > (least := max(1e-10, rounding / 2) * whole.max()):
            possible = int((left > least).sum())
            wanted = min(batch, rank - len(chosen), possible)
            new = random.choice(len(x), size=wanted, replace=False, p=left / left.sum())
            asked = np.asarray(kernel(x, x[new]))
            rounding = max(rounding, _rounding(asked))
            columns = asked.astype(np.float64) - low @ low[new].T
            inside = columns[new]
            order, root = _pivoted(inside, max(1e-10, rounding / 2) * whole.max())
            columns = (
                scipy.linalg.solve_triangular(root, columns[:, order].T, lower=True).T if len(order) else columns[:, :0]
            )
            low, chosen = np.concatenate([low, columns], 1), np.concatenate([chosen, new[order]])
            left = np.where(left > 0, np.maximum(whole - (low**2).sum(1), 0), 0)
            left[new] = 0  # those that are no landmarks are sums of the others, to rounding: they are not drawn again
            for _ in range(wanted):
                advance()
    rest = np.abs(whole - (low**2).sum(1))
    share = max(rest.sum() / whole.sum(), rounding) if whole.sum() > 0 else 0.0
    return LowRank(low, chosen, float(share), float(max(rest.max(), rounding * whole.max())), np.tril(low[chosen]))


def _rounding(values: np.ndarray) -> float:
    """What numbers of this type lose, over the largest, in all that is done with them here."""
    return _ROUNDING * float(np.finfo(values.dtype if values.dtype.kind == "f" else float).eps)


def _pivoted(matrix: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray]:
    """(which of the columns are independent of those before, their Cholesky factor)."""
    left, order, low = np.diag(matrix).copy(), [], np.zeros((len(matrix), 0))
    while len(order) < len(matrix):
        pivot = int(np.argmax(left))
        if left[pivot] <= least:
            break
        column = (matrix[:, pivot] - low @ low[pivot]) / np.sqrt(left[pivot])
        low = np.concatenate([low, column[:, None]], 1)
        order.append(pivot)
        left = np.maximum(left - column**2, 0)
        left[order] = 0
    return np.array(order, int), np.tril(low[order])
