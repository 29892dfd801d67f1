from typing import Any

import jax
import numpy as np
import optax
import pytest

from limits import AbsentError, Task, predict, twin
from limits.losses import losses
from limits.training import record_times
from train import ensemble
from zoo import MLP, Parameterization, ResNet, scaled

X = np.sin(1.7 * np.arange(6)[:, None] * np.arange(1, 5) + 0.4)
Y = np.stack([np.cos(np.arange(6.0)), np.sin(np.arange(6.0))], axis=1)
LABELS = np.eye(2)[[0, 1, 0, 1, 1, 0]]
MSE = Task(X[:4], Y[:4], X[4:], Y[4:])
CROSS_ENTROPY = Task(X[:4], LABELS[:4], X[4:], LABELS[4:], loss="cross_entropy")
LIMIT = twin(MLP(8, 2, 2, activation="erf", w_std=1.4, b_std=0.3))
RICH = twin(LIMIT.net.clone(parameterization="mup"))
TIMES = [0, 3, 50]


def test_squared_loss_is_the_ensemble_of_the_kernels():
    run, kernels = LIMIT.lazy(MSE, 50, 0.7, times=TIMES, momentum=0.5), LIMIT.kernels(X)
    mean, cov = predict.mse_ensemble(kernels.nngp, kernels.ntk, Y[:4], TIMES, 0.7, momentum=0.5)
    assert np.array_equal(run.times, TIMES)
    np.testing.assert_allclose(run.f_train, mean[:, :4], rtol=1e-12)
    np.testing.assert_allclose(run.f_test, mean[:, 4:], rtol=1e-12)
    np.testing.assert_allclose(run.f_train_cov, cov[:, :4, :4], rtol=1e-12)
    np.testing.assert_allclose(run.f_test_cov, cov[:, 4:, 4:], rtol=1e-12)
    assert not np.any(run.f_train_sem)
    assert run.provenance["loss"].kind == "exact"


def test_reported_loss_is_the_mean_over_initialisations():
    run, kernels = LIMIT.lazy(MSE, 50, 0.7, times=TIMES), LIMIT.kernels(X)
    draws = 4000
    root = np.linalg.cholesky(kernels.nngp)
    f0 = root @ np.random.default_rng(0).normal(size=(6, 2 * draws))
    k, k_star = kernels.ntk[:4, :4], kernels.ntk[4:, :4]
    many = predict.mse_dynamics(k, np.repeat(Y[:4], draws, axis=1), TIMES, 0.7, k_star, f0[:4], f0[4:])
    for f, y, loss in zip(many, (Y[:4], Y[4:]), (run.loss, run.test_loss), strict=True):
        each = 0.5 * ((f.reshape(3, -1, 2, draws) - y[None, :, :, None]) ** 2).sum(2).mean(1)
        assert np.all(np.abs(each.mean(1) - loss) < 4 * each.std(1) / draws**0.5)  # four standard errors


def test_centred_training_starts_at_zero_and_has_no_spread():
    run, ntk = LIMIT.lazy(MSE, 50, 0.7, times=TIMES, centred=True), LIMIT.kernels(X).ntk
    train, test = predict.mse_dynamics(ntk[:4, :4], Y[:4], TIMES, 0.7, ntk[4:, :4])
    np.testing.assert_allclose(run.f_train, train, atol=1e-13)
    np.testing.assert_allclose(run.f_test, test, atol=1e-13)
    assert not np.any(run.f_train_cov)
    np.testing.assert_allclose(run.loss, 0.5 * ((train - Y[:4]) ** 2).sum(2).mean(1), rtol=1e-12, atol=1e-15)
    assert np.all(run.loss < LIMIT.lazy(MSE, 50, 0.7, times=TIMES).loss)


def test_mup_starts_at_zero_in_the_limit():
    run, centred = RICH.lazy(MSE, 50, 0.7, times=TIMES), LIMIT.lazy(MSE, 50, 0.7, times=TIMES, centred=True)
    np.testing.assert_allclose(run.f_train, centred.f_train, atol=1e-13)
    assert not np.any(run.f_test_cov)


def test_flow_is_the_limit_of_small_steps():
    flow, slow = LIMIT.lazy(MSE, 10, 0.4, flow=True), LIMIT.lazy(MSE, 10_000, 4e-4)
    assert np.abs(flow.f_train - LIMIT.lazy(MSE, 10, 0.4).f_train).max() > 1e-2
    np.testing.assert_allclose(slow.f_train, flow.f_train, atol=1e-4)  # first order in the step: a thousandth of it


