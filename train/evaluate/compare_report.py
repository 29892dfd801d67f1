"""What a comparison of ensembles with their twins reports."""

import collections
import dataclasses
from typing import Any

import numpy as np

from train.evaluate.compare import Comparison
from train.evaluate.compare_explored import explored
from train.evaluate.plots import all_figures
from train.evaluate.report import Folded, Report, Table, Text, notes
from train.evaluate.statistics import CURVED, LACK_OF_FIT, PowerLaw
from train.evaluate.verdict import FAMILYWISE, MEANING, PRECISION, Verdict

TITLE = "Finite ensembles against their infinite-width twins"
VARIANCE_TOLERANCE = 0.15


def report(result: Comparison, run: dict[str, Any]) -> Report:
    """The table, the pictures, how to read them, and every number; `run`: what was run."""
    depths = [(name, str(law)) for name, law in result.depth_laws.items()]
    how = [*reading(result), *(each.why for each in result.diverged)]
    parts = [
        Text(summary(result)),
        verdicts(result),
        *([finite_widths(result)] if result.finite else []),
        *explored(result),
        *all_figures(result),
        *([Table(("observable", "exponent of depth [95 % interval]"), depths, title="Variance against depth",
                 caption=f"At width {result.widths[-1]}.", screen=0)] if depths else []),
        Folded("How to read this", notes(how)),
        Folded("The numbers behind the verdicts", [tests(result)]),
    ]  # fmt: skip
    return Report(TITLE, parts, numbers(result, run), run, tab=result.task.name)


def law_text(law: PowerLaw | None, expected: float | None = None) -> str:
    """An exponent with its interval, and whether it meets what is expected."""
    if law is None:
        return "below noise"
    if expected is None:
        return str(law)
    if law.high - law.low >= 0.3:
        return f"{law} undecided"
    return f"{law} {'✓' if law.meets(expected, VARIANCE_TOLERANCE) else '✗'}"


def verdicts(result: Comparison) -> Table:
    """What was found, a row each; the first four columns fit on any terminal."""
    rows = [
        (
            f"{v.name}, {v.label}",
            str(v.depth),
            v.verdict + (", as it must" if v.finding.kind == "foreseen" else ""),
            f"{v.relative_error:.1%} ± {v.relative_sem:.1%}",
            v.against,
            law_text(v.variance, -1.0),
        )
        for v in result.verdicts
    ]
    rows += [
        (f"{'ensemble' if d.width else 'limit'}, {d.label}", str(d.depth), d.finding.figures, "–", "–", "–")
        for d in result.diverged
    ]
    kinds = [each.finding.kind for each in (*result.verdicts, *result.diverged)]
    return Table(("what", "depth", "verdict", "error", "against", "variance ~ N^"), rows, kinds, screen=4)


def finite_widths(result: Comparison) -> Table:
    """Ensembles at their own widths against the prediction to first order in 1/N, a row each."""
    rows = [
        (
            f"{MEANING[each.observable][0]}, {each.label}, depth {each.depth}",
            f"{width}",
            f"{each.away[i]:.1%}",
            f"{each.predicted[i]:.1%}",
            f"{each.left[i]:.1%} ± {each.sem[i]:.1%}",
            each.verdict(i),
        )
        for each in result.finite
        for i, width in enumerate(each.widths)
    ]
    kinds = [{"agrees": "good", "more is left": "foreseen"}.get(row[-1], "unsure") for row in rows]
    columns = ("what", "width", "off the limit", "predicted", "off the prediction", "verdict")
    caption = (
        "Means over networks of each width, over the size of the limit, beside what the limit predicts to first order in 1/N. "
        "What is left at small widths is of order 1/N². Undecided: with a standard error above "
        f"{PRECISION:.0%}."
    )
    return Table(columns, rows, kinds, title="Networks of finite width", caption=caption, screen=0)


def tests(result: Comparison) -> Table:
    """The numbers behind the verdicts, a row each."""
    rows = [
        (f"{v.observable} ({v.name})", v.label, str(v.depth), f"{v.largest_z:.1f}", f"{v.t2:.3g} of {v.dimensions}", f"{v.p:.2g}",
         v.model, law_text(v.bias))
        for v in result.verdicts
    ]  # fmt: skip
    return Table(("observable", "family", "depth", "largest z", "T²", "p", "fit", "bias ~ N^"), rows, screen=0)


def summary(result: Comparison) -> str:
    """What was found, in a paragraph."""
    kinds = ("good", "bad", "foreseen", "unsure")
    agree, away, foreseen, open_ = ([v for v in result.verdicts if v.finding.kind == kind] for kind in kinds)
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
    for (label, depth), apart in from_lazy(result).items():
        parts.append(
            f"With feature learning the limit is another: {apart:.0%} away from the lazy one ({label}, depth {depth})."
        )
    if open_:
        needed = max(v.relative_sem for v in open_)
        parts.append(
            f"Undecided, with standard errors up to {needed:.1%} where {PRECISION:.0%} are asked for (more members help), are "
            f"{_listed(open_, result)}."
        )
    return " ".join(parts)


