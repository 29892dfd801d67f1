"""Kernels of finite networks: drawn from their law, and how they scatter over initialisations to leading order in 1/N."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from rich.console import Console
from rich.progress import track

from limits.depth.averages import NETWORK, squares
from limits.depth.response import LAYERS, Response, branch_scales, checked_kernel, jacobian, pairs, response
from limits.kernels.hermite import coefficients, orders_needed
from limits.types import Provenance
from zoo import activation_function, checks

if TYPE_CHECKING:
    import scipy.special
    import scipy.stats

_AT_ONCE = 2**22  # signals held at a time
_REPLICAS = 8  # independently scrambled point sets, for the standard error
_LARGEST = 4000  # layers times pairs of samples: the source is a square matrix of that size


@checks.arguments(**NETWORK, **LAYERS, width=checks.count(), members=checks.count(), seed=checks.seed)
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
    phi, (w, b) = activation_function(activation), squares(w_std, b_std)
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


@dataclasses.dataclass(frozen=True)
class Fluctuations:
    """N times the covariance of kernels over networks of width N, at leading order: [layer, pair, layer', pair'].

    kernels      of K^(l), layers 0 … L (K^(0) is given, so its rows are 0); pairs (a ≤ b) as in `pairs(P)`
    increments   of C^(l), the residual kernels (C = K in feed-forward networks)
    kernels_sem  standard errors of `kernels` (zero where averages are by quadrature)
    """

    kernels: np.ndarray
    increments: np.ndarray
    kernels_sem: np.ndarray
    samples: int
    provenance: Provenance

    def std(self, width: int) -> np.ndarray:
        """Standard deviation of K^(l)_ab over networks of this width, [L + 1, P, P]."""
        layers = len(self.kernels)
        spread = np.sqrt(np.einsum("lplp->lp", self.kernels) / width)
        whole = np.zeros((layers, self.samples, self.samples))
        a, b = pairs(self.samples)
        whole[:, a, b] = whole[:, b, a] = spread
        return whole


@checks.arguments(**NETWORK, **LAYERS, points=checks.count(), seed=checks.seed)
def fluctuations(
    k0: Any,
    depth: int,
    rho: Any = None,
    w_std: float = 1.0,
    b_std: float = 0.0,
    activation: Any = "erf",
    points: int = 2**12,
    seed: int = 0,
) -> Fluctuations:
    """Covariances of the kernels of finite networks, given the input kernel k0 [P, P]; arguments as of `response`.

    Here K^(l) = K^(0) + Σ_{k≤l} C^(k), where C^(l)_ab = ρ² (σ_w² (1/N) Σ_i φ(h_i)φ(h_i) + σ_b²) is the covariance of what
    layer l adds, given the layers below; not the overlap (1/N) Σ h_i h_i, which has sampling noise of its own. With
    ξ^(l) the deviation of the mean over neurons in layer l − 1 from its expectation and J the full Jacobian of σ_w² <φφ>,

        δK^(l) = (1 + ρ² J^(l)) δK^(l−1) + ρ² σ_w² ξ^(l),   N <ξ^(l)_ab ξ^(k)_cd> = <φ_a^(l−1) φ_b^(l−1) ; φ_c^(k−1) φ_d^(k−1)>

    (without the 1 in feed-forward networks). The connected correlation couples layers l ≠ k of residual networks, for a
    neuron keeps its signal: it is taken on the joint Gaussian path h^(l) = h^(l−1) + f^(l), f^(l) ~ N(0, C^(l)). In
    feed-forward networks ξ is independent from layer to layer.

    One sample: by quadrature. Several: by randomised quasi-Monte-Carlo with 8 × `points` points. Dropped: O(1/N²).

    >>> found = fluctuations([[0.3]], 10, rho=0.3, w_std=1.25**0.5, b_std=0.05**0.5)
    >>> found.std(width=200)[-1].round(5).item()
    0.02309

    Reference: Fischer, Dahmen, Helias (2023), Optimal signal propagation in ResNets through residual scaling, eqs. 4.21
    and 4.30. Divergences: there responses are diagonal in the pairs, which is 10 % off in off-diagonal elements; the rows
    of layer 0 must vanish; layers are counted from the input of the average here.
    """
    k0, scales = checked_kernel(k0), branch_scales(depth, rho)
    n = len(pairs(len(k0))[0])
    if depth * n > _LARGEST:
        raise ValueError(
            f"{depth} layers with {n} pairs of samples need a matrix of {depth * n}² numbers; at most {_LARGEST}² are "
            f"allowed. Take fewer samples: {len(k0)} were given."
        )
    path = response(k0, depth, rho, w_std, b_std, activation)
    if len(k0) == 1:
        sources = _one_sample(activation, path, rho is not None)[None]
        how = Provenance("approximate", "leading order in 1/N, by quadrature")
    else:
        seeds = np.random.SeedSequence(seed).spawn(_REPLICAS)
        sources = np.stack([_sampled(activation, path, rho is not None, points, each) for each in seeds])
        how = Provenance.monte_carlo(
            f"{_REPLICAS} × {points} quasi-random points; leading order in 1/N: O(1/N²) dropped", _REPLICAS
        )
    kernels, increments = _propagators(path, scales, rho is not None, float(w_std) ** 2)
    found = [_sandwich(kernels, source) for source in sources]
    sem = np.std(found, axis=0, ddof=1) / len(found) ** 0.5 if len(found) > 1 else np.zeros_like(found[0])
    spread = _sandwich(increments, sources.mean(0))
    return Fluctuations(np.mean(found, axis=0), spread, sem, len(k0), how)


@checks.arguments(activation=checks.activation)
def variance_per_layer(activation: Any = "relu") -> float:
    """V in N Cov(K^(l), K^(l')) = V min(l, l') K², for φ(c x) = c φ(x), c > 0, at the σ_w that keeps K (σ_b = 0).

    V = <φ⁴> / <φ²>² − 1; 5 for relu and 2 without an activation. At every width, (1 + V/N)^min(l, l') − 1 is exact.

    >>> round(variance_per_layer("relu"), 9), round(variance_per_layer("linear"), 9)
    (5.0, 2.0)
    """
    phi = activation_function(activation)
    x = np.array([-3.0, 0.7, -1.9, 2.2])
    with jax.enable_x64(True):
        once, twice = np.asarray(phi(jnp.asarray(x))), np.asarray(phi(jnp.asarray(2 * x)))
        if not np.allclose(twice, 2 * once, rtol=1e-9, atol=0):
            raise ValueError(
                "The law V min(l, l') is for positively homogeneous activations, such as relu; use fluctuations(k0, depth) "
                "for any other."
            )
        parts = np.asarray(coefficients(lambda h: phi(h) ** 2, jnp.array([1.0]), 32))[:, 0] ** 2
    return float(parts[1:].sum() / parts[0])


def _propagators(path: Response, scales: np.ndarray, residual: bool, w: float) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of K^(l) and C^(l) in ξ^(k), [L + 1, n, L, n]."""
    depth, n = len(scales), len(pairs(path.kernels.shape[1])[0])
    kernels = np.zeros((depth + 1, n, depth, n))
    increments = np.zeros_like(kernels)
    for l in range(1, depth + 1):
        step = scales[l - 1] ** 2 if residual else 1.0
        increments[l] = step * np.tensordot(jacobian(path.gains[l - 1], path.bent[l - 1]), kernels[l - 1], 1)
        increments[l, :, l - 1] += step * w * np.eye(n)
        kernels[l] = increments[l] + (kernels[l - 1] if residual else 0)
    return kernels, increments


def _sandwich(g: np.ndarray, source: np.ndarray) -> np.ndarray:
    flat = g.reshape(g.shape[0] * g.shape[1], -1)
    return (flat @ source @ flat.T).reshape(g.shape[0], g.shape[1], g.shape[0], g.shape[1])


def _one_sample(activation: Any, path: Response, residual: bool) -> np.ndarray:
    """<φ²(h^(l)) ; φ²(h^(k))> of layers 0 … L − 1, [L, L]: Σ_{n ≥ 1} a_n(r_l) a_n(r_k) c^n, with a_n of φ²."""
    phi, q = activation_function(activation), path.kernels[:-1, 0, 0]
    with jax.enable_x64(True):
        orders, _ = orders_needed(_squared(phi), float(np.sqrt(q.max())))
        a = np.asarray(coefficients(_squared(phi), jnp.sqrt(jnp.asarray(q)), orders))[1:]
    if not residual:
        return np.diag((a * a).sum(0))
    c = np.sqrt(np.minimum.outer(q, q) / np.maximum.outer(q, q))  # h^(l) = h^(k) + what later layers add
    *known, rest = a
    total = np.zeros_like(c)
    for each in known[::-1]:
        total = c * (total + np.outer(each, each))
    return total + np.diag(rest**2)


def _squared(phi: Any) -> Any:
    return lambda x: phi(x) ** 2


def _sampled(activation: Any, path: Response, residual: bool, points: int, seed: Any) -> np.ndarray:
    """The same of all pairs of samples, [L n, L n], from a point set of Gaussian paths."""
    phi, (a, b) = activation_function(activation), pairs(path.kernels.shape[1])
    depth, samples = len(path.kernels) - 1, path.kernels.shape[1]
    sobol = scipy.stats.qmc.Sobol(samples * (depth if residual else 1), rng=np.random.default_rng(seed))
    z = scipy.special.ndtri(np.clip(sobol.random(points), 1e-16, 1 - 1e-16)).reshape(points, -1, samples)
    if residual:
        h = np.cumsum(np.einsum("slp,lqp->slq", z, roots(path.increments[:-1])), axis=1)
    else:
        h = np.einsum("sp,lqp->slq", z[:, 0], roots(path.kernels[:-1]))
    with jax.enable_x64(True):
        active = np.asarray(phi(jnp.asarray(h)))
    product = (active[..., a] * active[..., b]).reshape(points, -1)
    product -= product.mean(0)
    whole = product.T @ product / points
    return whole if residual else whole * np.kron(np.eye(depth), np.ones((len(a), len(a))))
