"""The mathematics of an analysis, each quantity against another way to it."""

import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from limits import twin
from limits.training import Training
from train.analysis import (
    cka,
    drift,
    edge_of_stability,
    effective_rank,
    hsic,
    kernel_alignment,
    label_alignment,
    largest_eigenvalues,
    layer_kernels,
    linearisation_distance,
    parameter_movement,
    participation_ratio,
    sharpness,
    spectrum,
    tangent_kernel,
    weight_spectra,
)
from train.analysis.against import distances
from train.data import gaussian_teacher
from train.ensemble import run_members
from train.members import member_keys
from zoo import MLP

TASK = gaussian_teacher(8, 3, dim=3, seed=1)
NET = MLP(5, 2, outputs=2, activation="tanh", w_std=1.4, b_std=0.3, parameterization="mup", gamma=0.8)
Y = np.stack([TASK.y_train[:, 0], 0.5 - TASK.y_train[:, 0] ** 2], axis=1)


def features(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


def test_cka_is_that_of_kernels_centred_by_matrices(row):
    n = 9
    a, b = features(n, 4), features(n, 6, 1) + 0.7 * features(n, 4)[:, :1]
    k, l, h = a @ a.T, b @ b.T, np.eye(n) - np.ones((n, n)) / n
    traces = [np.trace(k1 @ h @ l1 @ h) for k1, l1 in ((k, l), (k, k), (l, l))]
    assert hsic(k, l) == pytest.approx(traces[0] / (n - 1) ** 2, rel=1e-12)
    assert cka(k, l) == pytest.approx(traces[0] / np.sqrt(traces[1] * traces[2]), rel=1e-12)
    # Kornblith's form in features: |BᵀA|² over |AᵀA||BᵀB|, of centred ones.
    a, b = h @ a, h @ b
    sizes = [np.linalg.norm(x) for x in (b.T @ a, a.T @ a, b.T @ b)]
    found = cka(k, l)
    other = sizes[0] ** 2 / sizes[1] / sizes[2]
    row(29, f"CKA {found:.6f}, in features {other:.6f}; of a kernel with itself {cka(k, k):.6f} (1)")
    assert found == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize("n", [4, 11, 64])
def test_one_point_alone_with_another_label_has_no_unbiased_alignment(n):
    features = np.random.default_rng(0).normal(size=(n, 50))
    for alone in (1, 2):
        labels = np.eye(3)[np.r_[np.zeros(n - alone, int), np.ones(alone, int)]]
        for targets in (labels, labels - 1 / 3, 10 * labels[:, 1] + 0.7):
            found = label_alignment(features @ features.T, targets)
            assert np.isfinite(found["cka"])
            assert np.isnan(found["cka_unbiased"]) if alone == 1 else np.abs(found["cka_unbiased"]) < 1.1


@pytest.mark.parametrize("unbiased", [False, True])
def test_cka_sees_neither_rotations_nor_scales_nor_shifts(unbiased):
    a, b = features(8, 4), features(8, 4, 1) + features(8, 4)
    rotation = np.linalg.qr(features(4, 4, 2))[0]
    value = cka(a @ a.T, b @ b.T, unbiased)
    other = 3.0 * a @ rotation + 0.5
    assert cka(other @ other.T, b @ b.T, unbiased) == pytest.approx(value, rel=1e-10)
    stretched = a * [5.0, 1.0, 1.0, 1.0]
    assert abs(cka(stretched @ stretched.T, b @ b.T, unbiased) - value) > 0.01
    assert kernel_alignment(other @ other.T, b @ b.T) != pytest.approx(kernel_alignment(a @ a.T, b @ b.T), rel=1e-3)


def test_unbiased_hsic_is_the_mean_over_distinct_samples():
    n = 6
    k, l = (f @ f.T for f in (features(n, 3), features(n, 2, 1)))
    tuples = itertools.permutations(range(n), 4)
    terms = [k[i, j] * (l[i, j] + l[q, r] - 2 * l[i, q]) for i, j, q, r in tuples]
    assert hsic(k, l, unbiased=True) == pytest.approx(np.mean(terms), rel=1e-12)


def test_of_independent_data_the_unbiased_hsic_is_zero_on_average_and_the_biased_one_is_not():
    draws = np.random.default_rng(3).normal(size=(2, 2000, 8, 3))
    k, l = np.einsum("asid,asjd->asij", draws, draws)
    unbiased, biased = hsic(k, l, unbiased=True), hsic(k, l)
    sem = unbiased.std() / 2000**0.5
    assert abs(unbiased.mean()) < 4 * sem
    assert biased.mean() > 50 * sem
    with pytest.raises(ValueError, match="at least 4 samples, got 3"):
        hsic(np.eye(3), np.eye(3), unbiased=True)
    with pytest.raises(ValueError, match="hsic: k and l must be kernels"):
        hsic(np.eye(3), np.eye(4))


def test_alignment_with_labels_by_step():
    y = np.sign(features(8, 1))
    kernels = np.stack([np.eye(8), y @ y.T])
    found = label_alignment(kernels, y[:, 0])
    assert found["uncentred"] == pytest.approx([8 / (8**0.5 * 8), 1.0])
    assert found["cka"][1] == pytest.approx(1.0)
    assert found["cka_unbiased"][1] == pytest.approx(1.0)
    assert found["cka"][0] < 0.5


def test_drift():
    k0 = np.array([[2.0, 1.0], [1.0, 2.0]])
    series = np.stack([k0, 3 * k0, np.diag([1.0, 5.0])])
    found = drift(series, k0)
    assert found["relative"] == pytest.approx([0, 2, np.sqrt(1 + 2 + 9) / np.sqrt(10)])
    assert found["cosine"] == pytest.approx([0, 0, 1 - 12 / np.sqrt(26 * 10)])
    assert np.isnan(drift(series, 0 * k0)["relative"]).all()


def test_effective_ranks_of_known_spectra():
    values = np.zeros((2, 6))
    values[0, :3], values[1, :2] = 4.0, [3.0, 1.0]
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert effective_rank(values) == pytest.approx([3, np.exp(entropy)])
    assert participation_ratio(values) == pytest.approx([3, 16 / 10])
    rotation = np.linalg.qr(features(6, 6))[0]
    found = spectrum(rotation @ np.diag(values[0][::-1]) @ rotation.T)
    assert found["eigenvalues"] == pytest.approx(values[0], abs=1e-12)
    assert found["effective_rank"] == pytest.approx(3, rel=1e-6)


def test_random_weights_end_at_the_edge_and_a_spike_stands_out():
    weights = np.random.default_rng(1).normal(size=(40, 3, 4, 10, 60)) * 0.3
    found = [weight_spectra({"w": w})["w"] for w in weights]
    largest = np.array([f["singular_values"][0] / f["edge"] for f in found])
    # Tracy and Widom's law has mean −1.21 and width 1.27, in units of 1.6 % of the edge at 120 × 60, which is 0.3 % further out.
    assert abs(largest.mean() - (1 - 1.21 * 0.016 - 0.003)) < 4 * 1.27 * 0.016 / 40**0.5
    assert 0.5 < largest.std() / (1.27 * 0.016) < 1.5
    assert sum(f["outliers"] for f in found) <= 3  # one in a hundred by chance: more than 3 of 40 once in 1,000 seeds
    left, right = np.random.default_rng(2).normal(size=(2, 120))
    spiked = weights[0].reshape(120, 60) + 0.1 * np.outer(left, right[:60])
    one = weight_spectra({"w": spiked, "b": np.ones(3)})
    values = np.linalg.svd(spiked, compute_uv=False)
    assert list(one) == ["w"]
    assert one["w"]["outliers"] == 1
    assert one["w"]["stable_rank"] == pytest.approx((values**2).sum() / values[0] ** 2)


class Heads(nn.Module):
    """Layers of [width, heads, d] and [heads, d, width], scanned, a table that is added, and a convolution in groups."""

    @nn.compact
    def __call__(self, x):
        layer = nn.MultiHeadDotProductAttention(num_heads=4, name="blocks", bias_init=nn.initializers.normal())
        over = {"variable_axes": {"params": 0}, "split_rngs": {"params": True}, "length": 2}
        h, _ = nn.scan(lambda layer, h, _: (layer(h, h), None), **over)(layer, x, None)
        h = h + self.param("table", nn.initializers.normal(), (5, 8))[None]
        return nn.Conv(8, (3,), feature_group_count=2, name="groups")(h).mean(1)


@pytest.mark.slow
def test_axes_of_heads_and_layers_are_those_of_the_forward_pass():
    x = jnp.ones((2, 5, 8))
    variables = Heads().init(jax.random.key(0), x)
    params: Any = jax.tree.map(np.asarray, variables["params"])
    matrices = {f"blocks.{name}.kernel[{l}]": params["blocks"][name]["kernel"][l].reshape(8, 8)
                for name in ("key", "out", "query", "value") for l in (0, 1)}  # fmt: skip
    matrices |= {"groups.kernel": params["groups"]["kernel"].reshape(12, 8), "table": params["table"]}
    for found in (weight_spectra(variables, Heads(), x), weight_spectra(variables, Heads().apply, x)):
        assert list(found) == list(matrices)
        for name, matrix in matrices.items():
            values = np.linalg.svd(matrix, compute_uv=False)
            np.testing.assert_allclose(found[name]["singular_values"], values, rtol=1e-5, atol=1e-6)
            assert found[name]["edge"] == pytest.approx(
                np.linalg.norm(matrix) * (1 + (len(matrix) / 8) ** 0.5) / len(matrix) ** 0.5
            )
    with pytest.raises(ValueError, match=r"net is a function, .* give x"):
        weight_spectra(variables, Heads().apply)


def tanh_net(p: Any, x: Any) -> Any:
    """Small and plain: what needs no definition compiles sooner without one."""
    return jnp.tanh(x @ p["in"] + p["bias"][None]) @ p["out"]


PARAMS = {name: jnp.asarray(features(*shape, i), float) for i, (name, shape) in
          enumerate({"in": (3, 6), "out": (6, 2)}.items())} | {"bias": jnp.linspace(-1, 1, 6)}  # fmt: skip
DATA = jnp.asarray(TASK.x_train, float), jnp.asarray(Y, float)


def own_loss(f: Any, y: Any) -> Any:
    return jnp.mean(jnp.sum(jnp.cosh(f - y), axis=1))


def dense_hessian(loss: Any) -> np.ndarray:
    flat, unravel = ravel_pytree(PARAMS)
    return np.asarray(jax.jit(jax.hessian(lambda p: loss(tanh_net(unravel(p), DATA[0]), DATA[1])))(flat), np.float64)


@pytest.mark.parametrize("loss", ["mse", own_loss])
def test_sharpness_is_the_top_of_the_dense_hessian(loss):
    written_out = own_loss if loss is own_loss else lambda f, y: 0.5 * jnp.sum((f - y) ** 2) / len(f)
    dense = dense_hessian(written_out)
    assert len(dense) == 36  # more than are written out
    found = sharpness(tanh_net, PARAMS, DATA, loss, top=3, tolerance=1e-4, chunk=3)  # 3 + 3 + 2 samples
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(dense)[::-1][:3], rtol=1e-4)
    assert found.converged
    assert np.all(found.residuals <= 2e-4 * found.eigenvalues)  # twice: it is measured again, in float32
    if loss is own_loss:
        rates = {"bias": 0.3, "in": 2.0, "out": 0.0}
        roots = np.concatenate([np.full(PARAMS[name].size, rates[name] ** 0.5) for name in sorted(rates)])
        scaled = roots[:, None] * dense * roots
        found = sharpness(tanh_net, PARAMS, DATA, loss, rates=rates, preconditioned=True, top=2, chunk=3)
        np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(scaled)[::-1][:2], rtol=1e-4)
        with pytest.raises(ValueError, match="rates must be one number ≥ 0 for each of 3 parameters; got 1"):
            sharpness(tanh_net, PARAMS, DATA, loss, rates={"a": 1.0}, preconditioned=True, chunk=3)


