"""Covariances between positions: windows, what twins of images share, and their interfaces."""

import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_resnet_kernels import QUICK, ensemble

from limits import AbsentError, kernel_twin, twin
from limits import kernels as algebra
from limits.kernels import blocks
from zoo import CNN, MLP, Parameterization, ResNet, ViT
from zoo.geometry import out_size, pads

random = np.random.default_rng(4)
X = random.normal(size=(3, 4, 4, 2))
Z = random.normal(size=(2, 4, 4, 2))


def covariances(shape):
    """Of two inputs and one other: [2, 1, …] between them, and of each with itself, from random features."""
    one, two = random.normal(size=(2, *shape, 30)), random.normal(size=(1, *shape, 30))
    return [algebra.images(jnp.asarray(one), jnp.asarray(two), pairs, pairs) for pairs in (True, False)]


def slid(k, shape, size, stride, padding):
    """mean over offsets of K_(a+o)(a'+o), by loops over positions a and a' of one pair of inputs."""
    grid = list(itertools.product(*(range(out_size(n, size, stride, padding)) for n in shape)))
    low = [pads(n, size, stride, padding)[0] for n in shape]

    def entry(a, b):
        total = 0.0
        for o in itertools.product(range(size), repeat=len(shape)):
            u, v = ([stride * i + j - start for i, j, start in zip(at, o, low, strict=True)] for at in (a, b))
            if padding == "CIRCULAR":
                u, v = ([i % n for i, n in zip(at, shape, strict=True)] for at in (u, v))
            inside = all(0 <= i < n for at in (u, v) for i, n in zip(at, shape, strict=True))
            total += k[(*u, *v)] if inside else 0.0
        return total / size ** len(shape)

    new = [out_size(n, size, stride, padding) for n in shape]
    return np.array([[entry(a, b) for b in grid] for a in grid]).reshape(*new, *new)


@functools.cache
def convolved(size, stride, padding):
    return jax.jit(lambda state: algebra.convolve(state, size, stride, padding), compiler_options=QUICK)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("padding", ["SAME", "VALID", "CIRCULAR"])
@pytest.mark.parametrize(
    ("shape", "size", "stride"),
    [
        ((5,), 4, 2),
        ((4, 5), 3, 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (((5,), 3, 1), ((4, 5), 3, 1), ((4, 5), 2, 1), ((4, 5), 4, 3))
        ),
    ],
    ids=str,
)
def test_windows_average_over_shared_offsets(shape, padding, size, stride):
    before = covariances(shape)
    full, diagonal = (convolved(size, stride, padding)(part) for part in before)
    for name in ("k", "k1", "k2"):
        after = np.asarray(getattr(full, name))
        expected = slid(np.asarray(getattr(before[0], name))[-1, 0], shape, size, stride, padding)
        np.testing.assert_allclose(after[-1, 0], expected, rtol=1e-12, atol=1e-14)
        equal = np.diagonal(after.reshape(*after.shape[:2], np.prod(expected.shape[: len(shape)]), -1), 0, 2, 3)
        found = np.asarray(getattr(diagonal, name)).reshape(equal.shape)
        np.testing.assert_allclose(found, equal, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("shape", "size", "total"), [((5, 6), 2, True), ((7,), 3, False)], ids=str)
