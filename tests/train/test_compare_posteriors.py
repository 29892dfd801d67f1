"""Theory of finite Bayesian networks against chains: what is right is found closer, what is wrong is found out."""

import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import launch.compare
from configs.posterior import get_config
from limits import Task, twin
from limits.posterior import Posterior, solver
from train import data
from train.evaluate import posterior_report, posteriors
from train.evaluate.posteriors import Distance, compare_posteriors
from train.posterior import sample_posterior
from train.study.families import families
from zoo import MLP


def as_printed(force, own, across, w):
    """The backward equation as it is printed: of the sum over c, the term c = a alone (part of <φ_a'² + φ_aφ_a''>, in `own`)."""
    return w * force * own


def fixed_point(w2, b2):
    """q = w² <erf²>_q + b²."""
    q = 1.0
    for _ in range(3000):
        q = w2 * (4 / np.pi * np.arctan(np.sqrt(1 + 4 * q)) - 1) + b2
    return q


def clusters(w2, b2=0.05, seed=0):
    """Clusters of such size that the mean variance in C^(0) is that of all layers."""
    task = data.xor_clusters(12, seed=seed)
    size = ((fixed_point(w2, b2) - b2) / w2 / (task.x_train**2).mean()) ** 0.5
    return Task(size * task.x_train, task.y_train)


TASK = Task([[1.0, 0.5], [-0.4, 0.9], [0.3, -1.2]], [1.0, -1.0, 0.5], [[0.2, 0.2], [1.0, -1.0]], [0.0, 0.0])
NOISE, WIDTHS = 0.1, (16, 64)
NET = MLP(16, 2, activation="erf", w_std=1.2, b_std=0.3)


def blind(posterior):
    """Its standard errors are not known."""
    return changed(posterior, errors={k: tuple(np.nan * e for e in v) if isinstance(v, tuple) else np.nan * v for k, v in
                                      posterior.errors.items()})  # fmt: skip


def sampled():
    return [sample_posterior(NET.clone(width=n), TASK, NOISE, "hamiltonian", steps=600) for n in WIDTHS]


def scattered(theory):
    """Chains whose draws lie about a theory, independent, each 2 % of it off."""
    rng, f = np.random.default_rng(0), np.concatenate([theory.f_train, theory.f_test])
    draws = [mean * (1 + 0.02 * rng.normal(size=(200, *mean.shape))) for mean in (f, *theory.kernels)]
    held = {
        "chains": 4,
        "converged": True,
        "sentence": "As made.",
        "draws": {"f": draws[0], "kernels": tuple(draws[1:])},
    }
    return changed(theory, diagnostics=held)


def changed(posterior, **fields):
    return Posterior(**{**vars(posterior), **fields})  # `replace` would read what is absent


def moved(posterior, by):
    """The output's kernel multiplied, and the predictions that follow from it."""
    kernel = by * posterior.kernels[-1]
    follows = exact(kernel, TASK, NOISE)
    return changed(posterior, kernels=(*posterior.kernels[:-1], kernel), f_train=follows.f_train, f_test=follows.f_test)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_comparison_from_end_to_end(tmp_path, real):
    """One test, so that the chains are run once."""
    infinite = twin(NET).posterior(TASK, NOISE)
    theories = [twin(NET).posterior(TASK, NOISE, width=n, samples=4000) for n in WIDTHS]
    chains = sampled() if real else [scattered(theory) for theory in theories]
    result = compare_posteriors(TASK, infinite, theories[::-1], chains[::-1])
    assert result.widths == WIDTHS
    assert result.quantities == ("C^(1)", "C^(2)", "predictions")
    assert result.converged
    # The theory is closer than the NNGP; a kernel that is 10 % off is found out.
    assert result.find("C^(2)", 16).gain > 3
    assert result.find("C^(2)", 16).theory.value < 0.5 * result.find("C^(2)", 16).nngp.value
    wrong = compare_posteriors(TASK, infinite, [moved(theory, 1.1) for theory in theories], chains).find("C^(2)", 64)
    assert wrong.verdict == "further than the NNGP"
    assert wrong.theory.value == pytest.approx(0.1, rel=0.3)
    unknown = compare_posteriors(TASK, infinite, [changed(theories[0], errors={}), blind(theories[1])], chains)
    assert unknown.unknown == (64,)
    assert "not known and count as 0" in "".join(posterior_report.reading(unknown))
    more = [twin(NET).posterior(TASK, NOISE, width=n, samples=4000, errors=False, fluctuations=True) for n in WIDTHS]
    assert compare_posteriors(TASK, infinite, more, chains).widths == WIDTHS  # though f is not C (C + noise)⁻¹ y
    same_as_the_nngp = compare_posteriors(TASK, infinite, [changed(infinite, width=n) for n in WIDTHS], chains)
    assert {a.gain for a in same_as_the_nngp.agreements} == {0.0}
    assert same_as_the_nngp.find("C^(2)", 16).verdict == "no closer than the NNGP"
    law = result.rates["C^(2)"][1]
    assert law is not None
    assert abs(law.exponent + 1) < 0.3 + 3 * law.sem
    report_has_everything(result, tmp_path)
    what_does_not_fit_together_is_said(infinite, theories, chains)


