"""(K + noise)⁻¹ y for kernels that do not fit into memory: conjugate gradients on rows that are read block by block."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jaxtyping import Float

from limits.kept.identity import identity
from limits.kept.store import Store
from limits.predict.gaussian_process import check_noise
from limits.predict.symmetry import check_symmetric
from limits.waiting import patient_bar
from zoo import checks

if TYPE_CHECKING:
    import scipy.linalg

_BLOCK_BYTES = 2**28  # of rows that are held at once
_REPLACED = (
    25  # steps after which the residual is worked out again in float64, as rounding makes the one that is carried drift
)
_DRIFTED = 2.0  # times the carried residual, at which directions are begun again
_IDLE = 12  # such checks without progress
_KEPT_EVERY = 30.0  # seconds
_COMPARED = 64  # points between which a kernel is compared with its transpose
_PROBES = 3  # rows of a kernel that tell it from others


@dataclasses.dataclass(frozen=True, eq=False)
class LinearSolution:
    """x [n, k] with (K + noise) x = y up to `residual` [k] = |y − (K + noise) x|, worked out in float64, after `steps` steps.

    `bound` [k]: |x − (K + noise)⁻¹ y| is at most this, since no eigenvalue of K + noise is below the smallest noise; a
    prediction k_*·x is off by at most |k_*| times it. Both are of the kernel as it is given, rounded to float32 or not.
    """

    x: np.ndarray
    residual: np.ndarray
    bound: np.ndarray
    steps: int
    rank: int


_MATRIX = checks.Check(
    "an array [n, n] of float32 or float64, or a memory map of one",
    lambda v: (
        isinstance(v, np.ndarray)
        and v.ndim == 2
        and v.shape[0] == v.shape[1] > 0
        and v.dtype in (np.float32, np.float64)
    ),
)


@checks.arguments(
    kernel=_MATRIX,
    y=checks.array(None) | checks.array(None, None),
    rank=checks.count(0),
    tolerance=checks.number(positive=True, below=1.0),
    steps=checks.count(),
    folder=checks.nothing | checks.path,
)
def solve(
    kernel: Float[np.ndarray, "n n"],
    y: Any,
    noise: Any,
    *,
    rank: int = 200,
    tolerance: float = 1e-8,
    steps: int = 1000,
    folder: Any = None,
) -> LinearSolution:
    """(K + noise)⁻¹ y by preconditioned conjugate gradients, for all columns of y at once.

    kernel: an array, or a memory map as `twin(net).kernels(x, folder=DIR)` returns it, of which some rows at a time are read;
    in float32 products with it are too, and the residual is worked out in float64 every 25 steps and at the end.
    noise: a variance > 0, or one a point [n]. The preconditioner is L Lᵀ + noise with the first `rank` columns L of a pivoted
    Cholesky decomposition of K. It stops where |residual| ≤ tolerance |y| in every column, or cannot be lowered any more (which
    is an error, as is no convergence in `steps`). With `folder` the state is kept there and an interrupted call goes on.

    >>> k = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> solve(k, np.array([[3.0], [3.0]]), noise=1.0).x.round(9).ravel().tolist()
    [0.75, 0.75]

    Reference: Gardner, Pleiss, Bindel, Weinberger, Wilson (2018), GPyTorch; Golub & Van Loan, Matrix computations, section 11.5.
    """
    y = np.asarray(y, np.float64)
    y = y[:, None] if y.ndim == 1 else y
    n = len(y)
    if len(kernel) != n:
        raise ValueError(f"solve: kernel must be [n, n] and y [n, outputs]; got {kernel.shape} and {y.shape}.")
    variance = check_noise("solve", noise, n)
    if variance.min() <= 0:
        raise ValueError(
            "solve: noise must be above 0: conjugate gradients need a positive definite matrix, and the bound on their error the "
            "smallest eigenvalue there can be. Take predict.kernel_regression without noise."
        )
    _check_points("solve", kernel)
    blocks = _Blocks(kernel, variance)
    blocks.check_curvature(np.array([kernel[i, i] for i in range(n)], np.float64) + variance)
    kept = None
    if folder is not None:
        probes = np.linspace(0, n - 1, _PROBES).astype(int)
        name = identity("solve", y, variance, rank, kernel.shape, str(kernel.dtype), np.asarray(kernel[probes]))
        kept = _Kept(Store(folder), f"solve_{name}")
    found = _Iteration(blocks, y / (size := _powers(y)), tolerance, steps, kept).run(rank)
    own = {name: getattr(found, name) * size for name in ("x", "residual", "bound")}
    return dataclasses.replace(found, **own)


def _check_points(owner: str, kernel: np.ndarray) -> None:
    """Raises unless the kernel is symmetric: of one that is read in parts, between some of its points."""
    n = len(kernel)
    whole = kernel.nbytes <= _BLOCK_BYTES
    some = np.arange(n) if whole else np.unique(np.linspace(0, n - 1, _COMPARED).astype(int))
    part = kernel if whole else np.stack([np.asarray(kernel[i])[some] for i in some])
    check_symmetric(owner, some, kernel=part)


def _powers(y: np.ndarray) -> np.ndarray:
    """By column [k] 1, or of numbers whose squares are none a power of two near the largest: nothing is rounded by it."""
    largest = np.abs(y).max(axis=0)
    odd = (largest > 0) & ((largest < 1e-100) | (largest > 1e100))
    return np.where(odd, 2.0 ** np.floor(np.log2(np.where(odd, largest, 1))), 1.0)


class _Blocks:
    """Products with K + noise."""

    def __init__(self, kernel: np.ndarray, noise: np.ndarray) -> None:
        self.kernel, self.noise = kernel, noise
        self.rows = max(1, min(len(kernel), _BLOCK_BYTES // (8 * len(kernel))))

    def check_curvature(self, quotients: np.ndarray) -> None:
        """Raises where one of these vᵀ(K + noise)v, of vectors of length 1, is negative by more than rounding."""
        n, least = len(self.kernel), quotients.min()
        largest = max(abs(self.kernel[i, i]) for i in range(n)) if least < 0 else 0.0
        if least < -4 * n * np.finfo(self.kernel.dtype).eps * largest:
            raise ValueError(
                f"solve: kernel plus noise is indefinite: vᵀ(K + noise)v = {least:.3g} for a vector v of length 1. A kernel of "
                "inputs with themselves has no negative eigenvalues (differences of kernels may): check how it was made."
            )

    def times(self, v: np.ndarray, exact: bool) -> np.ndarray:
        """(K + noise) v, in float64 or in the kernel's precision."""
        out = self.noise[:, None] * v
        given = v if exact else v.astype(self.kernel.dtype)
        for start in range(0, len(v), self.rows):
            part = np.asarray(self.kernel[start : start + self.rows])
            if exact and not np.isfinite(part).all():
                raise ValueError(
                    f"solve: kernel has entries that are NaN or infinite, in rows {start} to {start + len(part) - 1}."
                )
            out[start : start + self.rows] += (part.astype(np.float64) if exact else part) @ given
        return out