def from_lazy(result: Comparison) -> dict[tuple[str, int], float]:
    """|f − f_lazy| / |f| at the end, of the limits with feature learning that have a lazy one beside them."""
    ends = {key: result.learned[key]["path"].mean(0)[-1] for key in result.learned if key in result.limits}
    return {key: float(np.linalg.norm(f - result.limits[key].f[-1]) / np.linalg.norm(f)) for key, f in ends.items()}


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
        + "A rejection of networks whose heads grow in number must hold with a term of one over their size d too. "
        * any(v.model == "a + b/d + c/N" for v in result.verdicts)
        + f"✓: the exponent's 95 % interval meets −1 ± {VARIANCE_TOLERANCE} and is narrower than 0.3.",
    ]
    lines += [f"{': '.join(MEANING[name])}." for name in dict.fromkeys(v.observable for v in result.verdicts)]
    if result.diverged:
        lines.append(
            "Diverged: training ended in infinite or NaN outputs; the observable at that depth is not judged, for an "
            "extrapolation over the widths that are left would be another one."
        )
    lines += [
        f"{label}, depth {depth}: N·E|f_N − f|² / |f|² = {', '.join(f'{p:.3g}' for p in products)} at widths "
        f"{', '.join(map(str, result.widths))}; largest over smallest {max(products) / min(products):.2f}"
        f"{_foreseen(result, label, depth)}."
        for (label, depth), products in result.products.items()
    ]
    lines += [f"{MEANING[f.observable][0]}, {f.label}, depth {f.depth}: {f.sentence}." for f in result.finite]
    away = [v.label for v in result.verdicts if v.verdict == "does not converge" and v.against == "lazy"]
    if away:
        lines.append(
            f"{', '.join(dict.fromkeys(away))}: where features move by O(1) at any width, training does not follow the lazy "
            "limit; the limit that it does follow is the one with feature learning (config.rich)."
        )
    return lines + [f"Infinite-width twins over depth: {rate.sentence}." for rate in result.to_infinite_depth.values()]


def _foreseen(result: Comparison, label: str, depth: int) -> str:
    predicted = result.predicted.get((label, depth))
    shown = [f"{value:.2g} ± {error:.1g}" for value, error in predicted or ()]
    return f"; to first order in 1/N {', '.join(shown)}" if shown else ""


def numbers(result: Comparison, run: dict[str, Any]) -> dict[str, Any]:
    """Every number of the comparison with its standard error, and what was run."""
    limits = [
        {"label": label, "depth": depth, **{name: getattr(t, name) for name in ("times", "loss", "f")},
         "provenance": t.provenance["loss"].detail}
        for (label, depth), t in result.limits.items()
    ]  # fmt: skip
    limits += [
        {"label": label, "depth": depth, "times": result.times, "provenance": "feature learning",
         **{name: value.mean(0) for name, value in each.items()},
         **{f"{name}_sem": value.std(0, ddof=1) / len(value) ** 0.5 for name, value in each.items() if len(value) > 1}}
        for (label, depth), each in result.learned.items()
    ]  # fmt: skip

    def over_widths(found: dict[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
        widths = list(result.widths)
        return [{"label": label, "depth": depth, "widths": widths, **each} for (label, depth), each in found.items()]

    predicted: dict[tuple[str, int], dict[str, Any]] = {
        at: {"values": [value for value, _ in each], "sems": [error for _, error in each]}
        for at, each in result.predicted.items()
    }
    return {
        "run": run,
        "diverged": [dataclasses.asdict(each) for each in result.diverged],
        "verdicts": [{**dataclasses.asdict(v), "sentence": v.sentence} for v in result.verdicts],
        "variance_by_depth": {name: dataclasses.asdict(law) for name, law in result.depth_laws.items()},
        "to_infinite_depth": {name: dataclasses.asdict(rate) for name, rate in result.to_infinite_depth.items()},
        "width times squared error": over_widths({at: {"values": each} for at, each in result.products.items()}),
        "width times squared error, to first order in 1/N": over_widths(predicted),
        "finite width": [{**dataclasses.asdict(each), "sentence": each.sentence} for each in result.finite],
        "curves": [dataclasses.asdict(curve) for curve in result.curves],
        "limits": limits,
        "how_to_read": reading(result),
    }


_OF_SEVERAL = {"agrees": "agree", "does not converge": "do not converge"}


def headline(result: Comparison) -> str:
    """One line on the whole comparison."""
    count = collections.Counter(verdict.verdict for verdict in result.verdicts)
    count.update(diverged=len(result.diverged))
    parts = ", ".join(f"{n} {_OF_SEVERAL.get(name, name) if n > 1 else name}" for name, n in count.items() if n)
    widths = f"widths {result.widths[0]}–{result.widths[-1]}, depths {', '.join(map(str, result.depths))}"
    points = f"{len(result.task.x_train)} training and {len(result.task.x_test)} test points"
    return f"{result.task.name}: {points}; {widths}; {parts}."
