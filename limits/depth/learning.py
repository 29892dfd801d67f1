"""Feature learning at infinite depth: sweeps of networks of a few depths, extrapolated; and one step in closed form."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from limits.depth import linear
from limits.fields.sweeps import Plan, sweeps
from limits.types import Provenance
from zoo import checks, parameterization
from zoo.definition import definition_of, is_ours
from zoo.plain import at_depth

SAMPLED = (4, 8, 16)  # depths, where numbers carry sampling errors that extrapolation magnifies
LINEAR = (8, 12, 16, 24, 32, 48, 64, 96)  # where they do not, and depth costs little
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of layer time, at which layers are recorded
_BYTES = 2**30  # of a linear run


def weights_at_infinity(depths: Sequence[int]) -> np.ndarray:
    """The value at 1/L = 0 of the polynomial in 1/L through these depths, as weights of the values there.

    >>> weights_at_infinity([8, 16]).tolist(), round(float(weights_at_infinity([8, 16]) @ [1 + 1 / 8, 1 + 1 / 16]), 12)
    ([-1.0, 2.0], 1.0)

    Reference: Richardson (1911).
    """
    h = 1 / np.asarray(depths, float)
    others = [np.delete(h, i) for i in range(len(h))]
    return np.array([np.prod(rest / (rest - own)) for own, rest in zip(h, others, strict=True)])


def dropped(depths: Sequence[int], order: int) -> float:
    """|error of the extrapolation from the last `order` depths| over |its difference to that from as many before the last|.

    The first term that a polynomial through depths L_i misses is c Π 1/L_i, with one c for both.

    >>> dropped([4, 8, 16], 2)
    0.3333333333333333
    """
    last, before = (float(np.prod(1 / np.asarray(part, float))) for part in (depths[-order:], depths[-order - 1 : -1]))
    return last / (before - last)


def deep_sweeps(plan: Plan, depths: Sequence[int] | None, *settings: Any) -> tuple[dict[str, Any], Provenance]:
    """(what sweeps see at infinite depth: leaves [replica, time, …], where the numbers come from).

    With α = 1/2 or 1 all that a sweep sees is a series in 1/L. Linear networks, which are exact at any depth, are
    extrapolated by the polynomial through all `depths` but the first. Others take the two largest, L and 2L: 2 f_2L − f_L,
    replica by replica, so that standard errors are those of the extrapolation; sweeps of one replica share read-in and
    readout. What is dropped, O(1/L²), is estimated from how far the extrapolation from the depths before is off; where
    sampling errors are larger than that, so is the estimate. Layers are those at layer times 0, ¼, ½, ¾ and 1.
    """
    p, net = parameterization(plan.net.parameterization), plan.net
    if float(p.alpha) not in (0.5, 1.0):
        raise ValueError(
            f"rich at infinite depth extrapolates in powers of 1/L, which α = {float(p.alpha):g} does not have: use "
            "alpha = 1/2 or 1, or rich of a finite depth."
        )
    if plan.record:
        raise ValueError(
            f"rich at infinite depth keeps no records ({', '.join(plan.record)}): use a finite depth for them."
        )
    closed = linear.applies(net) and plan.observe is None
    affordable = tuple(depth for depth in LINEAR if closed and linear.memory(plan, depth) < _BYTES)
    closed = closed and len(affordable) >= 3
    used = tuple(sorted(depths)) if depths is not None else affordable if closed else SAMPLED
    _check(net, used)
    if closed:
        seen = [linear.run(_at_depth(plan, depth), depth) for depth in used]
        how = Provenance("exact", "")
    else:
        runs = [sweeps(_at_depth(plan, depth), *_for_depth(settings, depth)) for depth in used]
        seen, how = [run for run, _ in runs], runs[-1][1]
    order = len(used) - 1 if how.kind == "exact" else 2
    seen = [_thinned(net, depth, run) for depth, run in zip(used, seen, strict=True)]
    last, before = (slice(-order, None), slice(-order - 1, -1))
    value, other = (_combined(seen[part], weights_at_infinity(used[part])) for part in (last, before))
    off = {name: dropped(used, order) * _away(value[name], other[name]) for name in ("f", *plan.kernels)}
    detail = f"extrapolated to infinite depth from {', '.join(map(str, used[last]))}: O(1/L^{order}) dropped, estimated error "
    detail += ", ".join(f"{error:.0e} of {name}" for name, error in off.items())
    kind = "approximate" if how.kind == "exact" else how.kind
    return value, Provenance(kind, f"{how.detail}; {detail}" if how.detail else detail)


def _check(net: Any, depths: Sequence[int]) -> None:
    if len(depths) < 3 or any(depth % 4 or depth < 4 for depth in depths) or len(set(depths)) < len(depths):
        raise ValueError(
            f"rich at infinite depth: give at least three depths, multiples of 4 (layers are recorded at quarters); "
            f"got {list(depths)}."
        )
    if is_ours(net) and definition_of(net).stages > 1:
        raise ValueError(
            "rich at infinite depth is for networks of one stage: use rich of a finite depth, which has all."
        )


def _at_depth(plan: Plan, depth: int) -> Plan:
    return dataclasses.replace(plan, net=at_depth(plan.net, depth))


def _for_depth(settings: tuple, depth: int) -> tuple:
    """A folder of its own."""
    *others, folder = settings
    return (*others, None if folder is None else Path(folder) / f"depth_{depth}")


def _thinned(net: Any, depth: int, run: dict[str, Any]) -> dict[str, Any]:
    """The layers at the quarters of layer time."""

    def some(layers: Sequence[Any]) -> tuple:
        last = len(layers) - 1
        whole = depth if is_ours(net) else last  # whose layers count from the read-in, and one of whose may be missing
        return tuple(layers[min(round(quarter * whole), last)] for quarter in _QUARTERS) if layers else ()

    return {name: some(part) if name in ("phi", "g") else part for name, part in run.items()}


def _combined(seen: Sequence[dict[str, Any]], weights: np.ndarray) -> dict[str, Any]:
    return jax.tree.map(lambda *parts: sum(w * part for w, part in zip(weights, parts, strict=True)), *seen)


def _away(a: Any, b: Any) -> float:
    """The largest difference of means over replicas."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(x.mean(0) - y.mean(0)).max()) for x, y in pairs)