def report_has_everything(result, folder):
    console = Console(record=True, width=200, file=io.StringIO())
    report = posterior_report.report(result, {"command": "none"})
    report.print(console)
    assert "C^(2)" in console.export_text()
    numbers, page = report.write(folder)
    found = json.loads(numbers.read_text())
    assert len(found["agreements"]) == 6
    assert "draws" not in found["chains"][0]
    text = page.read_text()
    panel: Any = posterior_report.over_widths(result).axes[1]
    assert result.find("C^(2)", 16).nngp.value in np.concatenate([line.get_ydata() for line in panel.lines])
    assert "theory off by N^" in text


def what_does_not_fit_together_is_said(infinite, theories, chains):
    with pytest.raises(ValueError, match="one theory for every"):
        compare_posteriors(TASK, infinite, theories[:1], chains)
    with pytest.raises(ValueError, match="infinite width"):
        compare_posteriors(TASK, theories[0], theories, chains)
    with pytest.raises(ValueError, match="sample_posterior"):
        compare_posteriors(TASK, infinite, theories, theories)
    with pytest.raises(ValueError, match="noises differ"):
        compare_posteriors(TASK, changed(infinite, noise=0.2), theories, chains)
    nngp, *elsewhere = (changed(p, kernels=(1.1 * p.kernels[0], *p.kernels[1:])) for p in (infinite, *theories))
    with pytest.raises(ValueError, match=r"the theory at width 16 and the NNGP have another C\^\(0\)"):
        compare_posteriors(TASK, infinite, elsewhere, chains)
    with pytest.raises(ValueError, match=r"the chains at width 16 and the NNGP have another C\^\(0\)"):
        compare_posteriors(TASK, nngp, elsewhere, chains)
    relabelled = Task(TASK.x_train, -TASK.y_train, TASK.x_test, TASK.y_test)
    with pytest.raises(ValueError, match="the NNGP does not predict from the targets"):
        compare_posteriors(relabelled, infinite, theories, chains)
    shallow = changed(infinite, kernels=infinite.kernels[:-1])
    with pytest.raises(ValueError, match="the theory at width 16 has depth 2 and the NNGP 1"):
        compare_posteriors(TASK, shallow, theories, chains)
    fewer = Task(TASK.x_train, TASK.y_train)
    with pytest.raises(ValueError, match="predictions of shapes"):
        compare_posteriors(fewer, infinite, theories, chains)


@pytest.mark.slow
def test_a_report_where_nothing_stands_out_of_the_noise():
    infinite = twin(NET).posterior(TASK, NOISE)
    theories = [changed(infinite, width=n) for n in WIDTHS]
    result = compare_posteriors(TASK, infinite, theories, [scattered(theory) for theory in theories])
    lost = Distance(0.0, 0.1)
    lost_all = [dataclasses.replace(each, theory=lost, nngp=lost) for each in result.agreements]
    result = dataclasses.replace(result, agreements=lost_all)
    assert "Over widths" in posterior_report.report(result, {}).html()


def test_a_comparison_needs_widths():
    config = get_config()
    config.widths = ()
    task = launch.compare.task_of(config)
    with pytest.raises(ValueError, match=r"config\.widths is empty"):
        launch.compare.posteriors(config, families(config, None, 1), task, None, None)


