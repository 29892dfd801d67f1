from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Task, twin
from limits.cumulants import (
    class_cumulants,
    divergence,
    expected_overlaps,
    gaussian_mixture,
    indefinite,
    output_statistics,
    overlap_phase,
    overlaps,
    pooled,
    propagate,
    sample,
    statistical_loss,
    third_cumulant_mixture,
    xor_mixture,
)
from train.data import on_sphere
from zoo import MLP, ResNet
from zoo.activations import Quadratic

pytestmark = pytest.mark.usefixtures("x64")
STD = 0.75**0.5


def network(width, depth, activation: Any = "relu", outputs=1, **options):
    chosen: Any = {"w_std": STD, "b_std": STD, "parameterization": "standard", **options}
    return MLP(width, depth, outputs, activation, **chosen)


def drawn(net, inputs=2, seed=0):
    return net.init(jax.random.key(seed), jnp.ones((1, inputs)))


@pytest.mark.parametrize(
    "parameterization",
    ["mup", pytest.param("standard", marks=pytest.mark.slow), pytest.param("ntk", marks=pytest.mark.slow)],
)
def test_linear_networks_are_exact_on_any_data_in_every_parameterization(parameterization):
    net = network(5, 2, "linear", outputs=3, parameterization=parameterization, gamma=2.0, b_std=0.3)
    x = np.random.default_rng(0).exponential(size=(100, 2))
    y = np.repeat([[1.0], [-1.0]], [40, 60], axis=0)
    variables = drawn(net)
    found = jax.jit(lambda v, data: output_statistics(net, v, data))(variables, class_cumulants(x, y))
    f = np.asarray(net.apply(variables, jnp.asarray(x)))
    for k, target in enumerate(np.asarray(found.target)[:, 0]):
        rows = f[y[:, 0] == target]
        np.testing.assert_allclose(found.cumulants.mean[k], rows.mean(0), rtol=1e-10)
        np.testing.assert_allclose(found.cumulants.covariance[k], np.cov(rows.T, bias=True), rtol=1e-9, atol=1e-13)


def test_loss_is_the_mean_squared_error_of_samples(row):
    # One quadratic layer and a linear readout see only four cumulants of the inputs: exact for Gaussian components.
    net, variables = network(10, 1, "quadratic"), drawn(network(10, 1, "quadratic"))
    x, t = sample(xor_mixture(), 1_000_000, seed=1)
    errors = np.asarray((net.apply(variables, jnp.asarray(x)) - t) ** 2).sum(1)
    loss = jax.jit(lambda data: statistical_loss(net, variables, data))
    found = float(loss(xor_mixture()))
    assert abs(found / errors.mean() - 1) < 0.01
    row(9, f"loss from cumulants over that of 10⁶ samples: {found / errors.mean():.4f} (1 %)")
    assert abs(found - errors.mean()) < 3 * errors.std() / len(x) ** 0.5
    # With classes instead of components, third and fourth cumulants make up for the lost means.
    classes = float(loss(pooled(xor_mixture(), order=4)))
    assert classes == pytest.approx(found, rel=1e-12)
    assert abs(float(loss(pooled(xor_mixture()))) / found - 1) > 5e-4


@pytest.mark.slow
def test_gradient_of_the_loss():
    net = network(6, 2, "relu")
    variables = drawn(net)
    loss = jax.jit(lambda v: statistical_loss(net, v, xor_mixture()))
    slopes = jax.jit(jax.grad(loss))(variables)
    direction = jax.tree.map(lambda leaf: jnp.sin(jnp.arange(leaf.size, dtype=float)).reshape(leaf.shape), variables)
    ahead, behind = (loss(jax.tree.map(lambda leaf, d, h=h: leaf + h * d, variables, direction)) for h in (1e-5, -1e-5))
    along = sum(jax.tree.leaves(jax.tree.map(lambda s, d: (s * d).sum(), slopes, direction)))
    assert float(along) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-7)


@pytest.mark.slow
def test_variances_of_wide_networks_are_those_of_the_nngp(row):
    # 40 networks, 20 inputs of one length: standard errors of 0.5 to 1 %.
    x = jnp.asarray(on_sphere(np.random.default_rng(2).normal(size=(20, 20))))
    net = network(1000, 5)

    @jax.jit
    def variances(key):
        hidden: Any = net.apply(net.init(key, x), x, intermediates=True)[1]
        return jnp.stack([(h**2).mean() for h in hidden["h"]])

    found = np.mean([variances(key) for key in jax.random.split(jax.random.key(0), 40)], axis=0)
    # z^(l+1) is distributed as the outputs of l hidden layers.
    expected = [1.5] + [twin(network(1, l)).kernels(x[:1]).nngp.item() for l in range(1, 5)]
    row(1, f"variance at width 1000, L = 1 … 5: off by {np.abs(found / np.array(expected) - 1).max():.2%} (2 %)")
    np.testing.assert_allclose(found, expected, rtol=0.02)


def random_network_divergences(net, members, samples=100_000, bins=60):
    x = jnp.asarray(sample(xor_mixture(), samples, seed=3)[0])
    run = jax.jit(net.apply)
    found = []
    for seed in range(members):
        variables = drawn(net, seed=seed)
        found.append(divergence(np.asarray(run(variables, x)), propagate(net, variables, xor_mixture())[-1][0], bins))
    return np.median(found)