@checks.arguments(
    tau=checks.matrix,
    learning_rate=checks.number(),
    gamma=checks.number(positive=True),
    y=checks.number(),
    h0=checks.number(),
)
def one_step_profile(
    tau: Any, learning_rate: float, gamma: float = 1.0, y: float = 1.0, h0: float = 1.0
) -> Float[np.ndarray, "..."]:
    """H_1(τ) = <h²> at layer time τ after one step on one sample, |x|²/D = h0, target y, with only the branches trained:

        H_1(τ) = h0 e^τ + 2 c² y² h0² e^(1 + τ) (τ³/3 + τ²/2),   c = η₀ γ₀,   0 ≤ τ ≤ 1,

    the solution of dH_1/dτ = H_1 + 2 c² C G ∫₀^τ C with C = (1 + τ) e^τ y h0 and the gradient kernel before the step
    G = e^(1 − τ), for β = w_std = 1.

    >>> one_step_profile(1.0, learning_rate=0.5).round(3).item()
    5.797
    >>> one_step_profile([0.0, 1.0], learning_rate=0.25).round(3).tolist()
    [1.0, 3.488]

    Reference: Bordelon, Noci, Li, Hanin, Pehlevan (2023), Depthwise hyperparameter transfer in residual networks, equations 7
    and 99. Divergence: printed there is another profile, made with G = e^(−τ) + 1 − e^(−1), which does not solve the paper's
    own dG/dτ = −G; even with that G, integrating its equation 98 gives (1 − e^(−1)) where (1 + e^(−1)) is printed, and y²
    is dropped. Which is right was decided by finite networks, and by `one_step_recursion` at finite depth.
    """
    t, c = np.asarray(tau, np.float64), learning_rate * gamma
    if np.any((t < 0) | (t > 1)):
        raise ValueError(f"one_step_profile: layer time tau runs from 0 to 1, got {t.min():g} … {t.max():g}.")
    return np.asarray(h0 * np.exp(t) + 2 * (c * y * h0) ** 2 * np.exp(1 + t) * (t**3 / 3 + t**2 / 2))


@checks.arguments(
    depth=checks.count(most=10**7),
    learning_rate=checks.number(),
    gamma=checks.number(positive=True),
    y=checks.number(),
    h0=checks.number(),
)
def one_step_recursion(
    depth: int, learning_rate: float, gamma: float = 1.0, y: float = 1.0, h0: float = 1.0
) -> Float[np.ndarray, " depth"]:
    """<h²> of h¹ … h^L after the same step at finite depth, and infinite width:

        C^l = (1/L) Σ_{k<l} C^k + H^l y,   H^l = h0 (1 + 1/L)^(l − 1),   G^l = (1 + 1/L)^(L − l),
        H_1^(l+1) = (1 + 1/L) H_1^l + (c/L)² G^(l+1) C^l (2 Σ_{k<l} C^k + C^l)

    >>> one_step_recursion(4, learning_rate=0.0).round(4).tolist()
    [1.0, 1.25, 1.5625, 1.9531]
    """
    c, total, profile = learning_rate * gamma, 0.0, [h0]
    for l in range(1, depth):
        field = total / depth + h0 * (1 + 1 / depth) ** (l - 1) * y
        g = (1 + 1 / depth) ** (depth - l - 1)
        profile.append(profile[-1] * (1 + 1 / depth) + (c / depth) ** 2 * g * field * (2 * total + field))
        total += field
    return np.array(profile)
