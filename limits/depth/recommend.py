"""The residual scale for a network and its data, with reasons; and what it tends to with depth."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from rich.console import Console
from rich.progress import track

from limits import kernels as algebra
from limits.depth.averages import NETWORK, power, power_curvature, power_slope, squares
from limits.depth.phases import first_root
from limits.depth.residual_scale import LARGEST, estimated_scale, largest_response
from limits.depth.response import LAYERS, checked_kernel, input_kernel, start
from limits.inputs import as_samples
from limits.kernels import closed_form
from limits.kernels.duals import CLOSED
from limits.types import AbsentError
from zoo import ResNet, activation_function, checks, parameterization
from zoo.once import jitted

if TYPE_CHECKING:
    import scipy.integrate

_ORDERS = 256  # where there is no closed form: signals stay within the range of φ up to the optimum
_END = 1e4  # of σ_w² ρ² L, where the search for an optimum ends
_PAIRS = 32  # of inputs, where averages have no closed form and take seconds


@checks.arguments(**NETWORK, k0=LAYERS["k0"])
def deep_scale(k0: Any, w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf") -> np.ndarray:
    """c with ρ*(L) → c / √L for every element of k0 [P, P]; 0 and infinity as in `optimal_scale`.

    With τ = ρ² l the kernel obeys dK/dτ = v(K) = σ_w² <φφ>_K + σ_b², and ln χ^out changes by d ln <φ'φ'>/dτ + σ_w² <φ'φ'>
    (f' in place of <φ'φ'> on the diagonal); τ* is where that vanishes and c = √τ*. On the diagonal

        c² = ∫ dK / v(K)  from K^(0) to K*,   K* the root of f''(K) v(K) + σ_w² f'(K)²   (`saturation_variance`).

    >>> deep_scale([[0.05]], w_std=1.25**0.5, b_std=0.05**0.5).round(4).item()
    0.9659
    """
    k0, phi, (w, b) = checked_kernel(k0), activation_function(activation), squares(w_std, b_std)
    n = len(k0)
    found = np.diag([_own_time(phi, float(q), w, b) for q in np.diagonal(k0)])
    pairs = list(zip(*np.triu_indices(n, 1), strict=True))
    for i, j in track(pairs, "pairs of samples", console=Console(stderr=True), disable=len(pairs) < 50):
        found[i, j] = found[j, i] = _pair_time(phi, k0[[i, j, i], [i, j, j]], w, b)
    return np.sqrt(found)


@checks.arguments(**NETWORK, above=checks.number(positive=True))
def saturation_variance(w_std: float = 1.0, b_std: float = 0.0, activation: Any = "erf", above: float = 1e-4) -> float:
    """K*, the last layer's variance at which the output of a deep network responds most: (f' v)' = 0, the first root above.

    Infinity where there is none: φ does not saturate.

    >>> round(saturation_variance(w_std=1.25**0.5, b_std=0.05**0.5), 4)
    0.2511
    """
    phi, (w, b) = activation_function(activation), squares(w_std, b_std)
    grid = np.append(above, np.geomspace(max(above, 1e-6), 1e5, 400)[1:])
    if _tilt(phi, grid[:1], w, b) <= 0:
        return above
    found = first_root(lambda q: -_tilt(phi, q, w, b), grid)
    return np.inf if found is None else found


def _closed(phi: Any) -> int:
    return CLOSED if algebra.closed_form(phi) is not None else _ORDERS


def _tilt(phi: Any, q: np.ndarray, w: float, b: float) -> np.ndarray:
    """(f' v)'(q), up to a positive factor: < 0 where more variance lowers the response."""
    with jax.enable_x64(True):
        f, first, second = (np.asarray(part) for part in _derivatives(phi, _closed(phi), jnp.asarray(q)))
    flat = abs(second) * q < 1e-10 * abs(first)  # a straight f has no curvature but rounding
    return np.where(flat, 0, second) * (w * f + b) + w * first**2


@jitted(static_argnums=(0, 1))
def _derivatives(phi: Any, orders: int, q: jax.Array) -> tuple[jax.Array, ...]:
    return power(phi, orders, q), power_slope(phi, orders, q), power_curvature(phi, orders, q)


def _own_time(phi: Any, q: float, w: float, b: float) -> float:
    """τ* of a variance."""
    end = saturation_variance(w**0.5, b**0.5, phi, above=q)
    if not np.isfinite(end) or end <= q:
        return np.inf if end > q else 0.0

    def inverse_speed(k: float) -> float:
        with jax.enable_x64(True):
            return 1 / (w * float(_derivatives(phi, _closed(phi), jnp.asarray([k]))[0][0]) + b)

    return float(scipy.integrate.quad(inverse_speed, q, end, epsrel=1e-10)[0])


def _pair_time(phi: Any, begin: np.ndarray, w: float, b: float) -> float:
    """τ* of a pair, begin = (K_aa, K_bb, K_ab)."""

    def flow(_: float, k: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(_flow(phi, _closed(phi), jnp.asarray(k), w, b)[0])

    def gain(_: float, k: np.ndarray) -> float:
        with jax.enable_x64(True):
            return float(_flow(phi, _closed(phi), jnp.asarray(k), w, b)[1])

    if gain(0.0, begin) <= 0:
        return 0.0

    def room(_: float, k: np.ndarray) -> float:
        return 1 - k.max() / LARGEST

    for event in (gain, room):
        event.terminal, event.direction = True, -1  # pyright: ignore[reportFunctionMemberAccess]
    found = scipy.integrate.solve_ivp(
        flow, (0.0, _END / w), begin, events=(gain, room), rtol=1e-9, atol=1e-12, method="LSODA"
    )
    return float(found.t_events[0][0]) if len(found.t_events[0]) else np.inf


@jitted(static_argnums=(0, 1))
def _flow(phi: Any, orders: int, k: jax.Array, w: Any, b: Any) -> tuple[jax.Array, jax.Array]:
    """dK/dτ of (K_aa, K_bb, K_ab), and d ln χ^out / dτ."""
    dual = algebra.dual(phi, orders)

    def inner(k: jax.Array) -> jax.Array:
        state = start(k[:1], k[1:2], k[2:])
        return dual(state.r1, state.r2, state.gap)[3][0]

    state = start(k[:1], k[1:2], k[2:])
    s1, s2, gap, _ = dual(state.r1, state.r2, state.gap)
    flow = w * jnp.concatenate([s1 * s1, s2 * s2, s1 * s2 * (1 - gap)]) + b
    dot, change = jax.jvp(inner, (k,), (flow,))
    return flow, change / dot + w * dot


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """A residual scale ρ for a network on given inputs. `net` is the definition with it; print it for the reasons.

    rho          the factor of every branch
    present      the factor the definition has now
    between      (mean, smallest, largest) of the best ρ over pairs of inputs
    within       the same over single inputs, for their variances
    reasons      sentences
    """

    rho: float
    present: float
    net: Any
    between: tuple[float, float, float]
    within: tuple[float, float, float]
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        lines = "\n".join(f"  - {reason}" for reason in self.reasons)
        return f"residual scale ρ = {self.rho:.3g} (now {self.present:.3g}), beta = {float(self.net.beta):.3g}\n{lines}"


@checks.arguments(data=checks.matrix, samples=checks.count(2), seed=checks.seed)
def recommend_residual_scale(net: ResNet, data: Any, samples: int = 20, seed: int = 0) -> Recommendation:
    """The residual scale at which the output of a wide `ResNet` answers most to differences between these inputs.

    net: dense, one layer a branch; residual="fixed" (branches times ρ = beta) or "uniform" (times beta L^(−α), for which beta is
    chosen). data: inputs [n, …], of which `samples` are drawn. The number is the mean over pairs of inputs of the ρ with the
    largest response of their output covariance to their input covariance (`optimal_scale`): the elements that tell
    inputs apart. Pairs without an inner optimum, such as equal inputs, do not count.

    >>> net = ResNet(width=100, depth=50, activation="erf", residual="fixed")
    >>> found = recommend_residual_scale(net, np.random.default_rng(0).normal(size=(6, 30)))
    >>> print(str(found).splitlines()[0])
    residual scale ρ = 0.258 (now 1), beta = 0.258

    Reference: Fischer, Dahmen, Helias (2023), Optimal signal propagation in ResNets through residual scaling, section 4.5.4.
    """
    w, b = _checked(net)
    x = as_samples(data, "data")
    x = x[np.random.default_rng(seed).permutation(len(x))[:samples]]
    if len(x) < 2:
        raise ValueError(
            "recommend_residual_scale needs at least two inputs: the recommendation is about their differences."
        )
    k0, depth = checked_kernel(input_kernel(x, w, b)), net.branches
    phi, q, (i, j) = activation_function(net.activation), k0.diagonal(), np.triu_indices(len(x), 1)
    if closed_form(phi) is None and len(i) > _PAIRS:
        some = np.random.default_rng(seed).permutation(len(i))[:_PAIRS]
        i, j = i[some], j[some]
    within = largest_response(phi, depth, w**2, b**2, q)
    between = largest_response(phi, depth, w**2, b**2, q[i], q[j], k0[i, j])
    inner = between[(between > 0) & np.isfinite(between)]
    if not len(inner):
        raise AbsentError(_no_optimum(net, between, k0, w, b))
    rho = float(inner.mean())
    factor = 1.0 if net.residual == "fixed" else float(parameterization(net.parameterization).branch_factor(net.depth))
    present = float(net.beta) * factor
    reasons = _reasons(net, k0, between, inner, within, w, b)
    clone = net.clone(beta=rho / factor)
    return Recommendation(rho, present, clone, _summary(inner), _summary(within), reasons)


def _checked(net: Any) -> tuple[float, float]:
    """(w_std, b_std) at initialisation, if the theory holds for this definition."""
    if not isinstance(net, ResNet):
        raise TypeError(f"recommend_residual_scale: net must be a zoo.ResNet, got {checks.shown(net)}.")
    if net.form != "dense" or net.branch_layers != 1 or net.zero_init or net.residual == "decreasing":
        raise AbsentError(
            'The theory of the residual scale is for form="dense", branch_layers=1, zero_init=False and residual="fixed" or '
            f'"uniform"; got form="{net.form}", branch_layers={net.branch_layers}, zero_init={net.zero_init}, '
            f'residual="{net.residual}". Ask for the dense network with the same activation, w_std, b_std and depth, and sweep '
            "around its answer."
        )
    if net.branches < 1:
        raise AbsentError(
            f'ResNet(depth={net.depth}, residual="{net.residual}") has no residual branches, so no scale to choose. Take a '
            "larger depth."
        )
    p = parameterization(net.parameterization)
    if 2 * p.a + p.b != 1 or 2 * p.a_in + p.b_in != 0:
        raise ValueError(
            f"The {p.name} parameterization has no infinite-width limit, so no kernels to choose a scale by."
        )
    return float(net.w_std), 0.0 if net.bias_init == "zeros" else float(net.b_std)


def _summary(values: np.ndarray) -> tuple[float, float, float]:
    return float(values.mean()), float(values.min()), float(values.max())


def _no_optimum(net: ResNet, between: np.ndarray, k0: np.ndarray, w: float, b: float) -> str:
    if math.isinf(saturation_variance(w, b, net.activation)):
        return (
            f"{net.activation} does not saturate: the response of the output grows with ρ without end, and no ρ is best. Take "
            'residual="uniform", whose branches times L^(−1/2) keep signals bounded at every depth, and sweep beta.'
        )
    if (between == 0).all():
        return (
            f"These inputs saturate {net.activation} by themselves: their variances in the first layer, "
            f"{k0.diagonal().mean():.3g} on average, are too large, and every branch lowers the response. "
            "Scale the inputs down, or lower b_std."
        )
    return (
        f"With {net.branches} branches the response grows with ρ for {np.isinf(between).sum()} of {len(between)} pairs of "
        "inputs, as it does for parallel inputs and in shallow networks: no ρ is best. Give inputs that differ, or more depth."
    )


def _reasons(
    net: ResNet, k0: np.ndarray, between: np.ndarray, inner: np.ndarray, within: np.ndarray, w: float, b: float
) -> tuple[str, ...]:
    mean, low, high = _summary(inner)
    depth, q = net.branches, k0.diagonal()
    full = saturation_variance(w, b, net.activation)
    reasons = [
        f"largest response of the output to differences between inputs: ρ* = {mean:.3g} on average over {len(inner)} pairs, "
        f"from {low:.3g} to {high:.3g}",
        f"it falls as 1/√L with the depth: ρ √L = {mean * depth**0.5:.3g} here, with L = {depth} branches",
    ]
    if len(inner) < len(between):
        reasons.append(f"{len(between) - len(inner)} pairs have no inner optimum and were left out")
    if (within == 0).all():
        reasons.append(
            f"single inputs have none: their variance in the first layer, {q.mean():.3g}, is above {full:.3g}, where φ begins to "
            "saturate; smaller inputs would carry more"
        )
    kept = (within > 0) & np.isfinite(within)
    if kept.any():
        estimate = float(np.mean(estimated_scale(q[kept], depth, w, b, net.activation)))
        closed = f"{estimate:.3g}" if estimate > 0 else "0, since these are above its target of 1/4"
        reasons.append(
            f"for the norms of {kept.sum()} of {len(within)} inputs it would be {within[kept].mean():.3g} "
            f"(closed estimate {closed}); signals then end at a variance of about {full:.3g}, where the range of φ is "
            "used and not cut off"
        )
    return tuple(reasons)
