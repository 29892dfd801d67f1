"""The pictures of a comparison."""

import textwrap
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.compare import Comparison, Curves
from train.evaluate.drawing import COLOURS, at_sizes, legend_beside, log_ticks, panels, shades
from train.evaluate.report import Picture
from train.evaluate.verdict import Verdict

if TYPE_CHECKING:
    import matplotlib.figure

_RELATIVE = (
    "Ensemble means over width (bars: ± 2 standard errors), relative to the limit (dashed). The star is the extrapolation to "
    "infinite width. Dotted, where it was asked for (order=2 in config.rich): what the limit predicts to first order in 1/N."
)
_CONVERGENCE = {  # observable: title
    "f": "Predictions after training, against their limit",
    "nngp": "NNGP at initialisation",
    "ntk": "Tangent kernel at initialisation",
    "path": "Predictions along training, against their limit",
    "ntk_end": "Tangent kernel after training, against its limit",
}


def _by_family(
    result: Comparison, labels: Sequence[str], there: Container[tuple[str, int]], draw: Callable, quantity: str
) -> tuple["matplotlib.figure.Figure", np.ndarray]:
    """A row a family, a column a depth; draw(axis, label, depth) of those that are there: others diverged, or were not asked
    for (`depths` in config.rich), which leaves a gap."""
    figure, axes = panels(len(labels), len(result.depths), 4.0, 2.9)
    for row, label in zip(axes, labels, strict=True):
        shown = []
        for axis, depth in zip(row, result.depths, strict=True):
            if (label, depth) in there:
                draw(axis, label, depth)
            elif any(lost.label in label and lost.depth == depth for lost in result.diverged):
                axis.set(title=f"{label}, depth {depth}: diverged")
            else:
                axis.set_axis_off()
                continue
            shown.append(axis)
        for axis in shown[:1]:
            axis.set_ylabel(quantity)
    return figure, axes


def convergence(result: Comparison, observable: str) -> "matplotlib.figure.Figure":
    """Ensemble means against 1/width, relative to the limit, with the extrapolation at 1/width = 0."""
    judged = {(v.label, v.depth): v for v in result.verdicts if v.observable == observable}

    def draw(axis: Any, label: str, depth: int) -> None:
        verdict = judged[label, depth]
        for (name, part), colour in zip(_chosen(verdict), COLOURS, strict=False):
            scale = abs(part["limit"])
            means, sems = np.array(part["means"]) / scale, np.array(part["sems"]) / scale
            bars: dict[str, Any] = {"capsize": 2, "color": colour}
            axis.errorbar(1 / np.array(result.widths), means, 2 * sems, fmt="o-", ms=3.5, lw=1, label=name, **bars)
            if part["predicted"]:
                said = np.array([part["limit"], *part["predicted"][::-1]]) / scale
                axis.plot([0, *(1 / np.array(result.widths[::-1]))], said, ":", lw=1.4, color=colour)
            axis.errorbar([0], [part["extrapolated"] / scale], [2 * part["sem"] / scale], fmt="*", ms=9, **bars)
        axis.axhline(1, color="k", ls="--", lw=1)
        found = textwrap.fill(verdict.sentence, 46)
        axis.set(title=f"{label}, depth {depth}, {verdict.against}\n{found}", xlabel="1 / width")
        axis.title.set_fontsize(9)

    labels = list(dict.fromkeys(label for label, _ in judged))
    figure, axes = _by_family(result, labels, judged, draw, "ensemble mean / limit")
    legend_beside(figure, axes, "projection")
    return figure


def _chosen(verdict: Verdict) -> list[tuple[str, dict]]:
    """Projections that are large enough to be drawn relative to their limits."""
    largest = max(abs(part["limit"]) for part in verdict.projections.values())
    kept = [(n, part) for n, part in verdict.projections.items() if abs(part["limit"]) > 0.02 * largest]
    return kept[:5]


