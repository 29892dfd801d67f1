"""The pictures of a comparison."""

import textwrap
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from train.evaluate.compare import Comparison
from train.evaluate.page import COLOURS, legend_beside, log_ticks, panels
from train.evaluate.verdict import Verdict


def _families(result: Comparison, observable: str) -> list[str]:
    return list(dict.fromkeys(v.label for v in result.verdicts if v.observable == observable))


def convergence(result: Comparison, observable: str) -> Figure:
    """Ensemble means against 1/width, relative to the limit, with the extrapolation at 1/width = 0."""
    labels = _families(result, observable)
    figure, axes = panels(len(labels), len(result.depths), 4.0, 2.9)
    x, judged = 1 / np.array(result.widths), {(v.observable, v.label, v.depth) for v in result.verdicts}
    for row, label in zip(axes, labels, strict=True):
        for axis, depth in zip(row, result.depths, strict=True):
            if (observable, label, depth) not in judged:
                axis.set(title=f"{label}, depth {depth}: diverged")
                continue
            verdict = result.find(observable, label, depth)
            for (name, part), colour in zip(_chosen(verdict), COLOURS, strict=False):
                scale = abs(part["limit"])
                axis.errorbar(
                    x, np.array(part["means"]) / scale, 2 * np.array(part["sems"]) / scale,
                    fmt="o-", ms=3.5, lw=1, capsize=2, color=colour, label=name,
                )  # fmt: skip
                axis.errorbar(
                    [0],
                    [part["extrapolated"] / scale],
                    [2 * part["sem"] / scale],
                    fmt="*",
                    ms=9,
                    capsize=2,
                    color=colour,
                )
            axis.axhline(1, color="k", ls="--", lw=1)
            axis.set(
                title=f"{label}, depth {depth}, {verdict.against}\n{textwrap.fill(verdict.sentence, 46)}",
                xlabel="1 / width",
            )
            axis.title.set_fontsize(9)
        row[0].set_ylabel("ensemble mean / limit")
    legend_beside(figure, axes, "projection")
    return figure


def _chosen(verdict: Verdict) -> list[tuple[str, dict]]:
    """Projections that are large enough to be drawn relative to their limits."""
    largest = max(abs(part["limit"]) for part in verdict.projections.values())
    kept = [(n, part) for n, part in verdict.projections.items() if abs(part["limit"]) > 0.02 * largest]
    return kept[:5]


def variances(result: Comparison) -> Figure:
    """Variance over members against width, log-log."""
    figure, axes = panels(1, len(result.depths), 4.0, 3.8)
    widths = np.array(result.widths, float)
    for axis, depth in zip(axes[0], result.depths, strict=True):
        lines = [v for v in result.verdicts if v.depth == depth and v.variance is not None]
        for verdict, colour in zip(lines, COLOURS * 3, strict=False):
            law = verdict.variance
            assert law is not None
            text = f"{verdict.name}, {verdict.label}: {law.exponent:.2f} [{law.low:.2f}, {law.high:.2f}]"
            axis.loglog(widths, law.values, "o-", ms=3.5, lw=1, color=colour, label=text)
        if lines:
            top = max(v.variance.values[0] for v in lines if v.variance)
            axis.loglog(widths, 1.6 * top * widths[0] / widths, "k--", lw=1, label="1 / width")
        axis.set(title=f"depth {depth}", xlabel="width")
        axis.set_xticks(widths, [f"{w:g}" for w in widths])
        axis.minorticks_off()
        log_ticks(axis)
        if lines:
            axis.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.24))
    axes[0, 0].set_ylabel("variance / limit²")
    return figure


