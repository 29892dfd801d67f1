"""What is recorded of single runs, when, and of inputs before training: the same for ensembles, sweeps and limits."""

import numpy as np
import pytest

from limits import Task, Trajectory, twin
from limits.training import checked_times
from train import ensemble
from zoo import CNN, MLP

TASK = Task([[1.0, 0.0], [0.6, -0.8]], [1.0, -1.0], [[0.0, 1.0]], [0.5])
NET = MLP(width=32, depth=2, activation="erf", w_std=1.3, b_std=0.2, parameterization="mup")
HOW = {"times": [0, 2, 4], "kernels": ("ntk", "features")}


def outputs_and_end(runs):
    return {"f": runs.f, "end": runs.ntk[:, -1]}


RUNS = {
    "ensemble": lambda **how: ensemble(NET, TASK, 5, 4, 0.3, **HOW, **how),
    "rich": lambda **how: twin(NET).rich(TASK, 4, 0.3, samples=64, replicas=3, **HOW, **how),
}


@pytest.mark.parametrize(("name", "count"), [("ensemble", 5), pytest.param("rich", 3, marks=pytest.mark.slow)])
def test_the_means_are_those_of_the_single_runs(name, count, tmp_path):
    run = RUNS[name](reduce=outputs_and_end, kernel_times=[0, 4])
    f, end = run.reduced["f"], run.reduced["end"]
    assert (f.shape, end.shape, run.ntk.shape) == ((count, 3, 3, 1), (count, 3, 3), (2, 3, 3))
    np.testing.assert_allclose(f.mean(0), run.f, atol=1e-12)
    np.testing.assert_allclose(f.std(0, ddof=1)[:, :2] / count**0.5, run.f_train_sem, atol=1e-12)
    np.testing.assert_allclose(end.mean(0), run.ntk[-1], rtol=1e-6)
    whole = RUNS[name]()
    np.testing.assert_array_equal(whole.f, run.f)
    np.testing.assert_allclose(whole.ntk[[0, 2]], run.ntk, rtol=1e-5)  # float32, compiled with other looks
    with pytest.raises(ValueError, match="kernels of other times"):
        _ = whole - run
    again = Trajectory.load(run.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.reduced["end"], end)
    assert again.kernel_times.tolist() == [0, 4]


@pytest.mark.slow
def test_kernels_that_stay_are_held_at_the_same_times():
    run = twin(NET).lazy(TASK, 4, 0.3, times=[0, 2, 4], kernel_times=[0, 4])
    assert run.ntk.shape == (2, 3, 3)
    away = RUNS["ensemble"](kernel_times=[0, 4]) - run
    assert away.kernel_times.tolist() == [0, 4]
    with pytest.raises(ValueError, match=r"kernel_times \[3\] must be among the recorded times \[0, 2, 4\]"):
        twin(NET).lazy(TASK, 4, 0.3, times=[0, 2, 4], kernel_times=[3])


@pytest.mark.parametrize("name", RUNS)
def test_what_cannot_be_recorded_is_said(name):
    with pytest.raises(ValueError, match=r"kernel_times \[3\] must be among the recorded times \[0, 2, 4\]"):
        RUNS[name](kernel_times=[3])
    with pytest.raises(ValueError, match=r"reduce must return a dictionary .* first axis is the runs, [35] of them"):
        RUNS[name](reduce=lambda runs: {"f": runs.f[0, 0, 0]})


@pytest.mark.slow
def test_features_are_the_nngp_before_the_readout():
    task = Task(np.random.default_rng(0).normal(size=(3, 4, 4, 1)), [1.0, -1.0, 0.5])
    for net in (NET.clone(width=512), CNN(width=128, depth=1, activation="erf", b_std=0.3, readout="average")):
        mine = TASK if isinstance(net, MLP) else task
        start = twin(net).initial(mine.x)
        lazy = twin(net).lazy(mine, 1, 0.1, kernels=("features",), initial=start)
        np.testing.assert_allclose(start.readout(lazy.features[0]), start.kernels.nngp, rtol=1e-12)
        seen = ensemble(net, mine, 32, 0, 0.1, kernels=("features",))
        away = (seen.features[0] - lazy.features[0]) / seen.features_sem[0]
        assert (
            np.abs(away).max() < 4.5
        )  # at most six pairs: by chance once in thousands, and finite width is below its error


@pytest.mark.slow
def test_initial_kernels_are_computed_once_and_belong_to_their_inputs(monkeypatch):
    limit, counted = twin(NET), []
    original = type(limit).kernels
    monkeypatch.setattr(
        type(limit), "kernels", lambda self, x, **how: counted.append(len(x)) or original(self, x, **how)
    )
    start = limit.initial(TASK.x)
    plain, given = limit.lazy(TASK, 4, 0.3), limit.lazy(TASK, 4, 0.3, initial=start)
    assert counted == [3, 3]
    limit.lazy(TASK, 8, 0.1, initial=start)
    assert counted == [3, 3]
    np.testing.assert_array_equal(plain.f, given.f)
    other = Task([[1.0, 0.1], [0.6, -0.8]], [1.0, -1.0], [[0.0, 1.0]], [0.5])
    with pytest.raises(ValueError, match=r"initial is that of other inputs; it must be twin\.initial\(task\.x\)"):
        limit.lazy(other, 4, 0.3, initial=start)
    with pytest.raises(ValueError, match="initial is that of another network"):
        twin(NET.clone(w_std=1.0)).lazy(TASK, 4, 0.3, initial=start)


@pytest.mark.parametrize("wrong", [[1e30], [np.nan], [2.5], [-1]])
def test_times_of_kernels_are_refused_by_their_name(wrong):
    with pytest.raises(ValueError, match="kernel_times"):
        checked_times(np.array(wrong), np.arange(3))
