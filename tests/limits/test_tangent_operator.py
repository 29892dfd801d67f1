"""Tangent kernels of networks at size: products, eigenpairs, tiles, and what training points do, against whole kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import Share, TangentOperator, empirical_ntk, predict
from zoo import MLP, ViT, learning_rate_factors

RNG = np.random.default_rng(0)


def network(net, n=7):
    """(apply, parameters, inputs, learning-rate factors) in float64."""
    x = RNG.normal(size=(n, 4, 4, 1))
    params = net.init(jax.random.key(0), jnp.asarray(x))["params"]
    return lambda p, x: net.apply({"params": p}, jnp.asarray(x)), params, x, learning_rate_factors(net, x)


@pytest.mark.parametrize(
    "net",
    [MLP(16, 2, 3, activation="tanh"), pytest.param(ViT(16, 1, 3, patch=2), marks=pytest.mark.slow)],
    ids=["MLP", "ViT"],
)
@pytest.mark.slow
def test_products_and_eigenpairs(net, x64):
    apply, params, x, rates = network(net)
    whole = empirical_ntk(apply, params, x, outputs="full", rates=rates)
    whole = np.asarray(whole).transpose(0, 2, 1, 3).reshape(21, 21)
    op = TangentOperator(apply, params, x, rates, batch=3)  # does not divide 7
    v = RNG.normal(size=(7, 3, 2))
    np.testing.assert_allclose((op @ v).reshape(21, 2), whole @ v.reshape(21, 2), rtol=1e-9)
    found = op.eigenpairs(4)
    values, vectors = np.linalg.eigh(whole)
    np.testing.assert_allclose(found.values, values[:-5:-1], rtol=1e-9)
    overlap = np.abs(found.vectors.reshape(21, 4).T @ vectors[:, :-5:-1])
    np.testing.assert_allclose(overlap, np.eye(4), atol=1e-5)
    assert (found.residuals < 1e-6 * found.values[0]).all()


@pytest.mark.parametrize("count", [11, 15])
@pytest.mark.parametrize("precise", [True, False])
def test_eigenvalues_come_as_often_as_they_occur(count, precise):
    """K = k ⊗ 1: each eigenvalue of k as often as there are outputs, of which powers of K on one vector meet one."""
    x = np.random.default_rng(0).normal(size=(30, 10))
    every = np.repeat(np.linalg.eigvalsh(x @ x.T)[:-11:-1], 10)
    with jax.enable_x64(precise):
        found = TangentOperator(lambda w, x: x @ w, jnp.zeros((10, 10)), x).eigenpairs(count)
    np.testing.assert_allclose(found.values, every[:count], rtol=1e-6)
    vectors = found.vectors.reshape(300, count)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    assert (found.residuals < 1e-5 * every[0]).all()


def test_a_kernel_of_zeros_has_eigenvalues_of_zero():
    found = TangentOperator(lambda w, x: x @ w, jnp.zeros((3, 2)), np.zeros((4, 3))).eigenpairs(2)
    assert found.values.tolist() == found.residuals.tolist() == [0, 0]


def test_influence_is_the_derivative_by_the_weight_of_a_point(x64):
    """Of a model that is linear in its parameters, with rates; by central differences, and to first order what removal does."""
    features, other = RNG.normal(size=(6, 5)), RNG.normal(size=(2, 5))
    y, rates, noise = RNG.normal(size=(6, 2)), RNG.uniform(0.5, 2.0, size=5), 0.3
    apply = lambda rows, x: x @ jnp.stack(rows)  # noqa: E731

    def predicted(weights):
        """argmin Σ w_i ½ |f(x_i) − y_i|² + noise/2 |w|²/rates."""
        a = features.T @ (weights[:, None] * features) + noise * np.diag(1 / rates)
        return other @ np.linalg.solve(a, features.T @ (weights[:, None] * y)), a

    _, a = predicted(np.ones(6))
    best = np.linalg.solve(a, features.T @ y)
    op = TangentOperator(apply, list(jnp.asarray(best)), features, rates.tolist(), batch=4)
    found = op.influence(other, y - features @ best, noise, tolerance=1e-12)
    for i, step in enumerate(1e-6 * np.eye(6)):
        difference = (predicted(1 + step)[0] - predicted(1 - step)[0]) / 2e-6
        np.testing.assert_allclose(found[..., i], difference, rtol=1e-6)
    kernel = features @ np.diag(rates)
    exact = predict.influence(kernel @ features.T, y, other @ kernel.T, noise)
    for i in range(6):
        left_out = predicted(1 - np.eye(6)[i])[0] - predicted(np.ones(6))[0]
        np.testing.assert_allclose(exact[:, i], left_out, rtol=1e-9)


def test_points_left_out():
    """With a noise for every point."""
    k = RNG.normal(size=(8, 10))
    cross, noise, y = RNG.normal(size=(3, 10)) @ k.T, RNG.uniform(0.1, 1, size=8), RNG.normal(size=(8, 2))
    k = k @ k.T
    found = predict.influence(k, y, cross, noise)
    whole = cross @ np.linalg.solve(k + np.diag(noise), y)
    for i in range(8):
        rest = np.arange(8) != i
        alone = cross[:, rest] @ np.linalg.solve(k[np.ix_(rest, rest)] + np.diag(noise[rest]), y[rest])
        np.testing.assert_allclose(found[:, i], alone - whole, rtol=1e-9)
    with pytest.raises(ValueError, match="k_test_train"):
        predict.influence(k, y, cross[:, 1:], noise)


def test_tiles_are_the_whole_kernel(tmp_path):
    apply, params, x, rates = network(MLP(16, 2, 3, activation="tanh"), n=9)
    x = x.astype("float32")
    whole = np.asarray(empirical_ntk(apply, params, x, rates=rates))
    for tiles in (
        empirical_ntk(apply, params, x, rates=rates, block=4),
        empirical_ntk(apply, params, x, rates=rates, block=4, folder=tmp_path / "kept"),
        empirical_ntk(
            apply, params, x, rates=rates, block=4, folder=Share(tmp_path / "kept", 1, 2)
        ),  # finished already
    ):
        np.testing.assert_allclose(tiles, whole, rtol=2e-5, atol=1e-6)
    other = empirical_ntk(apply, params, x[:5], x[5:], rates=rates, block=2)
    np.testing.assert_allclose(other, whole[:5, 5:], rtol=2e-5, atol=1e-6)
    moved = jax.tree.map(lambda leaf: 1.01 * leaf, params)
    with pytest.raises(ValueError, match="other kernels"):
        empirical_ntk(apply, moved, x, rates=rates, block=4, folder=tmp_path / "kept")
    with pytest.raises(ValueError, match="outputs"):
        empirical_ntk(apply, params, x, block=4, outputs="full")


def test_tiles_of_whole_numbers_in_float64(x64):
    """Threads work them out, which have settings of their own."""
    x = jnp.asarray([[200, 1, 30], [10, 250, 9], [7, 0, 90]], "uint8")
    net = MLP(16, 1, activation="tanh", w_std=0.1)
    params = net.init(jax.random.key(0), x)
    tiles = empirical_ntk(net.apply, params, x, block=2)
    np.testing.assert_allclose(tiles, empirical_ntk(net.apply, params, x.astype(float)), rtol=1e-13)


def test_operators_that_are_refused():
    apply = lambda w, x: x @ w  # noqa: E731
    op = TangentOperator(apply, jnp.ones((3, 2)), np.eye(4, 3))
    assert op.shape == (8, 8)
    with pytest.raises(ValueError, match="its shape is"):
        op @ np.ones(8)  # pyright: ignore
    with pytest.raises(ValueError, match="below n"):
        op.eigenpairs(8)
    with pytest.raises(ValueError, match="residual"):
        op.influence(np.eye(1, 3), np.ones(4), 0.1)
    with pytest.raises(ValueError, match="cannot be computed"):
        TangentOperator(apply, jnp.ones((2, 2)), np.eye(4, 3))
    with pytest.raises(ValueError, match="tree like params"):
        TangentOperator(apply, jnp.ones((3, 2)), np.eye(4, 3), rates={"w": 1.0})
    with pytest.raises(RuntimeError, match="converged"):
        TangentOperator(apply, jnp.ones((90, 1)), RNG.normal(size=(90, 90))).eigenpairs(3, tolerance=1e-12, steps=1)


def test_inputs_of_numbers_beside_whole_ones_stay_what_they_are():
    """Those of the operator are whole: others have their own type."""
    op = TangentOperator(lambda w, x: x @ w, jnp.ones((2, 1)), np.array([[1, 0], [0, 2], [1, 1]], np.uint8))
    x = np.array([[0.5, -1.5], [300.0, 0.25]])
    assert op.forward(jnp.array([[1.0], [2.0]]), x).ravel().tolist() == [-2.5, 300.5]
    assert op.backward(np.ones((2, 1), int), x).ravel().tolist() == [300.5, -1.25]
