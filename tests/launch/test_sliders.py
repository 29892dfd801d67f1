"""Sliders of the reports of transfer, predict and compare: every one is moved, and what is drawn is in report.json."""

import functools
import itertools
import json
import math
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest

from train.data import make_task
from train.evaluate import compare
from train.evaluate.compare_report import report as compare_report
from train.study.predicted import forecasts
from train.transfer import Outcome, Sweep
from train.transfer.predicted_report import report as predicted_report
from train.transfer.report import report
from zoo import MLP

pytestmark = [pytest.mark.slow, browser.needed]
X = np.arange(-4.0, 4.0)
STEPS = 30
# Moves every slider and every choice through all of its places; after each move, all that is drawn.
MOVE = """
const read = (section) => ({
  chosen: Object.fromEntries([...section.querySelectorAll(".controls label")].map((label) => {
    const input = label.querySelector("input, select");
    const shown = input.tagName === "SELECT" ? input.selectedOptions[0] : label.querySelector("output");
    return [label.dataset.name, shown.textContent];
  })),
  readout: section.querySelector(".readout strong").dataset.value,
  panels: [...section.querySelectorAll("svg")].map((svg) => ({
    axis: svg.dataset.axis,
    ticks: ["x", "y"].map((d) => [...svg.querySelectorAll(`.tick[data-${d}]`)].map((t) => [+t.dataset[d], +t.getAttribute(d)])),
    lines: [...svg.querySelectorAll("g")].map((g) => ({
      chosen: "chosen" in g.dataset,
      points: [...g.querySelectorAll("[data-value]")].map((p) => ({
        x: p.dataset.x, value: p.dataset.value, now: p.classList.contains("now"), tag: p.tagName,
        at: [p.getAttribute("cx"), p.getAttribute("cy") ?? p.getAttribute("y1")].map((z) => z && +z),
      })),
    })),
  })),
});
const views = [...document.querySelectorAll(".explore")].map((section) => {
  const seen = [{ moved: "", ...read(section) }];
  for (const label of section.querySelectorAll(".controls label")) {
    const input = label.querySelector("input, select");
    const count = input.tagName === "SELECT" ? input.options.length : +input.max + 1;
    for (let i = count - 1; i >= 0; i--) {
      input.value = i;
      input.dispatchEvent(new Event("input", { bubbles: true }));
      seen.push({ moved: label.dataset.name, ...read(section) });
    }
  }
  return seen;
});
out = JSON.stringify(views)
"""


def sweep(width: float, depth: int = 2, shift: float = 0.0) -> Sweep:
    """Losses that fall along training, and diverge at the largest value of small widths."""
    noise = 0.02 * np.random.default_rng(int(min(width, 1e6)) + depth).normal(size=(len(X), 3, 1))
    floor = np.exp(-1 + 4 / width + 0.1 * depth + 0.2 * (X + 1.5 - shift) ** 2)[:, None, None] * np.exp(noise)
    curves = floor + 3 * np.exp(-np.arange(STEPS) / 6)
    if width < 32:
        curves[-1, 0, 12:] = np.inf
    return Sweep(width, depth, 2.0**X, curves)


def transferred() -> Outcome:
    """Two settings, two axes besides, sizes of a cross."""
    sizes: list[tuple[float, int]] = [(16, 2), (32, 2), (64, 2), (16, 4)]
    labels = {f"{rule}, {g}": {"setting": rule, "gamma": g} for rule in ("sgd", "a <b>") for g in (0.5, 2.0)}
    sweeps = {label: {s: sweep(*s, at["gamma"]) for s in sizes} for label, at in labels.items()}
    return Outcome("learning_rate", sweeps, {label: {2: sweep(np.inf)} for label in labels}, labels)


def of_transfer(folder: Path) -> Path:
    report(transferred(), {}, "command").write(folder)
    return folder / "report.html"


def of_predict(folder: Path) -> Path:
    outcome = Outcome(
        "learning_rate", {"one": {(n, 2): sweep(n) for n in (32, 64, 128, 256)}}, {}, {"one": {"setting": "one"}}
    )
    predicted_report(outcome, forecasts(outcome, (256, 2), 0.9), {}, "").write(folder, "report")
    return folder / "report.html"


