"""The pictures of a transfer study."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.drawing import at_sizes, colour, gallery, legend_beside, log_ticks, panels, shades
from train.transfer.outcome import Outcome
from train.transfer.sweep import Sweep

if TYPE_CHECKING:
    import matplotlib.figure

_SIZE = (4.6, 3.5, 1.4)  # of a panel, and the margin
_BEYOND = 1.5  # times the last value of a grid: the end of a bar that is open there


def curves(outcome: Outcome) -> "matplotlib.figure.Figure":
    """Loss against the hyperparameter, a curve a size: mean and standard error over seeds, diverged rates on top."""
    rows, drawn = [(label, outcome.series(label)) for label in outcome.labels], []
    most = max(len(series) for _, series in rows)
    figure, axes = panels(len(rows), most, *_SIZE) if most > 1 else gallery(len(rows), *_SIZE)
    for axis in axes.flat:
        axis.set_visible(False)
    for number, (label, all_series) in enumerate(rows):
        places = axes[number] if most > 1 else [axes.flat[number]]
        for axis, series in zip(places, all_series or [None], strict=False):
            limits, sweeps = outcome.limits.get(label, {}), list(outcome.sweeps[label].values())
            limit = limits.get(series.sweeps[0].depth) if series else next(iter(limits.values()), None)
            over, shown, fixed = (series.over, series.sweeps, f", {series.fixed}") if series else ("width", sweeps, "")
            drawn.append((label, axis))
            _draw_curves(axis, shown, over, limit if over == "width" else None)
            axis.set_visible(True)
            axis.set_title(f"{label}{fixed}", fontsize=9)
            axis.set_xlabel(outcome.dial.replace("_", " "))
    tasks: dict[str, list[Any]] = {}
    for label, axis in drawn:
        tasks.setdefault(outcome.tasks.get(label, ""), []).append(axis)
    for same in tasks.values():
        _on_one_scale(same)
    for axis in axes[:, 0]:
        axis.set_ylabel(outcome.scored)
    legend_beside(figure, axes)
    return figure


def _on_one_scale(shown: list[Any]) -> None:
    """Or losses of one task could not be compared."""
    if any(axis.get_yscale() == "log" for axis in shown):
        for axis in shown:
            axis.set_yscale("log", nonpositive="clip")
    ends = [axis.get_ylim() for axis in shown]
    if shown and shown[0].get_yscale() == "log":  # an axis that was linear may have begun below 0
        ends = [
            (low if low > 0 else 0.7 * axis.dataLim.minposy, high)
            for axis, (low, high) in zip(shown, ends, strict=True)
        ]
    low, high = zip(*ends, strict=True)
    for axis in shown:
        axis.set_ylim(min(low), max(high))
        if axis.get_yscale() == "log":
            log_ticks(axis)


def _draw_curves(axis, sweeps, over: str, limit: Sweep | None) -> None:
    sweeps = list(sweeps)
    finite = [loss for s in sweeps for loss in s.losses.mean(1) if np.isfinite(loss)]
    starts = [float(np.mean(s.curves[..., 0])) for s in sweeps if np.isfinite(s.curves[..., 0]).all()]
    highest, first = max(finite, default=1.0), max(starts, default=1.0)
    top = min(first + 0.3 * abs(first), highest + 0.05 * abs(highest)) if finite else 1.0
    drawn: list[Sweep] = [*sweeps, *([limit] if limit else [])]
    for sweep, shade in zip(drawn, [*shades(len(sweeps)), "k"], strict=False):
        losses, style = sweep.losses, "--" if sweep is limit else "-"
        mean, sem = losses.mean(1), _spread(losses)
        size = getattr(sweep, over)
        name = "limit" if sweep is limit else f"{over} {size:g}"
        axis.errorbar(sweep.rates, np.where(np.isfinite(mean), mean, np.nan), sem, fmt=f"o{style}", ms=3, lw=1.2,
                      color=shade, label=name)  # fmt: skip
        lost = ~np.isfinite(mean)
        axis.plot(sweep.rates[lost], np.full(lost.sum(), top), "x", color=shade, ms=6)
        best = sweep.optimum()
        if np.isfinite(best.loss):
            _draw_interval(axis, sweep, best.loss, False, color=shade, lw=3, mew=0, alpha=0.4)
            axis.plot([best.rate], [best.loss], "*", ms=10, color=shade, mec="k", mew=0.5)
    steep = bool(finite) and 0 < min(finite) < top / 20
    axis.set_xscale("log")
    log_ticks(axis, "x")
    if steep:
        axis.set_yscale("log", nonpositive="clip")
        axis.set_ylim(0.7 * min(finite), 1.4 * top)
    else:
        axis.set_ylim(top=top + 0.04 * abs(top))


def _spread(losses: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        sem = losses.std(1) / max(losses.shape[1] - 1, 1) ** 0.5
    return np.where(np.isfinite(sem), sem, 0.0)


def _draw_interval(axis: Any, sweep: Sweep, across: float, upright: bool, **style: Any) -> None:
    """A bar at this place of the other axis, with arrows a little beyond the grid where it is open; none where nothing bounds
    the optimum, as of one seed."""
    low, high = sweep.interval()
    below, above = not low > 0, not np.isfinite(high)
    if below and above:
        return
    ends = sweep.rates[0] / _BEYOND if below else low, sweep.rates[-1] * _BEYOND if above else high
    arrows, cap = ("v^", "_") if upright else ("<>", "")
    for shown, mark in ((ends, ""), (ends[:1], arrows[0] if below else cap), (ends[1:], arrows[1] if above else cap)):
        at = [across] * len(shown), shown
        axis.plot(*(at if upright else at[::-1]), marker=mark, ms=6 if upright else 8, **style)


def optima(outcome: Outcome) -> "matplotlib.figure.Figure":
    """The optimum against the size, with 95 % intervals, a line a setting."""
    kinds = list(dict.fromkeys((s.over, s.fixed) for label in outcome.labels for s in outcome.series(label)))
    figure, axes = panels(1, len(kinds), *_SIZE)
    for axis, (over, fixed) in zip(axes[0], kinds, strict=True):
        sizes: set[float] = set()
        for number, label in enumerate(outcome.labels):
            for series in (s for s in outcome.series(label) if (s.over, s.fixed) == (over, fixed)):
                best = np.array([s.optimum().rate for s in series.sweeps])
                shifted = series.sizes * 1.03**number  # so that bars lie side by side
                axis.plot(shifted, best, "o-", ms=4, color=colour(number), label=label)
                for place, sweep in zip(shifted, series.sweeps, strict=True):
                    _draw_interval(axis, sweep, place, True, color=colour(number), lw=1.5)
                sizes |= set(series.sizes.tolist())
                limit = outcome.limits.get(label, {}).get(series.sweeps[0].depth)
                if over == "width" and limit:
                    axis.axhline(limit.optimum().rate, ls="--", lw=1, color=colour(number))
        axis.set(xscale="log", yscale="log", xlabel=over, title=fixed)
        at_sizes(axis, sorted(sizes))
        log_ticks(axis)
    axes[0, 0].set_ylabel(f"best {outcome.dial.replace('_', ' ')}")
    legend_beside(figure, axes)
    return figure


def early(outcome: Outcome) -> "matplotlib.figure.Figure":
    """The optimum had training ended earlier, a line a size."""

    def draw(axis: Any, label: str, sweeps: list[Sweep]) -> None:
        for sweep, shade in zip(sweeps, shades(len(sweeps)), strict=True):
            steps, path = sweep.moving_optimum()
            axis.plot(steps, 2.0**path, color=shade, label=f"{sweep.width:g} × {sweep.depth}")
        axis.set(yscale="log", title=label)
        log_ticks(axis)

    return _by_label(outcome, f"best {outcome.dial.replace('_', ' ')} so far", draw)


def training(outcome: Outcome) -> "matplotlib.figure.Figure":
    """The loss along training at one value of the hyperparameter: the smallest size's best on the grid, a curve a size."""

    def draw(axis: Any, label: str, sweeps: list[Sweep]) -> None:
        best = float(sweeps[0].rates[int(np.argmin(sweeps[0].losses.mean(1)))])
        for sweep, shade in zip(sweeps, shades(len(sweeps)), strict=True):
            if best not in sweep.rates:
                continue
            mean = sweep.curves[sweep.rates.tolist().index(best)].mean(0)
            window = max(len(mean) // 50, 1)
            smooth = mean[: len(mean) // window * window].reshape(-1, window).mean(1)
            loss = np.where(np.isfinite(smooth), smooth, np.nan)
            steps = (np.arange(len(smooth)) + 0.5) * window
            axis.plot(steps, loss, color=shade, label=f"{sweep.width:g} × {sweep.depth}")
        axis.set(title=f"{label}, {outcome.dial.replace('_', ' ')} {best:.3g}")

    return _by_label(outcome, "training loss", draw)


def _by_label(
    outcome: Outcome, quantity: str, draw: Callable[[Any, str, list[Sweep]], None]
) -> "matplotlib.figure.Figure":
    """A panel a setting, over training steps."""
    figure, axes = gallery(len(outcome.labels), *_SIZE)
    for axis, label in zip(axes.flat, outcome.labels, strict=False):
        draw(axis, label, list(outcome.sweeps[label].values()))
        axis.set_xlabel("training steps")
        axis.title.set_fontsize(9)
    axes[0, 0].set_ylabel(quantity)
    legend_beside(figure, axes, "width × depth")
    return figure
