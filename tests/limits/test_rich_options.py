"""What `rich` can be asked for beside plain training: batches, schedules, observables, records, a folder, own modules."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest

from limits import AbsentError, Task, Trajectory, twin
from limits.fields.sweep import CausalSweep
from train import ensemble
from zoo import MLP, Dense, Norm, in_parameterization, parameterization

RNG = np.random.default_rng(0)
TASK = Task(RNG.normal(size=(4, 3)), [1.0, -1.0, 1.0, -1.0], RNG.normal(size=(2, 3)), [0.0, 0.0])
NET = MLP(8, 2, activation="tanh", parameterization="mup", gamma=1.0)
BATCHES = [[0, 1], [2, 3], [1, 2]]


def rate(step: int) -> float:
    return 0.8 / (1 + step)


def fourth_moment(net: Any, variables: Any, x: Any) -> Any:
    """Of the second layer's signals: no kernel knows it."""
    _, inside = net.apply(variables, x, intermediates=True)
    return (inside["h"][1] ** 4).mean(-1)


@pytest.mark.slow
def test_small_gamma_with_batches_and_schedule_is_the_lazy_limit():
    net, how = NET.clone(gamma=0.01), {"steps": 3, "learning_rate": rate, "batches": BATCHES, "momentum": 0.4}
    rich = twin(net).rich(TASK, samples=1024, replicas=8, **how, kernels=())
    lazy = twin(net).lazy(TASK, centred=True, **how, kernels=())
    plain = twin(net).lazy(TASK, centred=True, steps=3, learning_rate=0.8, momentum=0.4, kernels=())
    for name in ("f_train", "f_test"):
        mine, theirs, other = (getattr(run, name)[-1] for run in (rich, lazy, plain))
        error = 5 * getattr(rich, f"{name}_sem")[-1] + 0.005  # O(γ₀), O(1/1024)
        assert np.all(np.abs(mine - theirs) < error)
        assert np.any(np.abs(mine - other) > 5 * error)


@pytest.mark.slow
def test_observables_mean_the_same_in_limit_and_ensemble():
    how = {"steps": 3, "learning_rate": rate, "batches": BATCHES, "observe": fourth_moment, "times": [0, 3]}
    rich = twin(NET).rich(TASK, samples=2048, replicas=8, kernels=(), **how)
    finite = ensemble(NET.clone(width=512), TASK, 64, centred=True, kernels=(), **how)
    away = np.abs(rich.observed["observe"] - finite.observed["observe"])
    assert away.shape == (2, 6)
    error = np.hypot(rich.observe_sem, finite.observe_sem)
    assert np.all(away < 4.5 * error + 0.01 * rich.observed["observe"])  # O(1/512)
    assert error.max() < 0.1 * rich.observed["observe"].max()