def test_sharpness_of_parameters_in_half_precision():
    half = {name: jnp.asarray(leaf, jnp.bfloat16) for name, leaf in PARAMS.items()}
    full = {name: leaf.astype("float32") for name, leaf in half.items()}
    found, expected = (sharpness(tanh_net, each, DATA).eigenvalues for each in (half, full))
    np.testing.assert_array_equal(found, expected)


def test_gradient_descent_diverges_above_the_edge_and_not_below():
    x, y = jnp.asarray(features(20, 4), float), jnp.zeros((20, 1))

    def linear(w: Any, x: Any) -> Any:
        return x @ w

    start = jnp.ones((4, 1))
    edge = edge_of_stability(float(sharpness(linear, start, (x, y)).eigenvalues[0]))  # 2/λ as a learning rate

    def size_after(rate: float) -> float:
        w = np.asarray(start, np.float64)
        for _ in range(400):
            w = w - rate * np.asarray(x).T @ (np.asarray(x) @ w) / 20
        return float(np.linalg.norm(w))

    assert size_after(0.97 * edge) < 1e-3 < 10 < size_after(1.03 * edge)


def test_what_lanczos_does_not_reach_is_nan_and_what_is_not_finite_is_an_error():
    steps = 1 + 1e-7 * np.arange(300.0)
    found = largest_eigenvalues(lambda v: steps * v, 300, top=2, tolerance=1e-14, restarts=1, dtype=np.float64)
    assert not found.converged
    assert np.isnan(found.eigenvalues).any()
    negative = largest_eigenvalues(lambda v: -(1 + np.arange(100.0)) * v, 100, dtype=np.float64)
    assert negative.eigenvalues == pytest.approx([-1])  # the largest, not the largest in size
    with pytest.raises(FloatingPointError, match="infinite or NaN"):
        largest_eigenvalues(lambda v: v * np.inf, 100)
    with pytest.raises(ValueError, match="top must lie between 1 and the number of parameters, 3; got 4"):
        largest_eigenvalues(lambda v: v, 3, top=4)


