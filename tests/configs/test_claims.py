"""No claim of any figure can hold whatever the numbers: not without them, not where the effect is absent or the other way round.

Such arrays, of its own shapes, are made by the figure's `claimed`; those of the first papers are in tests/claimed.
"""

import dataclasses
import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.reproduce import FIGURES
from train.evaluate.finding import Finding
from train.study import study_of
from train.transfer import Outcome, Sweep

ROOT = Path(__file__).parents[2]
HERE = ROOT / "tests" / "claimed"
HEAVY = (
    "beyond_gaussian/figA3",
    "curse_of_depth/phases",
    "depthwise_transfer/fig5",
)  # with others of their papers by default
CHEAPER = {"beyond_gaussian/figA3": ("STDS", (0.76,))}  # one of three; the theory of each takes seconds


class Tried:
    """A figure with its small config, and what it says of arrays."""

    def __init__(self, name: str) -> None:
        self.figure, (source, _, short) = FIGURES[name], name.partition("/")
        self.config = self.figure.module.get_config("small")
        self.shape = (
            study_of(str(self.figure.file), self.config, Path()) if self.figure.of_sweeps else self.figure.module
        )
        makers = importlib.import_module(f"claimed.{source}").ARRAYS if (HERE / f"{source}.py").exists() else {}
        self.make = getattr(self.figure.module, "claimed", makers.get(short))

    def arrays(self, effect: int) -> Any:
        assert self.make, f"{self.figure.file} has no claimed(module or study, config, effect)"
        return self.make(self.shape, self.config, effect)

    def judge(self, arrays: Any) -> list[Finding]:
        return self.figure.judge(self.config, arrays)


def corrupted(arrays: Any, parts: list, value: float = np.nan) -> Any:
    """With these parts not a number, or infinite."""
    if isinstance(arrays, Outcome):
        sweeps = {
            label: {size: _without(sweep, value) if (label, size) in parts else sweep for size, sweep in sizes.items()}
            for label, sizes in arrays.sweeps.items()
        }
        return Outcome(arrays.dial, sweeps)
    return arrays | {key: np.full(np.shape(arrays[key]), value) for key in parts}


def _without(sweep: Sweep, value: float) -> Sweep:
    return dataclasses.replace(sweep, curves=np.full(sweep.curves.shape, value))


def parts(figure: Tried, arrays: Any) -> list:
    """What can be missing: a sweep, or any array of numbers but those of the config, the axes."""
    if isinstance(arrays, Outcome):
        return [(label, size) for label, sizes in arrays.sweeps.items() for size in sizes]
    given = [np.asarray(value) for value in figure.config.values() if isinstance(value, tuple)]
    floats = [key for key, value in arrays.items() if np.asarray(value).dtype.kind == "f"]
    return [key for key in floats if not any(np.array_equal(arrays[key], each) for each in given)]


def ends(missing: list) -> list:
    """The first and the last of every family: of sweeps, and of arrays whose names differ in numbers alone."""
    families: dict[str, list] = {}
    for part in missing:
        families.setdefault(re.sub(r"[\d.]+", "#", part) if isinstance(part, str) else "sweep", []).append(part)
    return [part for family in families.values() for part in dict.fromkeys([family[0], family[-1]])]


def holding(claims: list[Finding]) -> list[str]:
    return [f"{claim.sentence} | {claim.figures}" for claim in claims if claim.holds]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in HEAVY else ()) for n in FIGURES])
def test_claims_hold_only_where_the_numbers_say_so(name: str, monkeypatch: pytest.MonkeyPatch):
    figure = Tried(name)
    if name in CHEAPER:
        monkeypatch.setattr(figure.figure.module, *CHEAPER[name])
    if not figure.figure.has_claims:
        assert (ROOT / figure.figure.module.TESTED).exists()
        return
    whole = figure.arrays(1)
    good = figure.judge(whole)
    assert good
    assert [claim for claim in good if claim.holds is not True] == []
    assert holding(figure.judge(figure.arrays(0))) == []
    reversed_ = figure.judge(figure.arrays(-1))
    assert holding(reversed_) == []
    assert any(claim.holds is False for claim in reversed_)
    missing = parts(figure, whole)
    assert holding(figure.judge(corrupted(whole, missing))) == []
    if figure.figure.of_sweeps:  # every run diverges
        assert holding(figure.judge(corrupted(whole, missing, np.inf))) == []
    for part in ends(missing):
        less = figure.judge(corrupted(whole, [part]))
        assert len(less) == len(good)
        touched = [new for old, new in zip(good, less, strict=True) if old.figures != new.figures]
        assert holding(touched) == [], f"without {part}"