def test_kernels_are_held_at_their_initial_values():
    run, kernels, (phi, g) = LIMIT.lazy(MSE, 50, 0.7, times=TIMES), LIMIT.kernels(X), LIMIT.layers(X)
    assert run.ntk.shape == (3, 6, 6)
    assert np.array_equal(run.ntk[2], kernels.ntk)
    assert [np.array_equal(mine[1], theirs) for mine, theirs in zip(run.phi, phi, strict=True)] == [True, True]
    assert [np.array_equal(mine[1], theirs) for mine, theirs in zip(run.g, g, strict=True)] == [True, True]


def from_thirty(step: Any, **_: Any) -> Any:
    return step >= 30


@pytest.mark.parametrize(
    ("optimizer", "why"),
    [
        (optax.MultiSteps(optax.adam(0.2), 32).gradient_transformation(), "not linear in the gradients"),
        (
            optax.chain(optax.conditionally_transform(optax.scale_by_adam(), from_thirty), optax.scale(-0.2)),
            "not linear in the gradients",
        ),
        (optax.chain(optax.conditionally_mask(optax.clip(0.1), from_thirty), optax.scale(-0.2)), "not linear"),
        (
            optax.chain(
                optax.add_decayed_weights(optax.piecewise_constant_schedule(1e-13, {30: 1e12})), optax.scale(-0.2)
            ),
            "weight decay",
        ),
    ],
)
def test_optimisers_that_change_on_the_way_are_refused(optimizer, why):
    with pytest.raises(AbsentError, match=why):
        LIMIT.lazy(MSE, 40, optimizer=optimizer, kernels=())


def test_optimisers_that_change_on_the_way_are_taken_for_what_they_are_before():
    LIMIT.lazy(MSE, 20, optimizer=optax.MultiSteps(optax.sgd(0.2), 32).gradient_transformation(), kernels=())


def test_of_a_long_run_it_is_said_for_how_many_steps_its_optimiser_was_tried():
    run = LIMIT.lazy(MSE, 501, optimizer=optax.sgd(0.1), times=[501], kernels=())
    assert run.provenance["f_train"].detail.endswith("; the optimiser was tried for 500 steps")


@pytest.mark.parametrize("flow", [False, True])
def test_centred_cross_entropy_is_one_trajectory_from_zero(flow):
    run, ntk = LIMIT.lazy(CROSS_ENTROPY, 50, 0.7, times=TIMES, centred=True, flow=flow), LIMIT.kernels(X).ntk
    start = np.zeros((4, 2))
    train, test = predict.cross_entropy_dynamics(
        ntk[:4, :4], LABELS[:4], TIMES, 0.7, ntk[4:, :4], start, start[:2], flow=flow
    )
    np.testing.assert_allclose(run.f_train, train, atol=1e-12)
    np.testing.assert_allclose(run.f_test, test, atol=1e-12)
    assert run.loss[0] == pytest.approx(np.log(2), rel=1e-14)
    probabilities = np.exp(train) / np.exp(train).sum(2, keepdims=True)
    np.testing.assert_allclose(run.loss, -np.log((probabilities * LABELS[:4]).sum(2)).mean(1), rtol=1e-10)
    assert run.provenance["loss"].kind == "exact"
    assert not np.any(run.f_train_cov)


def test_drawn_covariances_have_their_standard_errors():
    """40 runs of 64 draws: their spread is known to one part in √78, and in each of them the error to some parts in ten."""
    runs = [LIMIT.lazy(CROSS_ENTROPY, 6, 0.7, times=[6], samples=64, seed=s, kernels=()) for s in range(40)]
    for name in ("f_train_cov", "f_test_cov"):
        spread = np.std([getattr(run, name) for run in runs], axis=0, ddof=1)
        said = np.mean([getattr(run, f"{name}_sem") for run in runs], axis=0)
        np.testing.assert_allclose(np.diagonal(spread[0] / said[0]), 1, atol=0.4)


