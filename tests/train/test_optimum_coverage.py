"""The optimum of simulated sweeps: how often 95 % intervals hold the true one, and the true shift between two sizes.

A study: nine rates an octave apart, the optimum anywhere between two of them. The logarithm of a run's loss is f(log₂ rate − x₀),
plus an offset of its seed, .1, plus noise of its own, .1. The true optimum x₀ is the minimum of f, the curve without noise.
"""

from typing import Any

import numpy as np
import pytest

from train.transfer.shift import Transfer
from train.transfer.sweep import Sweep

OFFSET, NOISE = 0.1, 0.1
CURVES: dict[str, Any] = {
    "exact": lambda u: 0.25 * u**2,
    "skewed": lambda u: 0.3 * (np.exp(u) - u - 1),
    "kinked": lambda u: np.where(u < 0, -0.2 * u, u),
    "noisy edge": lambda u: np.where(u < 0, 0.1 * u**2, 0.6 * u**2),  # noise up to eightfold, then divergence
}


def simulated(kind: str, seeds: int, random: np.random.Generator) -> tuple[float, Sweep]:
    """(true optimum, sweep)."""
    x, best = np.arange(-4.0, 5.0), random.uniform(-0.5, 0.5)
    u = (x - best)[:, None]
    noise = np.clip(2.0 ** (1.5 * (u + 0.5)), 1, 8) if kind == "noisy edge" else 1.0
    values = CURVES[kind](u) + OFFSET * random.normal(size=seeds) + NOISE * noise * random.normal(size=(9, seeds))
    losses = np.exp(values)
    if kind == "noisy edge":
        losses[u > 1.2 + 0.3 * random.normal(size=(9, seeds))] = np.inf
    curves = np.concatenate([np.ones_like(losses)[..., None], losses[..., None]], axis=-1)
    return best, Sweep(8, 1, 2.0**x, curves)


def coverage(kind: str, seeds: int, studies: int) -> tuple[np.ndarray, np.ndarray]:
    """(share of intervals that hold the truth, median width in octaves) of the optimum, and of the shift between two sizes."""
    random = np.random.default_rng(seeds)
    truths, sweeps = zip(*(simulated(kind, seeds, random) for _ in range(studies)), strict=True)
    with np.errstate(divide="ignore"):  # an interval that is open to below
        ends = np.array([np.log2(sweep.interval()) for sweep in sweeps])
    pairs = [Transfer("width", pair) for pair in zip(sweeps[::2], sweeps[1::2], strict=True)]
    shifts = np.array([series.shift()[1:] for series in pairs])
    moved = np.array(truths[1::2]) - np.array(truths[::2])
    found = [(np.array(truths), ends), (moved, shifts)]
    held = [np.mean((each[:, 0] <= truth) & (truth <= each[:, 1])) for truth, each in found]
    return np.array(held), np.array([np.median(each[:, 1] - each[:, 0]) for _, each in found])


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("skewed", "exact") else pytest.mark.slow) for kind in CURVES]
)
def test_intervals_hold_the_optimum(kind):
    # 80 studies at 2 and at 8 seeds: a share of .95 is known to .017, so that three standard errors below .90 is .85. Intervals
    # of a bootstrap over seeds around a parabola of the loss, which these replaced, hold it in 0 to 88 %.
    found = [coverage(kind, seeds, 80) for seeds in (2, 8)]
    held, widths = (np.array(each) for each in zip(*found, strict=True))
    assert held.mean(0).min() > 0.87
    assert widths[:, 0].max() < 2.5  # octaves: of use
    assert widths[1, 0] < widths[0, 0]  # more seeds, a shorter interval


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
@pytest.mark.parametrize("kind", CURVES)
def test_intervals_of_2000_studies(kind, seeds):
    held, widths = coverage(kind, seeds, 2000)
    print(
        f"{kind}, {seeds} seeds: optimum {held[0]:.3f}, {widths[0]:.2f} octaves; shift {held[1]:.3f}, {widths[1]:.2f} octaves"
    )
    # Standard errors are .005 for the optimum (2,000 studies) and .007 for the shift (1,000 pairs) at .95.
    assert 0.90 <= held[0] <= 0.99
    assert held[1] >= 0.90  # up to .998: shapes of the two curves count as independent, and are the same here


