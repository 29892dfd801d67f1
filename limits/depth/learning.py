"""Feature learning at infinite depth: sweeps of networks of a few depths, extrapolated."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from limits.depth import linear
from limits.depth.extrapolation import dropped, weights_at_infinity
from limits.fields.sweeps import Plan, sweeps
from limits.types import Provenance
from zoo import ResNet, ViT, parameterization
from zoo.definition import definition_of

SAMPLED = (4, 8, 16)  # depths, where numbers carry sampling errors that extrapolation magnifies
LINEAR = (8, 12, 16, 24, 32, 48, 64, 96)  # where they do not, and depth costs little
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of layer time, at which layers are recorded
_BYTES = 2**30  # of a linear run


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
    if not isinstance(net, (ResNet, ViT)) or definition_of(net).stages > 1:
        raise ValueError(
            "rich at infinite depth is for ResNet of one stage and ViT: use rich of a finite depth, which has all."
        )


def _at_depth(plan: Plan, depth: int) -> Plan:
    return dataclasses.replace(plan, net=plan.net.clone(depth=depth))


def _for_depth(settings: tuple, depth: int) -> tuple:
    """A folder of its own."""
    *others, folder = settings
    return (*others, None if folder is None else Path(folder) / f"depth_{depth}")


def _thinned(net: Any, depth: int, run: dict[str, Any]) -> dict[str, Any]:
    """The layers at the quarters of layer time."""
    last = depth if isinstance(net, ViT) else depth - 1
    at = [min(round(quarter * depth), last) for quarter in _QUARTERS]
    return {name: tuple(part[l] for l in at) if name in ("phi", "g") else part for name, part in run.items()}


def _combined(seen: Sequence[dict[str, Any]], weights: np.ndarray) -> dict[str, Any]:
    return jax.tree.map(lambda *parts: sum(w * part for w, part in zip(weights, parts, strict=True)), *seen)


def _away(a: Any, b: Any) -> float:
    """The largest difference of means over replicas."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.abs(x.mean(0) - y.mean(0)).max()) for x, y in pairs)
