"""Figures 3.4 and 3.5: run from end to end, and claims that fail on numbers that do not hold them."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from configs.papers.beyond_gaussian import fig3_4, fig3_5, sampled
from launch import reproduce
from launch.experiment import load

SMALLER = {
    "fig3_4": {"w2": (0.8, 1.2), "width": (250, 500), "points": (4, 12), "datasets": 1},
    "fig3_5": {"w2": (0.8, 1.6), "width": 100, "points": 8, "datasets": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_from_end_to_end(name: str, tmp_path: Path):
    file = reproduce.papers()[f"beyond_gaussian/{name}"]
    config = load(file).get_config("small")
    config.update(SMALLER[name] | {"steps": 200, "warmup": 60})
    found = reproduce.repeat(f"{file}:small", config, tmp_path, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, tmp_path)
    assert len(json.loads((tmp_path / "report.json").read_text())["claims"]) == len(found[0])
    assert (tmp_path / "figure_1.png").stat().st_size > 10_000


def xor(theory=0.95, power=-1.0, fall=1.0):
    """Arrays of figure 3.4: ΔCKA ∝ N^power e^(−fall w²), a theory at a share of it that falls with P/N."""
    arrays, rng = {}, np.random.default_rng(0)
    axes = {"w2": [0.6, 0.8, 1.2, 1.6], "width": [125, 250, 500], "points": [4, 12, 24]}
    for name, values in axes.items():
        at = {"w2": 1.2, "width": 500, "points": 12} | {name: np.array(values, float)}
        delta = 0.03 * np.exp(-fall * (at["w2"] - 1.2)) * (at["width"] / 500) ** power * np.ones(len(values))
        share = theory - 0.5 * (at["points"] / at["width"] - 0.024)
        noise = 1e-4 * rng.normal(size=(2, len(values), 2))
        arrays |= {f"{name} axis": np.array(values, float), f"{name} nngp": np.full((len(values), 2), 0.1)}
        arrays[f"{name} chains"] = 0.1 + delta[:, None] + noise[0]
        arrays[f"{name} theory"] = 0.1 + (share * delta)[:, None] + noise[1]
        arrays[f"{name} chains_sem"] = np.full((len(values), 2), 1e-4)
        arrays[f"{name} converged"] = np.ones((len(values), 2))
    return arrays


def verdicts(module, arrays):
    return {claim.text.split(":")[0]: claim.holds for claim in module.claims(arrays)}


def test_claims_of_figure_3_4_hold_where_they_should_and_fail_where_they_should_not():
    assert set(verdicts(fig3_4, xor()).values()) == {True}
    [same] = [text for text in verdicts(fig3_4, xor()) if "within 10 %" in text]
    assert verdicts(fig3_4, xor(theory=0.8))[same] is False
    assert verdicts(fig3_4, xor(fall=-1.0))["ΔCKA falls with w²"] is False
    assert verdicts(fig3_4, xor(fall=0.0))["ΔCKA falls with w²"] is None
    assert verdicts(fig3_4, xor(power=-0.5))["ΔCKA falls as 1/N"] is False
    stuck = xor()
    stuck["w2 converged"][0, 0] = 0
    assert verdicts(fig3_4, stuck)["All chains have converged (R̂ at most 1.05, 100 effective draws)"] is False


def test_claims_of_figure_3_5():
    nngp = np.repeat([[0.5], [0.4], [0.3]], 2, axis=1)
    chains, theory = nngp + 0.05, nngp + 0.03
    arrays = {
        "w2": np.array([0.5, 1.0, 2.0]), "nngp": nngp, "chains": chains, "theory": theory,
        "chains_sem": np.full((3, 2), 0.001), "converged": np.ones((3, 2)),
    }  # fmt: skip
    assert {claim.holds for claim in fig3_5.claims(arrays)} == {True}
    worse = fig3_5.claims(arrays | {"theory": nngp - 0.03})
    assert [claim.holds for claim in worse] == [True, True, False, False, True]
    assert fig3_5.claims(arrays | {"chains": chains[::-1]})[-1].holds is False


def test_inputs_sit_at_the_fixed_point():
    # q* of erf networks with w² = .825, b² = .05 is .2049
    x = sampled.at_fixed_point(fig3_5.images("digits", 8, 0), 0.825).x_train
    assert 0.825 * (x**2).mean() + 0.05 == pytest.approx(0.2049, abs=1e-4)
