import contextlib
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import Conv, Dense, Norm, Parameterization
from zoo.geometry import PADDINGS, out_size, pads

P = Parameterization.family(a=0.25, d=0.5)  # a_in = -1/4, b = b_in = 1/2
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 5, 6, 3))


def convolve(x, w, stride=1, padding="SAME"):
    """y_a = Σ_offset W_offset x_(stride a + offset), one window and one offset at a time, for any number of axes."""
    sizes, window, valid = x.shape[1:-1], w.shape[:-2], padding == "VALID"
    axes = list(zip(sizes, window, strict=True))
    counts = [(n - k) // stride + 1 if valid else -(-n // stride) for n, k in axes]
    missing = [0 if valid else max((c - 1) * stride + k - n, 0) for c, (n, k) in zip(counts, axes, strict=True)]
    y = np.zeros((len(x), *counts, w.shape[-1]))
    for at in np.ndindex(*counts):
        for offset in np.ndindex(*window):
            where = np.array(at) * stride + offset - np.array(missing) // 2
            if padding == "CIRCULAR":
                where %= sizes
            if np.all(where >= 0) and np.all(where < sizes):
                y[(slice(None), *at)] += x[(slice(None), *where)] @ w[offset]
    return y


HURRY = {"xla_backend_optimization_level": 0}  # what runs on small arrays is mostly compilation


def hurried(function, *args) -> Any:
    """function(*args) in float64."""
    compiled = function if hasattr(function, "lower") else jax.jit(function, compiler_options=HURRY)
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, compiled(*jax.tree.map(jnp.asarray, args)))


@functools.cache
def compiled_apply(net, **options):
    return jax.jit(functools.partial(net.apply, **options), compiler_options=HURRY)


def apply(net, variables, x, **options) -> Any:
    return hurried(compiled_apply(net, **options), variables, x)


