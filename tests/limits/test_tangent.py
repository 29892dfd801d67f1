"""The tangent kernel against the products of Jacobians that define it, in float64."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from networks import DEEP, F64, IMAGES, MODELS, VECTORS, Bag, numbers, variables

from limits import empirical_ntk, linearize, twin
from limits.finite import dense_calls, tangent
from limits.finite.observables import feature_kernels
from zoo import MLP, Conv, Parameterization, in_parameterization, learning_rate_factors

pytestmark = pytest.mark.usefixtures("x64")


def quickly(function):
    """Compiled without LLVM's slower passes: small programs that run once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def by_definition(apply, params, x1, x2, rates=None) -> Any:
    """Σ rate ∂f_k(x1) ∂f_l(x2), [n1, n2, k, l]."""

    def jacobians(x):
        leaves = jax.tree.leaves(jax.jacrev(lambda p: apply(p, x))(params))
        return [leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves]

    left = jacobians(x1)
    right = left if x2 is x1 else jacobians(x2)
    weights = [1.0] * len(left) if rates is None else jax.tree.leaves(rates)
    parts = [w * jnp.einsum("ikp,jlp->ijkl", a, b) for w, a, b in zip(weights, left, right, strict=True)]
    return sum(parts[1:], parts[0])


def assert_equal(found, full):
    """`found` against all pairs of outputs, or their mean over the diagonal."""
    expected = full if found.ndim == 4 else np.trace(full, axis1=2, axis2=3) / full.shape[-1]
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max(), rtol=0)


# Of models that differ in nothing that is looked for, one by default; where samples are as many as tokens, all is told apart.
ALIKE = ("mlp", "mlp of images", "tokens", "tokens first", "as many embedded tokens as samples")


@pytest.mark.parametrize(
    ("net", "x"),
    [pytest.param(*each, id=name, marks=pytest.mark.slow if name in ALIKE else ()) for name, each in MODELS.items()],
)
def test_kernels_are_products_of_jacobians(net, x):
    params, x, other = variables(net, x), jnp.asarray(x), jnp.asarray(x[:2] + 0.3)

    @quickly
    def both(params, x, other):
        full = by_definition(net.apply, params, x, jnp.concatenate([x, other]))
        mine = empirical_ntk(net.apply, params, x), empirical_ntk(net.apply, params, x, other, outputs="full")
        return mine, (full[:, : len(x)], full[:, len(x) :])

    for found, expected in zip(*both(params, x, other), strict=True):
        assert_equal(found, expected)


@pytest.mark.parametrize("positions", [2, 40])
def test_the_cheaper_of_two_contractions_is_right(positions):
    draw = np.random.default_rng(2)
    a1, a2 = (draw.normal(size=(n, positions, 4)) for n in (2, 1))
    g1, g2 = (draw.normal(size=(3, n, positions, 5)) for n in (2, 1))
    full = np.einsum("ipd,kipm,jqd,ljqm->ijkl", a1, g1, a2, g2, optimize=True)
    parts = [jnp.asarray(part) for part in (a1, g1, a2, g2)]
    for found in quickly(
        lambda parts: [tangent.contract(parts[0], parts[1], parts[2], parts[3], o) for o in ("mean", "full")]
    )(parts):
        assert_equal(found, full)


def test_rates_weigh_the_parameters():
    params, x = variables(DEEP, VECTORS), jnp.asarray(VECTORS)
    own = {"params": learning_rate_factors(DEEP, x)}
    other = jax.tree.map(lambda rate: abs(float(rate.sum())), numbers(params, 3))

    @quickly
    def pairs(p):
        return [(empirical_ntk(DEEP.apply, p, x, rates=r), by_definition(DEEP.apply, p, x, x, r)) for r in (own, other)]

    for found, expected in pairs(params):
        assert_equal(found, expected)


@pytest.mark.parametrize("inner", [jax.vmap, jax.jit, jax.checkpoint], ids=["vmap", "jit", "checkpoint"])
def test_a_function_that_closes_over_its_parameters(inner):
    net, x = Bag(), jnp.asarray(IMAGES[:3])  # as many positions as samples

    def apply(p, x):
        return inner(lambda part: net.apply(p, part))(x)

    pair = quickly(lambda p: (empirical_ntk(apply, p, x), by_definition(net.apply, p, x, x)))
    assert_equal(*pair(variables(net, x)))


def test_jit_and_vmap_inside_and_outside():
    net, x = MODELS["mlp of images"]
    members, x = [variables(net, x, seed) for seed in (1, 2)], jnp.asarray(x)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)

    @quickly
    @jax.vmap
    def ways(p):
        jitted, inside = jax.jit(net.apply), lambda q, x: jax.jit(net.apply)(q, x)
        kernels = [empirical_ntk(apply, p, x) for apply in (net.apply, jitted, inside)]
        return jnp.stack(kernels), by_definition(net.apply, p, x, x)

    kernels, full = ways(stacked)
    for member in (0, 1):
        for found in kernels[member]:
            assert_equal(found, full[member])
    assert_equal(empirical_ntk(net.apply, members[0], x), full[0])