def of_compare(folder: Path) -> Path:
    task = make_task("sphere", n_train=4, n_test=2, dim=3)
    made: dict[str, Any] = {p: functools.partial(MLP, activation="erf", parameterization=p) for p in ("mup",)}
    found = compare(made, (8, 16), (1, 2), task, 6, 0.1, 8, 8, rich={"samples": 32, "replicas": 4})
    compare_report(found, {}).write(folder)
    return folder / "report.html"


PAGES = {"transfer": of_transfer, "predict": of_predict, "compare": of_compare}


def number(word: Any) -> float:
    """Of JSON, or as a page shows it."""
    return float(str(word).replace("−", "-"))


def coordinate(word: str) -> Any:
    """A number where it is one."""
    try:
        return number(word)
    except ValueError:
        return word


def entries(explored: dict[str, Any]) -> dict[Any, set[float]]:
    """{place: values} of all that the file has."""
    found: dict[Any, set[float]] = {}
    inner, axes = explored["inner"], explored["axes"]
    for cell in explored["cells"]:
        grids = [explored["grids"][i] for i in cell["grids"]]
        outer = {axis["name"]: axis["values"][i] for axis, i in zip(axes, cell["at"], strict=True)}
        for place in itertools.product(*(range(len(grid)) for grid in grids)):
            value = cell["value"]
            for i in place:
                value = value[i]
            at = outer | {name: grid[i] for name, grid, i in zip(inner, grids, place, strict=True)}
            found.setdefault(key(at), set()).add(number(value))
    return found


def key(at: dict[str, Any]) -> Any:
    return tuple(sorted((name, at[name] if isinstance(at[name], str) else float(at[name])) for name in at))


def without(at: dict[str, Any], names: Any) -> Any:
    return key({name: x for name, x in at.items() if name not in names})


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: Any) -> Any:
    """The page of a command, made once."""
    return functools.cache(lambda command: PAGES[command](tmp_path_factory.mktemp(command)))


@pytest.fixture(scope="module", params=PAGES)
def moved(request: Any, page_of: Any) -> Any:
    """(what the page's numbers are, what was drawn after every move), for every page."""
    page = page_of(request.param)
    folder = page.parent
    assert page.stat().st_size < 5e6
    document = json.loads((folder / "report.json").read_text())
    views = json.loads(browser.written(page, MOVE, folder / "moved.html"))
    return document, views


def test_every_slider_moves_through_all_its_numbers(moved: Any):
    document, views = moved
    assert len(views) == len(document["explore"]) > 0
    for explored, seen in zip(document["explore"], views, strict=True):
        several = {axis["name"] for axis in explored["axes"] if len(axis["values"]) > 1}
        several |= {name for name in explored["inner"] if len(explored["grids"][0]) > 1}
        assert {view["moved"] for view in seen} == {"", *several}
        for axis in explored["axes"]:
            shown = {view["chosen"][axis["name"]] for view in seen if view["moved"] == axis["name"]}
            assert (
                shown == {f"{v:g}" if not isinstance(v, str) else v for v in axis["values"]} or len(axis["values"]) == 1
            )


def test_what_is_drawn_is_in_the_file(moved: Any):
    document, views = moved
    compared = 0
    for explored, seen in zip(document["explore"], views, strict=True):
        known, fitting = entries(explored), dict[Any, dict[Any, set[float]]]()
        exact = {f"{v:.4g}": v for axis in explored["axes"] for v in axis["values"] if not isinstance(v, str)}
        exact |= {f"{v:.4g}": v for grid in explored["grids"] for v in grid}
        fixed = {axis["name"]: axis["values"][0] for axis in explored["axes"]}
        fixed |= {
            name: explored["grids"][explored["cells"][0]["grids"][i]][0] for i, name in enumerate(explored["inner"])
        }
        for view in seen:
            words = {name: coordinate(word) for name, word in view["chosen"].items()}
            chosen = fixed | {n: w if isinstance(w, str) else exact[f"{w:.4g}"] for n, w in words.items()}
            assert {number(view["readout"])} == known[key(chosen)], view["moved"]
            for panel in view["panels"]:
                (line,) = [line for line in panel["lines"] if line["chosen"]]
                now = [p for p in line["points"] if p["now"]]
                if len(now) == 1:
                    assert now[0]["value"] == view["readout"]
                free = frozenset(explored["together"]) - {panel["axis"]}
                if free not in fitting:
                    fitting[free] = {}
                    for place, values in known.items():
                        fitting[free].setdefault(without(dict(place), free), set()).update(values)
                for each in panel["lines"]:
                    for point in each["points"]:
                        like = chosen | {panel["axis"]: coordinate(point["x"])}
                        if each is line and point["tag"] == "circle":  # all else is what is chosen
                            matching = known[key(like)]
                        else:
                            matching = fitting[free][without(like, free)]
                        assert number(point["value"]) in matching
                        compared += 1
    assert compared > 200


