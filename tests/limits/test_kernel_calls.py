import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from oracle import average

from limits import kernels as algebra
from limits import twin
from limits.inputs import as_block
from zoo import MLP, PiecewiseLinear, ResNet, in_parameterization

NETS = {
    "relu": MLP(8, 3, activation="relu", w_std=1.4, b_std=0.3),
    "erf": MLP(8, 2, activation="erf", w_std=1.4),
    "tanh": MLP(8, 2, activation="tanh", w_std=1.4, b_std=0.3),
}
X = np.sin(1.7 * np.arange(7)[:, None] * np.arange(1, 6) + 0.4) + 0.1
X[0] = 0
each = pytest.mark.parametrize("limit", [twin(net) for net in NETS.values()], ids=NETS)
closed = pytest.mark.parametrize("limit", [twin(NETS["relu"]), twin(NETS["erf"])], ids=["relu", "erf"])


def assert_same(left, right, rtol=1e-12):
    np.testing.assert_allclose(left.nngp, right.nngp, rtol=rtol, atol=1e-14)
    np.testing.assert_allclose(left.ntk, right.ntk, rtol=rtol, atol=1e-14)


@each
def test_a_set_with_itself_is_two_equal_sets(limit):
    mine, two = limit.kernels(X), limit.kernels(X, X)
    assert_same(mine, two)
    assert np.array_equal(mine.ntk, mine.ntk.T)


@closed
def test_swapping_the_sets_transposes(limit):
    one, other = limit.kernels(X[:4], X[4:]), limit.kernels(X[4:], X[:4])
    np.testing.assert_allclose(one.ntk, other.ntk.T, rtol=1e-12)


@each
def test_the_diagonal_alone_is_the_diagonal(limit):
    diagonal, full = limit.kernels(X, diagonal=True), limit.kernels(X)
    assert diagonal.ntk.shape == diagonal.nngp.shape == (7,)
    np.testing.assert_allclose(diagonal.nngp, np.diag(full.nngp), rtol=1e-12)
    np.testing.assert_allclose(diagonal.ntk, np.diag(full.ntk), rtol=1e-12)


def test_the_diagonal_of_two_sets_is_refused():
    with pytest.raises(ValueError, match="the diagonal is that of x1 with itself; leave x2 out"):
        twin(NETS["relu"]).kernels(X, X, diagonal=True)


@pytest.mark.parametrize("block", [1, 3, 7, 100])
@pytest.mark.parametrize("other", [None, X[:2] + 1], ids=["xx", "xz"])
def test_blocks_of_any_size_give_the_same(block, other):
    limit = twin(NETS["relu"])
    assert_same(limit.kernels(X, other, block=block), limit.kernels(X, other), rtol=1e-13)


@pytest.mark.parametrize(("n1", "n2"), [(1, 1), (5, 2), (2, 5), (400, 400), (401, 3), (805, 805)])
def test_blocks_cover_ragged_sizes(n1, n2):
    rows, columns = np.arange(n1 * 2.0).reshape(n1, 2), np.arange(n2 * 2.0).reshape(n2, 2)
    product, total = algebra.pairwise(lambda a, b: (a @ b.T, a.sum(1)[:, None] + b.sum(1)[None, :]), rows, columns)
    assert np.array_equal(product, rows @ columns.T)
    assert np.array_equal(total, rows.sum(1)[:, None] + columns.sum(1)[None, :])
    (symmetric,) = algebra.pairwise(lambda a, b: [a @ b.T], rows, count=1)
    assert np.array_equal(symmetric, rows @ rows.T)


def test_a_symmetric_kernel_computes_no_block_twice():
    calls = []
    algebra.pairwise(lambda a, b: (calls.append(1), [a @ b.T])[1], np.eye(10), count=1, block=2)
    assert len(calls) == 15  # 5 on the diagonal, 10 above it, of 25


def test_kernels_that_do_not_fit_are_refused(monkeypatch):
    import collections

    import psutil

    memory = collections.namedtuple("memory", "available")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(available=100))
    with pytest.raises(MemoryError, match=r"2 kernels of 7 × 7 need .* GiB are free: ask for fewer inputs at a time"):
        twin(NETS["relu"]).kernels(X)


@each
def test_callers_jax_settings_are_left_alone(limit):
    kernels = limit.kernels(X)
    assert (type(kernels.ntk), kernels.ntk.dtype, kernels.nngp.dtype) == (np.ndarray, np.float64, np.float64)
    assert not jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    assert jnp.ones(2).dtype == (jnp.asarray(X) @ jnp.ones(5)).dtype == jnp.float32


