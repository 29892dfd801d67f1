"""The pictures of an analysis. `runs` are what `analyse` returned, by label: one curve each."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.drawing import colour, gallery, legend_beside, panels

if TYPE_CHECKING:
    import matplotlib.figure

Runs = Mapping[str, dict[str, Any]]


class NothingToDrawError(ValueError):
    """What would be drawn was not measured, or does not exist."""


_NAMES = {"nngp": "last features (NNGP)", "phi": "Φ", "g": "G", "ntk": "NTK"}


def _series(part: dict[str, Any], quantity: str) -> dict[str, np.ndarray]:
    """title → [time, …] of every kernel, of many layers the first, the middle and the last (they may differ in number)."""
    found = {}
    for name, table in part.items():
        value = table.get(quantity)
        if value is None:
            continue
        if name not in ("phi", "g"):
            found[_NAMES[name]] = value
            continue
        last = len(value) - 1
        middle = {"middle layer": len(value) // 2} if last > 1 else {}
        shown = {"first layer": 0, **middle, "last layer": last} if last else {"layer 1": 0}
        found |= {f"{_NAMES[name]}, {word}": value[l] for word, l in shown.items()}
    return found


def _grid(
    rows: dict[str, dict[str, dict[str, Any]]], draw: Callable, ends: tuple[str, str]
) -> "matplotlib.figure.Figure":
    """A panel a quantity and kernel; rows: axis label → run → title → values. ends: labels of x, and of the legend."""
    titles = list(dict.fromkeys(t for runs in rows.values() for each in runs.values() for t in each))
    if not titles:
        raise NothingToDrawError("These runs have no such kernels: analyse them with the parts that measure them.")
    columns, places = min(len(titles), 3), [(label, title) for label in rows for title in titles]
    lines = -(-len(titles) // columns)
    figure, axes = panels(len(rows) * lines, columns, 3.8, 2.8)
    blocks = axes.reshape(len(rows), -1)
    for axis in blocks[:, len(titles) :].flat:
        axis.set_visible(False)
    for axis, (label, title) in zip(blocks[:, : len(titles)].flat, places, strict=True):
        for number, (run, each) in enumerate(rows[label].items()):
            if title in each:
                draw(axis, run, each[title], colour(number))
        axis.set_title(title, fontsize=9)
        axis.set(xlabel=ends[0], ylabel=label if axis.get_subplotspec().is_first_col() else "")
    legend_beside(figure, axes, ends[1] or None)
    return figure


def _over_steps(runs: Runs) -> Callable[[Any, str, np.ndarray, str], None]:
    steps = {label: run["steps"] for label, run in runs.items()}

    def draw(axis: Any, label: str, values: np.ndarray, colour: str) -> None:
        axis.plot(steps[label], values, "o-", ms=3, lw=1.2, color=colour, label=label)
        if max(steps[label]) > 0:
            axis.set_xscale("symlog", linthresh=1)
            axis.set_xlim(left=0)

    return draw


def drift(runs: Runs) -> "matplotlib.figure.Figure":
    """How far kernels have moved from the start, over steps: relative size of the change, and 1 − cosine."""
    moved = {
        name: run.get("kernels", {}).get("drift", {}) | run.get("ntk", {}).get("drift", {})
        for name, run in runs.items()
    }
    return _grid(_rows(moved, relative="|K − K₀| / |K₀|", cosine="1 − cosine"), _over_steps(runs), ("step", ""))


def alignment(runs: Runs) -> "matplotlib.figure.Figure":
    """How well kernels are aligned with labels, over steps: CKA and its unbiased version."""
    aligned = {name: run.get("alignment", {}) for name, run in runs.items()}
    return _grid(_rows(aligned, cka="CKA with labels", cka_unbiased="unbiased CKA"), _over_steps(runs), ("step", ""))


def _rows(tables: dict[str, dict[str, Any]], **labels: str) -> dict[str, dict[str, dict[str, Any]]]:
    """For `_grid`: quantities of kernels by axis label."""
    return {
        label: {name: _series(each, quantity) for name, each in tables.items()} for quantity, label in labels.items()
    }


def spectra(runs: Runs) -> "matplotlib.figure.Figure":
    """Eigenvalues of kernels at the first (dashed) and the last checkpoint, log-log."""

    def draw(axis: Any, label: str, values: np.ndarray, colour: str) -> None:
        for t, style in ((0, "--"), (-1, "-")):
            rank = np.arange(1, values.shape[-1] + 1)
            kept = values[t] > 1e-7 * values[t, 0]  # below is rounding
            axis.loglog(rank[kept], values[t, kept], style, lw=1.2, color=colour, label=label if t == -1 else None)

    tables = {name: {k: v for k, v in run.get("spectra", {}).items() if k != "weights"} for name, run in runs.items()}
    return _grid(_rows(tables, eigenvalues="eigenvalue"), draw, ("rank", "dashed: first step"))


def weights(runs: Runs, names: tuple[str, ...] | None = None) -> "matplotlib.figure.Figure":
    """Singular values of weight matrices at the first (dashed) and the last checkpoint over the edge of a random matrix.

    names: which ones; default the first six, of layers in one array those of the first layer.
    """
    tables = {label: run.get("spectra", {}).get("weights", {}) for label, run in runs.items()}
    wide = [n for table in tables.values() for n, part in table.items() if part["singular_values"].shape[-1] > 1]
    shown = names or tuple(sorted(dict.fromkeys(wide), key=_layer))[:6]
    rows = {
        "singular value / edge": {
            label: {
                name: table[name]["singular_values"] / np.maximum(table[name]["edge"], 1e-300)[:, None]
                for name in shown
                if name in table
            }
            for label, table in tables.items()
        }
    }

    def draw(axis: Any, label: str, values: np.ndarray, colour: str) -> None:
        rank = np.arange(1, values.shape[-1] + 1)
        for t, style in ((0, "--"), (-1, "-")):
            axis.semilogx(rank, values[t], style, lw=1.2, color=colour, label=label if t == -1 else None)
        axis.axhline(1, color="k", lw=0.8, ls=":")

    return _grid(rows, draw, ("rank", "dashed: first step"))


def _layer(name: str) -> list[int]:
    """Which layer of an array it is, "NAME[1]" the second; the first of what is one matrix."""
    return [int(number) for number in name.partition("[")[2].removesuffix("]").split(", ") if number] or [0]


def sharpness(runs: Runs, edges: Mapping[str, float] | None = None) -> "matplotlib.figure.Figure":
    """The largest eigenvalue of the preconditioned Hessian (where there is none, of the Hessian itself) over steps.

    edges: by run, what it is compared with, `edge_of_stability` of its η₀ (dashed).
    """
    figure, axes = panels(1, 1, 3.8, 3.6)
    axis, draw = axes[0, 0], _over_steps(runs)
    for number, (label, run) in enumerate(runs.items()):
        part, own = run["sharpness"], colour(number)
        kind = "preconditioned" if "preconditioned" in part else "hessian"
        draw(axis, label, part[kind]["eigenvalues"][:, 0], own)
        if edges and label in edges:
            shared = len(set(edges.values())) == 1
            axis.axhline(edges[label], color="k" if shared else own, ls="--", lw=1)
    axis.set(xlabel="step", ylabel="largest eigenvalue" + (" (dashed: 2/η₀)" if edges else ""), ylim=(0, None))
    legend_beside(figure, axes)
    return figure


def linearisation(runs: Runs) -> "matplotlib.figure.Figure":
    """Distance from the linearisation at the start over steps, relative to the movement of outputs; and of parameters."""
    figure, axes = panels(1, 2, 3.8, 3.4)
    draw = _over_steps(runs)
    for number, (label, run) in enumerate(runs.items()):
        part, own = run["linearisation"], colour(number)
        draw(axes[0, 0], label, part["train"]["relative"], own)
        if "test" in part:
            axes[0, 0].plot(run["steps"], part["test"]["relative"], "--", lw=1, color=own)
        draw(axes[0, 1], label, part["parameters"]["all"]["relative"], own)
    axes[0, 0].set(
        xlabel="step", ylabel="|f − f_lin| / |f − f(0)|", title="outputs (dashed: test points)", ylim=(0, None)
    )
    axes[0, 1].set(xlabel="step", ylabel="|θ − θ₀| / |θ₀|", title="parameters", ylim=(0, None))
    for axis in axes.flat:
        axis.title.set_fontsize(9)
    legend_beside(figure, axes)
    return figure


def distances(compared: Mapping[str, dict[str, Any]], steps: Any, name: str = "twin") -> "matplotlib.figure.Figure":
    """What `against_twin` returned, over steps: mean over members ± 2 standard errors, and of the mean; dotted: noise."""
    present = {q: part for q, part in compared.items() if "absent" not in part}
    if not present:
        raise ValueError("Nothing to draw: " + "; ".join(f"{q}: {part['absent']}" for q, part in compared.items()))
    figure, axes = gallery(len(present), 3.8, 3.2)
    for axis, (quantity, part) in zip(axes.flat, present.items(), strict=False):
        layers = np.atleast_2d(part["mean"])
        for l in range(len(layers)):
            mean, sem, of_mean, noise = (np.atleast_2d(part[key])[l] for key in ("mean", "sem", "of_mean", "noise"))
            word = f"layer {l + 1}" if len(layers) > 1 else "each member"
            axis.plot(steps, mean, "o-", ms=3, lw=1.2, color=colour(l), label=word)
            axis.fill_between(steps, mean - 2 * sem, mean + 2 * sem, color=colour(l), alpha=0.2, lw=0)
            if len(part["each"]) > 1:
                axis.plot(steps, of_mean, "--", lw=1, color=colour(l))
                axis.plot(steps, noise, ":", lw=1, color=colour(l))
        axis.set(title=_NAMES.get(quantity, quantity), xlabel="step", yscale="log")
        axis.title.set_fontsize(9)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"|K − {name}| / |{name}|")
    several = any(len(part["each"]) > 1 for part in present.values())
    legend_beside(figure, axes, "dashed: mean, dotted: its noise" if several else None)
    return figure