def test_points_lie_where_the_ticks_say(moved: Any):
    _, views = moved
    checked = 0
    for panel in (panel for seen in views for view in seen for panel in view["panels"]):
        for d in (0, 1):
            ticks = np.array(sorted(panel["ticks"][d]), float).reshape(-1, 2)
            assert len(ticks) > d, panel["axis"]
            assert len(np.unique(ticks[:, 0])) == len(ticks), panel["axis"]
            if len(ticks) < 3:
                continue
            straight = abs(np.diff(ticks[:, 1]) / np.diff(ticks[:, 0]))
            log = np.ptp(straight) > 1e-6 * straight.max()
            place = np.log(ticks[:, 0]) if log else ticks[:, 0]
            slope, start = np.polyfit(place, ticks[:, 1], 1)
            np.testing.assert_allclose(slope * place + start, ticks[:, 1], atol=4.1)  # labels sit 4 below their lines
            for point in (p for line in panel["lines"] for p in line["points"] if p["tag"] == "circle"):
                value = number(point["value"] if d else point["x"])
                drawn = start + slope * (math.log(value) if log else value) - (4 if d else 0)
                assert abs(drawn - point["at"][d]) < 1e-3 * 250
                checked += 1
    assert checked > 300


def test_the_file_has_what_the_study_found(page_of: Any):
    outcome = transferred()
    document = json.loads(page_of("transfer").with_suffix(".json").read_text())
    (explored,) = document["explore"]
    names = [axis["name"] for axis in explored["axes"]]
    assert names == ["setting", "gamma", "width", "depth"]
    for cell, (label, sweep_) in zip(explored["cells"], outcome.each(), strict=True):
        at = {axis["name"]: axis["values"][i] for axis, i in zip(explored["axes"], cell["at"], strict=True)}
        assert at["width"] == (sweep_.width if math.isfinite(sweep_.width) else "limit")
        assert (at["setting"], at["gamma"]) == tuple(outcome.settings[label].values())
        last = np.array([[number(v) for v in row] for row in cell["value"]])[:, -1]
        np.testing.assert_allclose(last, sweep_.losses.mean(1), rtol=1e-5)
        own = next(
            s
            for s in document["sweeps"]
            if (s["setting"], s["width"], s["depth"]) == (label, number(sweep_.width), sweep_.depth)
            or (s["setting"] == label and s["width"] == "inf" and math.isinf(sweep_.width))
        )
        np.testing.assert_allclose(last, np.mean([[number(v) for v in row] for row in own["losses"]], 1), rtol=1e-5)


@pytest.mark.parametrize("width", [400, 1280])
def test_a_view_has_an_address_and_nothing_sticks_out(width: int, page_of: Any, tmp_path: Path):
    page = page_of("transfer")
    script = """
      const section = document.querySelector(".explore");
      out = JSON.stringify({
        chosen: section.querySelector(".readout .muted").textContent,
        wide: document.documentElement.scrollWidth, room: document.documentElement.clientWidth,
        errors: [...document.querySelectorAll("svg *")]
          .filter((node) => [...node.attributes].some((each) => /NaN|Infinity/.test(each.value))).length,
        bold: document.querySelectorAll(".explore b").length,
      })"""
    found = json.loads(
        browser.written(
            page, script, tmp_path / "seen.html", "#width=16&depth=4&setting=a <b>&learning_rate=0.25", width
        )
    )
    assert found["chosen"].strip().startswith("a <b>, γ₀ 2, width 16, depth 4, learning rate 0.25")
    assert found["wide"] <= found["room"]
    assert found["errors"] == found["bold"] == 0