def test_cross_entropy_is_averaged_over_drawn_starting_functions():
    samples = 2000
    run = LIMIT.lazy(CROSS_ENTROPY, 20, 0.7, times=[0, 20], samples=samples, seed=1)
    q = LIMIT.kernels(X).nngp
    assert run.provenance["loss"].kind == "monte_carlo"
    # Four standard errors throughout. At the start outputs are Gaussian, and the loss is E log(1 + exp d), d ~ N(0, 2q).
    assert np.all(np.abs(run.f_train[0]) < 4 * run.f_train_sem[0])
    np.testing.assert_allclose(
        run.f_train_sem[0] ** 2 * samples, np.diag(q)[:4, None] * [1, 1], rtol=4 * (2 / samples) ** 0.5
    )
    sem = np.sqrt((q**2 + np.outer(np.diag(q), np.diag(q))) / (2 * samples))  # of a covariance over 2 outputs × samples
    assert np.all(np.abs(run.f_train_cov[0] - q[:4, :4]) < 4 * sem[:4, :4])
    assert np.all(np.abs(run.f_test_cov[0] - q[4:, 4:]) < 4 * sem[4:, 4:])
    z, w = np.polynomial.hermite_e.hermegauss(60)
    expected = np.mean([w @ np.log1p(np.exp(np.sqrt(2 * v) * z)) / w.sum() for v in np.diag(q)[:4]])
    assert abs(run.loss[0] - expected) < 4 * run.loss_sem[0]
    assert run.loss[1] < run.loss[0] - 4 * run.loss_sem[0]
    again, other = (LIMIT.lazy(CROSS_ENTROPY, 20, 0.7, times=[20], samples=50, seed=seed).f_train for seed in (0, 1))
    assert np.array_equal(again, LIMIT.lazy(CROSS_ENTROPY, 20, 0.7, times=[20], samples=50).f_train)
    assert not np.array_equal(again, other)


@pytest.mark.parametrize("task", [MSE, CROSS_ENTROPY], ids=["mse", "cross entropy"])
@pytest.mark.parametrize("name", ["optax", *(pytest.param(n, marks=pytest.mark.slow) for n in ("scaled", "by name"))])
def test_linear_optimisers_are_the_short_forms(task, name):
    batches = np.random.default_rng(0).integers(0, 4, size=(20, 2))
    how: Any = {"trained": ("hidden", "readout"), "samples": 20}
    expected = LIMIT.lazy(task, 20, 0.7, momentum=0.9, batches=batches, **how)
    made = {
        "optax": optax.sgd(0.7, 0.9),
        "scaled": scaled("momentum", LIMIT.net, learning_rate=0.7),
        "by name": "momentum",
    }
    rate = 0.7 if name == "by name" else None
    run = LIMIT.lazy(task, 20, rate, optimizer=made[name], batches=batches, **how)
    np.testing.assert_allclose(run.f, expected.f, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.f_test_cov, expected.f_test_cov, rtol=1e-9, atol=1e-12)


NO_KERNEL_REGIME = {
    "not linear in the gradients": optax.adam(0.1),
    "entry by entry": scaled("muon", LIMIT.net, learning_rate=0.1),
    "not linear": optax.chain(optax.clip_by_global_norm(100.0), optax.sgd(0.1)),
    "weight decay": optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1)),
    "moves hidden_1.bias otherwise than": optax.masked(
        optax.scale(2.0), lambda p: jax.tree.map(lambda a: a.ndim > 1, p)
    ),
    "value of the loss": optax.lbfgs(),
}


@pytest.mark.parametrize("message", NO_KERNEL_REGIME)
def test_what_does_not_follow_the_tangent_kernel_is_refused(message):
    with pytest.raises(ValueError if "loss" in message else AbsentError, match=message):
        LIMIT.lazy(MSE, 3, optimizer=NO_KERNEL_REGIME[message])


def test_without_test_points():
    run = LIMIT.lazy(Task(X, Y), 3, 0.7)
    assert run.f_test.shape == (4, 0, 2)
    assert not run.has("test_loss")
    assert np.isfinite(run.loss).all()


def test_no_training_without_a_tangent_kernel():
    with pytest.raises(AbsentError, match="ntk: the tangent kernel of the standard parameterization grows"):
        twin(LIMIT.net.clone(parameterization="standard")).lazy(MSE, 3, 0.7)


@pytest.mark.parametrize(
    ("steps", "times", "expected"),
    [(3, None, [0, 1, 2, 3]), (100, None, range(0, 101, 10)), (5, [5, 0, 5], [0, 5]), (0, None, [0]), (9, (2,), [2])],
)
def test_recorded_times(steps, times, expected):
    assert record_times(steps, times).tolist() == list(expected)


