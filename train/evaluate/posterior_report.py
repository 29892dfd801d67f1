"""report.json and report.html of sampled posteriors against their theory, and the table on the terminal."""

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from train.evaluate.page import COLOURS, page, panels, picture, plain, table, what_was_run
from train.evaluate.posteriors import CLEAR, RESOLVED, PosteriorComparison, WidthLaw

KIND = {"agrees": "good", "closer than the NNGP": "good", "undecided": "unsure", "no closer than the NNGP": "unsure"}
SIDES = {"theory": ("theory at this width", COLOURS[0]), "nngp": ("NNGP", COLOURS[1])}


def rows(result: PosteriorComparison) -> list[dict[str, str]]:
    """The findings as text, one row each."""
    return [
        {
            "quantity": a.quantity,
            "width": str(a.width),
            "verdict": a.sentence,
            "theory off by": str(a.theory),
            "NNGP off by": str(a.nngp),
            "theory closer by (std. errors)": f"{a.gain:.1f}",
            "largest z": f"{a.largest_z:.1f} ({a.projection})",
            "p": f"{a.p:.2g}",
        }
        for a in result.agreements
    ]


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


def print_table(result: PosteriorComparison, console: Console) -> None:
    """The table on the terminal, and how to read it."""
    screen, lines = Table(title=f"Sampled posteriors against their theory — {result.task.name}"), rows(result)
    for name in lines[0]:
        screen.add_column(name, overflow="fold")
    for line, a in zip(lines, result.agreements, strict=True):
        screen.add_row(*line.values(), style={"good": "green", "unsure": "yellow"}.get(KIND.get(a.verdict, ""), "red"))
    console.print(screen)
    for line in reading(result):
        console.print(f"[dim]{line}[/dim]", highlight=False)


def _bars(axis: Axes, side: str, x: Any, y: Any, sem: Any, fmt: str = "o", ms: float = 4, **style: Any) -> None:
    """Points of one side with bars of two standard errors."""
    label, colour = SIDES[side]
    axis.errorbar(x, y, 2 * np.asarray(sem), fmt=fmt, capsize=2, color=colour, label=label, ms=ms, **style)


def by_layer(result: PosteriorComparison) -> Figure:
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
    axes[0, 0].legend(fontsize=7)
    return figure


def over_widths(result: PosteriorComparison) -> Figure:
    """Relative errors against width, one panel a quantity."""
    figure, axes = panels(1, len(result.quantities), 3.3, 3.3)
    for axis, quantity in zip(axes[0], result.quantities, strict=True):
        for side in SIDES:
            parts = {width: getattr(result.find(quantity, width), side) for width in result.widths}
            parts = {width: p for width, p in parts.items() if p.resolved}
            values, errors = [p.value for p in parts.values()], [p.sem for p in parts.values()]
            _bars(axis, side, list(parts), values, errors, "o-", lw=1)
        axis.set(title=quantity, xlabel="width", xscale="log", yscale="log")
        axis.set_xticks(result.widths, [str(w) for w in result.widths])
        axis.minorticks_off()
    axes[0, 0].set_ylabel("relative error")
    axes[0, 0].legend(fontsize=7)
    return figure


def predictions(result: PosteriorComparison) -> Figure:
    """Mean predictions on test points, sampled against theory and NNGP, one panel a width."""
    figure, axes = panels(1, len(result.widths), 3.6, 3.3)
    for axis, sampled, theory in zip(axes[0], result.sampled, result.limits, strict=True):
        x, sem = sampled.f_test.ravel(), sampled.f_test_sem.ravel()
        for side, other in (("theory", theory), ("nngp", result.infinite)):
            _bars(axis, side, x, other.f_test.ravel() - x, sem, ms=3.5)
        axis.axhline(0, color="k", ls="--", lw=1)
        axis.set(title=f"width {sampled.width}", xlabel="sampled mean of f")
    axes[0, 0].set_ylabel("theory − sampled, on test points")
    axes[0, 0].legend(fontsize=7)
    return figure


def all_figures(result: PosteriorComparison) -> list[tuple[str, str, Figure]]:
    """(title, explanation, figure) of everything a report shows."""
    bars = "Bars: ± 2 standard errors."
    drawn = [
        ("Kernels, layer by layer", f"How far the theories are from the sampled kernels. {bars}", by_layer(result))
    ]
    if len(result.widths) > 1:
        text = f"Points within two standard errors of zero are left out. {bars}"
        drawn.append(("Over widths", text, over_widths(result)))
    if len(result.task.x_test):
        drawn.append(("Predictions on test points", f"Mean over the posterior. {bars}", predictions(result)))
    return drawn


def as_json(result: PosteriorComparison, run: dict[str, Any]) -> dict[str, Any]:
    """All numbers of the report."""
    chains = [{k: v for k, v in p.diagnostics.items() if k != "draws"} for p in result.sampled]
    return plain(
        {"run": run, "noise": result.noise, "agreements": rows(result), "chains": chains, "reading": reading(result)}
    )


def as_html(result: PosteriorComparison, run: dict[str, Any]) -> str:
    """One self-contained page."""
    lines = rows(result)
    column = list(lines[0]).index("verdict")
    kinds = [{column: KIND.get(a.verdict, "bad")} for a in result.agreements]
    cells = table(list(lines[0]), [list(line.values()) for line in lines], kinds)
    notes = "".join(f"<p class='muted'>{html.escape(line)}</p>" for line in reading(result))
    title = f"{result.task.name}: posterior of {len(result.task.x_train)} points, noise {result.noise:g}"
    return page(
        result.task.name,
        f"<h1>Sampled posteriors against their theory</h1><p class='muted'>{html.escape(title)}</p>{cells}{notes}"
        f"{''.join(picture(*parts) for parts in all_figures(result))}"
        f"{what_was_run(run)}",
    )


def write(result: PosteriorComparison, run: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Writes report.json and report.html and returns their paths."""
    paths = folder / "report.json", folder / "report.html"
    paths[0].write_text(json.dumps(as_json(result, run), indent=1) + "\n")
    paths[1].write_text(as_html(result, run))
    return paths
