from typing import Any

import numpy as np
import pytest
import sklearn.datasets

from limits.cumulants import (
    class_cumulants,
    density,
    divergence,
    empirical_cumulants,
    gaussian_mixture,
    gaussian_surrogate,
    higher_cumulants,
    pooled,
    sample,
    third_cumulant_mixture,
    xor_mixture,
)
from train import data


def test_empirical_cumulants_are_scipys_of_every_projection():
    from scipy.stats import moment

    x = np.random.default_rng(0).gamma(2.0, size=(500, 3))
    u = np.array([0.3, -1.0, 0.5])
    found, z = empirical_cumulants(x, order=4), x @ u
    second = moment(z, order=2)
    expected = [z.mean(), second, moment(z, order=3), moment(z, order=4) - 3 * second**2]
    for cumulant, value in zip(found, expected, strict=True):
        for _ in range(cumulant.ndim):
            cumulant = cumulant @ u
        assert cumulant == pytest.approx(value, rel=1e-10)
    assert all(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in found)
    skew, kurtosis = higher_cumulants(z[:, None])
    assert (skew[0], kurtosis[0]) == pytest.approx((expected[2] / second**1.5, expected[3] / second**2))


def test_classes_of_the_xor_task():
    means, classes = xor_mixture(), pooled(xor_mixture(), order=3)
    assert sorted(map(tuple, means.cumulants.mean[means.target[:, 0] == 1])) == [(-0.5, -0.5), (0.5, 0.5)]
    for target, mean, covariance, third in zip(classes.target[:, 0], *classes.cumulants[:3], strict=True):
        np.testing.assert_allclose(mean, 0, atol=1e-15)
        np.testing.assert_allclose(covariance, [[0.3, 0.25 * target], [0.25 * target, 0.3]])
        np.testing.assert_allclose(third, 0, atol=1e-15)


def test_the_task_of_this_name_in_train_has_these_statistics():
    task = data.xor_mixture(40_000, 0)
    seen, expected = class_cumulants(task.x_train, task.y_train), pooled(xor_mixture())
    np.testing.assert_array_equal(seen.target, expected.target)
    assert np.abs(seen.cumulants.covariance - expected.cumulants.covariance).max() < 4 * 0.35 / 20_000**0.5


def test_classes_of_the_third_cumulant_task():
    classes = pooled(third_cumulant_mixture(), order=4)
    for sign, (mean, covariance, third, fourth) in zip(
        classes.target[:, 0], zip(*classes.cumulants, strict=True), strict=True
    ):
        np.testing.assert_allclose(mean, 0, atol=1e-15)
        np.testing.assert_allclose(covariance, np.diag([0.8, 0.05]), atol=1e-15)
        expected_third, expected_fourth = np.zeros((2,) * 3), np.zeros((2,) * 4)
        expected_third[0, 0, 0], expected_fourth[0, 0, 0, 0] = 0.75 * sign, -0.375
        np.testing.assert_allclose(third, expected_third, atol=1e-14)
        np.testing.assert_allclose(fourth, expected_fourth, atol=1e-14)


@pytest.mark.parametrize(("mixture", "best"), [(xor_mixture(), 0.97497), (third_cumulant_mixture(), 0.9798)])
def test_best_accuracies(mixture, best):
    x, y = sample(mixture, 400_000, seed=3)
    d = x[:, None] - mixture.cumulants.mean
    weight = mixture.probability * np.exp(-(d**2).sum(-1) / (2 * 0.05))
    guess = np.sign(weight @ mixture.target[:, 0])
    assert abs((guess == y[:, 0]).mean() - best) < 3 * (best * (1 - best) / len(x)) ** 0.5


def test_pooling_random_components_is_pooling_their_samples():
    # Two skewed clouds in three dimensions: the law of total cumulance against the cumulants of all points, exactly.
    random = np.random.default_rng(4)
    clouds = [random.exponential(size=(n, 3)) * scale + shift for n, scale, shift in ((70, 1.0, 0.0), (30, 2.0, 1.5))]
    x = np.concatenate(clouds)
    parts = class_cumulants(x, np.repeat([[1.0], [2.0]], [70, 30], axis=0), order=4)
    merged = pooled(parts._replace(target=np.ones((2, 1))), order=4)
    for found, expected in zip(merged.cumulants, empirical_cumulants(x, order=4), strict=True):
        np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-9)


def test_density_and_divergence(row):
    mixture = gaussian_mixture([0.25, 0.75], [1, -1], [[1.0], [-1.0]], [[0.2]])
    grid = np.linspace(-6, 6, 2001)
    assert np.trapezoid(density(mixture, grid), grid) == pytest.approx(1, abs=1e-9)
    y = sample(mixture, 100_000, seed=5)[0]
    row(10, f"divergence of 10⁵ samples of a mixture from its density: {divergence(y, mixture):.1e}")
    # 2 n H D̂ is about χ² of (bins − 1) degrees of freedom, H about 3.4 nats.
    assert divergence(y, mixture) < 1.6 * 60 / (2 * len(y) * 3.4)
    moved = gaussian_mixture([0.25, 0.75], [1, -1], [[1.1], [-0.9]], [[0.2]])
    assert divergence(y, moved) > 5 * divergence(y, mixture)
    with pytest.raises(ValueError, match="one output"):
        density(xor_mixture(), [0.0])


