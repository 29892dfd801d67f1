"""Kernels of finite networks against their fluctuations in theory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits.depth import finite_kernels, fluctuations, input_kernel, variance_per_layer
from zoo import ResNet

NET = {"w_std": 1.25**0.5, "b_std": 0.05**0.5}
PAIR = [[0.3, 0.1], [0.1, 0.4]]


@pytest.mark.slow
def test_kernels_of_finite_residual_networks_scatter_as_predicted():
    predicted = fluctuations([[0.3]], 10, rho=0.3, **NET)
    drawn = finite_kernels([[0.3]], 10, width=200, members=12000, rho=0.3, seed=1, **NET)[:, :, 0, 0]
    # A standard deviation from 12000 networks has a standard error of 0.65 %; the next order in 1/N adds 0.4 %.
    np.testing.assert_allclose(drawn[:, 1:].std(0), predicted.std(200)[1:, 0, 0], rtol=0.02)
    assert abs(predicted.std(200)[-1, 0, 0] - 0.0232) < 0.02 * 0.0232
    measured = 200 * np.cov(np.diff(drawn, axis=1).T)
    np.testing.assert_allclose(measured[0, 9], predicted.increments[1, 0, 10, 0], rtol=0.05)  # far layers are coupled


def test_layers_are_coupled():
    """With layers taken as independent the spread would be 2.7 times too small."""
    coupled, free = fluctuations([[0.3]], 10, rho=0.3, **NET), _independent_layers()
    assert abs(free * 200**-0.5 - 0.00859) < 1e-4
    assert coupled.std(200)[-1, 0, 0] > 2.5 * free * 200**-0.5


def _independent_layers() -> float:
    from limits.depth.finite_width import _one_sample, _propagators
    from limits.depth.response import response

    path = response([[0.3]], 10, rho=0.3, **NET)
    source = np.diag(np.diag(_one_sample("erf", path, True)))
    g = _propagators(path, np.full(10, 0.3), True, 1.25)[0].reshape(11, 10)
    return float((g @ source @ g.T)[-1, -1] ** 0.5)


def test_several_samples():
    """The full Jacobian; without what covariances owe to variances, Var K_12 would be off by about 10 %."""
    plain = {"depth": 3, "w_std": 1.3**0.5, "b_std": 0.05**0.5}
    predicted = fluctuations(PAIR, **plain).std(200)[-1]
    drawn = finite_kernels(PAIR, width=200, members=8000, seed=2, **plain)[:, -1]
    np.testing.assert_allclose(drawn.std(0), predicted, rtol=0.02)  # standard error 0.8 %


@pytest.mark.slow
def test_several_samples_of_residual_networks():
    residual = fluctuations(PAIR, 3, rho=0.5, **NET)
    drawn = finite_kernels(PAIR, 3, width=200, members=8000, rho=0.5, seed=3, **NET)[:, -1]
    np.testing.assert_allclose(drawn.std(0), residual.std(200)[-1], rtol=0.02)
    whole = 200 * np.cov(drawn[:, [0, 0, 1], [0, 1, 1]].T)
    error = np.sqrt((whole**2 + np.outer(np.diag(whole), np.diag(whole))) / 8000)
    assert (abs(whole - residual.kernels[-1, :, -1]) < 4 * error + 0.01 * abs(whole)).all()
    assert (residual.kernels_sem[-1, :, -1] < 0.03 * abs(whole)).all()
    one = fluctuations([[0.3]], 3, rho=0.5, **NET)  # quadrature and sampled paths agree
    away = one.kernels[-1, 0, -1, 0] - residual.kernels[-1, 0, -1, 0]
    assert abs(away) < 4 * residual.kernels_sem[-1, 0, -1, 0]


def test_the_law_of_homogeneous_activations():
    predicted = fluctuations([[0.7]], 5, w_std=2**0.5, activation="relu").kernels[:, 0, :, 0] / 0.49
    l = np.arange(6)
    np.testing.assert_allclose(predicted, 5 * np.minimum.outer(l, l), atol=1e-9)
    assert abs(variance_per_layer("relu") - 5) < 1e-9
    drawn = finite_kernels([[1.0]], 4, width=100, members=10000, w_std=2**0.5, activation="relu", seed=4)[:, :, 0, 0]
    exact = (1 + 5 / 100) ** np.arange(5) - 1
    np.testing.assert_allclose(drawn.var(0), exact, rtol=0.1)  # standard errors 2 to 4 %, by heavy tails
    with pytest.raises(ValueError, match="homogeneous"):
        variance_per_layer("erf")


def test_too_many_samples_are_refused():
    with pytest.raises(ValueError, match="Take fewer samples"):
        fluctuations(np.eye(30), 10)


@pytest.mark.slow
def test_networks_of_the_zoo():
    """The kernels of networks with weights, from their last features: C^(L+1) = ρ² (σ_w² Φ^(L) + σ_b²)."""
    net = ResNet(200, 10, activation="erf", residual="fixed", beta=0.3, parameterization="standard", **NET)
    x = np.random.default_rng(0).normal(size=(1, 20))
    x *= (20 * 0.2 / (x**2).sum()) ** 0.5  # K0 = 0.3

    points = jnp.asarray(x, "float32")

    @jax.jit
    @jax.vmap
    def one(key: Any) -> Any:
        inside: Any = net.apply(net.init(key, points), points, intermediates=True)[1]
        return jnp.stack([(a**2).mean() for a in inside["phi"]])

    phi = np.concatenate([one(jax.random.split(jax.random.key(i), 250)) for i in range(24)])
    k = 0.09 * (1.25 * phi.astype(np.float64) + 0.05).cumsum(1)  # K^(l + 1) − K^(0)
    k0 = input_kernel(x, NET["w_std"], NET["b_std"])
    assert abs(k0[0, 0] - 0.3) < 1e-9
    predicted = fluctuations(k0, 10, rho=0.3, **NET).std(200)[1:, 0, 0]
    # 6000 networks: standard error 0.9 %, so 2 % would fail once in 40 by chance for each of the layers; seed fixed.
    np.testing.assert_allclose(k[:, :10].std(0), predicted, rtol=0.02)