GRIDS = {  # log₂ rates, the curve's steepness, and where its least point may be
    "halves among double octaves": ([-10, -8, -6, -5.5, -5, -4.5, -4, -2, 0], 0.35, (-5.8, -4.2)),
    "octaves among double octaves": ([-10, -8, -6, -5, -4, -3, -2, 0], 0.35, (-5.8, -4.2)),
    "eighths among half octaves": (
        [-7, -6.5, -6, -5.75, -5.5, *np.arange(-5.375, -4.6, 0.125), -4.5, -4, -3.5, -3],
        1.0,
        (-5.8, -4.2),
    ),
    "powers of 4": (np.arange(-10, 1, 2), 1.0, (-7.0, -5.0)),
    "half decades": (np.log2(10) / 2 * np.arange(-6, 1), 1.0, (-5.8, -4.2)),
    "1, 3, 10": (np.log2([1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0]), 1.0, (-5.8, -4.2)),
}


@pytest.mark.parametrize("grid", GRIDS)
def test_intervals_hold_the_optimum_on_grids_that_are_refined_or_coarse(grid):
    # 200 studies: a share of .93 is known to .018. Fits that reach as far as on the coarse part hold it in 65 to 80 %, and
    # those that take shapes for as exact over two octaves as over one in 45 to 80 %.
    random, (places, s, between) = np.random.default_rng(1), GRIDS[grid]
    x, held = np.array(places, float), 0
    for _ in range(200):
        best = random.uniform(*between)
        u = (x - best)[:, None]
        values = np.minimum(0.2 * (np.exp(s * u) - s * u - 1) / s**2, 6.0) + OFFSET * random.normal(size=4)
        losses = np.exp(values + 0.05 * random.normal(size=(len(x), 4)))
        low, high = Sweep(8, 1, 2.0**x, losses[..., None]).interval()
        held += low <= 2.0**best <= high
    assert held / 200 > 0.87


def test_points_that_all_but_coincide_leave_an_interval_as_long_as_without():
    random, ends = np.random.default_rng(0), []
    x = np.sort([*np.arange(-4.0, 5.0), 1e-6, 2e-6])
    losses = np.exp(0.25 * (x[:, None] - 0.3) ** 2 + 0.05 * random.normal(size=(len(x), 4)))
    for part in (np.isin(x, np.arange(-4.0, 5.0)), np.full(len(x), True)):
        ends.append(np.log2(Sweep(8, 1, 2.0 ** x[part], losses[part][..., None]).interval()))
    (low, high), (low_beside, high_beside) = ends
    assert low_beside <= 0.3 <= high_beside
    assert high_beside - low_beside < 2.5 * (high - low)


PLATEAUS = {  # log loss: level where rates are small, or flat at its bottom, a power of the rate where they are large
    "wide": lambda u: np.log(0.4 + 1.6 / (1 + 2.0 ** (1.5 * (u + 1))) + 0.125 * 2.0 ** (1.5 * u)),
    "steep": lambda u: np.log(0.5 + 1.6 / (1 + 2.0 ** (2 * (u + 1))) + 0.1 * 2.0 ** (2 * u)),
    "steeper": lambda u: np.log(0.5 + 1.6 / (1 + 2.0 ** (3 * (u + 1))) + 0.1 * 2.0 ** (2 * u)),
}
BOTTOMS = {  # flat at the bottom, or rising faster than a square
    "fourth": lambda u: 0.1 * u**4,
    "fourth over a floor": lambda u: np.log(1 + 0.3 * u**4),
    "square and fourth": lambda u: 0.1 * u**2 + 0.05 * u**4,
    "cosh": lambda u: 0.3 * (np.cosh(u) - 1),
}


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [("wide", 2), ("wide", 8), ("steep", 2), ("steep", 8), ("steeper", 8), *((kind, 8) for kind in BOTTOMS)],
)
def test_intervals_hold_the_optimum_beside_a_plateau_and_over_a_flat_bottom(kind, seeds):
    # 100 studies: a share of .93 is known to .025. Without shapes that are level on the left, or rise faster than a square on
    # both sides, .24 of the intervals of the steepest plateau held it, and .54 to .78 of those over flat bottoms.
    curve, between = (PLATEAUS | BOTTOMS)[kind], np.linspace(-2.0, 2.0, 40001)
    true, x, random, held, lengths = (
        between[np.argmin(curve(between))],
        np.arange(-5.0, 5.0),
        np.random.default_rng(seeds),
        0,
        [],
    )
    for _ in range(100):
        best = random.uniform(-2, 1)
        noise = 0.05 * random.normal(size=seeds) + 0.03 * random.normal(size=(len(x), seeds))
        low, high = Sweep(8, 1, 2.0**x, np.exp(curve(x[:, None] - best + true) + noise)[..., None]).interval()
        held += low <= 2.0**best <= high
        lengths.append(np.log2(high / low))
    assert held / 100 > 0.86
    assert np.median(lengths) < 0.6


