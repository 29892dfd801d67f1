"""Predictions against neural-tangents (tests/golden), under its conventions:

- its MSE loss is ½ the mean over samples and outputs, ours sums over outputs: our learning rate is its, over the outputs;
- its diag_reg is relative: our noise is diag_reg · mean(diag K) over the training points;
- trained with the NTK to the end under diag_reg, f = f₀ + A (y − f₀(X)) with A = K_* (K + noise)⁻¹, and the NNGP of the
  starting functions has no noise of its own: cov = [−A 1] NNGP [−A 1]ᵀ.

Not compared: its "ridge" prediction at the training points, which is y whatever the noise.
"""

import functools

import numpy as np
import pytest
from oracle import CASES, FC, relative

from limits import predict, twin
from zoo import MLP

N = len(CASES["X_TRAIN"])
TIMES, RATE = np.array(CASES["PREDICTION_TIMES"]), CASES["PREDICTION_RATE"]
# Two implementations in float64: its relu NTK is off by 1e-8 (it regularises an angle), and its flow of cross-entropy is
# integrated at relative tolerance 1e-8.
TOLERANCE = 1e-6
each_target = pytest.mark.parametrize("name", ["one", "three"])


@functools.cache
def kernels():
    points = np.concatenate([CASES["X_TRAIN"], CASES["X_TEST"]])
    return twin(MLP(8, 2, activation="relu", w_std=1.4, b_std=0.3)).kernels(points)


def split(kernel):
    """Train-train, test-train, test-test, and the noise that diag_reg means."""
    return kernel[:N, :N], kernel[N:, :N], kernel[N:, N:], CASES["DIAG_REG"] * np.diag(kernel)[:N].mean()


def targets(name):
    """y, and the starting outputs at the training and test points."""
    y = CASES["Y1"] if name == "one" else CASES["Y3"]
    return y, 0.1 * y**2, 0.2 * np.ones((len(CASES["X_TEST"]), y.shape[1]))


@each_target
def test_gradient_flow(name):
    k, k_star, _, _ = split(kernels().ntk)
    y, f0, f0_test = targets(name)
    train, test = predict.mse_dynamics(k, y, TIMES, RATE / y.shape[1], k_star, f0, f0_test, flow=True)
    assert relative(train, FC[f"{name}/flow/train"]) < TOLERANCE
    assert relative(test, FC[f"{name}/flow/test"]) < TOLERANCE


@each_target
def test_kernel_ridge_regression(name):
    k, k_star, _, noise = split(kernels().ntk)
    y, f0, f0_test = targets(name)
    assert relative(f0_test + predict.kernel_regression(k, y - f0, k_star, noise), FC[f"{name}/ridge/test"]) < TOLERANCE


@each_target
def test_ensemble_trained_by_gradient_flow(name):
    y = targets(name)[0]
    mean, cov = predict.mse_ensemble(kernels().nngp, kernels().ntk, y, TIMES, RATE / y.shape[1], flow=True)
    assert relative(mean[:, N:], FC[f"{name}/ensemble/mean"]) < TOLERANCE
    assert relative(cov[:, N:, N:], FC[f"{name}/ensemble/cov"]) < TOLERANCE


@each_target
def test_ensemble_trained_to_the_end_with_noise(name):
    k, k_star, _, noise = split(kernels().ntk)
    gain = predict.kernel_regression(k, np.eye(N), k_star, noise)
    keep = np.concatenate([-gain, np.eye(len(gain))], axis=1)
    assert relative(gain @ targets(name)[0], FC[f"{name}/ensemble_end/ntk/mean"]) < TOLERANCE
    assert relative(keep @ kernels().nngp @ keep.T, FC[f"{name}/ensemble_end/ntk/cov"]) < TOLERANCE


@each_target
@pytest.mark.parametrize("key", ["gp", "ensemble_end/nngp"])
def test_gaussian_process_posterior(name, key):
    k, k_star, k_test, noise = split(kernels().nngp)
    found = predict.posterior(k, targets(name)[0], k_star, k_test, noise)
    assert relative(found.mean, FC[f"{name}/{key}/mean"]) < TOLERANCE
    assert relative(found.cov, FC[f"{name}/{key}/cov"]) < TOLERANCE


def test_cross_entropy_flow():
    # Its loss here is the mean over samples, as ours: the learning rates agree.
    k, k_star, _, _ = split(kernels().ntk)
    y = CASES["LABELS3"]
    found = predict.cross_entropy_dynamics(
        k, y, TIMES[1:], RATE, k_star, 0.1 * y, np.zeros((len(k_star), 3)), flow=True
    )
    assert relative(found[0], FC["cross_entropy/train"]) < TOLERANCE
    assert relative(found[1], FC["cross_entropy/test"]) < TOLERANCE