@contextlib.contextmanager
def normal_numbers(draw):
    """draw(shape) for jax's normal numbers, which take long to trace and to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", lambda key, shape, dtype: jnp.asarray(draw(shape), dtype))
        yield


def init(net, x) -> Any:
    random = np.random.default_rng(3)
    with normal_numbers(lambda shape: random.normal(size=shape)):
        return net.init(jax.random.key(0), x)


def start(net, x) -> Any:
    return hurried(functools.partial(init, net), x)


def some_variables(net, x) -> Any:
    """Normal numbers, whatever the definition would start from (their squares for running averages)."""
    random = np.random.default_rng(1)
    with normal_numbers(jnp.zeros):
        shapes = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct(x.shape, "float32"))
    numbers = jax.tree.map(lambda leaf: random.normal(size=leaf.shape), shapes)
    return numbers | {"batch_stats": jax.tree.map(np.square, numbers.get("batch_stats", {}))}


WINDOWS = [(2, 2, 1), (2, 3, 1), (2, 3, 2), (2, 4, 2), (2, 2, 3), (1, 3, 2)]  # (dimensions, size, stride)
CASES = [*itertools.product(WINDOWS, PADDINGS), ((1, 9, 1), "CIRCULAR"), ((3, 3, 1), "SAME"), ((2, 1, 2), "SAME")]


@pytest.mark.parametrize(("window", "padding"), CASES, ids=str)
def test_convolution_is_the_loop_over_windows(window, padding, monkeypatch):
    dimensions, size, stride = window
    x = RANDOM.normal(size=(2, *(5, 6, 3)[:dimensions], 3))
    options = {"size": size, "strides": stride, "padding": padding, "dimensions": dimensions}
    layer: Any = Conv(2, "input", 1, Parameterization.standard, **options)
    variables = some_variables(layer, x)

    def both(variables, x):  # as lax's convolution, and as a product with patches
        ways = (monkeypatch.setattr("zoo.layers._LARGEST_PATCHES", largest) for largest in (0, 10**9))
        return [layer.apply(variables, x) for _ in ways]

    expected = convolve(x, variables["params"]["kernel"], stride, padding)
    np.testing.assert_allclose(hurried(both, variables, x), [expected] * 2, atol=1e-12)
    assert expected.shape[1:-1] == tuple(out_size(n, size, stride, padding) for n in x.shape[1:-1])


@pytest.mark.parametrize(("role", "power"), [("input", 0.3), ("hidden", 0.4), ("branch", 0.4), ("readout", 0.4)])
def test_multipliers_of_weights_and_biases_have_fan_in_and_width(role, power):
    # N^(-a_in), or (1 / N)^(-1/2) N^(-a) where the fan-in grows with N.
    p = Parameterization(a=0.1, b=0.0, c=0.0, d=0.0, a_in=-0.3, b_in=0.0)
    layer = Conv(2, role, 16, p, 1.5, 0.3)
    expected = {"kernel": 1.5 * 27**-0.5 * 16**power, "bias": 0.3 * 16**0.3}
    assert layer.multipliers(3) == pytest.approx(expected, rel=1e-14)
    params = some_variables(layer, X)["params"]
    y = expected["kernel"] * convolve(X, params["kernel"]) + expected["bias"] * params["bias"]
    np.testing.assert_allclose(apply(layer, {"params": params}, X), y, atol=1e-12)


def test_dense_acts_on_the_last_axis_and_starts_from_the_scales_of_its_role():
    layer = Dense(4000, "hidden", 16, P, w_std=1.5, b_std=0.3)
    variables = hurried(layer.init, jax.random.key(0), X)
    w, b = variables["params"]["kernel"], variables["params"]["bias"]
    # 12 000 and 4000 normal numbers have standard deviations to within 0.65 % and 1.1 %; 4 of those are allowed.
    assert np.std(w) == pytest.approx(16**-0.25, rel=0.026)
    assert np.std(b) == pytest.approx(16**-0.25, rel=0.045)
    expected = 1.5 * 3**-0.5 * 16**0.25 * np.einsum("nxyc,cd->nxyd", X, w) + 0.3 * 16**0.25 * b
    np.testing.assert_allclose(apply(layer, variables, X), expected, atol=1e-12)


def test_what_starts_at_zero_and_what_has_a_bias():
    dense = functools.partial(Dense, 4, "branch", 4, P)
    kinds = [{}, {"b_std": 0.5, "use_bias": False}, {"b_std": 0.5}, {"use_bias": True}]
    assert ["bias" in some_variables(dense(**kind), X)["params"] for kind in kinds] == [False, False, True, True]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(start(dense(b_std=0.5, zero_init=True), X)))
    assert not np.any(start(dense(b_std=0.5, bias_init="zeros"), X)["params"]["bias"])


def test_same_padding_is_that_of_lax():
    for size, window, stride in itertools.product((1, 5, 8), (1, 2, 3, 7), (1, 2, 3)):
        assert [pads(size, window, stride, "SAME")] == jax.lax.padtype_to_pads([size], [window], [stride], "SAME")


@pytest.mark.parametrize(
    ("layer", "kernel", "message"),
    [
        (Dense(3, "input", 3, P), (4, 3), "was initialised for 4 input features and now gets 5: use inputs"),
        (Conv(3, "input", 3, P), (3, 3, 5, 3), r"inputs \[n, 2 axes of positions, channels\], got \(2, 5\)"),
        (Norm("group", 3, P), (), 'Norm: kind must be "layer", "rms", "spatial" or "batch", got "group"'),
    ],
)
def test_errors_of_layers_say_the_numbers(layer, kernel, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(layer.apply, {"params": {"kernel": jnp.ones(kernel)}}, jnp.ones((2, 5)))


@pytest.mark.parametrize("kind", ["int32", "uint8", "bool"])
def test_whole_numbers_are_normalised_as_numbers(kind):
    x = jnp.asarray([[0, 1, 3], [200, 7, 0]]).astype(kind)
    norm = Norm("layer", 3, P)
    found, known = (norm.init_with_output(jax.random.key(0), each)[0] for each in (x, x.astype(float)))
    assert found.dtype == known.dtype
    np.testing.assert_array_equal(found, known)