@pytest.mark.parametrize("moved", [0.5, 1.5])
def test_intervals_of_the_cost_hold_that_of_a_parabola_over_a_floor(moved):
    # loss = floor + b x², the optimum of one size so many octaves off that of the other. 100 studies: a share of .95 is known to
    # .022. Without shapes that grow as its logarithm does, intervals begin too high, and hold it in 76 and 88 %.
    random, x, held = np.random.default_rng(int(10 * moved)), np.arange(-5.0, 5.0), 0
    for _ in range(100):
        b, best, pair = random.uniform(0.16, 0.6), random.uniform(-2, 1), []
        for width, place in ((8, best + moved), (64, best)):
            noise = 0.05 * random.normal(size=3) + 0.03 * random.normal(size=(len(x), 3))
            losses = (1 + b * (x[:, None] - place) ** 2) * np.exp(noise)
            pair.append(Sweep(width, 1, 2.0**x, np.stack([np.full_like(losses, 50.0), losses], axis=-1)))
        _, low, high = Transfer("width", tuple(pair)).regret()
        held += low <= b * moved**2 <= high
    assert held / 100 > 0.9


@pytest.mark.parametrize("moved", [0.0, 0.5])
def test_the_cost_of_an_optimum_is_of_curves_not_of_straight_lines(moved):
    # 60 studies of loss = 1 + .3 x², three seeds: the mean of costs is known to .001 where optima are the same, .003 else; a
    # straight line over the least point of a grid has costs .027 and .024 too large.
    random, x, costs = np.random.default_rng(int(10 * moved)), np.arange(-5.0, 5.0), []
    for _ in range(60):
        best, pair = random.uniform(-2, 1), []
        for width, place in ((8, best + moved), (64, best)):
            noise = 0.05 * random.normal(size=3) + 0.03 * random.normal(size=(len(x), 3))
            losses = (1 + 0.3 * (x[:, None] - place) ** 2) * np.exp(noise)
            pair.append(Sweep(width, 1, 2.0**x, losses[..., None]))
        costs.append(Transfer("width", tuple(pair)).regret()[0])
    assert abs(np.mean(costs) - 0.3 * moved**2) < 0.01


def below_zero(width, best, unit=1.0):
    """Losses unit (−100 + 20 (x − best)²), with noise, in which three seeds differ."""
    x, noise = np.arange(-4.0, 5.0), 0.3 * np.random.default_rng(width).normal(size=(9, 3))
    return Sweep(width, 1, 2.0**x, unit * (-100 + 20 * (x[:, None] - best) ** 2 + noise)[..., None])


def test_losses_that_are_not_positive_have_no_unit():
    """Costs were cut at 50, as of a logarithm, and intervals of losses a hundred times as large were 16 times as long."""
    one, many = (np.log2(below_zero(8, 0.3, unit).interval()) for unit in (1e-3, 1e3))
    np.testing.assert_allclose(one, many, atol=1e-6)
    cost, low, high = Transfer("width", (below_zero(8, 2.1), below_zero(64, -2.2))).regret()
    assert low <= 20 * 4.3**2 <= high
    assert abs(cost - 20 * 4.3**2) < 20
