"""Verdicts on numbers that are made here."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from train.evaluate.verdict import Observed, judge
from zoo.attention import heads_of

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


class MadeOfHeads(Made):
    """One projection, off its limit of 2 by the size of a head and by the width, of 4,000 networks of each."""

    functional: Any = SimpleNamespace(names=("labels",))
    uncertainty: Any = np.zeros((1, 1))

    def __init__(self, wrong: float, sizes: tuple[int, ...] | None, widths: tuple[int, ...]) -> None:
        draw = np.random.default_rng(1).normal
        at = [width // heads_of(width) for width in widths]
        found = [2 + 1.2 / d + 4 / n + 0.3 * draw(size=(4000, 1)) / n**0.5 for d, n in zip(at, widths, strict=True)]
        object.__setattr__(self, "samples", found)
        object.__setattr__(self, "expected", np.array([2.0 + wrong]))
        object.__setattr__(self, "head_sizes", sizes)


@pytest.mark.parametrize(
    ("wrong", "sizes", "verdict"),
    [
        (0.0, None, "does not converge"),
        (0.0, (4, 8, 8, 16), "agrees"),
        (0.4, (4, 8, 8, 16), "does not converge"),
    ],
)
def test_a_rejection_holds_with_the_sizes_of_heads_too(wrong, sizes, verdict):
    """The standard error with them is .003 at widths 16 to 128, and what 1/N leaves of 1.2/d some .05."""
    found = judge(MadeOfHeads(wrong, sizes, (16, 32, 64, 128)), (16, 32, 64, 128), 1e-3)
    assert found.verdict == verdict
    assert found.model == ("a + b/d + c/N" if sizes else "a + b/N + c/N²")


def test_two_widths_do_not_tell_sizes_of_heads():
    found = judge(MadeOfHeads(0.0, (4, 8), (16, 64)), (16, 64), 1e-3)
    assert (found.verdict, found.model) == ("does not converge", "a + b/N")
