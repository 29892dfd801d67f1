"""Which initialisations train at a given depth: depth scales and the state of the tangent kernel over (w_std, b_std)."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from limits.depth.averages import NETWORK, accurate_orders, moment
from limits.depth.phases import CRITICAL, between, bisected, edge_of_chaos, scale, searched
from limits.depth.recursions import Carry, Layer, layers, settle
from limits.kernels.activations import as_piecewise_linear, called
from limits.types import AbsentError
from zoo import activation_function, checks

if TYPE_CHECKING:
    import matplotlib.figure
    import scipy.interpolate

TRAINS = 6  # depth scales over which networks were seen to train (Schoenholz et al. 2017)


@dataclasses.dataclass(frozen=True, repr=False)
class PhaseDiagram:
    """Over a grid, arrays [b_std, w_std]; not a number where the variance has no fixed point.

    chi: σ_w² E φ'². depth_scale: the layers over which the angle between two inputs, or the size of a gradient, is lost by a
    factor e, whichever is sooner; networks train up to about six of them. ratio: K^L(x, x')/K^L(x, x) at `depth` for inputs
    of correlation `c` in the first layer, whose variance is at its fixed point. edge: w_std of the edge of chaos for every
    b_std (not a number where signals of variance 1 go to none).
    """

    activation: str
    w_std: np.ndarray
    b_std: np.ndarray
    depth: int
    c: float
    variance: np.ndarray
    chi: np.ndarray
    depth_scale: np.ndarray
    ratio: np.ndarray
    gap: np.ndarray  # 1 − ratio
    edge: np.ndarray

    def trains(self, depth: int | None = None) -> np.ndarray:
        """Whether a network of this depth is within six depth scales."""
        return TRAINS * self.depth_scale > (self.depth if depth is None else depth)

    @checks.arguments(points=checks.count())
    def condition(self, points: int = 1000) -> np.ndarray:
        """Condition number of the tangent kernel of so many inputs, all at correlation `c`: 1 + points · ρ/(1 − ρ)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 + points * np.maximum(self.ratio, 0) / np.maximum(self.gap, 0)

    def __repr__(self) -> str:
        return f"PhaseDiagram({self.activation}, {len(self.b_std)} × {len(self.w_std)}, depth {self.depth})"


@checks.arguments(
    activation=checks.activation,
    w_std=checks.several(NETWORK["w_std"]),
    b_std=checks.several(NETWORK["b_std"]),
    depth=checks.count(),
    c=checks.Check("a number between −1 and 1", lambda c: -1 < float(c) < 1),
)
def phase_diagram(
    activation: Any = "tanh", w_std: Any = None, b_std: Any = None, depth: int = 100, c: float = 0.5
) -> PhaseDiagram:
    """The phase diagram of a feed-forward network. Default grid: w_std from 0.5 to 3, b_std to 1, 61 × 40.

    >>> d = phase_diagram("tanh", w_std=[1.0, 2.5], b_std=[0.3], depth=50)
    >>> d.chi.round(3).tolist(), d.ratio.round(3).tolist(), d.trains().tolist()
    ([[0.7, 1.585]], [[1.0, 0.0]], [[False, False]])
    """
    phi = activation_function(activation)
    w = np.asarray(np.linspace(0.5, 3.0, 61) if w_std is None else w_std, float)
    b = np.asarray(np.linspace(0.025, 1.0, 40) if b_std is None else b_std, float)
    grid_w, grid_b = (a.ravel() for a in np.meshgrid(w, b))
    homogeneous = as_piecewise_linear(phi) is not None
    q, chi = (_homogeneous if homogeneous else _fixed_points)(phi, grid_w, grid_b)
    ok = np.isfinite(chi) if homogeneous else np.isfinite(q)
    # A signal that dies is in φ's linear part.
    start = np.where(np.isfinite(q) & (q > 0), q, 1.0 if homogeneous else 1e-8)
    found = np.full((3, len(q)), np.nan)  # slope, ratio, 1 − ratio
    if ok.any():
        found[:, ok] = _at_depth(phi, grid_w[ok], grid_b[ok], start[ok], chi[ok], depth, c, homogeneous)
    slope = found[0]
    reach = np.array([min(scale(f), scale(x)) if np.isfinite(f) else math.nan for f, x in zip(slope, chi, strict=True)])
    shape = (len(b), len(w))
    arrays = [a.reshape(shape) for a in (q, chi, reach, found[1], found[2])]
    name = called(activation)
    return PhaseDiagram(name, w, b, depth, c, *arrays, edge=_edges(activation, b))


def _edges(activation: Any, b: np.ndarray) -> np.ndarray:
    found = np.full(len(b), np.nan)
    for i, b_std in enumerate(b):
        with contextlib.suppress(AbsentError):
            found[i] = edge_of_chaos(activation, float(b_std))
    phi = activation_function(activation)
    if as_piecewise_linear(phi) is None:  # a repelling fixed point is no edge for signals that set out elsewhere
        there = np.isfinite(found)
        _, chi = _fixed_points(phi, np.where(there, found, 1.0), b)
        found[~(np.abs(chi - 1) < 1e-4)] = np.nan
    return found


def _homogeneous(phi: Any, w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chi = w**2 * float(moment(phi, 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(chi < 1, b**2 / (1 - chi), np.inf)
    return q, chi


def _fixed_points(phi: Any, w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(q*, χ) of every pair, from a table of E φ² and E φ'² over log q: to 1e-7, enough for a picture."""
    ends = [searched(phi, *pair) for pair in ((w.min(), b.min()), (w.max(), b.max()))]
    grid = between(ends[0][0], ends[1][1], 67)
    logs = np.log(grid)
    value, slope = (scipy.interpolate.CubicSpline(logs, moment(phi, grid, j)) for j in (0, 1))
    rise = b[:, None] ** 2 + w[:, None] ** 2 * value(logs) - grid
    from_one = int(np.searchsorted(logs, 0.0))  # signals of variance 1 set out, and go up or down
    up = rise[:, from_one] > 0
    ahead = np.where(np.arange(len(logs)) >= from_one, rise <= 0, False)
    behind = np.where(np.arange(len(logs)) <= from_one, rise > 0, False)
    high = np.where(up, np.argmax(ahead, axis=1), len(logs) - 1 - np.argmax(behind[:, ::-1], axis=1) + 1)
    none_up, none_down = up & ~ahead.any(axis=1), ~up & ~behind.any(axis=1)
    high = np.clip(high, 1, len(logs) - 1)
    rises = lambda at: b**2 + w**2 * value(at) > np.exp(at)  # noqa: E731
    q = np.where(none_up, np.inf, np.where(none_down, 0.0, np.exp(bisected(rises, logs[high - 1], logs[high]))))
    chi = np.where(none_up, np.nan, w**2 * slope(np.log(np.clip(q, grid[0], grid[-1]))))
    return q, chi


def _at_depth(
    phi: Any, w: np.ndarray, b: np.ndarray, q: np.ndarray, chi: np.ndarray, depth: int, c: float, homogeneous: bool
) -> np.ndarray:
    """f'(c*), K^L(x, x')/K^L(x, x), and one minus that, [3, pairs]."""
    with jax.enable_x64(True):
        r = jnp.asarray(np.sqrt(q))
        orders = 0 if homogeneous else accurate_orders(phi, float(r.max()))[0]
        layer = Layer(phi, "none", 0, bool(np.any(b > 0)), homogeneous, orders)
        settled = settle(phi, r, r, orders) if orders else None
        scales = (jnp.asarray(w**2), jnp.asarray(b**2))

        def run(gap: np.ndarray, count: int, k: Any) -> Carry:
            zero = jnp.zeros(r.shape, jnp.int64)
            gaps = jnp.asarray(gap)
            first = Carry(jnp.ones((), jnp.int64), r, r, gaps, zero, jnp.asarray(k), zero, gaps == 0)
            return layers(first, count, settled, scales, layer)

        logs, signs = [], []
        for gap in (np.full_like(q, 1 - c), np.zeros_like(q)):
            end = run(gap, depth - 1, q * (1 - gap))
            logs.append(np.log(np.maximum(np.abs(np.asarray(end.k)), 1e-300)) + np.asarray(end.power) * math.log(2))
            signs.append(np.sign(np.asarray(end.k)))
        slope = np.where(chi > 1 + CRITICAL, _slopes(run, q, homogeneous), np.minimum(chi, 1.0))
    away = logs[0] - logs[1]
    return np.stack([slope, signs[0] * np.exp(away), np.where(signs[0] > 0, -np.expm1(away), 1.0)])


def _slopes(run: Any, q: np.ndarray, homogeneous: bool) -> np.ndarray:
    """f'(c*) where χ > 1, with c* by bisection: f lies above the diagonal beyond its other fixed point."""
    if homogeneous:
        return np.ones_like(q)  # the bias is forgotten: a critical map of correlations
    none, one = np.zeros_like(q), np.ones_like(q)
    gap = bisected(lambda gap: np.asarray(run(gap, 1, none).gap) > gap, none, one)
    with_one, without = (run(gap, 1, k) for k in (one, none))
    value = [np.ldexp(np.asarray(e.k), np.asarray(e.power).astype(int)) for e in (with_one, without)]
    return value[0] - value[1]


@checks.arguments(
    diagram=checks.a(PhaseDiagram, "a PhaseDiagram"),
    depths=checks.several(checks.count()),
    points=checks.count(2, 10**6),
)
def plot_phase_diagram(
    diagram: PhaseDiagram, depths: Sequence[int] = (10, 30, 100, 300, 1000), points: int = 1000
) -> "matplotlib.figure.Figure":
    """Left: the depth scale, its contours the largest depth that trains. Right: what the tangent kernel at `depth` has become.

    Both with the edge of chaos in black. On the right, 1 (red) is a constant function, singular; 0 (blue) a delta, which says
    nothing about new points; the lines are where `points` inputs make a kernel that float32 and float64 cannot invert.
    """
    from matplotlib.colors import LogNorm  # slow to import
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

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