@pytest.mark.slow
def test_records_of_two_times_and_of_fields(tmp_path, capsys):
    run = twin(NET).rich(TASK, 3, 0.5, samples=512, replicas=3, record=("two_time", "fields"))
    assert "record: two_time, fields at 4 times: 0.3 MiB" in capsys.readouterr().err
    for name in ("phi", "g"):
        for two, one in zip(run.observed[f"{name}_two_time"], getattr(run, name), strict=True):
            assert two.shape == (4, 4, 6, 6)
            np.testing.assert_allclose(np.einsum("ttij->tij", two), one, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(two, two.transpose(1, 0, 3, 2), rtol=1e-4, atol=1e-6)
    h, slopes = run.observed["h"], run.observed["g_fields"]
    assert h[1].shape == slopes[1].shape == (4, 6, 512)
    sampled = np.einsum("tis,tjs->tij", np.tanh(h[1]), np.tanh(h[1])) / 512
    assert np.abs(sampled - run.phi[1]).max() < 6 * run.phi_sem[1].max() * 3**0.5  # one sweep of the three
    loaded = Trajectory.load(run.save(tmp_path / "run"))
    np.testing.assert_array_equal(loaded.observed["phi_two_time"][1], run.observed["phi_two_time"][1])
    np.testing.assert_array_equal(loaded.phi_two_time_sem[1], run.phi_two_time_sem[1])
    assert len(loaded.plot("fields").axes) == 4
    assert (
        len(loaded.plot("kernels", 0).axes) == 2 * 5 + 5
    )  # Φ, G of two layers and the tangent kernel, with colour bars
    with pytest.raises(ValueError, match=r"plot: what must be one of .*fields.*; got 'field'"):
        run.plot("field")
    with pytest.raises(ValueError, match="record must name some of two_time, fields, responses; got two_times"):
        twin(NET).rich(TASK, 3, 0.5, record=("two_times",))


@pytest.mark.slow
def test_two_times_of_a_linear_network_are_exact():
    net, how = NET.clone(activation="linear"), {"steps": 2, "learning_rate": 0.5}
    exact = twin(net).rich(TASK, record=("two_time",), **how)
    assert not np.any(exact.phi_two_time_sem[0])

    def sampled(x: Any) -> Any:
        return x

    other = twin(net.clone(activation=sampled)).rich(TASK, record=("two_time",), samples=1024, replicas=16, **how)
    for name in ("phi_two_time", "g_two_time"):
        sems = getattr(other, f"{name}_sem")
        for right, found, sem in zip(exact.observed[name], other.observed[name], sems, strict=True):
            assert np.all(np.abs(right - found) < 5 * sem + 0.005 * np.abs(right).max()), name


def test_an_interrupted_sweep_goes_on(tmp_path, monkeypatch):
    how = {"steps": 4, "learning_rate": 0.5, "samples": 64, "replicas": 2, "times": [0, 2, 4], "kernels": ("phi",)}
    whole = twin(NET).rich(TASK, **how)
    plain, made = CausalSweep.step, []

    def step(self: Any, *arguments: Any) -> Any:
        made.append(1)
        if len(made) == 4:
            raise RuntimeError("interrupted")
        return plain(self, *arguments)

    monkeypatch.setattr(CausalSweep, "step", step)
    with pytest.raises(RuntimeError, match="interrupted"):
        twin(NET).rich(TASK, folder=tmp_path, **how)
    made.clear()
    made += [0] * 10
    again = twin(NET).rich(TASK, folder=tmp_path, **how)
    assert len(made) == 10 + 2 + 4  # from step 2 of the first sweep
    np.testing.assert_array_equal(again.f_train, whole.f_train)
    np.testing.assert_array_equal(again.phi[1], whole.phi[1])
    made.clear()
    twin(NET).rich(TASK, folder=tmp_path, **how)
    assert not made
    monkeypatch.undo()
    faster: dict[str, Any] = {"learning_rate": 0.1}
    other = twin(NET).rich(TASK, folder=tmp_path, **(how | faster))
    assert not np.array_equal(other.f_train, whole.f_train)


class Own(nn.Module):
    """An MLP of two layers, written by a user."""

    width: int
    parameterization: str = "ntk"
    outputs: int = 1

    @nn.compact
    def __call__(self, x: Any) -> Any:
        p = parameterization(self.parameterization)
        h = Dense(self.width, "input", self.width, p, 1.3, 0.4)(x)
        h = Dense(self.width, "hidden", self.width, p, 1.3, 0.4)(jnp.tanh(h))
        return Dense(1, "readout", self.width, p, 1.3, 0.4)(jnp.tanh(h)) / p.output_scale(self.width, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["ntk", pytest.param("mup", marks=pytest.mark.slow)])
def test_an_own_module_has_the_kernels_of_the_same_definition(form):
    closed = twin(MLP(8, 2, activation="tanh", w_std=1.3, b_std=0.4, parameterization=form)).kernels(TASK.x)
    found = twin(Own(8, form)).kernels(TASK.x_train, TASK.x_test, samples=1024)
    for name in ("nngp", "ntk"):
        away = np.abs(getattr(found, name) - getattr(closed, name)[:4, 4:])
        assert np.all(away < 4.5 * getattr(found, f"{name}_sem") + 0.005 * closed.ntk.max())
    assert found.ntk_sem.max() < 0.03 * closed.ntk.max()
    assert found.provenance["ntk"].kind == "monte_carlo"


@pytest.mark.slow
def test_an_own_module_trains_like_the_same_definition():
    how = {"steps": 3, "learning_rate": 0.5}
    own = twin(Own(8, "mup")).rich(TASK, samples=256, replicas=32, **how)
    same = twin(MLP(8, 2, activation="tanh", w_std=1.3, b_std=0.4, parameterization="mup")).rich(
        TASK, samples=256, replicas=32, key=1, **how
    )
    for name in ("f_test", "ntk"):
        error = np.hypot(getattr(own, f"{name}_sem"), getattr(same, f"{name}_sem"))
        assert np.all(np.abs(getattr(own, name) - getattr(same, name)) < 5 * error + 1e-6)
    with pytest.raises(AbsentError, match="phi: this network has no argument `intermediates`"):
        _ = own.phi
    lazy = twin(Own(8, "mup")).lazy(TASK, centred=True, **how)
    assert lazy.provenance["f_train"].kind == "exact"  # tanh's series to rounding


def test_a_module_without_width_has_no_twin():
    with pytest.raises(ValueError, match=r"twin: Dense is a plain module.*in_parameterization"):
        twin(nn.Dense(3))


class Normalised(nn.Module):
    """Batch normalisation between two layers."""

    width: int
    parameterization: str = "mup"
    gamma: float = 1.0
    outputs: int = 1

    @nn.compact
    def __call__(self, x: Any, train: bool = False, intermediates: bool = False) -> Any:
        p = parameterization(self.parameterization)
        h = Dense(self.width, "input", self.width, p)(x)
        h = Norm("batch", self.width, p)(h, train)
        a = Dense(self.width, "hidden", self.width, p)(jnp.tanh(h))
        a = jnp.tanh(Norm("batch", self.width, p)(a, train))
        f = Dense(1, "readout", self.width, p)(a) / p.output_scale(self.width, self.gamma)
        return (f, {"h": (h,), "phi": (a,), "features": a}) if intermediates else f


@pytest.mark.slow
def test_batch_normalisation_against_networks():
    """Training outputs by the batch, test outputs by running averages, minibatches carried."""
    how = {"steps": 4, "learning_rate": 0.5, "times": [0, 4], "batches": [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]}
    rich = twin(Normalised(8)).rich(TASK, samples=2048, replicas=8, **how)
    finite = ensemble(Normalised(512), TASK, 64, centred=True, **how)
    for name in ("f_train", "f_test", "loss"):
        error = np.hypot(getattr(rich, f"{name}_sem"), getattr(finite, f"{name}_sem"))
        assert np.all(np.abs(getattr(rich, name) - getattr(finite, name)) < 4.5 * error + 0.01), name
    assert np.abs(rich.f_test[-1]).max() > 0.1
    np.testing.assert_allclose(rich.phi[0], finite.phi[0], atol=0.03)
    for run in (rich, finite):
        with pytest.raises(AbsentError, match=r"ntk: batch normalisation makes every output depend on all inputs"):
            _ = run.ntk


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.003, 0.0003])
def test_small_steps_are_not_lost_in_float32(rate):
    """What was left out below 1e-3 of the longest vector was a third of the first movement (standard errors are 2 to 4 %)."""
    random = np.random.default_rng(0)
    task = Task(random.normal(size=(5, 3)), random.normal(size=5))
    limit = twin(MLP(64, 2, activation="tanh", parameterization="mup"))
    falls = []
    for dtype in (np.float32, np.float64):
        how: dict[str, Any] = {"samples": 128, "replicas": 64, "order": 1, "kernels": (), "dtype": dtype}
        run = limit.rich(task, 2, rate, **how)
        falls.append((run.loss[0] - run.loss[1:], run.loss_sem[1:]))
    (single, error), (double, other) = falls
    assert np.all(np.abs(single - double) < 3.5 * np.hypot(error, other))
    assert np.all(np.hypot(error, other) < 0.04 * double)


class Fixed(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.tanh(nn.Dense(8)(x)))


def test_modules_of_which_nothing_grows_are_refused():
    with pytest.raises(ValueError, match="no parameter of Fixed grows with its width"):
        twin(in_parameterization(Fixed(16), "mup")).rich(Task([[1.0, 0.5]], [1.0]), 1, 0.1)
