"""Mean and covariance of f over kernels that fluctuate, against kernels drawn from their law: before data, and after."""

import numpy as np
import pytest

from limits import Task, twin
from limits.posterior import Draws, Stack, draw_kernels, prior_kernels
from limits.posterior.fluctuations import shifts
from zoo import MLP

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(7, 4)), RNG.normal(size=(5, 2))
NOISE = 0.3


def second_order(c, centre, y):
    """By −(δ_* − G δ) A⁻¹ δ A⁻¹ Y and its like for the covariance, δ = C − its average: means over drawn kernels, and errors."""
    n, c = len(y), c - c.mean(0)
    a = np.linalg.inv(centre[:n, :n] + NOISE * np.eye(n))
    rest = c[:, :, :n] - centre[:, :n] @ a @ c[:, :n, :n]
    between = a @ y @ y.T @ a / y.shape[1] - a
    for each in (-rest @ a @ c[:, :n, :n] @ a @ y, rest @ between @ rest.transpose(0, 2, 1)):
        yield each.mean(0), each.std(0) / len(each) ** 0.5


@pytest.mark.parametrize(
    ("activation", "depth"),
    [*(pytest.param(*case, marks=pytest.mark.slow) for case in (("erf", 1), ("erf", 3), ("relu", 2))), ("linear", 2)],
)
def test_they_are_the_second_order_of_kernels_that_are_drawn(activation, depth):
    stack, width = Stack(X @ X.T / 4, [1.5] * depth, [0.1] * depth, activation), 400
    kernels = prior_kernels(stack)
    draws = Draws(activation, np.random.default_rng(0).normal(size=(40_000, 7)))
    found = shifts(stack, kernels, draws, Y, NOISE, width)
    drawn = second_order(draw_kernels(stack, width, 6000)[:, -1], kernels[-1], Y)
    for mine, (mean, sem) in zip(found, drawn, strict=True):
        assert (np.abs(mine - mean) < 4.5 * sem + 0.05 * np.abs(mean).max()).all()
        assert sem.max() < 0.1 * np.abs(mean).max()


def weighted(limit, task, width, members=40_000):
    """Mean and covariance of f of networks of this width: kernels from the prior, weighted by p(y | kernel). One output."""
    n, c = len(task.x_train), draw_kernels(limit.dense_stack(task.x, width), width, members)[:, -1]
    a = np.linalg.inv(c[:, :n, :n] + NOISE * np.eye(n))
    gain, y = c[:, :, :n] @ a, task.y_train
    log = np.linalg.slogdet(a)[1] / 2 - np.einsum("ik,sij,jk->s", y, a, y) / 2
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    f = (gain @ y)[..., 0]
    mean = weights @ f
    inside = np.einsum("s,sij->ij", weights, c - gain @ c[:, :n])
    return mean, inside + np.einsum("s,si,sj->ij", weights, f - mean, f - mean)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "depth"), [("erf", 1), ("linear", 2)])
def test_posteriors_are_off_by_the_square_of_one_over_width(activation, depth):
    limit, task = twin(MLP(8, depth, activation=activation, w_std=1.3, b_std=0.3)), Task(X[:4], Y[:4, :1], X[4:])
    off = {}
    for width in (30, 90):
        mean, cov = weighted(limit, task, width)
        for name, how in (("saddle", False), ("both", True)):
            p = limit.posterior(task, NOISE, width, errors=False, fluctuations=how)
            off[name, width] = (
                np.linalg.norm(np.r_[p.f_train, p.f_test][:, 0] - mean),
                np.linalg.norm(p.f_train_cov - cov[:4, :4]) + np.linalg.norm(p.f_test_cov - cov[4:, 4:]),
            )
    for width in (30, 90):
        for which in (0, 1):
            assert off["both", width][which] < 0.15 * off["saddle", width][which]
    if activation == "linear":  # whose reference has few errors of its own
        assert (np.array(off["both", 90]) < np.array(off["both", 30]) / 6).all()


@pytest.mark.slow
def test_what_is_said_of_the_fluctuations():
    limit, task = twin(MLP(8, 2, activation="erf", w_std=1.3, b_std=0.3)), Task(X[:5], Y, X[5:])
    without, having = (limit.posterior(task, NOISE, 100, samples=1000, fluctuations=f) for f in (False, True))
    assert "fluctuations=True adds them" in without.provenance["f_train"].detail
    assert "with the fluctuations" in having.provenance["f_test_cov"].detail
    assert having.provenance["kernels"] == without.provenance["kernels"]
    np.testing.assert_array_equal(having.kernels[2], without.kernels[2])
    assert (having.f_test_sem > 0).all()
    tested = limit.posterior(Task(X[:5], Y, X[:2]), NOISE, 100, samples=1000, fluctuations=True)
    np.testing.assert_allclose(tested.f_train, having.f_train, atol=1e-12)  # test points do not act
    np.testing.assert_allclose(tested.f_test, tested.f_train[:2], atol=1e-5)


@pytest.mark.slow
def test_a_covariance_that_is_none_is_said():
    x = np.random.default_rng(0).normal(size=(24, 4))
    limit, task = twin(MLP(8, 1, activation="erf", w_std=1.3, b_std=0.3)), Task(x, np.sin(x[:, 0]), X)
    found = limit.posterior(task, NOISE, 5, samples=2000, errors=False, fluctuations=True)
    assert np.linalg.eigvalsh(found.f_train_cov)[0] < 0
    assert "covariance of f is indefinite, P/N is too large" in found.provenance["f_test_cov"].detail
