"""Figures of papers: both settings of each can be built, claims judge what they say, and one is run from end to end."""

import importlib.util
import itertools
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from launch import reproduce
from launch.experiment import load
from launch.study import study_of
from train.evaluate.claim import Claim
from train.transfer import Outcome, Sweep

FIGURES = reproduce.papers()
IMAGES = {
    "digits": (8, 8, 1),
    "cifar10": (32, 32, 3),
    "imagenet_resized/64x64": (64, 64, 3),
    "imagenet2012": (224, 224, 3),
}
SHARED = load(FIGURES["depthwise_transfer/fig1"].with_name("shared.py"))


def test_every_figure_of_the_issue_is_there():
    assert {name.partition("/")[2] for name in FIGURES} >= {
        "fig1", "fig2", "fig3", "fig4", "figB1", "figB2", "figB3", "figB4", "figB5", "figB6", "figB7", "figB8", "figM1",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "size"), list(itertools.product(FIGURES, ("small", "paper"))))
def test_every_size_of_every_figure_can_be_built(name: str, size: str):
    title, small, paper = reproduce.describe(FIGURES[name])
    assert title.endswith(".")
    assert "minute" in small or "second" in small
    assert paper
    module = load(FIGURES[name])
    config = module.get_config(size)
    assert name.endswith(config.name)
    if not hasattr(module, "make"):
        return
    study = study_of(str(FIGURES[name]), config, Path())
    x = jax.ShapeDtypeStruct((1, *IMAGES[config.dataset]), "float32")
    for label, fields in study.variants.items():
        net = study.call("make", min(config.widths), min(4, min(config.depths)), **fields, **study.job_example())
        tx = study.call("optimizer", net, **fields, **study.job_example())
        if label == "ViT, Adam" and size == "paper":  # the paper's ViTs are for other images than its convolutions
            continue
        jax.eval_shape(lambda x, net=net, tx=tx: tx.init(net.init(jax.random.key(0), x)["params"]), x)


def outcome(shift: float, labels: tuple[str, ...], diverge: bool = False) -> Outcome:
    """Losses (log₂ rate − best)² + 1 / depth with the optimum `shift` octaves away at the largest depth and width."""
    rates, seeds = 2.0 ** np.arange(-6, 7), 0.05 * np.random.default_rng(0).normal(size=3)
    sizes = [(8, 2), (16, 2), (32, 2), (8, 4), (8, 8)]
    sweeps = {}
    for width, depth in sizes:
        best = shift * max(math.log2(width / 8), math.log2(depth / 2)) / 2
        losses = (np.log2(rates)[:, None] - best - seeds) ** 2 + 1 + 1 / depth
        if diverge and depth == 8:
            losses = np.where(rates[:, None] >= 1, np.inf, losses)
        sweeps[width, depth] = Sweep(width, depth, rates, np.repeat(losses[..., None], 20, axis=2))
    return Outcome("learning_rate", dict.fromkeys(labels, sweeps))


def test_claims_judge_what_they_say():
    same, far = outcome(0.3, ("a",)), outcome(3.0, ("a",))
    assert SHARED.keeps(same, "a", "width").holds
    assert SHARED.keeps(same, "a", "depth").holds
    assert not SHARED.keeps(far, "a", "depth").holds
    assert SHARED.loses(far, "a", "depth").holds
    assert not SHARED.loses(same, "a", "depth").holds
    lost = outcome(0.0, ("a",), diverge=True)
    assert SHARED.loses(lost, "a", "depth").holds
    assert not SHARED.keeps(lost, "a", "depth").holds
    assert SHARED.improves(same, "a", "depth").holds
    assert not SHARED.improves(same, "a", "width").holds
    assert not SHARED.worsens(same, "a", "depth", 1.0).holds
    assert SHARED.overlap(same, "a", "width", 0.3).holds
    assert not SHARED.overlap(far, "a", "width", 0.3).holds
    both = Outcome("learning_rate", {"far": far.sweeps["a"], "same": same.sweeps["a"]})
    assert SHARED.compared(both, "far", "same", "depth").holds is True
    assert SHARED.compared(both, "same", "far", "depth").holds is False
    assert SHARED.compared(same, "a", "a", "depth").holds is None


