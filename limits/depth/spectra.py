"""Eigenvalues of deep kernels on the sphere, where their eigenfunctions are the spherical harmonics."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from limits.depth.averages import NETWORK, RESIDUAL, squares
from limits.depth.recursions import deep_pair
from zoo import checks

if TYPE_CHECKING:
    import matplotlib.figure
    import scipy.special

_ORDERS = checks.several(checks.count(0))


@checks.arguments(d=checks.count(2), k=checks.count(0))
def harmonics(d: int, k: int) -> int:
    """N(d, k), the number of spherical harmonics of order k on S^(d−1): the multiplicity of μ_k.

    >>> harmonics(3, 2), harmonics(2, 5), harmonics(10, 1)
    (5, 2, 10)
    """
    return math.comb(d + k - 1, k) - (math.comb(d + k - 3, k - 2) if k > 1 else 0)


def _nodes(d: int, largest_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles θ and weights w with Σ w g = ∫ g sin^(d−2) θ dθ / ∫ sin^(d−2) θ dθ, in panels that shrink towards θ = 0 and π.

    A deep kernel varies on the scale 1/L near θ = 0, which equal panels would miss.
    """
    panels = max(24, largest_k)
    edges = np.concatenate([[0], np.geomspace(1e-8, 0.05, 40), np.linspace(0.05, math.pi / 2, panels + 1)[1:]])
    t, w = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges) / 2
    theta = (edges[:-1] + half)[:, None] + half[:, None] * t
    weight = half[:, None] * w
    theta, weight = theta.ravel(), weight.ravel()
    theta, weight = np.concatenate([theta, math.pi - theta[::-1]]), np.concatenate([weight, weight[::-1]])
    log_total = scipy.special.betaln((d - 1) / 2, 0.5)
    return theta, weight * np.exp((d - 2) * np.log(np.sin(theta)) - log_total)


@checks.arguments(kernel=checks.function, d=checks.count(2), orders=_ORDERS)
def zonal_eigenvalues(kernel: Callable[[np.ndarray], Any], d: int, orders: Sequence[int] | np.ndarray) -> np.ndarray:
    """μ_k of a kernel g(x·x') on the unit sphere of d dimensions, for the uniform probability measure: [..., k].

        μ_k = Ω_(d−1)/Ω_d ∫ g(c) P_k(c) (1 − c²)^((d−3)/2) dc,   P_k the Gegenbauer polynomial with P_k(1) = 1

    and multiplicity `harmonics(d, k)`: g(1) = Σ_k N(d, k) μ_k. `kernel` takes the array of 1 − c, and returns [..., the same].

    >>> zonal_eigenvalues(lambda gap: 1 - gap, d=3, orders=[0, 1, 2]).round(9).tolist()  # c itself: 1/d at k = 1
    [0.0, 0.333333333, 0.0]

    The paper prints another norm of P_k and "= δ": for d = 3 the norm is 2/(2k+1), and μ_k = ½ ∫ g P_k.
    """
    ks = np.asarray(orders)
    theta, weight = _nodes(d, int(ks.max()))
    values = np.asarray(kernel(2 * np.sin(theta / 2) ** 2), float)
    # The Gegenbauer polynomials as Jacobi's, which know d = 2 too.
    at, one = (scipy.special.eval_jacobi(ks[:, None], (d - 3) / 2, (d - 3) / 2, x) for x in (np.cos(theta), 1.0))
    return values @ (at / one * weight).T


@checks.arguments(**NETWORK, orders=_ORDERS, d=checks.count(2), residual=RESIDUAL, radius=checks.number(positive=True))
def sphere_spectrum(
    depths: Sequence[int] | np.ndarray,
    orders: Sequence[int] | np.ndarray,
    d: int = 3,
    activation: Any = "relu",
    w_std: float = math.sqrt(2),
    b_std: float = 0.0,
    residual: str = "none",
    radius: float = 1.0,
) -> np.ndarray:
    """μ_k / μ_0 of the tangent kernel of a deep network, [depth, k].

    Inputs have norm `radius`: q¹ = σ_b² + σ_w² radius²/d, as in the paper's figure 1 (radius √d makes inputs of size 1).

    >>> sphere_spectrum([3, 300], [1, 2]).round(4).tolist()
    [[0.3986, 0.1154], [0.0082, 0.0054]]
    """
    w, b = squares(w_std, b_std)
    q = b + w * float(radius) ** 2 / d

    def kernel(gap: np.ndarray) -> np.ndarray:
        found = deep_pair(None, depths, activation, w_std, b_std, residual, q, gap=gap * (1 - b / q))
        top = found.log_ntk.max(axis=1, keepdims=True)
        return found.sign * np.exp(found.log_ntk - top)

    values = zonal_eigenvalues(kernel, d, np.append(0, orders))
    return values[:, 1:] / values[:, :1]


@checks.arguments(
    spectra=checks.Check(
        "a dictionary of pairs (depths, values [depth, k])", lambda v: all(len(p) == 2 for p in v.values())
    ),
    orders=checks.array(None),
)
def plot_spectra(
    spectra: Mapping[str, tuple[Any, np.ndarray]], orders: Sequence[int] | np.ndarray
) -> "matplotlib.figure.Figure":
    """μ_k / μ_0 over k on two logarithmic axes, a panel for every title: (depths, values [depth, k])."""
    columns = min(2, len(spectra))
    rows = -(-len(spectra) // columns)
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axis, (title, (depths, values)) in zip(axes.flat, spectra.items(), strict=False):
        for depth, row in zip(depths, values, strict=True):
            axis.loglog(orders, np.where(row > 1e-15, row, math.nan), "o-", ms=3, lw=1.2, label=f"L = {depth}")
        axis.set(title=title, xlabel="k", ylabel="μ_k / μ_0")
        axis.title.set_fontsize(10)
        axis.legend(fontsize=8)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
