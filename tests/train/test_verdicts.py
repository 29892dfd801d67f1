"""Verdicts on numbers that are made here."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from train.evaluate.verdict import Observed, judge

WIDTHS = (32, 64, 128, 256)


class Made(Observed):
    """Two projections of 128 networks of each width: one with a spread of 1/√N around the limit, and one that a norm holds fixed
    to the last digits of float32, `off` its limit."""

    functional: Any = SimpleNamespace(names=("labels", "trace"))
    expected: Any = np.array([2.0, 1.0])
    uncertainty: Any = np.zeros((2, 2))
    limit: Any = SimpleNamespace(estimates=lambda _: [0], at_width=lambda *_: None, rich=None, learns=False)
    observable, label, depth = "nngp", "a", 1

    def __init__(self, off: float) -> None:
        draw = np.random.default_rng(0).normal
        found = [(2 + draw(size=128) / n**0.5, 1 + off + 3e-8 * draw(size=128)) for n in WIDTHS]
        object.__setattr__(self, "samples", [np.stack(each, -1) for each in found])


@pytest.mark.parametrize(("off", "verdict"), [(0.0, "agrees"), (4e-8, "agrees"), (1e-4, "does not converge")])
def test_digits_of_float32_say_nothing(off, verdict):
    """4e-8 is a rounding, 17 of the standard errors of that number; 1e-4 is none."""
    assert judge(Made(off), WIDTHS, 1e-3).verdict == verdict