@pytest.mark.parametrize("name", [name for name, file in FIGURES.items() if "def make" in file.read_text()])
def test_every_claim_can_be_judged(name: str):
    module = load(FIGURES[name])
    if not hasattr(module, "claims"):
        pytest.skip("its claims are those of another figure")
    labels = tuple(study_of(str(FIGURES[name]), module.get_config("small"), Path()).variants)
    found = module.claims(outcome(0.1, labels))
    assert found
    assert all(isinstance(each, Claim) for each in found)


def repeat(name: str, folder: Path, **fields: Any) -> Any:
    """A small figure made smaller."""
    module = load(FIGURES[name])
    config = module.get_config("small")
    config.update(fields)
    (folder / "cells").mkdir()
    found = reproduce.repeat(f"{FIGURES[name]}:small", config, folder, Console(quiet=True))
    reproduce.write("Title", found, {"config": {}}, folder)
    return found


def test_a_figure_from_end_to_end(tmp_path: Path):
    few = {"widths": (8,), "depths": (3, 5), "values": (0.5, 1.0, 2.0), "seeds": 2, "steps": 20}
    claims, pictures, arrays = repeat("depthwise_transfer/figM1", tmp_path, **few)
    assert arrays["α = 1/8x5/curves"].shape == (3, 2, 20)
    assert len(list(tmp_path.glob("figure_*.png"))) == len(pictures) == 4
    document = json.loads((tmp_path / "report.json").read_text())
    assert [row["verdict"] for row in document["claims"]] == [claim.verdict for claim in claims]
    assert claims[0].text in (tmp_path / "report.html").read_text()


def test_convergence_in_width_and_depth_is_measured(tmp_path: Path):
    few = {"widths": (8, 16), "depths": (3, 5, 9), "members": 4, "steps": 3}
    claims, pictures, arrays = repeat("depthwise_transfer/figB7", tmp_path, **few)
    assert arrays["f_5_16"].shape == (4, 16)
    assert len(claims) == 4
    assert len(pictures) == 1
    module = load(FIGURES["depthwise_transfer/figB7"])
    rng, widths, depths = np.random.default_rng(0), np.array([16, 32, 64]), np.array([4, 8, 16])
    made = {"widths": widths, "depths": depths}
    for d, w in itertools.product(depths, widths):
        made[f"f_{d}_{w}"] = 1 + 1 / d + rng.normal(size=(4000, 16)) / w**0.5
    assert [claim.holds for claim in module.claims(made)] == [True] * 4
    made |= {f"f_{d}_64": 1 + 1 / d**0.5 + rng.normal(size=(4000, 16)) / 8 for d in depths}
    assert not module.claims(made)[2].holds


def test_mistakes_and_the_list(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    for arguments, message in ((["depthwise_transfer/fig9"], "Did you mean"), (["a", "b"], "name one figure")):
        monkeypatch.setattr("sys.argv", ["reproduce", *arguments])
        with pytest.raises(SystemExit, match=message):
            reproduce.run()
    monkeypatch.setattr("sys.argv", ["reproduce", "depthwise_transfer/fig1", "--size=large"])
    with pytest.raises(SystemExit, match="small or paper"):
        reproduce.run()
    monkeypatch.setattr("sys.argv", ["reproduce", "--list"])
    reproduce.run()
    assert "depthwise_transfer/figB8" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("tensorflow_datasets") is None, reason="it is a dependency")
def test_images_of_tfds():
    import tensorflow_datasets as tfds

    from train.images import image_batches

    with tfds.testing.mock_data(num_examples=9):
        batches = list(image_batches("cifar10", 4, steps=3, size=16))
    assert [x.shape for x, _ in batches] == [(4, 16, 16, 3)] * 3
    for x, y in batches:
        np.testing.assert_allclose((x**2).mean((1, 2, 3)), 1, rtol=1e-4)
        np.testing.assert_array_equal(y.sum(1), 1)
    with pytest.raises(FileNotFoundError, match="tfds build cifar10"):
        next(image_batches("cifar10", 4, steps=1))
