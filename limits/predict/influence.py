"""What each training point does to predictions."""

from typing import Any

import numpy as np

from limits.predict.gaussian_process import check_noise, check_regular, singular
from limits.predict.symmetry import check_symmetric
from zoo import checks


@checks.arguments(
    kernel=checks.array(None, None),
    y=checks.array(least=1),
    k_test_train=checks.array(None, None),
    noise=checks.number(0) | checks.array(None),
)
def influence(kernel: Any, y: Any, k_test_train: Any, noise: Any) -> np.ndarray:
    """How predictions of kernel regression change where a training point is left out, [n_test, n, outputs].

    With B = (K + noise)⁻¹, α = B y and c = K_* B, leaving out point i moves the prediction at a test point by

        f^(−i)(x) − f(x) = −c_i α_i / B_ii,

    exactly, and all of them cost one inverse. With the tangent kernel of a network (`empirical_ntk`) and y − f₀ for y it is what
    training longer and longer without that point changes, to the accuracy of the linearisation.

    >>> k = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> influence(k, [1.0, 2.0], [[0.5, 0.1]], noise=0.0).round(12).tolist()
    [[[-0.5], [-0.2]]]

    Reference: Rasmussen & Williams (2006), Gaussian processes for machine learning, section 5.4.2; Koh & Liang (2017).
    """
    k, cross, y = np.asarray(kernel, float), np.asarray(k_test_train, float), np.asarray(y, float)
    y = y[:, None] if y.ndim == 1 else y
    if k.shape != (len(y), len(y)) or cross.shape[1] != len(y) or y.ndim != 2:
        raise ValueError(
            f"influence: kernel must be [n, n], y [n, outputs] and k_test_train [n_test, n]; got {k.shape}, {y.shape} and "
            f"{cross.shape}."
        )
    check_symmetric("influence", kernel=kernel)
    variances = check_noise("influence", noise, len(y))
    a = k + np.diag(variances)
    try:
        inverse = np.linalg.inv(a)
    except np.linalg.LinAlgError as error:
        raise singular("influence", a, variances) from error
    root = np.sqrt(np.maximum(np.abs(np.diagonal(a)), np.finfo(float).tiny))
    spread = np.abs(a / (root[:, None] * root)).sum(0).max() * np.abs(inverse * (root[:, None] * root)).sum(0).max()
    if not spread * len(a) * np.finfo(float).eps < 0.01:  # a bound on the share of the least eigenvalue, cheap
        check_regular("influence", k, variances)
    c, alpha = cross @ inverse, inverse @ y
    return -c[:, :, None] * (alpha / np.diag(inverse)[:, None])[None]
