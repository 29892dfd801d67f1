"""Numbers with sliders on a page: curves at places along axes, drawn by explore.js; the same numbers are in the file of JSON."""

import dataclasses
import functools
import html
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from rich.console import Console

DIGITS = 6  # that are kept


@functools.cache
def script() -> str:
    """What moves the sliders."""
    return resources.files("train.evaluate").joinpath("explore.js").read_text(encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Series:
    """A quantity at one place, `at` {axis: number or word}, over grids of its own, `over` {axis: values}: arrays [grid, …].

    What is not finite counts as diverged. low, high: what it lies between.
    """

    at: Mapping[str, Any]
    over: Mapping[str, Sequence[float] | np.ndarray]
    value: Any
    low: Any = None
    high: Any = None


@dataclasses.dataclass(frozen=True)
class Exploration:
    """Curves of a `quantity`, with a slider or a choice for every axis that has several values.

    All curves have the same axes. Those that differ along `together` alone are drawn in one picture, everything else is chosen;
    words along these (such as the limit, where others have a width) are drawn dashed, but for "measured". start: {axis: value}
    to begin with. On the page alone.

    >>> shown = Exploration("Losses", "Move.", "loss", [Series({"width": n}, {"step": [1, 2]}, [1 / n, np.inf]) for n in (8, 16)],
    ...                     ("width",), {"width": 16})
    >>> shown.numbers["axes"], shown.numbers["cells"][1]["value"]
    ([{'name': 'width', 'values': [8, 16]}], [0.0625, 'inf'])
    """

    title: str
    text: str
    quantity: str
    curves: Sequence[Series]
    together: Sequence[str]
    start: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def numbers(self) -> dict[str, Any]:
        """All that the page has; every grid once."""
        names, inner = list(self.curves[0].at), list(self.curves[0].over)
        values = {name: _ordered(curve.at[name] for curve in self.curves) for name in names}
        grids: dict[tuple[float, ...], int] = {}
        cells = []
        for curve in self.curves:
            places = [
                grids.setdefault(tuple(map(_short, np.asarray(curve.over[name]).tolist())), len(grids))
                for name in inner
            ]
            ends = {
                name: _all_short(getattr(curve, name)) for name in ("low", "high") if getattr(curve, name) is not None
            }
            at = [values[name].index(curve.at[name]) for name in names]
            cells.append({"at": at, "grids": places, "value": _all_short(curve.value), **ends})
        axes = [{"name": name, "values": values[name]} for name in names]
        start = {name: _short(value) for name, value in self.start.items()}
        return {
            "title": self.title, "quantity": self.quantity, "together": list(self.together), "start": start, "axes": axes,
            "inner": inner, "grids": [list(grid) for grid in grids], "cells": cells,
        }  # fmt: skip

    def _repr_html_(self) -> str:
        data = json.dumps(self.numbers, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        words = f"<h2>{html.escape(self.title)}</h2><p>{html.escape(self.text)}</p>"
        numbers = f'<script type="application/json">{data}</script>'
        return f'<section class="explore">{words}<div class="here"></div>{numbers}</section>'

    def _print(self, console: Console) -> None:
        pass


def _ordered(found: Any) -> list[Any]:
    """Each once: numbers ascending, then words in their order."""
    each = list(dict.fromkeys(found))
    numbers = sorted(x for x in each if isinstance(x, int | float))
    return numbers + [x for x in each if not isinstance(x, int | float)]


def _short(x: Any) -> Any:
    if isinstance(x, str | int):
        return x
    return float(f"{x:.{DIGITS}g}") if math.isfinite(x) else "inf"


def _all_short(values: Any) -> Any:
    def walk(part: Any) -> Any:
        return [walk(each) for each in part] if isinstance(part, list) else _short(part)

    return walk(np.asarray(values, float).tolist())