def test_a_difference_along_one_direction_is_told_where_the_sum_over_entries_does_not_see_it(monkeypatch):
    """f is known to 1e-4 along the labels and to .05 on test points; the theory is off by 1e-3 along the labels."""
    rng, n = np.random.default_rng(0), 8
    task = Task(np.eye(n), [1.0, -1.0] * 4, np.ones((n, n)), np.zeros(n))
    kernel = np.eye(2 * n) + 0.2
    infinite = exact(kernel, task)
    theory = changed(infinite, width=8)
    f = np.concatenate([infinite.f_train, infinite.f_test]) + np.zeros((200, 2 * n, 1))
    f[:, :n] += 2e-3 * task.y_train / n**0.5 + 1e-3 * rng.normal(size=(200, n, 1))
    f[:, n:] += 0.5 * rng.normal(size=(200, n, 1))
    entries = kernel + 0.01 * rng.normal(size=(200, 1, 1))
    drawn = changed(
        theory, diagnostics={"chains": 4, "converged": True, "draws": {"f": f, "kernels": (entries, entries)}}
    )
    found = compare_posteriors(task, infinite, theory, drawn).find("predictions", 8)
    assert not found.theory.resolved
    assert found.projection == "labels"
    assert found.largest_z > 8
    assert found.along == pytest.approx(2e-3 / np.linalg.norm(f.mean(0)), rel=0.2)
    assert "less than" in found.sentence
    assert "over all entries, along labels" in found.sentence
    assert found.verdict != "agrees"
    # One projection that is far off alone is no agreement, whatever the test over all of them says.
    monkeypatch.setattr(posteriors, "hotelling", lambda *_: (0.0, 1.0, 0.0))
    assert compare_posteriors(task, infinite, theory, drawn).find("predictions", 8).verdict == found.verdict


def exact(kernel, task, noise=0.1):
    """A posterior at infinite width that has this kernel in both layers."""
    n = len(task.x_train)
    f = kernel[:, :n] @ np.linalg.solve(kernel[:n, :n] + noise * np.eye(n), task.y_train)
    return Posterior(f[:n], kernel[:n, :n], f[n:], kernel[n:, n:], (kernel, kernel), (), 0.0, noise=noise)


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_a_theory_that_is_right_is_rejected_as_often_as_the_level_says(shift):
    """Synthetic chains about a known kernel, 60 times; `shift`: in standard deviations of the chains' entries."""
    rng, task = np.random.default_rng(0), Task(np.eye(3), [1.0, -1.0, 1.0])
    kernel, root = np.eye(3) + 0.2, rng.normal(size=(6, 6))
    rejected, runs, upper = 0, 60, np.triu_indices(3)
    for _ in range(runs):
        noise = rng.normal(size=(4, 50, 6))
        for t in range(1, 50):
            noise[:, t] = 0.5 * noise[:, t - 1] + 0.75**0.5 * noise[:, t]
        entries = np.zeros((200, 3, 3))
        entries[:, *upper] = entries[:, *upper[::-1]] = 0.02 * (noise @ root + shift).reshape(-1, 6)
        theory = changed(exact(kernel, task), width=8)
        f = theory.f_train + 0.1 * rng.normal(size=(200, 3, 1))
        drawn = changed(
            theory, diagnostics={"chains": 4, "converged": True, "draws": {"f": f, "kernels": (f, kernel + entries)}}
        )
        found = compare_posteriors(task, changed(theory, width=None), theory, drawn).find("C^(1)", 8)
        rejected += found.p < 0.05
    if shift:
        assert rejected > 0.9 * runs
    else:
        assert rejected < 0.05 * runs + 4 * (0.05 * 0.95 * runs) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("w2", [0.8, 1.2])
def test_corrected_kernels_are_closer_than_the_nngp_in_every_layer_and_printed_ones_are_not(w2, monkeypatch):
    task, net = clusters(w2), MLP(500, 3, activation="erf", w_std=w2**0.5, b_std=0.05**0.5)
    sampled = sample_posterior(net, task, 1e-3, "hamiltonian", steps=2500, warmup=300)
    assert sampled.diagnostics["converged"]
    infinite, finite = (twin(net).posterior(task, 1e-3, width=width) for width in (None, 500))
    right = compare_posteriors(task, infinite, finite, sampled)
    monkeypatch.setattr(solver, "force_back", as_printed)
    printed = compare_posteriors(task, infinite, twin(net).posterior(task, 1e-3, width=500), sampled)
    gains = {}
    for name, result in (("right", right), ("printed", printed)):
        found = [result.find(f"C^({l})", 500) for l in (1, 2, 3)]
        gains[name] = np.array([a.gain for a in found])
        for l, a in enumerate(found, start=1):
            print(f"w² {w2} C^({l}) {name}: off by {a.theory.value:.4f} ± {a.theory.sem:.4f}, NNGP {a.nngp.value:.4f} ± "
                  f"{a.nngp.sem:.4f}, closer by {a.gain:.1f} standard errors")  # fmt: skip
    assert (gains["right"] > 3).all()
    assert gains["printed"].min() < -3
