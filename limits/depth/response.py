"""Response functions: what a small change of the input kernel becomes, layer by layer.

Layers are those of the twins' algebra (`limits.kernels`); every one is differentiated by itself here, variances apart from
covariances, since on the diagonal the slope is another one.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import kernels as algebra
from limits.depth.averages import NETWORK, QUADRATURE, power, power_slope, slope_in_variance, squares
from limits.kernels.duals import CLOSED
from limits.kernels.special import snapped
from zoo import activation_function, checks
from zoo.once import jitted

_ROUNDING = 1e-6  # by which a correlation may be above 1: kernels are often worked out in float32

# What is checked of an input kernel, the number of layers, and the scales of residual branches.
LAYERS = {
    "k0": checks.array(None, None) & checks.Check("as many rows as columns", lambda k: len(k) == np.shape(k)[1]),
    "depth": checks.count(),
    "rho": checks.number(0) | checks.several(checks.number(0)),
}


@dataclasses.dataclass(frozen=True)
class Response:
    """Kernels of a network and their derivatives in the input kernel; layers l = 0 … L, samples a, b.

    kernels      K^(l)_ab, [L + 1, P, P]
    increments   C^(l)_ab: what layer l adds, the residual kernel (C^(0) = K^(0); without skip connections C = K)
    eta, chi     ∂C^(l)_ab / ∂K^(0)_ab and ∂K^(l)_ab / ∂K^(0)_ab; off the diagonal K_aa and K_bb are held fixed
    across       ∂K^(l)_ab / ∂K^(0)_aa, off the diagonal (its transpose is the one in K^(0)_bb)
    output, chi_out, across_out   the same for the kernel behind the readout
    gains, bent  of layer l + 1, over ρ²: ∂C_ab / ∂K_ab and ∂C_ab / ∂K_aa, [L + 1, P, P]; the last is the readout's
    """

    kernels: np.ndarray
    increments: np.ndarray
    eta: np.ndarray
    chi: np.ndarray
    across: np.ndarray
    output: np.ndarray
    chi_out: np.ndarray
    across_out: np.ndarray
    gains: np.ndarray
    bent: np.ndarray

    def jacobian(self, layer: int | None = None) -> np.ndarray:
        """∂K^(layer) / ∂K^(0) over the unordered pairs of `pairs(P)`, [n, n]; None: of the output."""
        parts = (self.chi_out, self.across_out) if layer is None else (self.chi[layer], self.across[layer])
        return jacobian(*parts)


def pairs(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """(a, b) with a ≤ b: the independent elements of a kernel.

    >>> [index.tolist() for index in pairs(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return np.triu_indices(samples)


def jacobian(own: np.ndarray, across: np.ndarray) -> np.ndarray:
    """The matrix over unordered pairs: `own` on its diagonal, `across` where a kernel depends on a variance."""
    a, b = pairs(len(own))
    whole = np.diag(own[a, b])
    place = np.flatnonzero(a == b)  # by sample
    rest = np.flatnonzero(a != b)
    whole[rest, place[a[rest]]] = across[a[rest], b[rest]]
    whole[rest, place[b[rest]]] = across[b[rest], a[rest]]
    return whole


@checks.arguments(**NETWORK, **LAYERS)
def response(
    k0: Any, depth: int, rho: Any = None, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf"
) -> Response:
    """Responses of a network with input kernel k0 [P, P], to first order in its change, in the limit of infinite width.

    Residual networks (rho a number, or one a layer):  K^(l) = K^(l−1) + C^(l),  C^(l) = ρ² (σ_w² <φφ>_{K^(l−1)} + σ_b²).
    Feed-forward networks (rho=None):                  K^(l) = C^(l) = σ_w² <φφ>_{K^(l−1)} + σ_b².
    Readout:                                           K^out = σ_w² <φφ>_{K^(L)} + σ_b².

    The Jacobian is the full one: C_aa depends on K_aa by σ_w² <φ'² + φφ''>, and C_ab on K_ab by σ_w² <φ_a'φ_b'>, on K_aa
    and K_bb by ½ σ_w² <φ_a''φ_b> and ½ σ_w² <φ_aφ_b''>. So

        η^(l)_ab = ρ² σ_w² <φ_a'φ_b' + δ_ab φ_a''φ_b> χ^(l−1)_ab,   χ^(l) = Σ_{k≤l} η^(k),   η^(0) = 1.

    `depth` counts layers with φ before the readout's (the fixed-ρ form of `zoo.ResNet`, and `zoo.MLP` with depth + 1).
    The readout has the variances of the other layers: another σ_w,out² multiplies its responses by σ_w,out²/σ_w². Activations
    without closed averages go by Hermite series (`limits.kernels.dual_for`).

    >>> found = response([[1.4, 0.2], [0.2, 1.4]], 5, rho=1.0, w_std=1.2**0.5, b_std=0.2**0.5)
    >>> found.eta[1:, 0, 0].round(4).tolist()
    [0.1565, 0.1026, 0.0711, 0.0519, 0.0396]

    Reference: Fischer, Dahmen, Helias (2023), Optimal signal propagation in ResNets through residual scaling.
    Divergences: there η^(0) = 1/D_in, a normalisation of the field; the change of off-diagonal elements with the
    variances (`across`) is left out; and K^(l) is also printed as K^(l−1) + C^(l−1).
    """
    k0, scales = checked_kernel(k0), branch_scales(depth, rho)
    phi, (w, b) = activation_function(activation), squares(w_std, b_std)
    with jax.enable_x64(True):
        q = np.diagonal(k0)
        orders = orders_for(phi, q, scales, w, b, rho is not None)
        found = _kernels(phi, orders, rho is not None, b > 0, jnp.asarray(k0), jnp.asarray(scales), w, b)
        kernels, branch, gains, bent = (np.asarray(part) for part in found)
    steps = np.full(depth + 1, 1.0) if rho is None else np.append(scales**2, 1.0)
    eta, chi, across = [np.ones_like(k0)], [np.ones_like(k0)], [np.zeros_like(k0)]
    with np.errstate(over="ignore", invalid="ignore"):
        for l, step in enumerate(steps):
            eta.append(step * gains[l] * chi[-1])
            reached = step * (gains[l] * across[-1] + bent[l] * np.diagonal(chi[-1])[:, None])
            through = rho is not None and l < depth
            chi.append(eta[-1] + through * chi[-1])
            across.append(reached + through * across[-1])
    if not all(np.isfinite(part).all() for part in (kernels, *chi, *across)):
        raise OverflowError(
            f"The kernels or responses become too large for a float within {depth} layers (largest variance found: "
            f"{np.nanmax(np.where(np.isfinite(kernels), kernels, np.nan)):.3g}). Take a smaller rho, w_std or depth."
        )
    increments = np.concatenate([k0[None], steps[:-1, None, None] * branch[:-1]])
    return Response(
        kernels, increments, np.array(eta[:-1]), np.array(chi[:-1]), np.array(across[:-1]), branch[-1], chi[-1], across[-1],
        gains, bent,
    )  # fmt: skip


@checks.arguments(x=checks.array(least=1), w_std=NETWORK["w_std"], b_std=NETWORK["b_std"])
def input_kernel(x: Any, w_std: float = 1.0, b_std: float = 0.0) -> np.ndarray:
    """K^(0) = σ_w² x·x'/D + σ_b² of inputs [P, …].

    >>> input_kernel(np.eye(2), w_std=2.0).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    (w, b), flat = squares(w_std, b_std), np.asarray(x, np.float64).reshape(len(x), -1)
    return w * flat @ flat.T / flat.shape[1] + b


def checked_kernel(k0: Any) -> np.ndarray:
    """k0 as a symmetric float64 matrix with positive diagonal and correlations within [−1, 1]."""
    k0 = np.asarray(k0, np.float64)
    q, away = np.diagonal(k0), np.abs(k0 - k0.T)
    if (away > 1e-12 * (1 + np.abs(k0))).any():
        raise ValueError(
            f"The input kernel k0 must be symmetric; entries across its diagonal differ by up to {away.max():.3g}. Take "
            "(k0 + k0.T) / 2 if that is rounding."
        )
    if (q <= 0).any():
        raise ValueError(
            f"The input kernel k0 must have variances > 0; its smallest variance is {q.min():g}. Leave out inputs that are zero, "
            "or give the read-in a bias (b_std)."
        )
    root = np.sqrt(q)
    c = np.abs(k0 / root[:, None] / root)
    if c.max() > 1 + _ROUNDING:
        a, b = (int(i) for i in np.unravel_index(c.argmax(), c.shape))
        raise ValueError(
            f"The input kernel k0 is no covariance: |k0[{a}, {b}]| = {abs(k0[a, b]):g} is larger than "
            f"√(k0[{a}, {a}] k0[{b}, {b}]) = {root[a] * root[b]:g}, so that the correlation is "
            f"{k0[a, b] / root[a] / root[b]:.6g}. Take the kernel of inputs (`input_kernel`)."
        )
    return k0


def branch_scales(depth: int, rho: Any) -> np.ndarray:
    """ρ of every layer, [depth]."""
    scales = np.asarray(1.0 if rho is None else rho, np.float64)
    if scales.shape not in ((), (depth,)):
        raise ValueError(f"rho must be a number ≥ 0, or one for each of the {depth} layers; got {rho!r}.")
    return np.broadcast_to(scales, (depth,)).copy()


def advance(
    phi: Any, state: Any, scale: jax.Array, w: Any, b: Any, residual: bool, orders: int, has_bias: bool
) -> tuple:
    """(the state behind a layer, its branch before the scale, E[φ'φ'])."""
    active = algebra.activate(state, algebra.dual(phi, orders))
    branch = algebra.dense(active, algebra.Affine(w, b, 0.0, 0.0), has_bias)
    return (algebra.add(state, branch, scale) if residual else branch), branch, active.ntk / state.ntk


def start(k1: jax.Array, k2: jax.Array, k12: jax.Array) -> algebra.State:
    """The state with these variances and covariances; its tangent slot is 1 and is not used."""
    r1, r2 = jnp.sqrt(k1), jnp.sqrt(k2)
    gap = snapped(1 - k12 / (r1 * r2))
    return algebra.State(r1, r2, gap, jnp.ones_like(gap))


def variance_layer(phi: Any, orders: int, q: jax.Array, scale: jax.Array, w: Any, b: Any, residual: bool) -> jax.Array:
    """The variance behind a layer."""
    branch = w * power(phi, orders, q) + b
    return q + scale**2 * branch if residual else branch


@jitted(static_argnums=(0, 1, 2))
def variances(phi: Any, orders: int, residual: bool, q0: jax.Array, scales: jax.Array, w: Any, b: Any) -> jax.Array:
    """K^(l) of the diagonal at every layer, [L + 1, *q0.shape]; scales [L, *q0.shape] or [L]."""

    def layer(q: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        q = variance_layer(phi, orders, q, scale, w, b, residual)
        return q, q

    return jnp.concatenate([q0[None], jax.lax.scan(layer, q0, scales)[1]])


def orders_for(phi: Any, q: np.ndarray, scales: np.ndarray, w: float, b: float, residual: bool) -> int:
    """How many Hermite orders the largest signal needs, 0 where there is a closed form (inside x64)."""
    if algebra.closed_form(phi) is not None:
        return CLOSED
    grown = variances(phi, QUADRATURE, residual, jnp.asarray(q.max(keepdims=True)), jnp.asarray(scales), w, b)
    return algebra.dual_for(phi, float(np.sqrt(grown.max())))[0]


@jitted(static_argnums=(0, 1, 2, 3))
def _kernels(
    phi: Any, orders: int, residual: bool, has_bias: bool, k0: jax.Array, scales: jax.Array, w: Any, b: Any
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """K^(l) [L + 1, P, P]; and of layers 1 … L + 1 (the readout), before the scale: C, ∂C_ab/∂K_ab, ∂C_ab/∂K_aa."""
    same = jnp.eye(len(k0), dtype=bool)
    q0 = jnp.diagonal(k0)

    def layer(carry: tuple, scale: jax.Array) -> tuple[tuple, tuple]:
        q, state = carry
        bent = jnp.where(same, 0.0, w * slope_in_variance(phi, orders, state))
        after, branch, dot = advance(phi, state, scale, w, b, residual, orders, has_bias)
        gain = jnp.where(same, jnp.broadcast_to(w * power_slope(phi, orders, q)[:, None], dot.shape), w * dot)
        kernel = jnp.where(same, jnp.broadcast_to(q[:, None], dot.shape), state.covariance)
        own = jnp.broadcast_to((w * power(phi, orders, q) + b)[:, None], dot.shape)
        out = kernel, jnp.where(same, own, branch.covariance), gain, bent
        after = dataclasses.replace(after, ntk=jnp.ones_like(after.ntk))
        return (variance_layer(phi, orders, q, scale, w, b, residual), after), out

    begin = q0, start(q0[:, None], q0[None, :], k0)
    _, found = jax.lax.scan(layer, begin, jnp.append(scales, 1.0))
    return found
