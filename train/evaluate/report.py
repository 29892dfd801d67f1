"""report.json, report.html and the table on the terminal."""

import dataclasses
import html
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from train.evaluate.compare import Comparison
from train.evaluate.page import folded, heading, page, picture, plain, table, what_was_run
from train.evaluate.plots import all_figures
from train.evaluate.statistics import CURVED, LACK_OF_FIT, PowerLaw
from train.evaluate.verdict import FAMILYWISE, MEANING, PRECISION, Verdict

VARIANCE_TOLERANCE = 0.15


def law_text(law: PowerLaw | None, expected: float | None = None) -> str:
    """An exponent with its interval, and whether it meets what is expected."""
    if law is None:
        return "below noise"
    text = f"{law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}]"
    if expected is None:
        return text
    if law.high - law.low >= 0.3:
        return f"{text} undecided"
    return f"{text} {'✓' if law.meets(expected, VARIANCE_TOLERANCE) else '✗'}"


def rows(result: Comparison) -> list[dict[str, str]]:
    """What was found as text, one row each."""
    found = [
        {
            "what": v.name,
            "family": v.label,
            "depth": str(v.depth),
            "against": v.against,
            "verdict": v.verdict + (", as it must" if v.foreseen and v.verdict == "does not converge" else ""),
            "error": f"{v.relative_error:.1%} ± {v.relative_sem:.1%}",
            "variance ~ N^": law_text(v.variance, -1.0),
        }
        for v in result.verdicts
    ]
    empty = dict.fromkeys(found[0], "–")
    lost = [
        empty
        | {"what": "ensemble" if d.width else "limit", "family": d.label, "depth": str(d.depth)}
        | {"verdict": f"diverged{f' at width {d.width}' if d.width else ''}"}
        for d in result.diverged
    ]
    return found + lost


def tests(result: Comparison) -> list[dict[str, str]]:
    """The numbers behind the verdicts, one row each."""
    return [
        {
            "observable": f"{v.observable} ({v.name})",
            "family": v.label,
            "depth": str(v.depth),
            "largest z": f"{v.largest_z:.1f}",
            "T²": f"{v.t2:.3g} of {v.dimensions}",
            "p": f"{v.p:.2g}",
            "fit": v.model,
            "bias ~ N^": law_text(v.bias),
        }
        for v in result.verdicts
    ]


def kinds(result: Comparison) -> list[str]:
    """Good, bad or unsure, of every row; what must not agree and does not is none of them."""
    word = {"agrees": "good", "does not converge": "bad", "undecided": "unsure"}
    found = [("" if v.foreseen and v.verdict == "does not converge" else word[v.verdict]) for v in result.verdicts]
    return found + ["bad"] * len(result.diverged)


def print_table(result: Comparison, console: Console) -> None:
    """The table on the terminal, in 80 columns, and how to read it."""
    console.print(summary(result), highlight=False)
    screen = Table(title="Finite ensembles against their infinite-width twins")
    colours = {"good": "green", "bad": "red", "unsure": "yellow", "": "dim"}
    for name in ("what", "depth", "verdict", "error"):
        screen.add_column(name, overflow="fold")
    for line, kind in zip(rows(result), kinds(result), strict=True):
        what = f"{line['what']}, {line['family']}"
        screen.add_row(what, line["depth"], line["verdict"], line["error"], style=colours[kind])
    console.print(screen)
    for line in reading(result):
        console.print(f"[dim]{line}[/dim]", highlight=False)


def summary(result: Comparison) -> str:
    """What was found, in a paragraph."""
    foreseen = [v for v in result.verdicts if v.foreseen and v.verdict == "does not converge"]
    away = [v for v in result.verdicts if v.verdict == "does not converge" and not v.foreseen]
    agree, open_ = ([v for v in result.verdicts if v.verdict == word] for word in ("agrees", "undecided"))
    parts = [headline(result)]
    if agree:
        parts.append(f"Ensembles agree with their limits, extrapolated to infinite width, in {_listed(agree, result)}.")
    if away:
        parts.append(f"They do NOT converge to them in {_listed(away, result)}: {_sizes(away)} off.")
    if foreseen:
        parts.append(
            f"Off the lazy limit by {_sizes(foreseen)}, as they must be, are {_listed(foreseen, result)}: features of these "
            "networks move by O(1) at any width, and their own limit is the one with feature learning (config.rich)."
        )
    if open_:
        needed = max(v.relative_sem for v in open_)
        parts.append(
            f"Undecided, with standard errors up to {needed:.1%} where {PRECISION:.0%} are asked for (more members help), are "
            f"{_listed(open_, result)}."
        )
    return " ".join(parts)


def _listed(found: list[Verdict], result: Comparison) -> str:
    """Names and families, and depths where it is not all of them."""
    groups: dict[tuple[str, str], list[int]] = {}
    for v in found:
        groups.setdefault((v.name, v.label), []).append(v.depth)
    return "; ".join(
        f"{name} ({label}{'' if len(depths) == len(result.depths) else ', depth ' + ', '.join(map(str, depths))})"
        for (name, label), depths in groups.items()
    )


