"""Kernels of finite networks, drawn from their law: no weights, exact at every width."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import track

from limits.depth.response import branch_scales, checked_kernel, squares
from zoo import activation_function, checks
from zoo.definition import check_count

_AT_ONCE = 2**22  # signals held at a time


@checks.arguments(
    k0=checks.matrix,
    activation=checks.activation,
    rho=checks.matrix,
    seed=checks.seed,
    w_std=checks.real,
    b_std=checks.real,
)
def finite_kernels(
    k0: Any,
    depth: int,
    width: int,
    members: int,
    rho: Any = None,
    w_std: float = 1.0,
    b_std: float = 0.0,
    activation: Any = "erf",
    seed: int = 0,
) -> np.ndarray:
    """K^(l) of `members` networks of finite width, [members, L + 1, P, P]; arguments as of `response`.

    Given the layers below, neurons of a layer are independent Gaussians whatever the weights, so that

        C^(l) = ρ² (σ_w² (1/N) Σ_i φ(h_i)φ(h_i)ᵀ + σ_b²),   h_i ← h_i + N(0, C^(l)),   K^(l) = K^(l−1) + C^(l)

    (feed-forward: ρ = 1, h_i ~ N(0, C^(l)), K^(l) = C^(l)) has exactly the law of random networks with input kernel k0.

    >>> finite_kernels([[1.0]], 3, width=50, members=4, rho=0.5).shape
    (4, 4, 1, 1)
    """
    k0, scales = checked_kernel(k0), branch_scales(depth, rho)
    check_count("finite_kernels", "width", width)
    check_count("finite_kernels", "members", members)
    phi, (w, b) = activation_function(activation), squares("finite_kernels", w_std, b_std)
    least, most = np.linalg.eigvalsh(k0)[[0, -1]]
    if least < -1e-6 * most:
        raise ValueError(
            f"The input kernel k0 is no covariance: its eigenvalues go from {least:.3g} to {most:.3g}, and none may be negative. "
            "Take the kernel of inputs (`input_kernel`)."
        )
    rng, chunk = np.random.default_rng(seed), max(1, _AT_ONCE // (width * len(k0)))
    parts = range(0, members, chunk)
    found = []
    for first in track(parts, f"networks of width {width}", console=Console(stderr=True), disable=len(parts) < 20):
        count = min(chunk, members - first)
        h = rng.normal(size=(count, width, len(k0))) @ roots(k0).T
        kernels = [np.broadcast_to(k0, (count, *k0.shape))]
        for scale in scales:
            with jax.enable_x64(True):
                a = np.asarray(phi(jnp.asarray(h)))
            if not np.isfinite(a).all() or np.abs(a).max() * scale * max(w, 1) > 1e150:
                raise OverflowError(
                    f"Signals become too large for a float within {depth} layers. Take a smaller rho, w_std or depth."
                )
            c = scale**2 * (w * np.matmul(a.transpose(0, 2, 1), a) / width + b)
            noise = rng.normal(size=h.shape) @ roots(c).transpose(0, 2, 1)
            h = noise if rho is None else h + noise
            kernels.append(c if rho is None else kernels[-1] + c)
        found.append(np.stack(kernels, axis=1))
    return np.concatenate(found)


def roots(c: np.ndarray) -> np.ndarray:
    """R with R Rᵀ = C, for matrices [..., P, P] that may be singular (equal samples)."""
    values, vectors = np.linalg.eigh(c)
    return vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