@closed
def test_results_do_not_depend_on_the_callers_float_type(limit):
    outside = limit.kernels(X)
    with jax.enable_x64(True):
        assert_same(outside, limit.kernels(X), rtol=1e-15)
        assert jnp.ones(2).dtype == jnp.float64
    single = limit.kernels(X, dtype=np.float32)
    assert single.ntk.dtype == np.float32
    # Some ten operations a layer, each off by 6e-8.
    np.testing.assert_allclose(single.ntk, outside.ntk, rtol=2e-5, atol=2e-5)


@each
def test_identical_rows_of_two_sets_are_recognised(limit):
    # At c = 1 E φ'φ' has a square-root singularity for relu: a correlation off by 1e-16 would show as 1e-8.
    full, twice = limit.kernels(X, diagonal=True), limit.kernels(X, np.concatenate([X, X[::-1]]))
    np.testing.assert_allclose(np.diag(twice.ntk), full.ntk, rtol=1e-13)
    np.testing.assert_allclose(np.diag(twice.ntk[:, :6:-1]), full.ntk, rtol=1e-13)


@each
def test_zero_inputs(limit):
    kernels, b = limit.kernels(X), limit.net.b_std  # the first of X is zero
    assert np.isfinite(kernels.ntk).all()
    zeros = limit.kernels(np.concatenate([X[:1], X[:1], X[2:]]))
    assert zeros.ntk[0, 1] == zeros.ntk[0, 0] == kernels.ntk[0, 0]
    if b == 0:  # an odd function of nothing
        assert not np.any(kernels.nngp[0])
        assert not np.any(kernels.ntk[0])
    else:  # only the biases speak
        assert b**2 < kernels.nngp[0, 0] < kernels.ntk[0, 0]


@closed
def test_images_are_flattened(limit):
    assert_same(limit.kernels(X.reshape(7, 5, 1, 1)), limit.kernels(X))


@pytest.mark.parametrize(
    ("x1", "x2", "message"),
    [
        (np.where(X > 0.8, np.nan, X), None, r"x1 holds \d+ values that are NaN or infinite \(of 35\)"),
        (X, np.array([[1.0, np.inf, 0, 0, 0]]), "x2 holds 1 values that are NaN or infinite"),
        (X, X[:, :3], r"x1 has samples of shape \(5,\) and x2 of shape \(3,\)"),
        (X[0], None, r"x1 must hold samples along its first axis.*its shape is \(5,\)"),
        (X[:0], None, r"x1 must hold samples .* n ≥ 1; its shape is \(0, 5\)"),
    ],
)
def test_bad_inputs_are_named(x1, x2, message):
    with pytest.raises(ValueError, match=message):
        twin(NETS["relu"]).kernels(x1, x2)


@pytest.mark.slow
def test_series_are_long_enough_for_both_sets():
    # Collinear inputs, the second far larger: orders that suffice for the first alone leave 1e-6 out.
    limit = twin(MLP(8, 1, activation="tanh"))
    small, large = np.array([[0.3, 0.4]]), np.array([[60.0, 80.0]])
    one, other = limit.kernels(small, large), limit.kernels(large, small)
    np.testing.assert_allclose(one.ntk, other.ntk.T, rtol=1e-12)
    assert one.provenance == other.provenance


def own_leaky(x):
    return jnp.maximum(x, 0.3 * x)


def test_a_homogeneous_callable_has_the_kernels_of_its_two_slopes():
    limit, w = twin(MLP(8, 1, activation=own_leaky, w_std=1.2)), 1.2**2
    kernels, first = limit.kernels(X[1:4]), w * X[1:4] @ X[1:4].T / 5
    r = np.sqrt(np.diag(first))
    for i, j in [(0, 0), (0, 1), (1, 2)]:
        f, slope = lambda x: np.maximum(x, 0.3 * x), lambda x: np.where(x > 0, 1, 0.3)
        two = [average(g, r[i], r[j], first[i, j] / r[i] / r[j]) for g in (f, slope)]
        np.testing.assert_allclose(kernels.ntk[i, j], w * (two[0] + first[i, j] * two[1]), rtol=1e-7)
    assert kernels.provenance["ntk"].kind == "exact"