def losses(result: Comparison) -> Figure:
    """Training loss of ensembles of each width, and of their limits."""
    labels = list(dict.fromkeys(curve.label for curve in result.curves))
    figure, axes = panels(len(labels), len(result.depths), 4.0, 2.9)
    shades = mpl.colormaps["viridis"](np.linspace(0.9, 0.1, len(result.widths)))
    for row, label in zip(axes, labels, strict=True):
        for axis, depth in zip(row, result.depths, strict=True):
            if (label, depth) not in result.limits:
                axis.set(title=f"{label}, depth {depth}: diverged")
                continue
            run = result.limits[label, depth]
            for curve in (c for c in result.curves if (c.label, c.depth) == (label, depth)):
                colour = shades[result.widths.index(curve.width)]
                axis.plot(run.times, curve.loss, color=colour, lw=1.2, label=f"width {curve.width}")
                low, high = curve.loss - 2 * curve.loss_sem, curve.loss + 2 * curve.loss_sem
                axis.fill_between(run.times, low, high, color=colour, alpha=0.2, lw=0)
            axis.plot(run.times, run.loss, "k--", lw=1.5, label="lazy limit")
            if (label, depth) in result.learned:
                learned = result.learned[label, depth]["loss"].mean(0)
                axis.plot(run.times, learned, color="#d55e00", lw=1.5, label="limit with feature learning")
            axis.set(title=f"{label}, depth {depth}", xlabel="step", yscale="log")
            log_ticks(axis)
        row[0].set_ylabel("training loss")
    legend_beside(figure, axes)
    return figure


def distances(result: Comparison) -> Figure:
    """Distance of the mean prediction from the lazy limit at the last step, against width."""
    labels = list(dict.fromkeys(curve.label for curve in result.curves))
    figure, axes = panels(1, len(result.depths), 4.0, 3.4)
    for axis, depth in zip(axes[0], result.depths, strict=True):
        for label, colour in zip(labels, COLOURS, strict=False):
            curves = [c for c in result.curves if (c.label, c.depth) == (label, depth)]
            if not curves:
                continue
            run = result.limits[label, depth]
            limit = run.f[-1]
            size = np.linalg.norm(limit)
            away = [np.linalg.norm(c.f[-1] - limit) / size for c in curves]
            noise = [np.linalg.norm(c.f_sem[-1]) / size for c in curves]
            axis.loglog([c.width for c in curves], away, "o-", ms=4, color=colour, label=label)
            axis.loglog([c.width for c in curves], noise, ":", lw=1, color=colour, label=f"{label}: standard error")
        axis.set(title=f"depth {depth}", xlabel="width")
        axis.set_xticks(result.widths, [str(w) for w in result.widths])
        axis.minorticks_off()
        log_ticks(axis)
    axes[0, 0].set_ylabel("|mean f − lazy limit| / |limit|")
    legend_beside(figure, axes)
    return figure


def all_figures(result: Comparison) -> Sequence[tuple[str, str, Figure]]:
    """(title, explanation, figure) of everything a report shows."""
    present = {v.observable for v in result.verdicts}
    relative = "Ensemble means over width (bars: ± 2 standard errors), relative to the limit (dashed). The star is the "
    relative += "extrapolation to infinite width. "
    pictures = []
    for observable, title in (
        ("f", "Predictions after training, against their limit"),
        ("nngp", "NNGP at initialisation"),
        ("ntk", "Tangent kernel at initialisation"),
        ("path", "Predictions along training, against their limit"),
        ("ntk_end", "Tangent kernel after training, against its limit"),
    ):
        if observable in present:
            pictures.append((title, relative, convergence(result, observable)))
    spread = (
        "The spread over initialisations falls as 1/width where a deterministic limit exists. In brackets: the fitted "
    )
    spread += "exponent and its 95 % bootstrap interval."
    pictures.insert(1, ("Variance over members", spread, variances(result)))
    pictures.insert(1, ("Training loss", "Means over members, ± 2 standard errors.", losses(result)))
    far = "How far the ensemble's mean prediction is from the lazy limit. A family that learns features levels off."
    pictures.insert(1, ("Distance from the lazy limit", far, distances(result)))
    return pictures
