"""The residual scale for a network and its data, as a number with reasons."""

import dataclasses
import math
from typing import Any

import numpy as np

from limits.depth.deep_scale import saturation_variance
from limits.depth.output_response import largest_response
from limits.depth.residual_scale import estimated_scale
from limits.depth.response import checked_kernel, input_kernel
from limits.inputs import as_samples
from limits.kernels import closed_form
from limits.types import AbsentError
from zoo import ResNet, activation_function, checks, parameterization
from zoo.definition import check_count

_PAIRS = 32  # of inputs, where averages have no closed form and take seconds


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


@checks.arguments(data=checks.matrix, seed=checks.seed)
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
    check_count("recommend_residual_scale", "samples", samples, at_least=2)
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
