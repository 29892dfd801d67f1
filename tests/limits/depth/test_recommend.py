"""Recommended residual scales: the largest response of the network's own twin."""

import jax.numpy as jnp
import numpy as np
import pytest

from limits import twin
from limits.depth import estimated_scale, optimal_scale, recommend_residual_scale
from limits.types import AbsentError
from train.data import digits
from zoo import MLP, ResNet


@pytest.mark.slow
def test_two_inputs_against_the_twin():
    """Turning one input towards the other moves the output's covariance most at the recommended scale."""
    x = np.array([[0.4, 0.0], [0.1, 0.35]])
    net = ResNet(8, 6, activation="erf", w_std=1.3, b_std=0.2, residual="fixed", parameterization="mup")
    found = recommend_residual_scale(net, x)
    assert found.net.branch_scale == found.rho
    assert found.between[1] == found.between[2] == found.rho

    def answer(rho: float) -> float:
        turns = [[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in (-1e-4, 1e-4)]
        k = twin(net.clone(beta=rho)).kernels(x[:1], np.array(turns) @ x[1]).nngp[0]
        return abs(k[1] - k[0])

    best = answer(found.rho)
    assert best > max(answer(0.95 * found.rho), answer(1.05 * found.rho))


def test_data_and_uniform_branches():
    images = digits(3, 0).x_train
    net = ResNet(16, 20, activation="erf", b_std=0.1)
    found = recommend_residual_scale(net, images)
    np.testing.assert_allclose(found.rho, found.net.beta * 20**-0.5, rtol=1e-12)
    assert found.present == pytest.approx(20**-0.5)
    flat = images.reshape(3, -1)
    best = optimal_scale(flat @ flat.T / 64 + 0.01, 19, 1.0, 0.1)
    np.testing.assert_allclose(found.rho, best[np.triu_indices(3, 1)].mean(), rtol=1e-6)
    text = str(found)
    assert f"{found.rho:.3g}" in text
    assert "3 pairs" in text
    assert "smaller inputs would carry more" in text  # |x|² = D is above what erf carries


def test_where_there_is_none_it_says_what_to_do():
    x = np.random.default_rng(0).normal(size=(3, 4))
    with pytest.raises(AbsentError, match="relu does not saturate"):
        recommend_residual_scale(ResNet(8, 10, residual="fixed"), x)
    with pytest.raises(AbsentError, match="branch_layers=2"):
        recommend_residual_scale(ResNet(8, 10, branch_layers=2), x)
    with pytest.raises(TypeError, match="MLP"):
        recommend_residual_scale(MLP(8, 10), x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(AbsentError, match="parallel"):
        recommend_residual_scale(ResNet(8, 10, activation="erf", b_std=0.1, residual="fixed"), jnp.ones((3, 4)))
    with pytest.raises(ValueError, match="two inputs"):
        recommend_residual_scale(ResNet(8, 10, activation="erf", residual="fixed"), x[:1])


def test_inputs_and_networks_without_a_scale():
    x = np.random.default_rng(0).normal(size=(5, 6))
    net = ResNet(width=10, depth=20, activation="erf", residual="fixed")
    with pytest.raises(ValueError, match=r"smallest variance is 0. Leave out inputs that are zero"):
        recommend_residual_scale(net, np.concatenate([x, np.zeros((1, 6))]))
    for samples in (-2, 0, 1):
        with pytest.raises(ValueError, match=f"samples must be an integer of at least 2, got {samples}"):
            recommend_residual_scale(net, x, samples=samples)
    with pytest.raises(AbsentError, match="has no residual branches"):
        recommend_residual_scale(ResNet(width=10, depth=1, activation="erf"), x)


def test_the_estimate_is_of_the_inputs_it_stands_beside():
    x = np.random.default_rng(0).normal(size=(5, 6))
    x = x[np.argsort((x**2).mean(1))[:3]]
    net = ResNet(width=10, depth=20, activation="erf", residual="fixed")
    found = recommend_residual_scale(net, x)
    q = (x**2).mean(1)
    own = np.diagonal(optimal_scale(np.diag(q), 20))
    assert (own > 0).sum() == 1
    expected = own.max(), estimated_scale(q[own > 0], 20).item()
    text = "for the norms of 1 of 3 inputs it would be {:.3g} (closed estimate {:.3g})"
    assert text.format(*expected) in str(found)
    assert expected[1] > 0
    # Between the estimate's target, 1/4, and where erf begins to saturate, 0.305.
    above = recommend_residual_scale(net, x / np.sqrt(q)[:, None] * 0.27**0.5)
    assert "(closed estimate 0, since these are above its target of 1/4)" in str(above)
