"""What every picture shares: panels, colours, ticks and legends that hide nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import matplotlib.figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def panels(
    rows: int, columns: int, width: float, height: float, margin: float = 1.2
) -> tuple["matplotlib.figure.Figure", np.ndarray]:
    """An empty figure and its axes [row, column], each so many inches wide and high."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(margin + width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes


def gallery(
    count: int, width: float, height: float, margin: float = 1.2
) -> tuple["matplotlib.figure.Figure", np.ndarray]:
    """The same of so many panels, three in a row; the axes of what is left of the last row are hidden."""
    columns = min(count, 3)
    figure, axes = panels(-(-count // columns), columns, width, height, margin)
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, axes


def colour(number: int) -> str:
    """Of a curve; after the last one the first again."""
    return COLOURS[number % len(COLOURS)]


def shades(count: int, end: float = 0.0) -> list[Any]:
    """Colours of so many curves that follow one another, from light to dark."""
    from matplotlib import colormaps  # slow to import

    return [colormaps["viridis"](0.9 - (0.9 - end) * i / max(count - 1, 1)) for i in range(count)]


def at_sizes(axis: Any, sizes: Sequence[float]) -> None:
    """Ticks of the horizontal axis at these widths or depths alone."""
    from matplotlib.ticker import NullLocator

    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(sizes, [f"{size:g}" for size in sizes])


def log_ticks(axis: Any, along: str = "y") -> None:
    """Numbers at 1, 2 and 5 of every decade of a logarithmic axis, x or y: one decade alone may have no other, or too many.

    Not over many decades, where they would not fit and none were shown; nor where nothing is drawn.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    lines = [np.ravel(np.asarray(getattr(line, f"get_{along}data")(), float)) for line in axis.lines]
    drawn = np.concatenate(lines or [np.zeros(0)])
    drawn = drawn[(drawn > 0) & np.isfinite(drawn)]
    if not drawn.size or drawn.max() > 1e3 * drawn.min():
        return
    which = getattr(axis, f"{along}axis")
    which.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    which.set_major_formatter(lambda value, _: f"{value:.3g}")
    which.set_minor_formatter(NullFormatter())


def legend_beside(
    figure: "matplotlib.figure.Figure", axes: np.ndarray, title: str | None = None, **options: Any
) -> None:
    """One legend for all axes, right of them, where it hides nothing."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), handles, loc="outside right upper", fontsize=8, title=title, **options)