@pytest.mark.slow
def test_a_homogeneous_callable_at_infinite_depth():
    def make(phi):
        return twin(ResNet(4, 4, activation=phi, residual="uniform"), math.inf)

    assert_same(make(own_leaky).kernels(X[1:3]), make(PiecewiseLinear(0.3, 1.0)).kernels(X[1:3]))


def test_a_tangent_kernel_alone_out_of_range_is_an_error():
    # NNGP 1e307, and the tangent kernel 201 times that.
    x = np.full((1, 2), 1e307**0.5 / 2**0.5)
    with pytest.raises(FloatingPointError, match=r"^1 of 1 entries of the NTK are infinite or NaN: at depth 200"):
        twin(MLP(4, 200, w_std=2**0.5)).kernels(x)


def test_gelu_of_growing_signals():
    # Row 0 in 320 digits.
    kernels = twin(MLP(4, 70, activation="gelu", w_std=2.0)).kernels([[1, 2, -0.5], [0.3, -1, 2]])
    np.testing.assert_allclose(kernels.ntk[0], [5.747432244639937e23, 1.5446198791027512e23], rtol=1e-12)


def test_erf_of_fading_signals():
    kernels = twin(MLP(4, 40, activation="erf", w_std=0.5)).kernels([[1, 2, -0.5], [0.3, -1, 2]])
    np.testing.assert_allclose(kernels.ntk[0], [1.0608570436274536e-19, -5.320102253132922e-20], rtol=1e-12)


@pytest.mark.parametrize("block", [-1, 0, True])
def test_a_block_is_a_number_of_rows(block):
    with pytest.raises(ValueError, match="block counts rows: a whole number from 1"):
        twin(NETS["relu"]).kernels(X, block=block)
    with pytest.raises(ValueError, match=r"got 2\.0"):
        as_block(2.0)


@pytest.mark.parametrize("dtype", ["float64", float, np.dtype(np.float64), jnp.float64])
def test_number_types_in_any_spelling(dtype):
    limit = twin(NETS["relu"])
    assert np.array_equal(limit.kernels(X, dtype=dtype).ntk, limit.kernels(X).ntk)


@pytest.mark.parametrize("dtype", [int, "float16", complex, "nonsense"])
def test_other_number_types_are_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be float32 or float64; got"):
        twin(NETS["relu"]).kernels(X, dtype=dtype)


def test_complex_inputs_are_refused():
    with pytest.raises(ValueError, match="x1 must hold real numbers; its entries are complex128"):
        twin(NETS["relu"]).kernels(X * 1j)