def test_pooling_averages_over_pairs_of_windows(shape, size, total):
    whole, own = covariances(shape)
    before, after = np.asarray(whole.k), np.asarray(algebra.pool(whole, size, total).k)
    for at in itertools.product(*(range(n // size) for n in shape * 2)):
        window = tuple(slice(size * i, size * i + size) for i in at)
        values = before[(slice(None), slice(None), *window)].reshape(2, 1, -1)
        expected = values.sum(-1) if total else values.mean(-1)
        np.testing.assert_allclose(after[(slice(None), slice(None), *at)], expected, rtol=1e-12)
    assert after.shape == (2, 1, *(n // size for n in shape * 2))
    with pytest.raises(ValueError, match="pool needs the covariances of all pairs of positions"):
        algebra.pool(own, 2, False)


@pytest.mark.usefixtures("x64")
def test_means_over_positions():
    whole, own = covariances((2, 3))
    matrix = np.asarray(whole.k).reshape(2, 1, 6, 6)
    expected = np.trace(matrix, axis1=2, axis2=3) / 6
    np.testing.assert_allclose(algebra.over_positions(whole.k, True, True), expected, rtol=1e-12)
    np.testing.assert_allclose(algebra.over_positions(own.k, False, True), expected, rtol=1e-12)
    np.testing.assert_allclose(algebra.over_positions(whole.k, True, False), matrix.mean((2, 3)), rtol=1e-12)


FLAT = np.broadcast_to(random.normal(size=(3, 1, 1, 2)), (3, 4, 4, 2))  # every pixel alike
SAME_AS_DENSE = {
    "cnn": (CNN(8, 2, 1, "erf", 1.3, 0.3, padding="CIRCULAR"), MLP(8, 2, 1, "erf", 1.3, 0.3)),
    "pooled": (CNN(8, 2, w_std=1.3, b_std=0.3, padding="VALID", kernel=2, pool_after=(2,)), MLP(8, 2, w_std=1.3, b_std=0.3)),
    "resnet": (
        ResNet(8, 3, form="conv", padding="CIRCULAR", readout="average", branch_layers=2, b_std=0.3),
        ResNet(8, 3, branch_layers=2, b_std=0.3),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["pooled", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cnn", "resnet"))]
)
def test_images_of_one_colour_are_vectors(name):
    conv, dense = (twin(net) for net in SAME_AS_DENSE[name])
    found, expected = conv.kernels(FLAT), dense.kernels(FLAT[:, 0, 0])
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-12)


@pytest.mark.slow
def test_layers_add_up_to_the_tangent_kernel():
    # With equal pixels Σ_a G^l_aa own_aa is the number of pixels times the mean that is returned.
    net, colour = SAME_AS_DENSE["cnn"][0], FLAT[:, 0, 0] @ FLAT[:, 0, 0].T / 2
    phi, g = twin(net).layers(FLAT)
    own = [1.3**2 * part + 0.3**2 for part in (colour, *phi)]
    total = own[-1] + 16 * sum(a * b for a, b in zip(g, own[:-1], strict=True))
    np.testing.assert_allclose(total, twin(net).kernels(FLAT).ntk, rtol=1e-12)


FINITE = {
    "cnn": CNN(96, 2, 4, "erf", 1.4, 0.3, "mup", 1.5, pool_after=(1,), kernel=2, padding="CIRCULAR"),
    "resnet": ResNet(96, 2, 4, "erf", 1.4, 0.3, "mup", 1.5, form="conv", stages=2, readout="average"),
    "vit": ViT(96, 1, 4, "erf", 1.2, 0.3, patch=2, heads=1, mlp_ratio=1, query_init="zeros"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FINITE)
def test_features_and_gradients_of_every_layer_against_finite_networks(name):
    net, x = FINITE[name], X[:2]
    seen, limit = ensemble(net, x, 200, ("layers",)), twin(net)
    # Off by O(1/N), as much as 2 % for a gradient kernel.
    for which, expected in zip(("phi", "g"), limit.layers(x), strict=True):
        assert len(expected) == len(seen[which])
        for (mean, sem), one in zip(seen[which], expected, strict=True):
            assert np.all(np.abs(mean - one) < 4 * sem + 0.02 * np.abs(one).max()), which
    mean, sem = seen["ntk"]
    ntk = limit.kernels(x).ntk
    assert np.all(np.abs(mean - ntk) < 4 * sem + 0.02 * ntk.max())


SMALL = {
    "cnn": CNN(8, 2, w_std=1.3, kernel=2, padding="CIRCULAR", readout="average"),
    "flat": CNN(8, 1, activation="erf", b_std=0.2),
    "vit": ViT(8, 1, activation="relu", patch=2, heads=2),
}
each = pytest.mark.parametrize("net", SMALL.values(), ids=SMALL)
one = pytest.mark.parametrize(
    "net",
    [net if name == "cnn" else pytest.param(net, marks=pytest.mark.slow) for name, net in SMALL.items()],
    ids=SMALL,
)


@functools.cache
def kernels(net):
    return twin(net).kernels(X)


def assert_same(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found.nngp, expected.nngp, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=rtol, atol=rtol)


@one
@pytest.mark.slow
def test_blocks_diagonals_other_sets_and_settings(net):
    limit, whole = twin(net), kernels(net)
    assert_same(limit.kernels(X, block=2), whole)
    other = limit.kernels(X[:2], np.concatenate([Z, X[:1]]), block=3)
    np.testing.assert_allclose(other.ntk[:, 2], whole.ntk[:2, 0], rtol=1e-12)
    np.testing.assert_allclose(limit.kernels(X, diagonal=True).ntk, np.diag(whole.ntk), rtol=1e-12)
    single = limit.kernels(X, dtype=np.float32)
    assert single.ntk.dtype == single.nngp.dtype == np.float32
    assert_same(single, whole, 3e-5)
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    assert jnp.ones(1).dtype == jnp.float32


@each
def test_parameterizations_share_a_tangent_kernel(net):
    mup = twin(net.clone(parameterization="mup", gamma=2.0))
    assert_same(mup.kernels(X), kernels(net))
    assert not mup.initial(X).covariance.any()
    scaled = twin(net.clone(gamma=2.0))
    np.testing.assert_allclose(scaled.kernels(X).nngp, kernels(net).nngp / 4, rtol=1e-12)
    np.testing.assert_allclose(scaled.initial(X).covariance, kernels(net).nngp / 4, rtol=1e-12)
    np.testing.assert_allclose(scaled.kernels(X).ntk, kernels(net).ntk, rtol=1e-12)
    w, b = net.w_std**2, net.b_std**2
    np.testing.assert_allclose(scaled.readout((kernels(net).nngp - b) / w), kernels(net).nngp / 4, rtol=1e-12)
    standard = twin(net.clone(parameterization=Parameterization.standard.replace(alpha=0.5))).kernels(X)
    np.testing.assert_allclose(standard.nngp, kernels(net).nngp, rtol=1e-12)
    with pytest.raises(AbsentError, match=r"ntk: the tangent kernel of the custom parameterization grows as N\^1"):
        _ = standard.ntk


def test_zero_pixels_without_bias():
    x = X.copy()
    x[0, :2], x[1] = 0, 0
    found = twin(SMALL["cnn"]).kernels(x)
    assert np.isfinite(found.ntk).all()
    assert not found.ntk[1].any()
    assert found.ntk[0, 0] > 0


def test_an_interrupted_computation_goes_on(tmp_path, monkeypatch):
    limit, whole, calls = twin(SMALL["flat"]), kernels(SMALL["flat"]), []
    monkeypatch.setattr(blocks.psutil, "cpu_count", lambda: 1)
    compiled = kernel_twin._compiled

    def failing(*args):
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("the power is out")
        return compiled(*args)

    monkeypatch.setattr(kernel_twin, "_compiled", failing)
    with pytest.raises(RuntimeError, match="the power is out"):
        limit.kernels(X, block=1, folder=tmp_path)
    assert len((tmp_path / "blocks.log").read_text().splitlines()) == 1 + 3
    calls.clear()
    monkeypatch.setattr(kernel_twin, "_compiled", lambda *args: (calls.append(1), compiled(*args))[1])
    found = limit.kernels(X, block=1, folder=tmp_path)
    assert len(calls) == 3  # of six blocks on and above the diagonal
    assert_same(found, whole)
    assert isinstance(found.ntk, np.memmap)
    assert_same(limit.kernels(X, block=1, folder=tmp_path), whole)
    assert len(calls) == 3
    for net, x, block in ((SMALL["flat"].clone(b_std=0.3), X, 1), (SMALL["flat"], X + 1, 1), (SMALL["flat"], X, 2)):
        with pytest.raises(ValueError, match="holds blocks of other kernels or inputs: give another folder"):
            twin(net).kernels(x, block=block, folder=tmp_path)
    assert json.loads((tmp_path / "blocks.json").read_text())["shape"] == [3, 3]


@pytest.mark.parametrize(
    ("net", "x1", "x2", "message"),
    [
        (SMALL["cnn"], np.where(X > 2, np.nan, X), None, r"x1 holds \d+ values that are NaN or infinite"),
        (SMALL["cnn"], X, Z[..., :1], r"x1 has samples of shape \(4, 4, 2\) and x2 of shape \(4, 4, 1\)"),
        (SMALL["cnn"], X[..., 0], None, r"CNN needs images \[n, height, width, channels\].*\(3, 4, 4\)"),
        (SAME_AS_DENSE["resnet"][0], X[..., 0], None, r"ResNet needs images .*\(3, 4, 4\)"),
        (SMALL["vit"], X[..., 0], None, r"ViT needs images .*\(3, 4, 4\)"),
        (SMALL["vit"], X[:, :3], None, "images of 3 × 4 do not divide into patches of 2 × 2"),
        (CNN(8, 1, kernel=5, padding="VALID"), X, None, "layer 1 has windows of 5 positions .* only 4 × 4"),
        (ResNet(8, 5, form="conv", stages=4), X, None, "the pooling before stage 4 has windows of 2"),
    ],
)
def test_bad_images_are_named(net, x1, x2, message):
    with pytest.raises(ValueError, match=message):
        twin(net).kernels(x1, x2)