@pytest.mark.parametrize(
    ("steps", "times", "message"),
    [
        (-1, None, "steps must be a whole number ≥ 0, got -1"),
        (5, [0, 6], "times must lie between 0 and steps = 5; got 0 … 6"),
        (5, [-2], "times must lie between 0 and steps = 5; got -2"),
        (5, np.array([0.5]), "times"),  # not silently taken for 0
        (5, [], "times"),
    ],
)
def test_bad_times_are_named(steps, times, message):
    with pytest.raises(ValueError, match=message):
        record_times(steps, times)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"learning_rate": 1e3}, FloatingPointError, "NaN at step 200: the learning rate 1000 is too large"),
        (
            {"learning_rate": lambda step: 1e3},
            FloatingPointError,
            "NaN at step 200: the learning rate 1000 is too large",
        ),
        ({"learning_rate": -0.1}, ValueError, "learning_rate is -0.1 at step 0"),
        ({"learning_rate": lambda step: 0.1 if step < 7 else np.nan}, ValueError, "learning_rate is nan at step 7"),
        ({"kernels": ("ph",)}, ValueError, r"some of .*got \('ph',\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:learning_rate 1000 is beyond")
def test_mistakes_are_answered_with_their_numbers_too(options, error, message):
    with pytest.raises(error, match=message):
        twin(MLP(4, 1)).lazy(Task(np.eye(2), [1.0, -1.0]), **{"steps": 2000, "learning_rate": 0.1, **options})


def test_as_many_steps_as_one_likes():
    limit, task = twin(MLP(4, 1)), Task(np.eye(2), [1.0, -1.0])
    many = limit.lazy(task, steps=10**9, learning_rate=1e-7, times=[0, 10**9])
    flow = limit.lazy(task, steps=100, learning_rate=1.0, times=[0, 100], flow=True)
    np.testing.assert_allclose(many.f_train, flow.f_train, rtol=1e-6)


def test_losses_are_those_of_the_task():
    f = np.array([[[1.0, 2.0], [0.0, -1.0]]])
    y = np.array([[0.0, 1.0], [0.0, 1.0]])
    mse, cross = Task(np.eye(2), y), Task(np.eye(2), y, loss="cross_entropy")
    assert losses(mse, f, y).tolist() == [0.5 * (2 + 4) / 2]
    assert losses(mse, f, y, np.array([[0.5, 1.5]])).tolist() == [1.5 + 0.5 * 2 * (0.5 + 1.5) / 2]  # two outputs each
    expected = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(1))) / 2
    np.testing.assert_allclose(losses(cross, f, y), [expected], rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MLP", pytest.param("ResNet", marks=pytest.mark.slow)])
def test_the_kernels_of_single_roles_add_up(name):
    """`trained`: the tangent kernel of some roles alone; against the finite network's own in each role."""
    common: dict[str, Any] = {"activation": "erf", "w_std": 1.4, "b_std": 0.3, "parameterization": "ntk"}
    net = MLP(8, 2, **common) if name == "MLP" else ResNet(8, 3, branch_layers=2, **common)
    there = ("input", "hidden", "readout", "bias") if name == "MLP" else ("input", "branch", "readout", "bias")
    task = Task(X[:4], Y[:4, :1], X[4:], Y[4:, :1])
    alone = {role: twin(net).lazy(task, 1, 0.1, trained=(role,)).ntk[0] for role in there}
    np.testing.assert_allclose(sum(alone.values()), twin(net).kernels(X).ntk, rtol=1e-12)
    assert all(np.trace(kernel) > 0 for kernel in alone.values())
    finite = ensemble(net.clone(width=512), task, 24, 0, 0.1, trained=(there[1],), kernels=("ntk",))
    away = np.abs(finite.ntk[0] - alone[there[1]])
    assert np.all(away < 4.5 * finite.ntk_sem[0] + 0.01 * np.abs(alone[there[1]]).max())  # O(1/512) is dropped


def test_a_base_width_has_no_closed_tangent_kernel():
    net = MLP(8, 2, parameterization=Parameterization.ntk.based(8))
    kernels = twin(net).kernels(X)
    np.testing.assert_allclose(kernels.nngp, twin(net.clone(parameterization="ntk")).kernels(X).nngp, rtol=1e-12)
    with pytest.raises(AbsentError, match="with multipliers folded into the initialisation"):
        kernels.ntk  # noqa: B018
