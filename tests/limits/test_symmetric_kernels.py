"""Kernels of training points must be symmetric, up to rounding: what reads one triangle would answer for another kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import predict, twin
from limits.predict import conjugate_gradients
from zoo import ViT

DRAW = np.random.default_rng(5)
HALF = DRAW.normal(size=(9, 9))
K = HALF @ HALF.T + 9 * np.eye(9)
ASKEW = K + np.triu(DRAW.normal(size=(9, 9)), 1)
Y, CROSS, ZERO = DRAW.normal(size=(9, 2)), K[:2], np.zeros((9, 2))
TIMES = {"times": [0, 3], "learning_rate": 0.01}
CALLS = {
    "kernel_regression: k_train": lambda k: predict.kernel_regression(k, Y, CROSS, 1.0),
    "posterior: k_train": lambda k: predict.posterior(k, Y, CROSS, K[:2, :2], 1.0),
    "posterior: k_test": lambda k: predict.posterior(K, Y, K, k, 1.0),
    "draws: cov": lambda k: predict.draws(ZERO, k, 2),
    "leave_one_out: k": lambda k: predict.leave_one_out(k, Y, 1.0),
    "log_marginal_likelihood: k": lambda k: predict.log_marginal_likelihood(k, Y, 1.0),
    "influence: kernel": lambda k: predict.influence(k, Y, CROSS, 1.0),
    "ridge_path: kernel": lambda k: predict.ridge_path(k, Y, (0.1, 1.0)),
    "response: k_train": lambda k: predict.response(k, **TIMES),
    "mse_dynamics: k_train": lambda k: predict.mse_dynamics(k, Y, **TIMES),
    "mse_ensemble: nngp": lambda k: predict.mse_ensemble(k, K, Y, **TIMES),
    "mse_ensemble: ntk": lambda k: predict.mse_ensemble(K, k, Y[:4], **TIMES),
    "cross_entropy_dynamics: k_train": lambda k: predict.cross_entropy_dynamics(
        k, Y, k_test_train=CROSS, f0_train=ZERO, f0_test=ZERO[:2], **TIMES
    ),
    "solve: kernel": lambda k: predict.solve(k, Y, 1.0),
    "pivoted_cholesky: kernel": lambda k: predict.pivoted_cholesky(k, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_that_is_not_symmetric_is_named(name):
    away = np.abs(ASKEW - ASKEW.T).max()
    with pytest.raises(ValueError, match=rf"{name} is not symmetric: .* by up to {away:.3g}, .*K\(x_test, x_train\)"):
        CALLS[name](ASKEW)
    CALLS[name](K + 1e-6 * DRAW.normal(size=K.shape))


def test_evidence_looks_at_arrays_of_jax_but_not_while_they_are_traced():
    with pytest.raises(ValueError, match="log_marginal_likelihood: k is not symmetric"):
        predict.log_marginal_likelihood(jnp.asarray(ASKEW), Y, 1.0)
    slope = jax.jit(jax.grad(lambda k: predict.log_marginal_likelihood(k, Y, 1.0)))(jnp.asarray(ASKEW))
    assert np.isfinite(slope).all()


@pytest.mark.slow
def test_kernels_in_few_digits_and_of_draws_are_symmetric():
    images = np.random.default_rng(0).normal(size=(6, 4, 4, 1))
    drawn = twin(ViT(8, 1, patch=2, logits="1/sqrt(d)", heads="grow")).kernels(images, samples=16, block=4)
    for kernel in (drawn.nngp, drawn.ntk):
        predict.influence(kernel, Y[:6], np.eye(6), 1.0)
    coarse = jnp.asarray(K, jnp.bfloat16)
    last_digit = coarse.at[0, 1].add(coarse.max() * 2**-7)
    predict.kernel_regression(np.asarray(last_digit), Y, CROSS, 1.0)
    with pytest.raises(ValueError, match="not symmetric"):
        predict.kernel_regression(np.asarray(last_digit, float), Y, CROSS, 1.0)


def test_a_kernel_that_is_read_in_parts_is_compared_in_some_points(monkeypatch):
    monkeypatch.setattr(conjugate_gradients, "_BLOCK_BYTES", 2**14)
    x = np.random.default_rng(0).normal(size=(80, 5))
    with pytest.raises(ValueError, match=r"solve: kernel is not symmetric: .*kernel\[\d+, \d+\]"):
        predict.solve(np.exp(x @ x[::-1].T / 5), np.ones(80), 1.0)


def test_kernels_of_few_digits_are_held_against_these():
    """An entry is 3 last digits of bfloat16 off."""
    k = np.eye(4) + 1.0
    k[0, 1] += 3 * 2.0**-7
    k, y = np.asarray(k, jnp.bfloat16), np.ones((4, 1))
    assert k[0, 1] != k[1, 0]
    for found in (
        predict.log_marginal_likelihood(k, y, 0.1),
        predict.leave_one_out(k, y, 0.1).mean,
        predict.ridge_path(k, y, [0.1]).loss,
        predict.influence(k, y, k[:1], 0.1),
    ):
        assert np.isfinite(np.asarray(jax.tree.leaves(found)[0], float)).all()
