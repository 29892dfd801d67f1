"""Gaussian surrogates of data: every class replaced by a Gaussian of its mean and its leading principal components."""

import dataclasses
from typing import Any

import numpy as np

from limits.cumulants.cumulants import Cumulants, Mixture
from limits.cumulants.mixture import class_cumulants
from zoo import checks


@dataclasses.dataclass(frozen=True)
class Surrogate:
    """`mixture`: the Gaussian classes, to sample or to hand to the statistical model. kept: components kept in each class;
    missing: the share of each class's variance that was left out."""

    mixture: Mixture
    kept: np.ndarray
    missing: np.ndarray


@checks.arguments(x=checks.matrix, y=checks.matrix, threshold=checks.number(0))
def gaussian_surrogate(x: Any, y: Any, threshold: float = 1e-2) -> Surrogate:
    """Each class of (x [n, …], y [n, outputs]) as N(μ, V D Vᵀ), of the eigenvalues D of its covariance above `threshold`.

    The threshold is absolute, in units of the inputs squared.

    >>> x = np.random.default_rng(0).normal(size=(400, 3)) * [2.0, 1.0, 1e-3]
    >>> gaussian_surrogate(x, np.repeat([1.0, -1.0], 200)).kept.tolist()
    [2, 2]

    Reference: K. Fischer (2025), Mechanics of deep neural networks beyond the Gaussian limit, eqs. 2.31 to 2.33.
    """
    data = class_cumulants(x, y)
    values, vectors = np.linalg.eigh(data.cumulants.covariance)
    kept = np.where(values > threshold, values, 0)
    if not kept.any(axis=1).all():
        raise ValueError(
            f"gaussian_surrogate: no eigenvalue of class {np.flatnonzero(~kept.any(axis=1)).tolist()} is above the threshold "
            f"{threshold:g} (largest: {values.max(1).tolist()}); lower the threshold or scale the inputs."
        )
    covariance = np.einsum("kia,ka,kja->kij", vectors, kept, vectors)
    total = np.maximum(values, 0).sum(1)
    return Surrogate(
        data._replace(cumulants=Cumulants(data.cumulants.mean, covariance)), (kept > 0).sum(1), 1 - kept.sum(1) / total
    )
