"""Ridges chosen by leave-one-out, kernels by landmarks: against points that are left out, and whole kernels."""

import jax.numpy as jnp
import numpy as np
import pytest

from limits import predict, twin
from zoo import MLP

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 6))
Y = np.eye(3)[(X[:, :3] + 0.3 * RNG.normal(size=(240, 3))).argmax(1)] - 1 / 3
RIDGES = (1e-3, 1e-2, 1e-1)


def kernel(a, b=None):
    return twin(MLP(8, 2, activation="relu")).kernels(a, b).nngp


def test_scores_are_those_of_points_left_out():
    x, y = X[:25], Y[:25]
    k = kernel(x)
    path = predict.ridge_path(k, y, RIDGES)
    for ridge, loss, error in zip(path.ridges, path.loss, path.error, strict=True):
        found = []
        for i in range(len(x)):
            rest = np.arange(len(x)) != i
            found.append(k[i, rest] @ np.linalg.solve(k[np.ix_(rest, rest)] + ridge * np.eye(len(x) - 1), y[rest]))
        np.testing.assert_allclose(loss, ((np.stack(found) - y) ** 2).sum(1).mean(), rtol=1e-9)
        assert error == predict.error_rate(np.stack(found), y)
    assert path.ridge == path.ridges[np.argmin(path.loss)]
    np.testing.assert_allclose(path.weights, np.linalg.solve(k + path.ridge * np.eye(25), y), rtol=1e-7)
    assert path.at_end == (path.ridge in (RIDGES[0], RIDGES[-1]))


def test_conjugate_gradients_choose_alike():
    """By the trace of 16 probes, which is off by 3 % at most here; cross-validation by the trace is not leave-one-out."""
    k = kernel(X)
    exact, steps = (predict.ridge_path(k, Y, RIDGES, direct=direct, rank=40, tolerance=1e-9) for direct in (240, 10))
    assert steps.ridge == exact.ridge
    inverse = np.linalg.inv(k + exact.ridge * np.eye(240))
    generalised = ((inverse @ Y) ** 2).sum(1).mean() / (np.trace(inverse) / 240) ** 2
    np.testing.assert_allclose(steps.loss[np.argmin(steps.loss)], generalised, rtol=0.06)
    np.testing.assert_allclose(steps.weights, exact.weights, rtol=1e-5)
    assert steps.how.startswith("generalised")


def test_landmarks():
    """What is left is worked out exactly; nothing is left once all inputs are landmarks, also copies of inputs."""
    k = kernel(X)
    asked = []

    def columns(a, b):
        asked.append(len(b))
        return kernel(a, b)

    low = predict.nystrom(columns, X, np.diag(k), 80, batch=30)
    assert sum(asked) == 80 == len({*low.landmarks})
    rest = k - low.features @ low.features.T
    np.testing.assert_allclose(low.left, np.trace(rest) / np.trace(k), rtol=1e-6)
    assert np.linalg.eigvalsh(rest)[0] > -1e-9
    np.testing.assert_allclose(low.largest, np.abs(rest).max(), rtol=1e-6)
    best = np.linalg.eigvalsh(k)[:-80].sum() / np.trace(k)
    assert best < low.left < 6 * best  # of any 80 directions at best
    np.testing.assert_allclose(low.of(k[:, low.landmarks]), low.features, atol=1e-9)
    twice = np.concatenate([X[:20], X[:20]])
    low = predict.nystrom(kernel, twice, np.diag(kernel(twice)), 40, batch=7)
    assert low.features.shape[1] <= 20
    np.testing.assert_allclose(low.features @ low.features.T, kernel(twice), atol=1e-6)


@pytest.mark.parametrize("diagonal", [np.float32, np.float64])
@pytest.mark.parametrize(("spread", "copies", "batch"), [(0.01, 1, 4), (0.1, 1, 128), (1.0, 3, 8)])
def test_landmarks_of_a_rounded_kernel(diagonal, spread, copies, batch):
    """In float32 fewer inputs than were asked for are no sum of the others, and what is left is no less than rounding."""
    x = np.tile(spread * X[: 60 // copies, :2], (copies, 1))
    for seed in range(3):
        exact = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
        low = predict.nystrom(
            lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2).astype(np.float32),
            x, np.ones(60, diagonal), 60, batch=batch, seed=seed,
        )  # fmt: skip
        rest = exact - low.features @ low.features.T
        assert np.abs(rest).max() <= low.largest < 2e-5
        assert np.linalg.eigvalsh(rest)[-1] <= low.left * 60 < 1e-3
        assert 2 < low.features.shape[1] < 50


def test_ridges_of_features_are_those_of_their_kernel():
    phi = RNG.normal(size=(60, 9))
    features, whole = predict.feature_ridge(phi, Y[:60], RIDGES), predict.ridge_path(phi @ phi.T, Y[:60], RIDGES)
    np.testing.assert_allclose(features.loss, whole.loss, rtol=1e-8)
    np.testing.assert_array_equal(features.error, whole.error)
    np.testing.assert_allclose(phi @ features.weights, phi @ phi.T @ whole.weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1000.0])
