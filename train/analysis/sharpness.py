"""Sharpness: the largest eigenvalues of the loss's Hessian, without the Hessian."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

import jax
import numpy as np
import scipy

from limits.kept.precision import full_products
from limits.types import Loss
from train.analysis.network import CHUNK, hessian_product, parts_of, rates_of
from train.step import in_full
from train.variables import split
from zoo import checks

if TYPE_CHECKING:
    import scipy.sparse.linalg

_DENSE = 24  # up to this size a matrix is written out: there is no room for a Krylov space


@dataclasses.dataclass(frozen=True)
class Top:
    """The largest eigenvalues, largest first, with |Hv − λv| of each (|v| = 1), and the products Hv that they took.

    Every eigenvalue has an exact one within its residual. Those that did not converge are NaN.
    """

    eigenvalues: np.ndarray
    residuals: np.ndarray
    products: int

    def scaled(self, factor: float) -> "Top":
        """Those of the matrix times a factor ≥ 0, at no cost."""
        return Top(self.eigenvalues * factor, self.residuals * factor, 0)

    @property
    def converged(self) -> bool:
        """Whether all of them did."""
        return bool(np.isfinite(self.eigenvalues).all())


@checks.arguments(
    product=checks.function,
    size=checks.count(),
    top=checks.count(),
    tolerance=checks.number(positive=True),
    seed=checks.seed,
    restarts=checks.count(),
    dtype=checks.dtype,
)
def largest_eigenvalues(
    product: Callable[[np.ndarray], Any],
    size: int,
    top: int = 1,
    tolerance: float = 1e-3,
    seed: int = 0,
    restarts: int = 100,
    dtype: Any = np.float32,
) -> Top:
    """The `top` largest (not: largest in size) eigenvalues of a symmetric matrix that is known by its products with vectors.

    By ARPACK's restarted Lanczos iteration, until |Hv − λv| ≤ tolerance |λ|. The error of λ itself is of the order of the
    residual squared over the gap to the next. In float32, tolerances below 1e-5 are not met.

    >>> largest_eigenvalues(lambda v: np.arange(50.0) * v, size=50, top=2, dtype=np.float64).eigenvalues.round(3).tolist()
    [49.0, 48.0]
    """
    if not 1 <= top <= size:
        raise ValueError(f"top must lie between 1 and the number of parameters, {size}; got {top}.")
    count = 0

    def times(v: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        out = np.asarray(product(np.asarray(v, dtype).reshape(-1)), dtype)
        if not np.isfinite(out).all():
            raise FloatingPointError(
                "The Hessian times a vector is infinite or NaN: the loss has overflowed at these parameters, or it has no "
                "second derivative there."
            )
        return out

    if size <= max(_DENSE, 2 * top + 1):
        dense = np.stack([times(row) for row in np.eye(size, dtype=dtype)]).astype(np.float64)
        values, vectors = np.linalg.eigh((dense + dense.T) / 2)
    else:
        operator: Any = scipy.sparse.linalg.LinearOperator((size, size), matvec=times, dtype=dtype)  # pyright: ignore[reportCallIssue]
        start = np.random.default_rng(seed).normal(size=size).astype(dtype)
        try:
            lanczos: Any = scipy.sparse.linalg.eigsh
            values, vectors = lanczos(operator, k=top, which="LA", v0=start, tol=tolerance, maxiter=restarts)
        except scipy.sparse.linalg.ArpackNoConvergence as error:
            values, vectors = error.eigenvalues, error.eigenvectors
    order = np.argsort(values)[::-1][:top]
    eigenvalues, residuals = np.full((2, top), np.nan)
    for i, j in enumerate(order):
        v = vectors[:, j] / np.linalg.norm(vectors[:, j])
        eigenvalues[i], residuals[i] = values[j], np.linalg.norm(times(v).astype(np.float64) - values[j] * v)
    return Top(eigenvalues, residuals, count)


@checks.arguments(
    net=checks.function,
    variables=checks.tree,
    data=checks.pair,
    loss=checks.choice(*get_args(Loss)) | checks.function,
    rates=checks.rates,
    preconditioned=checks.flag,
    top=checks.count(),
    tolerance=checks.number(positive=True),
    chunk=checks.count(),
    seed=checks.seed,
)
@full_products()
def sharpness(
    net: Any,
    variables: Any,
    data: tuple[Any, Any],
    loss: Any = "mse",
    rates: Any = None,
    preconditioned: bool = False,
    top: int = 1,
    tolerance: float = 1e-3,
    chunk: int = CHUNK,
    seed: int = 0,
) -> Top:
    """The largest eigenvalues of the Hessian H of the loss on data = (inputs, targets), in inference mode.

    preconditioned: of D^{1/2} H D^{1/2} with D the learning-rate factors (`rates`; default the definition's). Gradient
    descent θ ← θ − η₀ D ∂loss/∂θ is stable along v up to η₀ λ = 2 (`edge_of_stability`), so that this is what is comparable
    over widths. H itself is never formed: its products with vectors are derivatives of the gradient, a `chunk` of samples
    at a time; the memory is that of some twenty copies of the parameters. Where a network normalises over batches, this is
    not the Hessian of training, in which the statistics move with the parameters.

    >>> linear = lambda w, x: x @ w
    >>> found = sharpness(linear, np.ones((1, 1), np.float32), (np.ones((2, 1)), np.zeros((2, 1))))
    >>> found.eigenvalues.tolist(), found.residuals.tolist()
    ([1.0], [0.0])

    Reference: Cohen, Kaur, Li, Kolter, Talwalkar (2021), Gradient descent on neural networks typically occurs at the edge
    of stability.
    """
    trained, state = split(variables)
    trained = in_full(trained)
    x, y = data
    if len(x) != len(y) or not len(x):
        raise ValueError(f"sharpness: {len(x)} inputs and {len(y)} targets: there must be as many, and at least one.")
    rates = rates_of(net, trained, x, rates) if preconditioned else jax.tree.map(lambda leaf: 1.0, trained)
    roots, one = jax.tree.map(lambda rate: rate**0.5, rates), hessian_product(net, loss)
    parts = [(x[part], y[part]) for part in parts_of(len(x), chunk)]
    leaves = jax.tree.leaves(trained)

    def product(vector: np.ndarray) -> Any:
        return sum(len(part[0]) / len(x) * one(trained, state, part, vector, roots) for part in parts)

    size, dtype = sum(leaf.size for leaf in leaves), np.result_type(*(leaf.dtype for leaf in leaves))
    return largest_eigenvalues(product, size, top, tolerance, seed, dtype=dtype)


@checks.arguments(learning_rate=checks.number(positive=True), momentum=checks.number(0, 1))
def edge_of_stability(learning_rate: float, momentum: float = 0.0) -> float:
    """The preconditioned sharpness above which gradient descent with this η₀ diverges on a quadratic: 2 (1 + momentum) / η₀.

    >>> edge_of_stability(0.1), edge_of_stability(0.1, momentum=0.5)
    (20.0, 30.0)
    """
    return 2 * (1 + momentum) / learning_rate