def _sizes(found: list[Verdict]) -> str:
    low, high = (f"{end(v.relative_error for v in found):.1%}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def reading(result: Comparison) -> list[str]:
    """What the verdicts mean, and what to make of the negative ones."""
    level = result.verdicts[0].level
    lines = [
        f"Agrees: the extrapolation to infinite width passes Hotelling's T² over fixed projections at level {level:.1e} "
        f"({FAMILYWISE:.1%} for the whole report), with a standard error below {PRECISION:.0%}. The fit takes a 1/N² term "
        f"where residuals demand it at {LACK_OF_FIT:.0%}, or, before a rejection, a test of that term alone at {CURVED:.0%}. "
        f"✓: the exponent's 95 % interval meets −1 ± {VARIANCE_TOLERANCE} and is narrower than 0.3.",
    ]
    lines += [f"{': '.join(MEANING[name])}." for name in dict.fromkeys(v.observable for v in result.verdicts)]
    if result.diverged:
        lines.append(
            "Diverged: training ended in infinite or NaN outputs; the observable at that depth is not judged, for an "
            "extrapolation over the widths that are left would be another one."
        )
    lines += [
        f"{label}, depth {depth}: N·E|f_N − f|² / |f|² = {', '.join(f'{p:.3g}' for p in products)} at widths "
        f"{', '.join(map(str, result.widths))}; largest over smallest {max(products) / min(products):.2f}."
        for (label, depth), products in result.products.items()
    ]
    away = [v.label for v in result.verdicts if v.verdict == "does not converge" and v.against == "lazy"]
    if away:
        lines.append(
            f"{', '.join(dict.fromkeys(away))}: where features move by O(1) at any width, training does not follow the lazy "
            "limit; the limit that it does follow is the one with feature learning (config.rich)."
        )
    return lines + [f"Infinite-width twins over depth: {rate.sentence}." for rate in result.to_infinite_depth.values()]


def as_json(result: Comparison, run: dict[str, Any]) -> dict[str, Any]:
    """Every number of the comparison with its standard error, and what was run."""
    curves = [{f.name: plain(getattr(curve, f.name)) for f in dataclasses.fields(curve)} for curve in result.curves]
    limits = [
        {"label": label, "depth": depth, "times": plain(t.times), "loss": plain(t.loss),
         "f": plain(t.f), "provenance": t.provenance["loss"].detail}
        for (label, depth), t in result.limits.items()
    ]  # fmt: skip
    limits += [
        {"label": label, "depth": depth, "times": plain(result.limits[label, depth].times), "provenance": "feature learning",
         **{name: plain(value.mean(0)) for name, value in each.items()},
         **{f"{name}_sem": plain(value.std(0, ddof=1) / len(value) ** 0.5) for name, value in each.items() if len(value) > 1}}
        for (label, depth), each in result.learned.items()
    ]  # fmt: skip
    return {
        "run": run,
        "diverged": [dataclasses.asdict(each) for each in result.diverged],
        "verdicts": [{**plain(dataclasses.asdict(v)), "sentence": v.sentence} for v in result.verdicts],
        "variance_by_depth": {name: plain(dataclasses.asdict(law)) for name, law in result.depth_laws.items()},
        "to_infinite_depth": {name: plain(dataclasses.asdict(rate)) for name, rate in result.to_infinite_depth.items()},
        "width times squared error": [
            {"label": label, "depth": depth, "widths": list(result.widths), "values": products}
            for (label, depth), products in result.products.items()
        ],
        "curves": curves,
        "limits": limits,
        "how_to_read": reading(result),
    }


def as_html(result: Comparison, run: dict[str, Any]) -> str:
    """One self-contained page."""
    pictures = "".join(picture(*parts) for parts in all_figures(result))
    depth = "".join(
        f"<li>{html.escape(name)}: depth<sup>{law.exponent:.2f}</sup> [{law.low:.2f}, {law.high:.2f}]</li>"
        for name, law in result.depth_laws.items()
    )
    depths = f"<h2>Variance against depth</h2><p>At width {result.widths[-1]}:</p><ul>{depth}</ul>" if depth else ""
    notes = "".join(f"<p class='muted'>{html.escape(line)}</p>" for line in reading(result))
    notes += "".join(f"<p class='muted'>{html.escape(d.why)}</p>" for d in result.diverged)
    lines, behind = rows(result), tests(result)
    column = list(lines[0]).index("verdict")
    shown = table(list(lines[0]), [[*line.values()] for line in lines], [{column: kind} for kind in kinds(result)])
    numbers = table(list(behind[0]), [[*line.values()] for line in behind], wrap=True)
    return page(
        result.task.name,
        heading("Finite ensembles against their infinite-width twins")
        + f"<p>{html.escape(summary(result))}</p>{shown}{pictures}{depths}"
        + folded("How to read this", notes)
        + folded("The numbers behind the verdicts", numbers)
        + what_was_run(run),
    )


def headline(result: Comparison) -> str:
    """One line on the whole comparison."""
    count: dict[str, int] = {}
    for verdict in result.verdicts:
        count[verdict.verdict] = count.get(verdict.verdict, 0) + 1
    count |= {"diverged": len(result.diverged)} if result.diverged else {}
    parts = ", ".join(f"{n} {name}" for name, n in count.items())
    widths = f"widths {result.widths[0]}–{result.widths[-1]}, depths {', '.join(map(str, result.depths))}"
    points = f"{len(result.task.x_train)} training and {len(result.task.x_test)} test points"
    return f"{result.task.name}: {points}; {widths}; {parts}."


def write(result: Comparison, run: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Writes report.json and report.html and returns their paths."""
    paths = folder / "report.json", folder / "report.html"
    paths[0].write_text(json.dumps(as_json(result, run), indent=1) + "\n")
    paths[1].write_text(as_html(result, run))
    return paths