@pytest.mark.parametrize("kind", ["square", "of one point", "of less rank"])
def test_points_left_out_at_ridges_beside_rounding(kind, size):
    """Refitted without each point: where features fit every point, what is left of it and of its residual vanish together."""
    random = np.random.default_rng(2)
    phi = random.normal(size=(8, 8)) if kind == "square" else random.normal(size=(30, 4))
    phi = size * (phi @ random.normal(size=(4, 9)) if kind == "of less rank" else phi)
    if kind == "of one point":
        phi[:, 3] = np.eye(30)[4]
    y, ridges = random.normal(size=len(phi)), 10.0 ** np.arange(-16, 3, 3)
    features, whole = predict.feature_ridge(phi, y, ridges), predict.ridge_path(phi @ phi.T, y, ridges)
    wanted = []
    for ridge in ridges:
        left_out = []
        for i in range(len(y)):
            u, s, v = np.linalg.svd(np.delete(phi, i, 0), full_matrices=False)
            kept = s > 1e-12 * s[0]
            w = v[kept].T @ (s[kept] / (s[kept] ** 2 + ridge) * (u[:, kept].T @ np.delete(y, i)))
            left_out.append((y[i] - phi[i] @ w) ** 2)
        wanted.append(np.mean(left_out))
    np.testing.assert_allclose(features.loss, wanted, rtol=1e-9)
    known = ridges > 1e-12 * (phi**2).sum()  # beside smaller ones, the rounding of ΦΦᵀ is none
    np.testing.assert_allclose(whole.loss[known], np.array(wanted)[known], rtol=1e-3)
    assert features.ridge == ridges[np.argmin(wanted)]


def test_small_eigenvalues_of_a_smooth_kernel_count():
    """Ridges of 10 and 100 times the rounding, against the inverse."""
    x = np.random.default_rng(3).normal(size=(300, 2))
    k = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    y = np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1])
    ridges = (1e-11, 1e-10)
    for ridge, loss in zip(ridges, predict.ridge_path(k, y, ridges).loss, strict=True):
        inverse = np.linalg.inv(k + ridge * np.eye(300))
        assert loss == pytest.approx(np.mean((inverse @ y / np.diag(inverse)) ** 2), rel=0.05)


@pytest.mark.parametrize("size", [0.37, 0.7, 1.3, 2.9, 5.1])
def test_ridges_that_nothing_tells_apart(size):
    """One point left out is predicted as 0 at every ridge: rounding does not choose."""
    for found in (
        predict.ridge_path(np.eye(1) * size, [3.3], RIDGES),
        predict.feature_ridge(np.eye(1) * size, [3.3], RIDGES),
    ):
        np.testing.assert_allclose(found.loss, 3.3**2)
        assert found.ridge == max(RIDGES)


def test_ridges_that_are_refused():
    for ridges in ((), (0.0,), (1.0, 1.0)):
        with pytest.raises(ValueError, match="ridges"):
            predict.ridge_path(np.eye(3), np.ones(3), ridges)
    with pytest.raises(ValueError, match="y must be"):
        predict.ridge_path(np.eye(3), np.ones(4), (1.0,))
    with pytest.raises(ValueError, match="diagonal"):
        predict.nystrom(kernel, X, np.ones(3), 4)


@pytest.mark.parametrize("kernel", [np.eye(3) + 0.1j, np.eye(3).astype(str), np.eye(3).tolist(), np.eye(2)[:1]])
def test_kernels_that_are_no_array_of_real_numbers_are_refused(kernel):
    with pytest.raises(ValueError, match=r"ridge_path: kernel must be an array \[n, n\] of real numbers; got"):
        predict.ridge_path(kernel, np.ones(3), (0.1,))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int32"])
def test_kernels_of_real_numbers_of_any_type_are_taken(dtype):
    path = predict.ridge_path(jnp.asarray(2 * np.eye(3), dtype), np.ones(3), (0.1,))
    np.testing.assert_allclose(path.loss, 1)


def test_points_that_features_fit_alone_whatever_rounding_leaves():
    """Of a square matrix of features every leverage is 1, but for rounding: by more than n ε in some of such matrices."""
    for seed in range(200):
        random = np.random.default_rng(seed)
        phi, y = 1000 * random.normal(size=(8, 8)), random.normal(size=8)
        # Both far below the smallest singular value.
        least = predict.feature_ridge(phi, y, [1e-14, 1e-12]).loss
        np.testing.assert_allclose(least[0], least[1], rtol=1e-9)