def test_a_network_linear_in_its_parameters_is_its_linearisation():
    def linear(w: Any, x: Any) -> Any:
        return jnp.tanh(x) @ w["a"] + w["b"][None]

    start = {"a": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    end = {"a": start["a"] + features(3, 2), "b": jnp.ones(2)}
    found = linearisation_distance(linear, start, end, jnp.asarray(TASK.x, float), chunk=4)
    assert found["moved"] > 0.5
    assert found["relative"] < 1e-6
    assert linearisation_distance(linear, start, start, jnp.ones((2, 3)))["relative"] == 0
    movement = parameter_movement(start, end)
    assert movement["b"]["moved"] == 1
    assert np.isnan(movement["b"]["relative"])
    away = np.append(np.asarray(end["a"] - start["a"]), [1.0, 1.0])
    assert movement["all"]["relative"] == pytest.approx(np.linalg.norm(away) / 6**0.5, rel=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_distance_from_the_linearisation_is_of_second_order():
    start = jax.tree.map(lambda a: jnp.asarray(a, "float64"), PARAMS)
    moved = [
        linearisation_distance(
            tanh_net, start, jax.tree.map(lambda a, s=s: (1 + s) * a + s, start), jnp.asarray(TASK.x)
        )
        for s in (1e-2, 1e-3)
    ]
    slope = np.log10(moved[0]["distance"] / moved[1]["distance"])
    assert slope == pytest.approx(2, abs=0.02)  # the next order makes it 2 + O(1e-2)
    assert np.log10(moved[0]["moved"] / moved[1]["moved"]) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("chunk", [8, 5, 3])  # whole, 4 + 4, 3 + 3 + 2
def test_the_tangent_kernel_is_put_together_from_blocks(chunk):
    x = jnp.asarray(TASK.x_train, float)
    found = tangent_kernel(_linear, jnp.ones((3, 2)), x, rates=2.0, chunk=chunk)
    np.testing.assert_allclose(found, 2 * TASK.x_train @ TASK.x_train.T, rtol=1e-5, atol=1e-6)


def _linear(w: Any, x: Any) -> Any:
    return x @ w


@pytest.mark.slow
def test_kernels_are_those_of_the_ensemble():
    task = gaussian_teacher(4, 2, dim=3, seed=1)
    x = jnp.asarray(task.x, float)
    two = _two_outputs(task)
    (seen,) = run_members(NET, two, Training.of(two, 0, 0.1), 2, kernels=("phi", "g", "ntk", "features"))
    variables = NET.init(member_keys(0, 0, 2)[1], x[:1])
    found = layer_kernels(NET, variables, x)
    for name in ("phi", "g"):
        for ours, theirs in zip(found[name], seen[name], strict=True):
            np.testing.assert_allclose(ours, theirs[1, 0], rtol=1e-4, atol=1e-5)
    for chunk in (256, 4):  # 3 + 3 samples
        np.testing.assert_allclose(tangent_kernel(NET, variables, x, chunk=chunk), seen["ntk"][1, 0], rtol=1e-4)
    np.testing.assert_allclose(found["nngp"], 1.4**2 * seen["features"][1, 0] + 0.3**2, rtol=1e-4)


def _two_outputs(task: Any) -> Any:
    return type(task)(task.x_train, np.ones((4, 2)), task.x_test, np.ones((2, 2)))


@pytest.mark.slow
def test_wide_networks_have_the_twins_kernels():
    width, members = 1024, 8
    net = MLP(width, 2, activation="erf", w_std=1.4, b_std=0.3)
    x, limit = jnp.asarray(TASK.x_train[:4], float), twin(net).kernels(TASK.x_train[:4])
    init, sizes = jax.jit(net.init), {"nngp": [], "ntk": []}
    for seed in range(members):
        variables = init(jax.random.key(seed), x)
        layers, ntk = layer_kernels(net, variables, x), tangent_kernel(net, variables, x)
        for name, ours in (("nngp", layers["nngp"]), ("ntk", ntk)):
            theirs = getattr(limit, name)
            sizes[name].append(np.sum(ours * theirs) / np.sum(theirs**2))
        # Of one network, exactly: K = Σ G^l (w² Φ^(l−1) + b²), with the inputs' own kernel as Φ⁰ and G = 1 at the readout.
        phi = (np.asarray(x @ x.T) / 3, *layers["phi"])
        shares = [g * (1.4**2 * k + 0.3**2) for g, k in zip((*layers["g"], 1.0), phi, strict=True)]
        np.testing.assert_allclose(ntk, sum(shares), rtol=1e-4)
    for name, values in sizes.items():
        # A kernel's size varies by some 2/√N = 6 % a network, 2 % for the mean of 8; the bias is O(1/N), 0.1 %.
        sem = np.std(values, ddof=1) / members**0.5
        assert 0 < sem < 0.03, name
        assert abs(np.mean(values) - 1) < 4 * sem + 0.005, name


def test_distances_from_a_limit():
    limit = np.array([[3.0, 4.0], [6.0, 8.0]])  # [time, point]
    away = np.array([0.0, 5.0])
    values = np.stack([limit + away, limit - away, limit + 3 * away])
    found = distances(values, limit, 0.1 * np.ones((2, 2)), spread=[1.0, 1.0])
    np.testing.assert_allclose(found["each"], [[1, 0.5], [1, 0.5], [3, 1.5]])
    np.testing.assert_allclose(found["mean"], [5 / 3, 5 / 6])
    np.testing.assert_allclose(found["sem"], np.std([1, 1, 3], ddof=1) / 3**0.5 * np.array([1, 0.5]))
    np.testing.assert_allclose(found["of_mean"], [1, 0.5])
    np.testing.assert_allclose(found["noise"], np.std([5, -5, 15], ddof=1) / 3**0.5 / np.array([5, 10]))
    np.testing.assert_allclose(found["limit_sem"], 0.1 * 2**0.5 / np.array([5, 10]))
    np.testing.assert_allclose(found["spread"], [0.2, 0.1])
    assert np.isnan(distances(values, 0 * limit, 0 * limit)["mean"]).all()
    assert np.isnan(distances(values[:1], limit, 0 * limit)["sem"]).all()


def test_analyses_multiply_in_full_on_every_device():
    # Elsewhere than on a CPU JAX rounds the factors of float32 products: kernels were off by 1e-3 on a GPU.
    seen = []

    def net(p: Any, x: Any) -> Any:
        seen.append(jax.config.jax_default_matmul_precision)  # pyright: ignore[reportAttributeAccessIssue]
        return tanh_net(p, x)

    tangent_kernel(net, PARAMS, DATA[0])
    sharpness(net, PARAMS, DATA)
    linearisation_distance(net, PARAMS, PARAMS, DATA[0])
    assert set(seen) == {"highest"}


def test_alignment_of_features_that_are_almost_the_same():
    """1 + e V Vᵀ is centred before it is squared: its alignment is that of V Vᵀ to 1e-8 where e is 1e-8."""
    labels = np.eye(2)[np.arange(64) % 2]
    features = np.random.default_rng(0).normal(size=(64, 10)) + 2 * labels[:, :1]
    near = np.c_[np.ones((64, 1)), 1e-4 * features]
    found, expected = (label_alignment(z @ z.T, labels)["cka"] for z in (near, features))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