def variances(result: Comparison) -> "matplotlib.figure.Figure":
    """Variance over members against width, log-log."""
    figure, axes = panels(1, len(result.depths), 4.0, 3.8)
    widths = np.array(result.widths, float)
    for axis, depth in zip(axes[0], result.depths, strict=True):
        lines = [(v, v.variance) for v in result.verdicts if v.depth == depth and v.variance is not None]
        for (verdict, law), colour in zip(lines, COLOURS * 3, strict=False):
            text = f"{verdict.name}, {verdict.label}: {law}"
            axis.loglog(widths, law.values, "o-", ms=3.5, lw=1, color=colour, label=text)
        if lines:
            top = max(law.values[0] for _, law in lines)
            axis.loglog(widths, 1.6 * top * widths[0] / widths, "k--", lw=1, label="1 / width")
            axis.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.24))
        axis.set(title=f"depth {depth}", xlabel="width")
        at_sizes(axis, result.widths)
        log_ticks(axis)
    axes[0, 0].set_ylabel("variance / limit²")
    return figure


def _curves(result: Comparison, label: str, depth: int) -> list[Curves]:
    return [each for each in result.curves if (each.label, each.depth) == (label, depth)]


def losses(result: Comparison) -> "matplotlib.figure.Figure":
    """Training loss of ensembles of each width, and of their limits."""
    by_width = dict(zip(result.widths, shades(len(result.widths), 0.1), strict=True))

    def draw(axis: Any, label: str, depth: int) -> None:
        run = result.limits.get((label, depth))
        for curve in _curves(result, label, depth):
            colour = by_width[curve.width]
            axis.plot(result.times, curve.loss, color=colour, lw=1.2, label=f"width {curve.width}")
            low, high = curve.loss - 2 * curve.loss_sem, curve.loss + 2 * curve.loss_sem
            axis.fill_between(result.times, low, high, color=colour, alpha=0.2, lw=0)
        if run is not None:
            axis.plot(run.times, run.loss, "k--", lw=1.5, label="lazy limit")
        if (label, depth) in result.learned:
            learned = result.learned[label, depth]["loss"].mean(0)
            axis.plot(result.times, learned, color="#d55e00", lw=1.5, label="limit with feature learning")
        axis.set(title=f"{label}, depth {depth}", xlabel="step", yscale="log")
        log_ticks(axis)

    labels = list(dict.fromkeys(curve.label for curve in result.curves))
    figure, axes = _by_family(result, labels, {**result.limits, **result.learned}, draw, "training loss")
    legend_beside(figure, axes)
    return figure


def distances(result: Comparison) -> "matplotlib.figure.Figure":
    """Distance of the mean prediction from the lazy limit at the last step, against width."""
    labels = list(dict.fromkeys(curve.label for curve in result.curves))
    figure, axes = panels(1, len(result.depths), 4.0, 3.4)
    for axis, depth in zip(axes[0], result.depths, strict=True):
        for label, colour in zip(labels, COLOURS, strict=False):
            curves = _curves(result, label, depth)
            if not curves or (label, depth) not in result.limits:
                continue
            limit = result.limits[label, depth].f[-1]
            size, widths = np.linalg.norm(limit), [c.width for c in curves]
            away = [np.linalg.norm(c.f[-1] - limit) / size for c in curves]
            noise = [np.linalg.norm(c.f_sem[-1]) / size for c in curves]
            axis.loglog(widths, away, "o-", ms=4, color=colour, label=label)
            axis.loglog(widths, noise, ":", lw=1, color=colour, label=f"{label}: standard error")
        axis.set(title=f"depth {depth}", xlabel="width")
        at_sizes(axis, result.widths)
        log_ticks(axis)
    axes[0, 0].set_ylabel("|mean f − lazy limit| / |limit|")
    legend_beside(figure, axes)
    return figure


def all_figures(result: Comparison) -> list[Picture]:
    """Everything a report shows."""
    present = {v.observable for v in result.verdicts}
    first, *others = [
        Picture(title, _RELATIVE, convergence(result, observable))
        for observable, title in _CONVERGENCE.items()
        if observable in present
    ]
    far = "How far the ensemble's mean prediction is from the lazy limit. A family that learns features levels off."
    spread = (
        "The spread over initialisations falls as 1/width where a deterministic limit exists. In brackets: the fitted "
        "exponent and its 95 % bootstrap interval."
    )
    return [
        first,
        *([Picture("Distance from the lazy limit", far, distances(result))] if result.limits else []),
        Picture("Training loss", "Means over members, ± 2 standard errors.", losses(result)),
        Picture("Variance over members", spread, variances(result)),
        *others,
    ]
