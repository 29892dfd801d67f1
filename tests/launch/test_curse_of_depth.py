"""The reports on the curse of depth: their claims judge what they say, and each runs from end to end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from launch import reproduce
from launch.experiment import load

FIGURES = {name: file for name, file in reproduce.papers().items() if name.startswith("curse_of_depth/")}


def run(name: str, folder: Path, **fields: Any) -> Any:
    file = FIGURES[f"curse_of_depth/{name}"]
    config = load(file).get_config("small")
    config.update(fields)
    found = reproduce.repeat(f"{file}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    return found


def table(module: Any, edge: list, scaled: list, double: list) -> dict[str, np.ndarray]:
    """Arrays of table 1 with these accuracies."""
    found = {"depths": np.array([3, 30, 300])}
    for title in module.NETWORKS:
        accuracy = {module.EDGE: edge, module.SCALED: scaled, module.ORDERED: double, module.FLAT: double}
        exact = np.array(accuracy.get(title, [0.9, 0.9, 0.8]))
        found |= {
            f"{title}/accuracy64": exact,
            f"{title}/accuracy32": exact,
            f"{title}/spread": np.array([0.3, 0.2, 0.1]),
        }
        found[f"{title}/accuracy_early"] = np.nan_to_num(exact) * np.array(
            [1, 0.1, 0.1] if title != module.SCALED else [1, 1, 1]
        )
        found[f"{title}/condition"] = np.array(
            [1e3, 1e8, np.inf] if title in (module.ORDERED, module.FLAT) else [9, 8, 7]
        )
    return found


def test_claims_of_the_table():
    module = load(FIGURES["curse_of_depth/table1"])
    good = table(module, [0.9, 0.8, 0.4], [0.9, 0.9, 0.89], [0.9, 0.9, np.nan])
    assert [claim.holds for claim in module.claims(good)] == [True] * 7
    assert "singular" in module.claims(good)[2].figures
    bad = table(module, [0.9, 0.9, 0.9], [0.9, 0.9, 0.5], [0.9, 0.9, 0.9])
    assert [claim.holds for claim in module.claims(bad)] == [False, True, False, False, False, False, True]


def test_claims_on_lost_accuracy():
    module = load(FIGURES["curse_of_depth/fig2"])
    depths = np.array([3, 30, 60, 90, 120, 150])
    good = {"depths": depths, module.EDGE: np.array([0.9, 0.92, 0.9, 0.88, 0.86, 0.8]), module.ORDERED: np.full(6, 0.1)}
    good[module.ORDERED][0] = 0.9
    assert [claim.holds for claim in module.claims(good)] == [True, True]
    bad = good | {module.EDGE: np.array([0.9, 0.5, 0.6, 0.5, 0.5, 0.5]), module.ORDERED: np.full(6, 0.9)}
    assert [claim.holds for claim in module.claims(bad)] == [False, False]


def test_claims_on_trained_networks():
    module = load(FIGURES["curse_of_depth/table1_sgd"])

    def arrays(**deep: float) -> dict[str, np.ndarray]:
        found = {"depths": np.array([3, 30])}
        for title in module.networks(8, 3):
            end = deep.get(title.replace(" ", "_").replace(",", ""), 0.09 if "ordered" in title else 0.9)
            found[f"{title}/3"] = np.array([[1.0, 0.9], [0.5, 0.95]])  # the rate that is best on training points counts
            found[f"{title}/30"] = np.array([[np.nan, np.nan], [1.0, end]])
        return found

    assert [claim.holds for claim in module.claims(arrays())] == [True] * 4
    worse = arrays(relu_edge_of_chaos=0.5, tanh_ordered=0.5, ResNet=np.nan, scaled_ResNet=0.2)
    assert [claim.holds for claim in module.claims(worse)] == [False] * 4
    assert "0.900, 0.500" in module.claims(worse)[0].figures


def test_claims_on_scaled_branches():
    module = load(FIGURES["curse_of_depth/table2"])
    noise = 0.002 * np.array([[-1, 0, 1], [1, 0, -1]])

    def arrays(early: list, last: list) -> dict[str, np.ndarray]:
        found = {"blocks": np.array([1, 8]), "epochs": np.array([2, 32])}
        for b, *gap in zip((1, 8), early, last, strict=True):
            found |= {
                f"standard/{b}": np.full((2, 3), 0.5),
                f"scaled by 1/√l/{b}": 0.5 + np.array(gap)[:, None] + noise,
            }
        return found

    assert [claim.holds for claim in module.claims(arrays([0.0, 0.1], [0.1, 0.1]))] == [True, True]
    assert [claim.holds for claim in module.claims(arrays([0.1, 0.0], [0.1, -0.1]))] == [False, False]
    assert [claim.holds for claim in module.claims(arrays([0.1, 0.1], [0.1, 0.0]))] == [None, None]


@pytest.mark.slow
def test_trained_networks_from_end_to_end(tmp_path: Path):
    found, pictures = run("table1_sgd", tmp_path, width=16, steps=20, members=2, depths=(3, 5), rates=(0.1, 1e9))
    assert len(found) == 4
    assert len(pictures) == 1
    sizes = {"width": 4, "blocks": (1, 2), "epochs": 4, "early": 2, "members": 2}
    found, pictures = run("table2", tmp_path, **sizes)
    assert len(found) == 2
    assert len(pictures) == 1


@pytest.mark.slow
def test_the_table_from_end_to_end(tmp_path: Path):
    found, pictures = run("table1", tmp_path, n_train=100, n_test=60, depths=(3, 30, 300))
    assert [found[i].holds for i in (1, 2, 3)] == [True] * 3
    assert len(pictures) == 1
    assert (tmp_path / "figure_1.png").exists()


@pytest.mark.slow
def test_spectra_and_phases_from_end_to_end(tmp_path: Path):
    found, _ = run("fig1", tmp_path)
    assert [claim.holds for claim in found] == [True] * 3
    found, pictures = run("phases", tmp_path, grid=(31, 20), width=300, networks=4)
    assert len(pictures) == 2
    assert found[-2].holds
