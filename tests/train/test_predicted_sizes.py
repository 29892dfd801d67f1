"""Simulated studies: how often 90 % intervals of a predicted size hold its loss and its optimum; what must be refused.

A study: widths 16 to 128, nine rates an octave apart, four seeds; the target has width 1024. With u = 16/N, the logarithm of
the loss is m + b u + c u² + f((log₂ rate − x − a u − d u²)(1 + s u)), with b, c, a, d, s drawn and f none of the shapes that are
fitted; seeds have offsets, half of their variance in common at all widths (the order of data), and noise of their own.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from limits import Task
from limits.losses import point_loss
from train.transfer import NotPredictableError, Sweep, compare_variants, predict, train_runs
from train.transfer.runs import limit_losses
from zoo import MLP, Parameterization, scaled

WIDTHS, TARGET, SEEDS = (16, 32, 64, 128), 1024, 4
X = np.arange(-5.0, 4.0)
CURVES: dict[str, Any] = {
    "skewed": lambda t: 0.3 * (np.exp(0.8 * t) - 0.8 * t - 1) + 0.02 * t**2,
    "kinked": lambda t: np.where(t < 0, -0.2 * t, 0.9 * t) + 0.03 * t**2,
    "diverging": lambda t: np.where(t < 0, 0.12 * t**2, 0.5 * t**2),
    "flat": lambda t: 0.15 * t**2 / (1 + 0.1 * np.abs(t)),
}


def sweep(width: int, losses: np.ndarray) -> Sweep:
    """Of losses [rate, seed] at the end, from a loss of 5 on."""
    return Sweep(width, 2, 2.0**X, np.stack([np.full_like(losses, 5.0), losses], axis=-1))


def study(kind: str, random: np.random.Generator) -> tuple[float, float, dict[tuple[float, int], Sweep]]:
    """(logarithm of the target's loss, log₂ of its best rate, sweeps)."""
    best, b, a = random.uniform(-1, 1), 0.5 * random.normal(), 0.5 * random.normal()
    c, d, s = 0.5 * b * random.uniform(-1, 1), 0.5 * a * random.uniform(-1, 1), random.uniform(-0.2, 0.2)
    common, found = random.normal(size=SEEDS) * 0.04, {}
    for width in WIDTHS:
        u = WIDTHS[0] / width
        t = ((X - best - a * u - d * u**2) * (1 + s * u))[:, None]
        noise = (
            0.04 * random.normal(size=(len(X), SEEDS)) * (np.clip(2.0 ** (t + 0.5), 1, 4) if kind == "diverging" else 1)
        )
        values = -1 + b * u + c * u**2 + CURVES[kind](t) + common + 0.04 * random.normal(size=SEEDS) + noise
        lost = (t > 1.4 + 0.2 * random.normal(size=noise.shape)) & (kind in ("diverging", "kinked"))
        found[width, 2] = sweep(width, np.where(lost, np.inf, np.exp(values)))
    u = WIDTHS[0] / TARGET
    return -1 + b * u + c * u**2, best + a * u + d * u**2, found


def coverage(kind: str, studies: int, seed: int = 0) -> dict[str, Any]:
    """Shares of intervals that hold the truth, their median widths, median errors, and how many were refused or doubted."""
    random, rows, refused = np.random.default_rng(seed), [], []
    for _ in range(studies):
        loss, place, sweeps = study(kind, random)
        try:
            found = predict(sweeps, TARGET)
        except NotPredictableError as error:
            refused.append(str(error))
            continue
        ends = np.log([found.loss.low, found.loss.value, found.loss.high]) - loss
        places = np.log2([found.rate.low, found.rate.value, found.rate.high]) - place
        rows.append([*ends, *places, found.trusted])
    low, off, high, left, away, right, trusted = np.array(rows, float).T
    return {
        "loss": np.mean((low <= 0) & (high >= 0)), "rate": np.mean((left <= 0) & (right >= 0)), "refused": refused,
        "width": np.median(high - low), "octaves": np.median(right - left), "error": np.median(abs(off)),
        "away": np.median(abs(away)), "trusted": trusted.mean(),
    }  # fmt: skip


def test_intervals_hold_loss_and_optimum_of_a_larger_size():
    # 6 studies: at a true share of .90, four or more hold in 98 %. Seeds are fixed; 500 studies below say the share.
    found = coverage("skewed", 6)
    assert min(found["loss"], found["rate"]) >= 4 / 6
    assert found["width"] < 0.4
    assert found["octaves"] < 1


@pytest.mark.slow
def test_shares_of_500_studies():
    found = {kind: coverage(kind, 125) for kind in CURVES}
    for kind, each in found.items():
        print(f"{kind}, {len(each.pop('refused'))} refused: " + ", ".join(f"{k} {v:.3f}" for k, v in each.items()))
    # A share of .90 of 500 is known to .013, of 125 to .027. At a kink the optimum is held by .90.
    for what in ("loss", "rate"):
        shares = [each[what] for each in found.values()]
        assert 0.80 <= np.mean(shares) <= 0.97
        assert min(shares) >= 0.80 - 2 * 0.036  # the error of a share of .80 of 125


def sweeps(places: Any, floors: Any, width: Any = 0.2, noise: float = 0.02) -> dict[tuple[float, int], Sweep]:
    """Parabolas of these places, logarithms of floors and widths, by size."""
    random, found = np.random.default_rng(3), {}
    for size, place, floor, steep in zip(WIDTHS, places, floors, np.broadcast_to(width, len(WIDTHS)), strict=True):
        values = floor + steep * (X[:, None] - place) ** 2 + noise * random.normal(size=(len(X), SEEDS))
        found[size, 2] = sweep(size, np.exp(values))
    return found


def test_an_optimum_that_moves_with_every_doubling_is_refused():
    with pytest.raises(NotPredictableError, match="not seen to level off"):
        predict(sweeps([1.5, 0.8, 0.1, -0.6], [0, -0.2, -0.3, -0.35]), TARGET)


def test_curves_that_do_not_collapse_are_refused():
    random, found = np.random.default_rng(0), {}
    for number, width in enumerate(WIDTHS):  # two valleys that change places
        two = np.minimum(0.3 * (X + 2.5) ** 2 + 0.3 * (number % 2), 0.3 * (X - 0.5) ** 2 + 0.3 * (1 - number % 2))
        found[width, 2] = sweep(width, np.exp(two[:, None] + 0.01 * random.normal(size=(len(X), SEEDS))))
    with pytest.raises(NotPredictableError):
        predict(found, TARGET)


def test_a_size_held_out_that_is_missed_is_said():
    found = predict(sweeps([0, 0, 0, 0], [0, -0.2, -0.3, -0.25]), TARGET)
    assert not found.trusted
    assert "missed in its loss" in found.sentence
    fine = predict(sweeps([0, 0, 0, 0], [0, -0.2, -0.3, -0.35]), TARGET)
    assert fine.trusted
    assert fine.held_out is not None
    assert fine.held_out.size == (128, 2)


def test_what_may_be_the_optimum_costs_from_nothing_on():
    """A cost is never negative: percentiles of its draws are above the truth, which is 0 where no optimum moves."""
    random, found = np.random.default_rng(5), []
    for move in (0.0, 3.0):
        sweeps = {}
        for width in WIDTHS:
            losses = 0.1 * (X - 0.3 - move * WIDTHS[0] / width)[:, None] ** 2
            sweeps[width, 2] = sweep(width, np.exp(losses - 1 + 0.005 * random.normal(size=(len(X), SEEDS))))
        found.append(predict(sweeps, TARGET))
    still, moved = found
    assert still.regret.low == still.cost.low == moved.cost.low == 0 < still.regret.value
    assert not moved.rate.low <= moved.plain <= moved.rate.high
    truth = np.expm1(0.1 * (np.log2(moved.plain) - 0.3 - 3 * WIDTHS[0] / TARGET) ** 2)
    assert 0 < moved.regret.low < truth < moved.regret.high


def test_where_all_values_but_one_diverge_the_interval_is_long_and_nothing_is_warned_of():
    random, found = np.random.default_rng(0), {}
    for width in (8, 16, 32):
        losses = np.where(np.arange(4)[:, None] == 0, 1 + 0.01 * random.normal(size=(4, 3)), np.inf)
        curves = np.stack([np.full_like(losses, 5.0), *[losses] * 9], axis=-1)
        found[width, 1] = Sweep(width, 1, np.array([0.1, 0.2, 0.4, 0.8]), curves)
    loss = predict(found, 128, 1).loss
    assert loss.high > 100 * loss.low
    assert 0.8 < loss.value < 1.2


def test_the_target_is_not_looked_at():
    some = sweeps([0.1, 0, 0, 0], [0, -0.2, -0.3, -0.35])
    alone = predict({size: each for size, each in some.items() if size[0] < 128}, 128)
    assert predict(some, 128).sentence == alone.sentence


def test_the_limit_makes_it_surer():
    some = sweeps([0.1, 0, 0, 0], [0, -0.2, -0.3, -0.35], noise=0.1)
    without = predict(some, TARGET)
    limit = Sweep(float("inf"), 2, 2.0**X, sweep(1, np.exp(-0.4 + 0.2 * X[:, None] ** 2 + np.zeros((1, 4)))).curves)
    anchored = predict(some, TARGET, limits={2: limit})
    assert anchored.loss.high - anchored.loss.low < 0.5 * (without.loss.high - without.loss.low)
    assert anchored.loss.low < np.exp(-0.4 + 0.4 / 64) < anchored.loss.high


@pytest.mark.slow
def test_both_widths_and_depths():
    random, found = np.random.default_rng(5), {}
    for width in (16, 32, 64):
        for depth in (2, 4, 8):
            values = -1 + 4 / width + 0.4 / depth + 0.2 * (X[:, None] - 0.3 - 0.8 / depth) ** 2
            losses = np.exp(values + 0.02 * random.normal(size=(len(X), SEEDS)))
            found[width, depth] = Sweep(width, depth, 2.0**X, np.stack([np.full_like(losses, 5.0), losses], axis=-1))
    said = predict(found, 512, 32)
    assert said.loss.low < np.exp(-1 + 4 / 512 + 0.4 / 32) < said.loss.high
    assert said.rate.low < 2.0 ** (0.3 + 0.8 / 32) < said.rate.high
    assert said.loss.high / said.loss.low < 1.3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda some: {size: some[size] for size in list(some)[:1]}, "there are 1; at least 2"),
        (
            lambda some: {size: dataclasses.replace(each, curves=each.curves[:, :1]) for size, each in some.items()},
            "one seed",
        ),
        (
            lambda some: {size: dataclasses.replace(each, curves=each.curves - 1) for size, each in some.items()},
            "not all positive",
        ),
        (
            lambda some: {
                size: dataclasses.replace(each, rates=each.rates[:1], curves=each.curves[:1])
                for size, each in some.items()
            },
            "was swept at one value",
        ),
    ],
)
def test_what_does_not_suffice(change, words):
    with pytest.raises(ValueError, match=words):
        predict(change(sweeps([0, 0, 0, 0], [0, -0.2, -0.3, -0.35])), TARGET)
    with pytest.raises(ValueError, match="target's depth is 4"):
        predict(sweeps([0, 0, 0, 0], [0, -0.2, -0.3, -0.35]), TARGET, 4)


