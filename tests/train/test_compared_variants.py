"""Variants at one size, simulated: how often the paired interval of their difference holds the true one; and reports of them.

A study: two variants, each a curve like those of `test_predicted_sizes` (b, c, a, d, s of its own), widths 16 to 128, nine
rates an octave apart, four seeds; the target has width 1024, or is width 128 itself. Half of the variance of the seeds' offsets
at a size is common to all sizes, and a share `alike` of either half to both variants; noise of single runs is each one's own.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from test_predicted_sizes import CURVES, X

from train.evaluate.report import Table
from train.transfer import Outcome, Sweep, compare_variants
from train.transfer.predicted_report import Forecast
from train.transfer.predicted_report import report as predicted_report
from train.transfer.prediction import predict
from train.transfer.report import report
from train.transfer.tuning import Tuning

WIDTHS, SEEDS = (16, 32, 64, 128), 4


def swept(width: int, logarithms: np.ndarray) -> Sweep:
    """Of logarithms [rate, seed] of losses at the end."""
    losses = np.exp(logarithms)
    return Sweep(width, 2, 2.0**X, np.stack([np.full_like(losses, 5.0), *[losses] * 9], axis=-1))


def variant(kind: str, offsets: np.ndarray, noise: float, random: np.random.Generator, level: float = 0.0) -> Any:
    """(logarithm of the least loss by width, sweeps) of offsets [width, seed]."""
    best, b, a = random.uniform(-1, 1), 0.5 * random.normal(), 0.5 * random.normal()
    c, d, s = 0.5 * b * random.uniform(-1, 1), 0.5 * a * random.uniform(-1, 1), random.uniform(-0.2, 0.2)

    def floor(width: float) -> float:
        u = 16 / width
        return level - 1 + b * u + c * u**2

    found = {}
    for width, offset in zip(WIDTHS, offsets, strict=True):
        u = 16 / width
        t = (X[:, None] - best - a * u - d * u**2) * (1 + s * u)
        found[width, 2] = swept(
            width, floor(width) + CURVES[kind](t) + offset + noise * random.normal(size=(len(X), SEEDS))
        )
    return floor, found


def offsets_of(alike: float, size: float, random: np.random.Generator) -> list[np.ndarray]:
    """[width, seed] of two variants."""

    def drawn() -> np.ndarray:
        return size * (random.normal(size=SEEDS) + random.normal(size=(len(WIDTHS), SEEDS))) / 2**0.5

    both = drawn()
    return [alike**0.5 * both + (1 - alike) ** 0.5 * drawn() for _ in range(2)]


def coverage(alike: float, target: int, studies: int, seed: int = 0, size: float = 0.15) -> dict[str, float]:
    """Share of 90 % intervals that hold the truth, their median length, and that of intervals of seeds in another order."""
    random, rows = np.random.default_rng(seed), []
    kinds = list(CURVES)
    for _ in range(studies):
        offsets = offsets_of(alike, size, random)
        (one, first), (other, second) = (
            variant(kinds[random.integers(len(kinds))], each, 0.04, random) for each in offsets
        )
        found = compare_variants({"one": first, "other": second}, target)
        if len(found.loss) < 2:
            continue
        worse = next(name for name in found.loss if name != found.best)
        true = (one(target) - other(target)) * (1 if worse == "one" else -1)
        low, high = np.log1p([found.above[worse].low, found.above[worse].high])
        rows.append([low <= true <= high, high - low])
    held, length = np.array(rows, float).T
    return {"held": float(held.mean()), "length": float(np.median(length)), "studies": len(rows)}


def at_128(alike: float, differ: float, seed: int) -> dict[str, Any]:
    """{name: sweep of width 128} of two variants with the same curve, of which "worse" ends higher by so much."""
    random, found = np.random.default_rng(seed), {}
    for name, offsets, level in zip(("better", "worse"), offsets_of(alike, 0.1, random), (0.0, differ), strict=True):
        noise = 0.01 * random.normal(size=(len(X), SEEDS))
        found[name] = {(128, 2): swept(128, level - 1 + 0.2 * X[:, None] ** 2 + offsets[-1] + noise)}
    return found


def test_the_difference_of_two_measured_variants():
    # Offsets of 0.1 / √4 fall out. What is left is how far the floors lie below points an octave apart: 0.02 each, by the fits.
    found = compare_variants(at_128(1.0, np.log(1.1), 0), 128)
    assert found.best == "better"
    assert found.ahead
    assert "“better” is ahead" in found.sentence
    assert 0.03 < found.above["worse"].low < 0.1 < found.above["worse"].high < 0.18
    assert found.stated["worse"].measured
    turned = compare_variants(dict(reversed(at_128(1.0, np.log(1.1), 0).items())), 128)
    assert turned.best == "better"


def test_what_seeds_do_not_share_does_not_fall_out():
    # Offsets of 0.1 over four seeds make an error of √2 · 0.1 / √4 = 0.07 of a difference, unless they are common.
    lengths = []
    for alike in (1.0, 0.0):
        found = [compare_variants(at_128(alike, np.log(1.08), seed), 128) for seed in range(4)]
        lengths.append(
            np.mean([np.ptp([*each.above[name].ends]) for each in found for name in each.loss if name != each.best])
        )
        assert sum(each.ahead for each in found) == 4 * alike
        assert ("open" in found[0].sentence) == (alike == 0)
    assert lengths[0] < 0.5 * lengths[1]


def test_a_predicted_difference():
    random = np.random.default_rng(4)
    (one, first), (other, second) = (
        variant(kind, each, 0.02, random, level)
        for kind, each, level in zip(("flat", "skewed"), offsets_of(1.0, 0.05, random), (0.0, 1.0), strict=True)
    )
    found = compare_variants({"first": first, "second": second}, 1024)
    true = np.expm1(other(1024) - one(1024))
    assert found.best == "first"
    assert found.above["second"].low < true < found.above["second"].high
    assert found.above["second"].low > 0
    assert not found.stated["first"].measured


@pytest.mark.slow
@pytest.mark.parametrize("target", [128, 1024])
@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_intervals_of_200_studies(alike, target):
    found = coverage(alike, target, 200)
    print(f"alike {alike:g}, width {target}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    assert 0.80 <= found["held"] <= 0.97  # a share of .90 of 200 is known to .021


def outcome_of(sweeps: dict[str, Any], settings: dict[str, Any] | None = None) -> Outcome:
    """With what tuning took: a run more for every label and width."""
    tuning = {
        label: {size: Tuning(36 + number, 1e6 * size[0], 2.0) for size in sizes}
        for number, (label, sizes) in enumerate(sweeps.items())
    }
    settings = settings or {label: {"setting": label} for label in sweeps}
    return Outcome("learning_rate", sweeps, settings=settings, tuning=tuning)


def test_the_report_of_a_study_compares_its_variants():
    made = report(outcome_of(at_128(1.0, np.log(1.1), 0)), {}, "command", "advice")
    document, page = json.loads(made.json())["variants"][0], made.html()
    assert document["ahead"]
    first, second = document["variants"]
    assert [first["setting"], second["setting"]] == ["better", "worse"]
    assert first["above_first"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert 0.03 < second["above_first"]["low"] < 0.1 < second["above_first"]["high"]
    assert second["tuning"] == {"runs": 37, "work": 128e6, "seconds": 2.0}
    assert document["sentence"] in page
    assert '<td class="good">ahead</td>' in page
    assert '<td class="bad">behind</td>' in page
    assert f"<td>{1e6 * 128:.3g}</td>" in page


def test_a_variant_has_the_best_of_its_other_hyperparameters_and_is_charged_for_all():
    found = at_128(1.0, np.log(1.1), 0)
    sweeps = {"adam, 0.9": found["worse"], "adam, 0.95": found["better"], "muon": at_128(1.0, np.log(1.1), 0)["worse"]}
    settings = {"adam, 0.9": {"setting": "adam"}, "adam, 0.95": {"setting": "adam"}, "muon": {"setting": "muon"}}
    document = json.loads(report(outcome_of(sweeps, settings), {}, "command", "advice").json())["variants"][0]
    assert [each["setting"] for each in document["variants"]] == ["adam, 0.95", "muon"]
    assert document["variants"][0]["tuning"] == {"runs": 36 + 37, "work": 256e6, "seconds": 4.0}


def test_losses_of_different_tasks_are_not_compared():
    found = at_128(1.0, np.log(1.1), 0)
    sweeps = {
        "adam, a": found["worse"],
        "adam, b": found["better"],
        "muon, a": found["better"],
        "muon, b": found["worse"],
    }
    tasks = {label: label[-1] for label in sweeps}
    made = report(dataclasses.replace(outcome_of(sweeps), tasks=tasks), {}, "", "advice")
    said = json.loads(made.json())["variants"]
    titles = [part.title for part in made.parts if isinstance(part, Table) and part.title.startswith("Variants")]
    assert [title.split(", ")[2] for title in titles] == ["a", "b"]
    assert [[each["setting"] for each in one["variants"]] for one in said] == [
        ["muon, a", "adam, a"],
        ["adam, b", "muon, b"],
    ]


@pytest.mark.slow
def test_predictions_of_variants_are_compared():
    random = np.random.default_rng(7)
    floors, sweeps = {}, {}
    for name, level in (("adam", 0.4), ("muon", 0.0)):
        floors[name], sweeps[name] = variant("flat", np.zeros((4, SEEDS)), 0.02, random, level)
    found = [Forecast(name, predict(each, 1024)) for name, each in sweeps.items()]
    made = predicted_report(outcome_of(sweeps), [*found, Forecast("standard", None, "has no limit")], {}, "")
    document = json.loads(made.json())["variants"][0]
    best, other = document["variants"]
    true = np.expm1(floors[other["setting"]](1024) - floors[best["setting"]](1024))
    assert other["above_first"]["low"] < true < other["above_first"]["high"]
    assert best["tuning"]["runs"] in (4 * 36, 4 * 37)
    assert document["refused"] == {"standard": "has no limit"}
    assert not best["measured"]
    assert "each at its own best learning rate" in made.html()


def test_what_cannot_be_compared():
    one = at_128(1.0, 0.1, 0)
    with pytest.raises(ValueError, match="two or more of them"):
        compare_variants({"better": one["better"]}, 128)
    alone: Any = {(128, 2): Sweep(128, 2, 2.0**X, one["worse"][128, 2].curves[:, :1])}
    with pytest.raises(ValueError, match="worse: Width 128, depth 2 has one seed"):
        compare_variants({**one, "worse": alone}, 128)
    lost: Any = {(128, 2): Sweep(128, 2, 2.0**X, np.full_like(one["worse"][128, 2].curves, np.inf))}
    with pytest.raises(ValueError, match="worse: Width 128, depth 2 diverges at every value"):
        compare_variants({**one, "worse": lost}, 128)
