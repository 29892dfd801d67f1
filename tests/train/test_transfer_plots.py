"""Pictures of a transfer study show of an interval what its words say."""

import numpy as np
import pytest

from train.transfer import Sweep, plots
from train.transfer.outcome import Outcome

RATES = 2.0 ** np.arange(-8, 1)


def outcome(*optima: float, seeds: int) -> Outcome:
    """Sizes whose best rates have these logarithms."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(len(optima), len(RATES), seeds, 1))
    valleys = [0.3 + 0.02 * (np.log2(RATES) - best)[:, None, None] ** 2 for best in optima]
    sizes = [(16 * 2**i, 2) for i in range(len(optima))]
    curves = [np.repeat(valley + each, 20, -1) for valley, each in zip(valleys, noise, strict=True)]
    return Outcome("rate", {"": {s: Sweep(*s, RATES, each) for s, each in zip(sizes, curves, strict=True)}})


@pytest.mark.parametrize(("drawn", "axis", "arrows"), [(plots.curves, 0, "<>"), (plots.optima, 1, "v^")])
def test_bars_are_drawn_where_an_interval_is_bounded(drawn, axis, arrows):
    def look(found: Outcome) -> tuple[list[float], set[str]]:
        lines = drawn(found).axes[0].lines
        places = [float(v) for line in lines for v in line.get_data()[axis]]
        return [v for v in places if not RATES[0] <= v <= RATES[-1]], {str(line.get_marker()) for line in lines}

    beyond, marks = look(outcome(-5.0, -4.0, -3.0, seeds=1))
    assert not beyond
    assert not marks & {*arrows}
    beyond, marks = look(outcome(-4.0, 2.0, -10.0, seeds=4))  # inside, beyond the end, before the start
    assert set(beyond) == {RATES[0] / 1.5, RATES[-1] * 1.5}
    assert {*arrows} <= marks