def test_outputs_of_a_random_relu_network_follow_the_mixture():
    assert random_network_divergences(network(10, 1), members=5) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "depth", "bound", "measured"), [(10, 1, 0.01, 0.0037), (10, 4, 0.02, 0.0085), (100, 1, 0.01, 0.0054)]
)
def test_divergences_of_random_relu_networks(width, depth, bound, measured, row):
    # Networks differ by factors; the median of 50 is known to about 25 %. It does not fall with the width.
    found = random_network_divergences(network(width, depth), members=50)
    words = f"random relu networks on XOR, N = {width}, L = {depth}: median divergence"
    row(8, f"{words} {found:.4f} (below {bound}; about {measured})")
    assert found < bound
    assert found == pytest.approx(measured, rel=0.5)


def test_one_quadratic_layer_does_not_tell_third_cumulants_apart():
    net = network(10, 1, Quadratic(0.5))
    for order in (2, 4):
        outputs = propagate(net, drawn(net), pooled(third_cumulant_mixture(), order))[-1][0].cumulants
        np.testing.assert_allclose(*outputs.mean, rtol=1e-12)  # of both classes: a threshold is at chance
        same = np.allclose(*outputs.covariance, rtol=1e-6)
        assert same == (order == 2)


def test_truncated_cumulants_can_be_indefinite_and_are_counted():
    # G3 without G4: a quadratic neuron that adds z and z² of one class has a variance that Gaussian-plus-skew cannot have.
    net, data = network(20, 2, Quadratic(2.0)), third_cumulant_mixture()
    variables = drawn(net)
    cut, whole = (pooled(data, order=order) for order in (3, 4))
    assert indefinite(propagate(net, variables, whole)).tolist() == [0, 0, 0]
    skewed = gaussian_mixture([1.0], [1], [[0.0, 0.0]], 0.05 * np.eye(2))
    third = np.zeros((1, 2, 2, 2))
    third[0, 0, 0, 0] = 5.0
    skewed = skewed._replace(cumulants=skewed.cumulants._replace(third=third))
    assert indefinite(propagate(net, variables, skewed))[0] == 1
    assert cut.cumulants.order == 3


def test_only_fully_connected_networks():
    net = ResNet(width=4, depth=3)
    with pytest.raises(TypeError, match="ResNet"):
        statistical_loss(net, net.init(jax.random.key(0), jnp.ones((1, 2))), xor_mixture())


def test_data_and_variables_are_what_they_should_be():
    net = network(3, 1)
    variables, x = drawn(net), np.ones((4, 2))
    calls: tuple[Any, ...] = (statistical_loss, propagate)
    for run in calls:
        with pytest.raises(ValueError, match=r"data must be a Mixture .*class_cumulants.* got a Task"):
            run(net, variables, Task(x, x[:, 0]))
        with pytest.raises(ValueError, match=r"net\.init returns.* keys \['hidden_1', 'readout'\]"):
            run(net, variables["params"], xor_mixture())
        with pytest.raises(ValueError, match="network has 2 inputs and the data have 1"):
            run(net, variables, gaussian_mixture([1.0], [1], [[0.0]], [[1.0]]))


def test_propagation_says_where_its_quadrature_is_coarse():
    net = network(3, 1, "tanh", w_std=200.0)
    with pytest.warns(UserWarning, match="changes too sharply"):
        propagate(net, drawn(net), xor_mixture())


def test_overlaps_need_signals_that_settle():
    with pytest.raises(ValueError, match=r"w_std = 2 and b_std = 0\.1 the variance of signals goes to inf"):
        expected_overlaps("relu", 2.0, 0.1, 3)


OVERLAP = {0.76: (1.454, 2.03), 0.81: (2.180, 2.96), 0.85: (3.637, 5.28)}


@pytest.mark.parametrize("std", OVERLAP)
@pytest.mark.slow
def test_overlaps_of_wide_networks_settle_over_the_depth_scale(std, row):
    q, xi = OVERLAP[std]
    found = overlap_phase(Quadratic(0.1), std, std)
    assert (found.q, found.depth_scale) == pytest.approx((q, xi), rel=2e-3)
    depth = 200
    expected = expected_overlaps(Quadratic(0.1), std, std, depth)
    left = (found.q - std**2) / std**2 - expected  # O_0 − O^(l)
    late = slice(round(4 * xi), round(8 * xi))
    slope = np.polyfit(np.arange(depth)[late], np.log(left[late]), 1)[0]
    row(16, f"overlaps at σ = {std}: ξ {-1 / slope:.2f} ({xi})")
    assert -1 / slope == pytest.approx(xi, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("std", OVERLAP)
def test_overlaps_of_single_networks(std):
    q, _ = OVERLAP[std]
    net, layers = network(400, 30, Quadratic(0.1), w_std=std, b_std=std), 30
    data = gaussian_mixture([1.0], [1], [np.zeros(400)], q * np.eye(400))
    each = np.stack([overlaps(propagate(net, drawn(net, 400, seed), data)) for seed in range(10)])
    expected = expected_overlaps(Quadratic(0.1), std, std, layers)
    error = each.std(0, ddof=1) / len(each) ** 0.5
    assert (np.abs(each.mean(0) - expected) < 4 * error + 0.02 * expected).all()
