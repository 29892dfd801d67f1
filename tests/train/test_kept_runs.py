"""Runs kept by hyperparameters and seed: what is missing, what is joined, what makes a sweep; that a run is its own."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from loss_surfaces import runs_of

from train.transfer import Sweep
from train.transfer.kept import KeptRuns, held, keep, missing
from train.transfer.runs import train_runs, train_scored
from zoo import MLP, Parameterization, scaled

RNG = np.random.default_rng(0)
X, Y = (jnp.asarray(RNG.normal(size=(8, 4, size)), "float32") for size in (3, 1))


def runs(values: list[float], seeds: list[int], scale: float = 1.0) -> KeptRuns:
    """One for each pair, whose curve begins with 9 and has the value times ten and the seed in it."""
    x, s = np.repeat(values, len(seeds)), np.tile(seeds, len(values))
    return KeptRuns.of({"rate": x}, s, np.column_stack([np.full(len(x), 9.0), scale * (10 * x + s)]))


def test_what_is_missing_and_what_is_joined(tmp_path):
    first = runs([0.1, 0.2], [0, 1])
    keep(tmp_path / "size.npz", first)
    there = held(tmp_path / "size.npz")
    assert there is not None
    wanted = runs([0.1, 0.2, 0.4], [0, 1, 2])
    jobs, seeds = missing(there, wanted.jobs, wanted.seeds)
    assert list(zip(jobs["rate"].tolist(), seeds.tolist(), strict=True)) == [
        (0.1, 2), (0.2, 2), (0.4, 0), (0.4, 1), (0.4, 2),
    ]  # fmt: skip
    whole = KeptRuns.of(jobs, seeds, np.zeros((5, 2))).joined(there)
    assert not len(missing(whole, wanted.jobs, wanted.seeds)[1])
    sweep = whole.table("rate", {}).grid(8, 1, [0.2, 0.1], [0, 1])
    assert sweep is not None
    np.testing.assert_array_equal(sweep.curves[:, :, 1], [[1.0, 2.0], [2.0, 3.0]])
    assert whole.table("rate", {}).grid(8, 1, [0.1, 0.3], [0]) is None
    assert held(tmp_path / "other.npz") is None
    with pytest.raises(ValueError, match="with 3 steps cannot be joined to runs over rate with 2 steps"):
        KeptRuns.of(jobs, seeds, np.zeros((5, 3))).joined(there)


def test_a_run_that_was_given_up_gives_way_to_one_that_was_not():
    whole, stopped = runs([0.1], [0, 1]), runs([0.1], [1, 2])
    stopped.curves[:, 1] = np.nan
    for joined in (whole.joined(stopped), stopped.joined(whole)):
        assert len(joined) == 3
        assert joined.finished.sum() == 2
        assert len(missing(joined, {"rate": np.full(3, 0.1)}, np.arange(3))[1]) == 1
        assert not len(missing(joined, {"rate": np.full(3, 0.1)}, np.arange(3), given_up=False)[1])


def test_the_values_that_have_all_seeds():
    found = runs([1.0, 2.0, 3.0], [0, 1, 2]).joined(runs([0.5, 4.0], [0]))
    lost = KeptRuns.of({"rate": np.array([8.0])}, np.array([0]), np.array([[9.0, np.inf]]))
    core = found.joined(lost).table("rate", {}).core(8, 1)
    assert core is not None
    assert core.rates.tolist() == [1.0, 2.0, 3.0, 8.0]
    assert core.losses.shape == (4, 3)
    assert np.isinf(core.losses[3]).all()
    few = runs([1.0], [0, 1]).joined(runs([2.0], [0])).table("rate", {}).core(8, 1)
    assert few is not None
    assert few.rates.tolist() == [1.0, 2.0]
    assert few.losses.shape == (2, 1)


def test_settings_are_kept_apart():
    jobs = {"rate": np.array([0.1, 0.1]), "momentum": np.array([0.0, 0.9])}
    found = KeptRuns.of(jobs, np.zeros(2), np.array([[9.0, 1.0], [9.0, 2.0]]))
    sweep = found.table("rate", {"momentum": 0.9}).grid(8, 1, [0.1], [0])
    assert sweep is not None
    assert sweep.losses.tolist() == [[2.0]]


def test_scores_take_the_place_of_the_loss_where_a_run_did_not_diverge():
    curves = np.ones((2, 2, 4))
    curves[1, 1, 2:] = np.inf
    sweep = Sweep(8, 1, np.array([0.1, 0.2]), curves, np.array([[3.0, 4.0], [5.0, 6.0]]))
    assert sweep.losses.tolist() == [[3.0, 4.0], [5.0, np.inf]]
    again = runs_of(sweep, "rate").table("rate", {}).grid(8, 1, [0.1, 0.2], [0, 1])
    assert again is not None
    assert again.losses.tolist() == sweep.losses.tolist()


def build(job: Any) -> Any:
    net = MLP(8, 2, activation="tanh", parameterization=Parameterization.mup.based(8))
    return net, scaled(optax.adam(job["rate"]), net)


def loss(f: Any, y: Any) -> Any:
    return jnp.mean((f - y) ** 2)


def batches(seed: int) -> list:
    order = np.random.default_rng(seed).permutation(len(X))
    return [(X[i], Y[i]) for i in order]


def test_a_run_does_not_depend_on_which_others_are_in_its_program():
    whole = train_runs(build, loss, batches, 8, {"rate": np.repeat([0.01, 0.1], 3)}, np.tile(range(3), 2))
    alone = train_runs(build, loss, batches, 8, {"rate": [0.1]}, [2])
    np.testing.assert_array_equal(alone[0], whole[5])  # bit by bit, on a CPU
    beside = train_runs(build, loss, batches, 8, {"rate": [0.1, 0.01]}, [2, 1], together=2)
    np.testing.assert_allclose(beside, whole[[5, 1]], rtol=1e-5)  # side by side as on an accelerator: to rounding


@pytest.mark.slow
def test_scores_and_what_is_given_up():
    x, y = X[0], Y[0]
    jobs: Any = {"rate": np.array([0.01, 0.1, 1e30])}
    seen = []

    def judge(curves: np.ndarray) -> np.ndarray:
        seen.append(curves.shape[1])
        return np.array([curves.shape[1] >= 4, False, False])

    def score(net: Any, variables: Any) -> Any:
        return loss(net.apply(variables, x), y)

    same = [(x, y)] * 8
    plain = train_runs(build, loss, [*same, (x, y)], 9, jobs, [0, 0, 0])
    plain, following = plain[:, :8], plain[1, 8]
    for together in (None, 3):
        curves, scores = train_scored(build, loss, same, 8, jobs, [0, 0, 0], together, score=score, hopeless=judge)
        assert seen == [2, 4, 6]
        seen.clear()
        np.testing.assert_allclose(curves[0, :4], plain[0, :4], rtol=1e-5)
        assert np.isnan(curves[0, 4:]).all()
        np.testing.assert_allclose(curves[1:], plain[1:], rtol=1e-5)
        assert np.isinf(curves[2, -1])
        assert scores is not None
        assert np.isinf(scores[[0, 2]]).all()
        assert scores[1] == pytest.approx(following, rel=1e-5)  # the loss before the step that would come next


def test_of_two_that_are_one_run_the_one_that_went_farther_stays():
    whole, other, ended = [1.0, 0.5], [1.0, 0.4], [1.0, np.nan]
    one = lambda curve: KeptRuns.of({"rate": np.array([0.1])}, np.array([0]), np.array([curve]))  # noqa: E731
    for mine, theirs, stays in (
        (whole, other, whole),
        (ended, whole, whole),
        (whole, ended, whole),
        (ended, [0.9, np.nan], ended),
    ):
        joined = one(mine).joined(one(theirs))
        np.testing.assert_array_equal(joined.curves, [stays])
        assert len(joined) == 1