def test_surrogate_has_the_moments_of_the_retained_subspace(row):
    digits: Any = sklearn.datasets.load_digits()
    x, y = digits.data / 16, np.eye(10)[digits.target]
    found, true = gaussian_surrogate(x, y), class_cumulants(x, y)
    order = [int(np.flatnonzero((true.target == t).all(1))[0]) for t in found.mixture.target]
    for k, i in enumerate(order):
        values, vectors = np.linalg.eigh(true.cumulants.covariance[i])
        keep = values > 1e-2
        assert found.kept[k] == keep.sum() > 5
        assert found.missing[k] == pytest.approx(values[~keep].sum() / values.sum())
        one = found.mixture._replace(
            probability=np.ones(1),
            target=found.mixture.target[k : k + 1],
            cumulants=type(found.mixture.cumulants)(
                found.mixture.cumulants.mean[k : k + 1], found.mixture.cumulants.covariance[k : k + 1]
            ),
        )
        drawn = sample(one, 4000, seed=k)[0] - true.cumulants.mean[i]
        inside, outside = drawn @ vectors[:, keep], drawn @ vectors[:, ~keep]
        assert np.abs(outside).max() < 1e-12  # nothing is drawn where the data were cut off
        scale = np.sqrt(values[keep])
        z = inside / scale
        assert np.abs(z.mean(0)).max() * len(z) ** 0.5 < 4.5  # 10 classes of some 20 components each
        covariance = z.T @ z / len(z) - np.eye(z.shape[1])
        errors = np.sqrt((1 + np.eye(z.shape[1])) / len(z))
        row(
            13,
            f"surrogate of digits, class {k}: covariances within {(np.abs(covariance) / errors).max():.1f} standard errors",
        )
        assert (np.abs(covariance) / errors).max() < 4.8


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="lower the threshold"):
        gaussian_surrogate(np.random.default_rng(0).normal(size=(20, 2)), np.repeat([1, -1], 10), threshold=100.0)
    with pytest.raises(ValueError, match=r"\.upto\(2\)"):
        sample(pooled(third_cumulant_mixture(), order=3), 10)
    with pytest.raises(ValueError, match="are not classes"):
        class_cumulants(np.ones((10, 2)), np.arange(10.0))
    with pytest.raises(ValueError, match="sum to 1"):
        gaussian_mixture([0.5, 0.4], [1, -1], [[0.0], [1.0]], [[1.0]])


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([0.0, 1.0], np.eye(2), r"mean must be an array \[n, m\] .* got \[0.0, 1.0\]"),
        (np.zeros((2, 2)), np.eye(3), r"\(2, 2\) need a covariance \(2, 2, 2\) or one \(2, 2\); here it is \(3, 3\)"),
        (np.zeros((2, 2)), [[1.0, 0.2], [0.0, 1.0]], "up to 0.2"),
        (np.zeros((2, 2)), [[1.0, 2.0], [2.0, 1.0]], "smallest eigenvalue -1"),
        ([[0.0, np.nan], [0.0, 0.0]], np.eye(2), "mean must be .* finite numbers.* got .*nan"),
        (np.zeros((2, 2)), np.full((2, 2), np.inf), "covariance .*4 of 4 numbers"),
    ],
)
def test_gaussian_components_have_covariances(mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        gaussian_mixture([0.5, 0.5], [1, -1], mean, covariance)


def test_what_has_no_statistics_is_said():
    with pytest.raises(ValueError, match=r"variance .* got -0\.05"):
        xor_mixture(-0.05)
    with pytest.raises(ValueError, match=r"x must be .* finite numbers.* got .*nan"):
        class_cumulants([[np.nan], [1.0]], [1.0, -1.0])
    with pytest.raises(ValueError, match=r"x must be .* got an array of shape \(0, 2\)"):
        class_cumulants(np.zeros((0, 2)), np.zeros((0, 1)))
    still, moving = gaussian_mixture([1.0], [1], [[0.0]], [[0.0]]), gaussian_mixture([1.0], [1], [[0.0]], [[1.0]])
    with pytest.raises(ValueError, match=r"positive variances; .* \[0\.0\]"):
        density(still, [0.0])
    with pytest.raises(ValueError, match="all 9 samples y are 2"):
        divergence(np.full(9, 2.0), moving)
    with pytest.raises(ValueError, match=r"1 of 2 columns do not vary over the 3 samples .*column 1"):
        higher_cumulants(np.array([[1.0, 2.0], [0.0, 2.0], [3.0, 2.0]]))
