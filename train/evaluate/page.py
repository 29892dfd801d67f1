"""What every report shares: a self-contained page, and numbers that JSON can hold."""

import base64
import html
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff }
body { max-width: 1180px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p { max-width: 52rem } img { max-width: 100%; height: auto }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .82rem }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; white-space: nowrap }
.wrap th, .wrap td { white-space: normal; vertical-align: top }
.good { color: #116329 } .bad { color: #a40e26 } .unsure { color: #7d4e00 }
details { margin: 1rem 0 } summary { cursor: pointer; color: #57606a }
pre { background: #f6f8fa; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem }
.muted { color: #57606a }
"""


def panels(rows: int, columns: int, width: float, height: float, margin: float = 1.2) -> tuple[Figure, np.ndarray]:
    """An empty figure and its axes [row, column], each so many inches wide and high."""
    figure = Figure(figsize=(margin + width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    return figure, axes


def log_ticks(axis: Any) -> None:
    """Numbers at 1, 2 and 5 of every decade of a vertical logarithmic axis: one decade alone may have no other."""
    drawn = np.concatenate([np.ravel(line.get_ydata()) for line in axis.lines] or [np.zeros(0)])
    if not (drawn > 0).any():  # diverged, or nothing: there is no scale
        return
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    axis.yaxis.set_minor_formatter(NullFormatter())


def legend_beside(figure: Figure, axes: np.ndarray, title: str | None = None, **options: Any) -> None:
    """One legend for all axes, right of them, where it hides nothing."""
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), handles, loc="outside right upper", fontsize=8, title=title, **options)


def as_png(figure: Figure) -> str:
    """The figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def page(title: str, body: str) -> str:
    """A whole HTML document."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>limit-zoo: {html.escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[dict[int, str]] = (), wrap: bool = False
) -> str:
    """An HTML table; kinds: of every row, {column: good | bad | unsure}. wrap: cells are sentences, which may break."""
    lines = []
    for row, kind in zip(rows, kinds or [{}] * len(rows), strict=True):
        cells = (f'<td class="{kind.get(i, "")}">{html.escape(cell)}</td>' for i, cell in enumerate(row))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    kind = "wrap" if wrap else "scroll"
    return f'<div class="{kind}"><table><thead><tr>{names}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def folded(title: str, body: str) -> str:
    """What few want to see: a line that opens."""
    return f"<details><summary>{html.escape(title)}</summary>{body}</details>"


def what_was_run(run: Any) -> str:
    """The settings, folded away."""
    return folded("What was run", f"<pre>{html.escape(json.dumps(run, indent=2))}</pre>")


def heading(text: str) -> str:
    """The heading of a page: names of runs come from outside."""
    return f"<h1>{html.escape(text)}</h1>"


def picture(title: str, text: str, figure: Figure) -> str:
    """A figure under its title, with a line on how to read it."""
    return f'<h2>{html.escape(title)}</h2><p>{html.escape(text)}</p><img src="{as_png(figure)}" alt="{html.escape(title)}">'


def plain(value: Any) -> Any:
    """JSON has no NaN, infinity or arrays."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