def test_sweeps_under_the_key_of_another_size_are_refused():
    """Keys alone were looked at: (width, depth) the wrong way round gave another prediction."""
    found = sweeps(np.zeros(4), np.zeros(4))
    (size, first), *_ = found.items()
    with pytest.raises(ValueError, match=r"the sweep under \(17, 2\) says that it is of width 16, depth 2"):
        predict({**{k: v for k, v in found.items() if k != size}, (17, 2): first}, 1024)
    with pytest.raises(ValueError, match=r"the sweep under \(inf, 2\) says that it is of width 16"):
        predict(found, 1024, limits={2: first})
    with pytest.raises(ValueError, match=r"the sweep under \(17, 2\) says"):
        compare_variants({"a": found, "b": {(17, 2): first}}, 16)


@pytest.mark.slow
def test_the_limit_says_of_widths_what_networks_of_these_do():
    net = MLP(32, 1, activation="tanh", parameterization=Parameterization.mup.based(16))
    x = np.random.default_rng(0).normal(size=(3, 4))
    task, steps, rate = Task(x, np.sign(x[:, :1])), 4, 0.5

    def make(value: Any) -> Any:
        return scaled("sgd", net, learning_rate=value)

    how: dict[str, Any] = {"samples": 64, "replicas": 64}
    said = limit_losses(net, task, steps, rate, make, widths=(32, 64, np.inf), **how)
    alone = limit_losses(net, task, steps, rate, make, order=2, **how)
    np.testing.assert_allclose(said[2].mean(0), alone.mean(0), atol=4 * alone.std(0).max() / 8)
    np.testing.assert_allclose(said[0] - said[2], 2 * (said[1] - said[2]), atol=1e-6)
    curves = train_runs(
        lambda job: (net, make(job["rate"])), point_loss("mse"), [(task.x_train, task.y_train)] * steps, steps,
        {"rate": np.full(2000, rate)}, np.arange(2000),
    )  # fmt: skip
    error = np.hypot(curves.std(0) / 2000**0.5, said[0].std(0) / 8)
    away = curves.mean(0) - said[0].mean(0)
    print(away / error, curves.mean(0), said[0].mean(0), said[2].mean(0))
    # Four standard errors, and what is of second order: the square of the first, relative to the loss.
    second = (said[0].mean(0) / said[2].mean(0) - 1) ** 2 * said[2].mean(0)
    assert (np.abs(away) < 4 * error + second).all()
