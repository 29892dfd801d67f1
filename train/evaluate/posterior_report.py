"""What a comparison of sampled posteriors with their theory reports."""

from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.drawing import COLOURS, at_sizes, legend_beside, panels
from train.evaluate.posteriors import CLEAR, RESOLVED, PosteriorComparison, WidthLaw
from train.evaluate.report import Picture, Report, Table, Text, notes

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

SIDES = {"theory": ("theory at this width", COLOURS[0]), "nngp": ("NNGP", COLOURS[1])}
COLUMNS = (
    "quantity",
    "width",
    "verdict",
    "theory off by",
    "NNGP off by",
    "theory closer by (std. errors)",
    "largest z",
    "p",
)


def report(result: PosteriorComparison, run: dict[str, Any]) -> Report:
    """The table, how to read it, the pictures and every number; `run`: what was run."""
    rows = [
        (a.quantity, str(a.width), a.sentence, str(a.theory), str(a.nngp), f"{a.gain:.1f}",
         f"{a.largest_z:.1f} ({a.projection})", f"{a.p:.2g}")
        for a in result.agreements
    ]  # fmt: skip
    parts = [
        Text(f"{result.task.name}: posterior of {len(result.task.x_train)} points, noise {result.noise:g}"),
        Table(COLUMNS, rows, [a.finding.kind for a in result.agreements]),
        *notes(reading(result)),
        *all_figures(result),
    ]
    numbers = {
        "run": run,
        "noise": result.noise,
        "agreements": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
        "chains": [{k: v for k, v in p.diagnostics.items() if k != "draws"} for p in result.sampled],
        "reading": reading(result),
    }
    return Report("Sampled posteriors against their theory", parts, numbers, run, tab=result.task.name)


def reading(result: PosteriorComparison) -> list[str]:
    """How to read the verdicts, and what the chains and the widths say."""

    def text(law: WidthLaw | None) -> str:
        return "what is lost in the noise" if law is None else f"N^({law.exponent:.2f} ± {law.sem:.2f})"

    lines = [
        "Off by: the root mean square over entries of sampled − theory, over that of the sampled, cleared of its own noise; "
        f"less than: value + {RESOLVED:.0f} standard errors, where it does not stand out of them. Agrees: fixed projections, by "
        "Hotelling's T² and by the largest alone (p: twice the smaller), which see a difference along one of them long before "
        f"the sum over entries does. Closer: by {CLEAR:.0f} standard errors of the difference of squared distances. The theory "
        "keeps shifts of order P/N and drops those of order 1/N (kernels fluctuate), so that "
        "enough steps always tell it from the truth, and with few points it need not predict better than the NNGP."
    ]
    if result.unknown:
        lines.append(f"Widths {result.unknown}: the theory's own standard errors are not known and count as 0.")
    lines += [f"Width {p.width}: {p.diagnostics['sentence']}" for p in result.sampled]
    if len(result.widths) > 1:
        lines += [f"{q}: theory off by {text(a)}, NNGP by {text(b)}." for q, (a, b) in result.rates.items()]
    return lines


def _bars(
    axis: "matplotlib.axes.Axes", side: str, x: Any, y: Any, sem: Any, fmt: str = "o", ms: float = 4, **style: Any
) -> None:
    """Points of one side with bars of two standard errors."""
    label, colour = SIDES[side]
    axis.errorbar(x, y, 2 * np.asarray(sem), fmt=fmt, capsize=2, color=colour, label=label, ms=ms, **style)


def by_layer(result: PosteriorComparison) -> "matplotlib.figure.Figure":
    """Relative errors of the kernels by layer, one panel a width."""
    figure, axes = panels(1, len(result.widths), 3.6, 3.3)
    layers = np.arange(1, result.infinite.layers + 1)
    for axis, width in zip(axes[0], result.widths, strict=True):
        found = [result.find(f"C^({l})", width) for l in layers]
        for shift, side in zip((-0.06, 0.06), SIDES, strict=True):
            parts = [getattr(a, side) for a in found]
            _bars(axis, side, layers + shift, [p.value for p in parts], [p.sem for p in parts])
        axis.set(title=f"width {width}", xlabel="layer l")
        axis.set_xticks(layers)
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("relative error of C$^{(l)}$")
    legend_beside(figure, axes)
    return figure


def over_widths(result: PosteriorComparison) -> "matplotlib.figure.Figure":
    """Relative errors against width, one panel a quantity."""
    figure, axes = panels(1, len(result.quantities), 3.3, 3.3)
    for axis, quantity in zip(axes[0], result.quantities, strict=True):
        for side in SIDES:
            parts = {width: getattr(result.find(quantity, width), side) for width in result.widths}
            parts = {width: p for width, p in parts.items() if p.resolved}
            values, errors = [p.value for p in parts.values()], [p.sem for p in parts.values()]
            if parts:  # bars without points would leave an axis with limits that have no logarithm
                _bars(axis, side, list(parts), values, errors, "o-", lw=1)
        axis.set(title=quantity, xlabel="width", xscale="log", yscale="log")
        at_sizes(axis, result.widths)
    axes[0, 0].set_ylabel("relative error")
    legend_beside(figure, axes)
    return figure


def predictions(result: PosteriorComparison) -> "matplotlib.figure.Figure":
    """Mean predictions on test points, sampled against theory and NNGP, one panel a width."""
    figure, axes = panels(1, len(result.widths), 3.6, 3.3)
    for axis, sampled, theory in zip(axes[0], result.sampled, result.limits, strict=True):
        x, sem = sampled.f_test.ravel(), sampled.f_test_sem.ravel()
        for side, other in (("theory", theory), ("nngp", result.infinite)):
            _bars(axis, side, x, other.f_test.ravel() - x, sem, ms=3.5)
        axis.axhline(0, color="k", ls="--", lw=1)
        axis.set(title=f"width {sampled.width}", xlabel="sampled mean of f")
    axes[0, 0].set_ylabel("theory − sampled, on test points")
    legend_beside(figure, axes)
    return figure


def all_figures(result: PosteriorComparison) -> list[Picture]:
    """Everything a report shows."""
    bars = "Bars: ± 2 standard errors."
    layers = f"How far the theories are from the sampled kernels. {bars}"
    drawn = [Picture("Kernels, layer by layer", layers, by_layer(result))]
    if len(result.widths) > 1:
        text = f"Points within two standard errors of zero are left out. {bars}"
        drawn.append(Picture("Over widths", text, over_widths(result)))
    if len(result.task.x_test):
        drawn.append(Picture("Predictions on test points", f"Mean over the posterior. {bars}", predictions(result)))
    return drawn
