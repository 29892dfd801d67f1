"""The one report of every command: text, tables and pictures in an order, on the terminal, as a page, and numbers as JSON."""

import base64
import dataclasses
import html
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import rich.table
from rich.console import Console

from limits.kept.store import sealed, write_whole
from train.evaluate.exploration import Exploration, script
from train.evaluate.finding import STYLES, Finding

if TYPE_CHECKING:
    import matplotlib.figure

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>limit-zoo: {name}</title><style>
{style}</style></head><body{live}><h1>{title}</h1>{body}{script}</body></html>"""


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph; or, by its kind, a "title", a "muted" note on how to read the rest, "code": a command, to be copied."""

    text: str
    kind: str = ""

    def _repr_html_(self) -> str:
        tag = {"title": "h2", "code": "pre"}.get(self.kind, "p")
        return f'<{tag} class="{self.kind}">{html.escape(self.text)}</{tag}>'

    def _print(self, console: Console) -> None:
        style, before = {"title": ("bold", "\n"), "muted": ("dim", ""), "code": ("", "  "), "": ("", "")}[self.kind]
        console.print(before + self.text, style=style, highlight=False, markup=False, soft_wrap=self.kind == "code")


@dataclasses.dataclass(frozen=True)
class Table:
    """Words under columns, with a title above and a caption. kinds: of each row that of its `Finding`, which colours the row on
    the terminal and, on the page, its cell under "verdict". screen: so many columns fit on the terminal; 0: it is not printed.

    >>> Table(("claim", "verdict"), [("a < b", "holds")], ["good"])._repr_html_().partition("<tbody>")[2][:60]
    '<tr><td>a &lt; b</td><td class="good">holds</td></tr></tbody'
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    kinds: Sequence[str] = ()
    title: str = ""
    caption: str = ""
    screen: int | None = None

    @classmethod
    def of(cls, findings: Sequence[Finding]) -> "Table":
        """Findings, a row each."""
        rows = [(each.sentence, each.verdict, each.figures) for each in findings]
        return cls(("claim", "verdict", "figures"), rows, [each.kind for each in findings])

    def _lines(self) -> list[tuple[Sequence[str], str]]:
        return list(zip(self.rows, self.kinds or [""] * len(self.rows), strict=True))

    def _repr_html_(self) -> str:
        head, body = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns), []
        for row, kind in self._lines():
            marks = [f' class="{kind}"' if kind and name == "verdict" else "" for name in self.columns]
            cells = (f"<td{mark}>{html.escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True))
            body.append(f"<tr>{''.join(cells)}</tr>")
        above = [Text(self.title, "title"), Text(self.caption)]
        words = "".join(each._repr_html_() for each in above if each.text)
        rows = f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
        return f'{words}<div class="scroll"><table>{rows}</table></div>'

    def __rich__(self) -> rich.table.Table:
        shown = rich.table.Table(title=self.title or None, caption=self.caption or None)
        for name in self.columns[: self.screen]:
            shown.add_column(name, overflow="fold")
        for row, kind in self._lines():
            shown.add_row(*row[: self.screen], style=STYLES[kind])
        return shown

    def _print(self, console: Console) -> None:
        if self.screen != 0:
            console.print(self)


class Picture(NamedTuple):
    """A figure under its title, with a line on how to read it; on the page alone."""

    title: str
    text: str
    figure: "matplotlib.figure.Figure"

    def _repr_html_(self) -> str:
        data, title = base64.b64encode(self._png()).decode(), html.escape(self.title)
        image = f'<img src="data:image/png;base64,{data}" alt="{title}">'
        return f'<h2>{title}</h2>{Text(self.text)._repr_html_()}<div class="scroll">{image}</div>'

    def _png(self, dpi: float = 110) -> bytes:
        """As `savefig` makes it, which draws everything twice."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figure, buffer = self.figure, io.BytesIO()
        before = figure.dpi, figure.canvas
        try:
            figure.set_dpi(dpi)
            FigureCanvasAgg(figure).print_png(buffer)
        finally:
            figure.set_dpi(before[0])
            figure.set_canvas(before[1])
        return buffer.getvalue()

    def _print(self, console: Console) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Folded:
    """Parts that few want to see: on the page behind a line that opens."""

    title: str
    parts: Sequence["Part"]

    def _repr_html_(self) -> str:
        body = "".join(part._repr_html_() for part in self.parts)
        return f"<details><summary>{html.escape(self.title)}</summary>{body}</details>"

    def _print(self, console: Console) -> None:
        for part in self.parts:
            part._print(console)


Part = Text | Table | Picture | Folded | Exploration


def notes(lines: Iterable[str]) -> list[Text]:
    """On how to read the rest."""
    return [Text(line, "muted") for line in lines]


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command has found. numbers: of the file of JSON; run: what was run, folded away; tab: the page's short name.

    checksum: whether the file of JSON holds one (`limits.kept.store.sealed`), for those that are read back.

    >>> report = Report("Sizes", [Text("They differ."), Table(("size",), [("3",)])], {"sizes": np.array([3.0, np.inf])})
    >>> json.loads(report.json())
    {'sizes': [3.0, 'inf']}
    """

    title: str
    parts: Sequence[Part]
    numbers: Mapping[str, Any]
    run: Mapping[str, Any] | None = None
    tab: str = ""
    checksum: bool = False

    def print(self, console: Console) -> None:
        """On the terminal."""
        for part in [Text(self.title, "title"), *self.parts]:
            part._print(console)

    def html(self, live: str = "") -> str:
        """One self-contained page; one that asks for the next while it is `live`, a word that changes with what is in it."""
        run = [] if self.run is None else [Folded("What was run", [Text(json.dumps(self.run, indent=2), "code")])]
        body = "".join(part._repr_html_() for part in [*self.parts, *run])
        moved = f"<script>{script()}</script>" if self._explorations or live else ""
        return _PAGE.format(
            name=html.escape(self.tab or self.title),
            style=resources.files("train.evaluate").joinpath("page.css").read_text(encoding="utf-8"),
            live=f' data-live="{html.escape(live)}"' if live else "",
            title=html.escape(self.title),
            body=body,
            script=moved,
        )

    @property
    def _explorations(self) -> list[Exploration]:
        return [part for part in self.parts if isinstance(part, Exploration)]

    def json(self) -> str:
        """Every number; under "explore" those with sliders."""
        numbers = plain(self.numbers)
        if self._explorations:
            numbers |= {"explore": [part.numbers for part in self._explorations]}
        return sealed(numbers) if self.checksum else json.dumps(numbers, indent=1) + "\n"

    def documents(self, name: str = "report") -> dict[str, str]:
        """{file name: text} of both files."""
        return {f"{name}.json": self.json(), f"{name}.html": self.html()}

    def write(self, folder: str | Path, name: str = "report") -> list[Path]:
        """Writes both, each whole or not at all, and returns their paths."""
        documents = {Path(folder) / file: text for file, text in self.documents(name).items()}
        for file, text in documents.items():
            write_whole(file, text.encode())
        return list(documents)


def numbers_in(file: Any) -> dict[str, Any]:
    """What a file of JSON says; nothing where there is none, or none that can be read."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def plain(value: Any) -> Any:
    """JSON has no NaN, infinity or arrays."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