class _Preconditioner:
    """(L Lᵀ + noise)⁻¹ with L [n, rank], by Woodbury's identity."""

    def __init__(self, blocks: _Blocks, rank: int) -> None:
        self.noise, self.low = blocks.noise, pivoted_cholesky(blocks.kernel, rank)
        scaled = self.low / self.noise[:, None]
        self.scaled = scaled
        self.factor = scipy.linalg.cho_factor(np.eye(self.low.shape[1]) + self.low.T @ scaled) if scaled.size else None

    def __call__(self, v: np.ndarray) -> np.ndarray:
        direct = v / self.noise[:, None]
        if self.factor is None:
            return direct
        return direct - self.scaled @ scipy.linalg.cho_solve(self.factor, self.scaled.T @ v)


@checks.arguments(kernel=_MATRIX, rank=checks.count(0))
def pivoted_cholesky(kernel: Float[np.ndarray, "n n"], rank: int) -> Float[np.ndarray, "n r"]:
    """L with K ≈ L Lᵀ: the columns of largest remaining variance, one after the other, of which only these are read.

    >>> k = np.array([[4.0, 2.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
    >>> pivoted_cholesky(k, 2).round(3).tolist()
    [[2.0, 0.0], [1.0, 1.414], [0.0, 0.0]]

    Reference: Harbrecht, Peters, Schneider (2012), On the low-rank approximation by the pivoted Cholesky decomposition.
    """
    _check_points("pivoted_cholesky", kernel)
    n = len(kernel)
    left = np.array([kernel[i, i] for i in range(n)], np.float64)
    first, low = left.max(initial=0.0), np.zeros((n, min(rank, n)))
    for j in range(low.shape[1]):
        pivot = int(np.argmax(left))
        if left[pivot] <= 1e-6 * first:  # what is left is rounding of float32
            return low[:, :j]
        column = np.asarray(kernel[pivot], np.float64) - low[:, :j] @ low[pivot, :j]
        low[:, j] = column / math.sqrt(left[pivot])
        left = np.maximum(left - low[:, j] ** 2, 0)
        left[pivot] = 0
    return low


