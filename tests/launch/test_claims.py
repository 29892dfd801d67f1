"""No claim of any figure can hold whatever the numbers: not without them, not where the effect is absent or the other way round.

tests/claimed has such arrays of every figure's own shapes; one that is not there fails here.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claimed import beyond_gaussian, curse_of_depth, depthwise_transfer, residual_scaling

from launch import reproduce
from train.evaluate.claim import Claim
from train.study.experiment import load
from train.study.study import study_of
from train.transfer import Outcome, Sweep

FIGURES = reproduce.papers()
SOURCES = {
    "beyond_gaussian": beyond_gaussian, "curse_of_depth": curse_of_depth, "depthwise_transfer": depthwise_transfer,
    "residual_scaling": residual_scaling,
}  # fmt: skip
ROOT = Path(__file__).parents[2]


class Figure:
    """A figure file, its small config, and its claims as a function of arrays."""

    def __init__(self, name: str) -> None:
        self.source, _, self.name = name.partition("/")
        self.file = FIGURES[name]
        self.module = load(self.file)
        self.config = self.module.get_config("small")
        self.of_study = hasattr(self.module, "make")
        self.study: Any = study_of(str(self.file), self.config, Path()) if self.of_study else None

    @property
    def theory(self) -> bool:
        """Whether it draws theory alone, of which there is a test and no claim."""
        return hasattr(self.module, "TESTED")

    def arrays(self, effect: int) -> Any:
        makers = SOURCES[self.source].ARRAYS
        assert self.name in makers, f"{self.source}/{self.name} has no arrays in tests/claimed/{self.source}.py"
        return makers[self.name](self.study if self.of_study else self.module, self.config, effect)

    def judge(self, arrays: Any) -> list[Claim]:
        return self.study.call("claims", arrays) if self.of_study else self.module.claims(arrays)


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


def parts(figure: Figure, arrays: Any) -> list:
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


def holding(claims: list[Claim]) -> list[str]:
    return [f"{claim.text} | {claim.figures}" for claim in claims if claim.holds]


@pytest.mark.parametrize("name", FIGURES)
def test_claims_hold_only_where_the_numbers_say_so(name: str):
    figure = Figure(name)
    if figure.theory:
        assert figure.module.claims({}) == []
        assert (ROOT / figure.module.TESTED).exists()
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
    if figure.of_study:  # every run diverges
        assert holding(figure.judge(corrupted(whole, missing, np.inf))) == []
    for part in ends(missing):
        less = figure.judge(corrupted(whole, [part]))
        assert len(less) == len(good)
        touched = [new for old, new in zip(good, less, strict=True) if old.figures != new.figures]
        assert holding(touched) == [], f"without {part}"