def test_any_pure_function_will_do_a_few_samples_at_a_time(monkeypatch):
    def apply(p, x):
        return jnp.sin(x @ p["w"]) * p["s"]

    monkeypatch.setattr(tangent, "_JACOBIAN_ENTRIES", 50)  # two samples at a time: 12 parameters, 2 outputs
    params, x = {"w": jnp.arange(8.0).reshape(4, 2), "s": jnp.ones((1, 2))}, jnp.asarray(VECTORS)
    blocks, trace = [], tangent.trace
    monkeypatch.setattr(tangent, "trace", lambda j, *rest: (blocks.append(j.shape[1]), trace(j, *rest))[1])
    found = quickly(lambda p: (empirical_ntk(apply, p, x), empirical_ntk(apply, p, x, x[:3])))(params)
    full = quickly(lambda p: by_definition(apply, p, x, x))(params)
    assert set(blocks) == {2, 1}
    assert_equal(found[0], full)
    assert_equal(found[1], full[:, :3])


@pytest.mark.parametrize(("name", "expected"), [("mlp", 3), ("flax", 2), ("used twice", 4), ("tokens", 3), ("tied", 0)])
def test_dense_layers_are_found(name, expected):
    # Not found, a layer is still right, by Jacobians: this is what makes the kernel fast.
    net, x = MODELS[name]
    assert len(dense_calls.find(net.apply, variables(net, x), jnp.asarray(x))) == expected


def test_linearisation_has_the_value_and_the_slope():
    params, shift, x = variables(DEEP, VECTORS), variables(DEEP, VECTORS, 2), jnp.asarray(VECTORS)
    f, linear = quickly(DEEP.apply), quickly(linearize(DEEP.apply, params))

    def moved(step):
        return jax.tree.map(lambda p, s: p + step * s, params, shift)

    value = np.asarray(f(params, x))
    np.testing.assert_allclose(linear(params, x), value, rtol=1e-13)
    # A straight line, whose slope is the network's by central differences: off by s² f'''/6 and rounding / s, 1e-9.
    slope = linear(moved(1.0), x) - value
    np.testing.assert_allclose(linear(moved(-3.0), x) - value, -3 * slope, rtol=1e-10, atol=1e-12)
    numeric = (np.asarray(f(moved(1e-5), x)) - np.asarray(f(moved(-1e-5), x))) / 2e-5
    np.testing.assert_allclose(numeric, slope, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x2": np.ones((2, 3))}, r"x1 has samples of shape \(4,\) and x2 of shape \(3,\)"),
        ({"rates": {"params": {}}}, "rates has 0 leaves and params has 6: they must be trees alike"),
    ],
)
def test_messages(options, message):
    with pytest.raises(ValueError, match=message):
        empirical_ntk(DEEP.apply, variables(DEEP, VECTORS), VECTORS, **options)


def test_a_function_without_an_axis_of_outputs_is_refused():
    with pytest.raises(ValueError, match=r"\[n, outputs\]"):
        empirical_ntk(lambda w, x: x @ w, jnp.ones(4), VECTORS)


def test_several_inputs_or_outputs_are_said():
    x, w = jnp.ones((2, 3)), jnp.ones((3, 1))
    with pytest.raises(ValueError, match="x1 is a tuple of 2; inputs must be one array"):
        empirical_ntk(lambda w, x: x @ w, w, (x, x))
    for net in (MLP(8, 1), in_parameterization(nn.Dense, "ntk", width=8)):
        for given in ((x, x), (x, x[:, :2]), {"a": x, "b": x}):
            with pytest.raises(ValueError, match=r"is a (tuple|dict) of .*; inputs must be one array"):
                twin(net).kernels(given)
    with pytest.raises(ValueError, match=r"apply must return one array .* a tuple of 2: choose one"):
        empirical_ntk(lambda w, x: (x @ w, x), w, x)


class WholeNumbers(nn.Module):
    """Layers that are fed whole numbers, and True and False made inside."""

    @nn.compact
    def __call__(self, x):
        h = Conv(3, "input", 3, Parameterization.ntk, b_std=0.3, size=2, dimensions=1)(x[..., None])
        hot = nn.Dense(3, use_bias=False, **F64)(jnp.stack([x > i for i in (0, 50, 150)], axis=-1))
        return nn.Dense(2, **F64)(jnp.tanh((h + hot) / 100).mean(1)) + nn.Dense(2, **F64)(x)


@pytest.mark.parametrize("kind", ["uint8", "bool", pytest.param("int32", marks=pytest.mark.slow)])
def test_whole_numbers_are_multiplied_as_numbers(kind):
    x, net = jnp.asarray([[200, 100, 3], [10, 250, 90]]).astype(kind), WholeNumbers()
    params = quickly(net.init)(jax.random.key(0), x)
    full = quickly(lambda params: by_definition(net.apply, params, x, x))(params)
    assert_equal(quickly(lambda params: empirical_ntk(net.apply, params, x))(params), full)
    assert_equal(quickly(lambda params: empirical_ntk(net.apply, params, x, outputs="full"))(params), full)


def test_feature_kernels_of_whole_numbers():
    hot = jnp.array([[1, 0, 1], [1, 1, 1]])
    for kind in ("bool", "uint8"):
        found = feature_kernels([(200 * hot).astype(kind)])[0]
        np.testing.assert_allclose(found, (1 if kind == "bool" else 4e4) * np.array([[2, 2], [2, 3]]) / 3)