@dataclasses.dataclass(frozen=True)
class _Kept:
    """The state of an iteration on disk."""

    store: Store
    name: str

    def get(self) -> Any:
        return self.store.get(self.name)

    def put(self, state: dict[str, Any]) -> None:
        self.store.put(self.name, state)


@dataclasses.dataclass
class _Iteration:
    """Conjugate gradients for every column of y, each with steps of its own, with common products."""

    blocks: _Blocks
    y: np.ndarray
    tolerance: float
    steps: int
    kept: _Kept | None

    def run(self, rank: int) -> LinearSolution:
        self.blocks.times(np.zeros_like(self.y), exact=True)  # or an error
        conditioned = _Preconditioner(self.blocks, rank)
        size = np.linalg.norm(self.y, axis=0)
        size = np.where(size > 0, size, 1)
        state: Any = (self.kept.get() if self.kept else None) or {
            "x": np.zeros_like(self.y),
            "p": None,
            "rz": None,
            "left": None,
            "step": 0,
        }
        saved, best, idle = time.monotonic(), np.inf, 0
        with _digits(self.tolerance) as show:
            while True:
                residual = self.y - self.blocks.times(state["x"], exact=True)
                worst = float(np.max(np.linalg.norm(residual, axis=0) / size))
                show(worst)
                idle = 0 if worst < 0.9 * best else idle + 1
                best = min(best, worst)
                if worst <= self.tolerance or state["step"] >= self.steps or idle >= _IDLE:
                    break
                state = self._advanced(state, residual, conditioned, min(_REPLACED, self.steps - state["step"]))
                if self.kept and time.monotonic() - saved > _KEPT_EVERY:
                    self.kept.put(state)
                    saved = time.monotonic()
        if self.kept:
            self.kept.put(state)
        if not worst <= self.tolerance:
            idle_now = f"in {_IDLE * _REPLACED} steps they have not fallen"
            why = f"after {state['step']} steps" if state["step"] >= self.steps else idle_now
            raise ValueError(
                f"solve: {why}: the largest residual is {worst:.1e} of y, and must fall to {self.tolerance:.0e}. Raise `rank`, "
                "`steps`, `tolerance` or the noise, or give the kernel in float64."
            )
        length = np.linalg.norm(residual, axis=0)
        return LinearSolution(
            state["x"], length, length / self.blocks.noise.min(), state["step"], conditioned.low.shape[1]
        )

    def _advanced(
        self, state: dict[str, Any], residual: np.ndarray, conditioned: Callable, count: int
    ) -> dict[str, Any]:
        """So many steps on, from this residual; directions stay conjugate to those before."""
        x, p, rz, left = (state[name] for name in ("x", "p", "rz", "left"))
        if left is not None and (np.linalg.norm(residual, axis=0) > _DRIFTED * left).any():
            p = None  # what was carried had become rounding: the directions are too
        for _ in range(count):
            z = conditioned(residual)
            new = (residual * z).sum(0)
            p = z if p is None else z + np.where(rz > 0, new / np.where(rz > 0, rz, 1), 0) * p
            rz = new
            ap = self.blocks.times(p, exact=False)
            curvature = (p * ap).sum(0)
            if (down := curvature < 0).any():
                self.blocks.check_curvature(curvature[down] / (p[:, down] ** 2).sum(0))
            alpha = np.where(curvature > 0, rz / np.where(curvature > 0, curvature, 1), 0)
            x, residual = x + alpha * p, residual - alpha * ap
        return {"x": x, "p": p, "rz": rz, "left": np.linalg.norm(residual, axis=0), "step": state["step"] + count}


@contextlib.contextmanager
def _digits(tolerance: float) -> Iterator[Callable[[float], None]]:
    """A bar that fills as the digits of the residual do."""
    shown = 0
    with patient_bar("digits of the residual, in hundredths", 100) as advance:

        def show(worst: float) -> None:
            nonlocal shown
            done = int(100 * min(1, max(0.0, math.log10(max(worst, 1e-300)) / math.log10(tolerance))))
            for _ in range(done - shown):
                advance()
            shown = max(shown, done)

        yield show
