"""The largest eigenvalues of a symmetric operator as often as they occur."""

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

if TYPE_CHECKING:
    import scipy.sparse.linalg


def leading(operator: Any, count: int, tolerance: float, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(values, vectors [size, count]) of a positive semi-definite SciPy operator, largest first.

    Powers of K on one vector meet one direction of every eigenspace; its others come in by rounding alone, if at all. So what was
    found is taken out, (1 − V Vᵀ) K (1 − V Vᵀ), and looked into from another vector, until nothing larger than the least is left.

    >>> four = scipy.sparse.linalg.aslinearoperator(np.diag([3.0, 3.0, 3.0, 1.0, 0.5, 0.2]))
    >>> leading(four, 4, 1e-6, 100, 0)[0].round(6).tolist()
    [3.0, 3.0, 3.0, 1.0]
    >>> (leading(four * 1e-18, 4, 1e-6, 100, 0)[0] * 1e18).round(6).tolist()
    [3.0, 3.0, 3.0, 1.0]
    """
    size, random = operator.shape[0], np.random.default_rng(seed)
    start = random.normal(size=size)
    unit = _unit(float(np.linalg.norm(operator @ start) / np.linalg.norm(start)))
    if unit != 1:
        values, vectors = leading(operator * (1 / unit), count, tolerance, steps, seed)
        return unit * values, vectors
    values, vectors = _largest(operator, count, tolerance, steps, start)
    while True:
        rest, start = _without(operator, vectors), random.normal(size=size)
        start -= vectors @ (vectors.T @ start)
        least = values[-1] + tolerance * values[0]
        # Error bounds of eigenvalues are squares of those of vectors.
        if _largest(rest, 1, tolerance**0.5, steps, start)[0][0] <= least:
            return values, vectors
        more = _largest(rest, count, tolerance, steps, start)
        order = np.argsort(-np.concatenate([values, more[0]]), kind="stable")[:count]
        values = np.concatenate([values, more[0]])[order]
        vectors = np.linalg.qr(np.concatenate([vectors, more[1]], axis=1)[:, order])[0]


def _unit(size: float) -> float:
    """A power of two near the size of an operator that is no number around 1: ARPACK stops at absolute errors of 4e-11."""
    return 2.0 ** round(np.log2(size)) if 0 < size < np.inf and abs(np.log2(size)) > 20 else 1.0


def _without(operator: Any, vectors: np.ndarray) -> Any:
    def outside(v: np.ndarray) -> np.ndarray:
        return v - vectors @ (vectors.T @ v)

    def times(v: np.ndarray) -> np.ndarray:
        return outside(operator @ outside(v))

    return scipy.sparse.linalg.LinearOperator(operator.shape, matvec=times, dtype=np.float64)  # pyright: ignore


def _largest(
    operator: Any, count: int, tolerance: float, steps: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """By Lanczos from one vector."""
    if not (operator @ start).any():  # of the kernel's null space: ARPACK takes it for no start
        return np.zeros(count), np.linalg.qr(
            np.c_[start, np.random.default_rng(0).normal(size=(len(start), count - 1))]
        )[0]
    try:
        values, vectors = scipy.sparse.linalg.eigsh(operator, count, v0=start, tol=tolerance, maxiter=steps)  # pyright: ignore
    except scipy.sparse.linalg.ArpackNoConvergence as error:
        raise RuntimeError(
            f"eigenpairs: {len(error.eigenvalues)} of {count} converged in {steps} restarts: raise steps or tolerance, "
            "or ask for fewer."
        ) from error
    return values[::-1], vectors[:, ::-1]
