"""One report in three forms: what it says is on the terminal, on the page and in JSON, and nothing in it is markup."""

import io
import json
import re

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from limits.kept.store import unsealed
from train.evaluate.drawing import at_sizes, panels
from train.evaluate.exploration import Exploration, Series
from train.evaluate.finding import Finding
from train.evaluate.report import Folded, Picture, Report, Table, Text, notes

FINDINGS = [
    Finding("<a> is [bold]b[/bold]", True, "1 [0, 2]"),
    Finding("c", False, "2"),
    Finding("d", None, "3"),
    Finding("e", False, "4", foreseen=True),
]


def made(**options):
    figure, axes = panels(1, 1, 2.0, 2.0)
    axes[0, 0].plot([8, 16], [1.0, 2.0])
    at_sizes(axes[0, 0], [8, 16])
    behind = Table(("width", "p"), [("8", "0.5")], screen=0)
    parts = [
        Text("Some."),
        Table.of(FINDINGS),
        Picture("Widths", "Lines.", figure),
        Folded("More", [*notes(["Note"]), behind]),
    ]
    return Report("What <is>", parts, {"p": np.array([0.5, np.nan]), "n": np.int64(3)}, {"seed": 0}, **options)


def test_the_terminal():
    console = Console(record=True, width=80, file=io.StringIO())
    made().print(console)
    shown = console.export_text()
    assert all(word in shown for word in ("What <is>", "Some.", "<a> is", "1 [0, 2]", "does not hold", "Note"))
    assert "0.5" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_page():
    page = made().html()
    assert "<h1>What &lt;is&gt;</h1>" in page
    assert "&lt;a&gt; is" in page
    kinds = ["good", "bad", "unsure", "foreseen"]
    assert [page.index(f'<td class="{kind}">{each.verdict}') for kind, each in zip(kinds, FINDINGS, strict=True)]
    assert page.count("data:image/png;base64,") == 1
    assert page.index("<details>") < page.index("Note") < page.index("0.5</td>") < page.index("</details>")
    assert "&quot;seed&quot;: 0" in page.partition("What was run")[2]


def test_the_numbers(tmp_path):
    numbers, page = made().write(tmp_path)
    assert json.loads(numbers.read_text()) == {"p": [0.5, "nan"], "n": 3}
    assert page.read_text() == made().html()
    assert {each.name for each in tmp_path.iterdir()} == {"report.json", "report.html"}
    assert unsealed(made(checksum=True).json()) == {"p": [0.5, "nan"], "n": 3}


def explored() -> Exploration:
    grid = [0.1, 0.2]
    curves = [
        Series({"of": "a</script>", "width": n}, {"rate": grid}, [n / 3, np.inf], [n / 4, np.nan]) for n in (16, 8)
    ]
    limit = Series({"of": "a</script>", "width": "limit"}, {"rate": [0.1, 0.2]}, [0.123456789, 2])
    return Exploration("S<", "Move.", "loss", [*curves, limit], ("width",), {"rate": np.float64(0.2)})


def test_numbers_with_sliders_are_those_of_the_file():
    report = Report("What", [Text("Some."), explored()], {"p": 1})
    page, (numbers,) = report.html(), json.loads(report.json())["explore"]
    (embedded,) = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert json.loads(embedded) == numbers
    assert numbers["axes"] == [{"name": "of", "values": ["a</script>"]}, {"name": "width", "values": [8, 16, "limit"]}]
    assert numbers["grids"] == [[0.1, 0.2]]
    assert [(c["at"], c["value"], c.get("low")) for c in numbers["cells"]] == [
        ([0, 1], [5.33333, "inf"], [4.0, "inf"]), ([0, 0], [2.66667, "inf"], [2.0, "inf"]), ([0, 2], [0.123457, 2.0], None),
    ]  # fmt: skip
    assert page.count("<script>") == 1
    assert "http" not in page  # it needs no network
    assert "<script" not in made().html()  # nothing moves there
    assert 'data-live="a&quot;"' in made().html(live='a"')


def test_a_picture_is_what_savefig_makes_and_the_figure_stays_as_it_was():
    one, other = (Figure(figsize=(5, 2), layout="constrained") for _ in range(2))
    for figure in (one, other):
        figure.subplots(1, 2)[0].loglog([1, 10, 100], [3, 2, 1], label="a line")
    before, buffer = (one.dpi, one.canvas), io.BytesIO()
    made = Picture("Lines", "", one)._png()
    assert (one.dpi, one.canvas) == before
    other.savefig(buffer, format="png", dpi=110)
    assert made == buffer.getvalue()
