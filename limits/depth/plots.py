"""Pictures of what depth does to kernels."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from limits.depth.diagram import TRAINS, PhaseDiagram
from zoo import checks


@checks.arguments(
    diagram=checks.Check("a PhaseDiagram", lambda v: hasattr(v, "depth_scale")),
    depths=checks.several(checks.count()),
    points=checks.count(2, 10**6),
)
def plot_phase_diagram(
    diagram: PhaseDiagram, depths: Sequence[int] = (10, 30, 100, 300, 1000), points: int = 1000
) -> Figure:
    """Left: the depth scale, its contours the largest depth that trains. Right: what the tangent kernel at `depth` has become.

    Both with the edge of chaos in black. On the right, 1 (red) is a constant function, singular; 0 (blue) a delta, which says
    nothing about new points; the lines are where `points` inputs make a kernel that float32 and float64 cannot invert.
    """
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    w, b = diagram.w_std, diagram.b_std
    reach = np.clip(np.where(np.isfinite(diagram.chi), diagram.depth_scale, math.nan), 0.3, 1e4)
    image = left.pcolormesh(w, b, reach, norm=LogNorm(0.3, 300), cmap="viridis", shading="nearest", rasterized=True)
    figure.colorbar(image, ax=left, label="depth scale [layers]", extend="both")
    # 1/scale with the sign of χ − 1 is smooth across the edge, where the scale itself has its peak.
    inverse = np.sign(diagram.chi - 1) / reach
    levels = [side * TRAINS / d for side, some in ((-1, sorted(depths)), (1, sorted(depths)[::-1])) for d in some]
    _lines(left, w, b, inverse, levels, [f"{TRAINS / abs(v):.0f}" for v in levels], "white")
    left.set_title(f"largest depth that trains: lines, {TRAINS} depth scales", fontsize=10)
    image = right.pcolormesh(w, b, diagram.ratio, vmin=0, vmax=1, cmap="coolwarm", shading="nearest", rasterized=True)
    label = f"K(x, x') / K(x, x) at depth {diagram.depth}"
    figure.colorbar(image, ax=right, label=f"{label}\n0: a delta     1: a constant")
    condition = np.minimum(diagram.condition(points), 1e20)
    _lines(right, w, b, np.log10(condition), (7, 15), ("float32", "float64"), "black")
    _lines(right, w, b, diagram.ratio, (0.05,), ("0.05",), "white")
    right.set_title(f"lines: condition number of {points} inputs beyond float32, float64; ratio 0.05", fontsize=10)
    for axis in (left, right):
        seen = np.isfinite(diagram.edge)
        if seen.any():
            axis.plot(diagram.edge[seen], b[seen], "k-" if seen.sum() > 1 else "ko", lw=2.5)
        if not seen.all():
            _lines(axis, w, b, diagram.chi, (1.0,), ("χ = 1",), "black")
        axis.set(xlabel="w_std", ylabel="b_std", xlim=(w[0], w[-1]), ylim=(b[0], b[-1]))
        axis.set_facecolor("0.85")
    if np.isfinite(diagram.edge).any():
        left.legend([Line2D([], [], color="k", lw=2.5)], ["edge of chaos"], loc="upper left", fontsize=8)
    _name_phases(left, diagram)
    figure.suptitle(
        f"{diagram.activation}: ordered to the left of the edge, chaotic to the right (grey: the variance diverges)"
    )
    return figure


def _lines(axis: Any, w: np.ndarray, b: np.ndarray, values: np.ndarray, levels: Any, names: Any, colour: str) -> None:
    """Labelled contours, those of them that cross the picture."""
    if min(values.shape) < 2:
        return
    finite = values[np.isfinite(values)]
    kept = {v: n for v, n in zip(levels, names, strict=True) if finite.size and finite.min() < v < finite.max()}
    if kept:
        drawn = axis.contour(
            w, b, np.ma.masked_invalid(values), list(kept), colors=colour, linewidths=1, linestyles="solid"
        )
        axis.clabel(drawn, fmt=dict(zip(drawn.levels, kept.values(), strict=True)), fontsize=8)


def _name_phases(axis: Any, diagram: PhaseDiagram) -> None:
    """The names of the phases, in the middle of each."""
    w, b = np.meshgrid(diagram.w_std, diagram.b_std)
    for name, part in (("ordered", diagram.chi < 1), ("chaotic", diagram.chi > 1)):
        if part.mean() > 0.08:
            axis.text(w[part].mean(), b[part].mean(), name, color="white", fontsize=11, ha="center", fontweight="bold")


@checks.arguments(
    spectra=checks.Check(
        "a dictionary of pairs (depths, values [depth, k])", lambda v: all(len(p) == 2 for p in v.values())
    ),
    orders=checks.array(None),
)
def plot_spectra(spectra: Mapping[str, tuple[Any, np.ndarray]], orders: Sequence[int] | np.ndarray) -> Figure:
    """μ_k / μ_0 over k on two logarithmic axes, a panel for every title: (depths, values [depth, k])."""
    columns = min(2, len(spectra))
    rows = -(-len(spectra) // columns)
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