class Scaled:
    """A callable that hides its number."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return jnp.tanh(self.scale * x)

    def __repr__(self):
        return "Scaled"


@pytest.mark.slow
def test_a_folder_knows_activations_by_their_values(tmp_path):
    first = twin(MLP(8, 1, activation=Scaled(1.0))).kernels(X, folder=tmp_path)
    with pytest.raises(ValueError, match="holds blocks of other kernels"):
        twin(MLP(8, 1, activation=Scaled(1.5))).kernels(X, folder=tmp_path)
    again = twin(MLP(8, 1, activation=Scaled(1.0))).kernels(X, folder=tmp_path)  # another object, of another address
    assert np.array_equal(first.ntk, again.ntk)


@pytest.mark.parametrize(
    ("phi", "message"),
    [
        (np.tanh, "tanh must be written in jax.numpy"),
        (math.tanh, "tanh must be written in jax.numpy"),
        (lambda x: 1.0 if x > 0 else 0.0, "must be written in jax.numpy"),
        (lambda x: x > 0, "must return real floating-point numbers; it returns bool"),
        (lambda x: x + 1j, "must return real floating-point numbers; it returns complex128"),
        (lambda x: 3.0, r"must act on each number by itself: of \d+ numbers it made shape \(\)"),
        (jnp.sum, r"must act on each number by itself: of \d+ numbers it made shape \(\)"),
        (jax.nn.softmax, r"must act on each number by itself: its value at x = 0.7 depends"),
        (jnp.log, r"log is nan at x = -0.001: .* finite on the whole real line"),
        (lambda x: 1 / x, r"is inf at x = 0"),
    ],
)
def test_activations_that_do_not_fit_are_refused_in_a_sentence(phi, message):
    with pytest.raises(ValueError, match=message):
        twin(MLP(8, 1, activation=phi)).kernels(X)


@pytest.mark.slow
def test_few_numbers_of_inputs_are_compiled_for(compilations):
    x = np.sin(np.arange(16 * 5).reshape(16, 5))
    limit = twin(MLP(8, 2, activation=lambda h: np.tanh(1.0) * h / (1 + h * h)))  # one that no other test has compiled
    whole = limit.kernels(x)
    limit.kernels(x, diagonal=True)
    limit.kernels(x[:3], x)
    compilations()
    for n in (9, 10, 11, 12, 13):
        part, diagonal = limit.kernels(x[:n]), limit.kernels(x[:n], diagonal=True)
        for name in ("nngp", "ntk"):
            full = getattr(whole, name)[:n, :n]
            np.testing.assert_allclose(getattr(part, name), full, rtol=1e-13)
            np.testing.assert_allclose(getattr(diagonal, name), np.diagonal(full), rtol=1e-13)
        assert limit.kernels(x[:3], x[:n]).ntk.shape == (3, n)
    assert not {"jit(_through)", "jit(_each)"} & set(compilations())


def test_layers_of_few_numbers_of_inputs_are_those_of_each_pair():
    x = np.sin(np.arange(11 * 5).reshape(11, 5))
    whole, part = (twin(MLP(8, 2)).layers(points) for points in (x, x[:9]))
    for a, b in zip([*whole[0], *whole[1]], [*part[0], *part[1]], strict=True):
        np.testing.assert_allclose(b, a[:9, :9], rtol=1e-13)


def test_layers_of_deeper_networks_take_no_compilation(compilations):
    x = np.random.default_rng(0).normal(size=(3, 5))
    shallow, deep = (twin(MLP(8, depth, activation="tanh", w_std=1.3, b_std=0.2)) for depth in (2, 9))
    shallow.layers(x)
    compilations()
    features, _ = deep.layers(x)
    assert len(features) == 9
    assert compilations() == []


class OddThenEven(nn.Module):
    width: int = 8

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(self.width, use_bias=False)(x)
        for _ in range(3):
            h = h + 0.7 * nn.Dense(self.width, use_bias=False)(lax.erf(h))
        return nn.Dense(1, use_bias=False)(abs(h))


OPPOSITE = {
    "skips": in_parameterization(OddThenEven(), "ntk"),
    "abs": MLP(8, 2, activation="abs", w_std=1.3),
    "erf": MLP(8, 2, activation=("erf", "abs"), w_std=1.3),
    "pieces": MLP(8, 2, activation=(lambda x: jnp.clip(x, -1, 1), "abs"), w_std=1.3),
    "even pieces": MLP(8, 2, activation=(lambda x: jnp.minimum(abs(x), 1), "abs"), w_std=1.3),
    "series": MLP(8, 2, activation=(jnp.tanh, "abs"), w_std=1.3),
    "even series": MLP(8, 2, activation=(jnp.cos, "abs"), w_std=1.3),
}


@pytest.mark.parametrize("net", OPPOSITE.values(), ids=OPPOSITE)
def test_even_networks_have_the_same_kernels_at_opposite_inputs(net):
    """1 − c has no digits near 2; a difference of one of them is one of its root in the angle, 2e-8 or 4e-4."""
    x = np.random.default_rng(0).normal(size=(30, 11))
    limit = twin(net)
    known, found = limit.kernels(x, diagonal=True), limit.kernels(x, -x)
    np.testing.assert_allclose(np.diag(found.ntk), known.ntk, rtol=2e-14)
    np.testing.assert_allclose(np.diag(found.nngp), known.nngp, rtol=2e-14)
    a = jnp.asarray(x, jnp.float32)
    np.testing.assert_allclose(np.diag(limit.kernel_function()(a, -a).ntk), known.ntk, rtol=1e-5)


def clipped(x):
    return jnp.clip(x, -1, 1)


def shrunk(x):
    return jnp.maximum(x - 1, 0)


@pytest.mark.parametrize(
    ("phi", "size", "expected"), [(clipped, 300, -1), (clipped, 400, -1), (shrunk, 0.15, 0), (shrunk, 0.2, 0)]
)
def test_what_cancels_at_opposite_inputs_is_not_taken_for_its_opposite(phi, size, expected):
    """In float32 all digits but one or two of E φ(u)φ(−u) = ∓E φ(u)² are lost: 6 % are left off, not 200."""
    x = np.ones((1, 7), np.float32) * np.float32(size)
    kernel = twin(MLP(8, 1, activation=phi, w_std=1.0, b_std=0.0)).kernel_function()
    found, scale = kernel(x, -x).nngp, kernel(x).nngp
    assert abs(found / scale - expected) < 0.06
