from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from zoo import MLP, Parameterization, learning_rate_factors, parameterization, roles

X = np.sin(1.7 * np.arange(4)[:, None] * np.arange(1, 7) + 0.4)
FORMS = ["standard", "ntk", "mup", Parameterization.family(a=0.0, d=0.5)]


def shapes_of(net, x=X) -> Any:
    return jax.eval_shape(net.init, jax.random.key(0), jnp.asarray(x))["params"]


def some_params(net, x=X) -> Any:
    """Normal numbers, whatever the definition would start from."""
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape), leaf.dtype), shapes_of(net, x))


def output(net, variables, x: Any = X, **options) -> Any:
    return net.apply(variables, jnp.asarray(x), **options)


@pytest.mark.parametrize(
    ("width", "depth", "outputs", "b_std", "expected"),
    [
        (1, 1, 1, 0.0, 6 + 1),
        (10, 1, 1, 0.0, 60 + 10),
        (10, 1, 1, 0.1, 70 + 11),
        (10, 3, 2, 0.0, 60 + 200 + 20),
        (10, 3, 2, 0.1, 70 + 220 + 22),
        (512, 3, 10, 0.1, 3584 + 2 * 262656 + 5130),
    ],
)
def test_exact_number_of_parameters(width, depth, outputs, b_std, expected):
    net = MLP(width, depth, outputs, b_std=b_std)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(net))) == expected


def test_parameter_names_shapes_and_roles():
    net = MLP(width=10, depth=2, outputs=3, b_std=0.1)
    shapes: Any = flax.traverse_util.flatten_dict(shapes_of(net), sep=".")
    flat = {name: leaf.shape for name, leaf in shapes.items()}
    assert flat == {
        "hidden_1.kernel": (6, 10),
        "hidden_1.bias": (10,),
        "hidden_2.kernel": (10, 10),
        "hidden_2.bias": (10,),
        "readout.kernel": (10, 3),
        "readout.bias": (3,),
    }
    found = flax.traverse_util.flatten_dict(roles(net, X), sep=".")
    named = {"hidden_1.kernel": "input", "hidden_2.kernel": "hidden", "readout.kernel": "readout"}
    assert found == dict.fromkeys(flat, "bias") | named


@pytest.mark.parametrize(("form", "factor"), [("standard", 9.0), ("ntk", 9.0), ("mup", 90.0), (FORMS[3], 9.0)])
def test_learning_rate_factors_are_one_number_a_parameter(form, factor):
    # a = 0: c = 1 takes back the power of N that d = 1/2 brings.
    net = MLP(width=10, depth=2, b_std=0.1, parameterization=form, gamma=3.0)
    factors = learning_rate_factors(net, jax.ShapeDtypeStruct((1, 6), "float32"))
    assert jax.tree.structure(factors) == jax.tree.structure(shapes_of(net))
    assert jax.tree.leaves(factors) == pytest.approx([factor] * 6, rel=1e-14)


def test_no_bias_without_b_std_and_none_at_the_start_with_zeros():
    def start(**biases) -> Any:
        net: Any = MLP(4, 1, **biases)
        return jax.jit(net.init)(jax.random.key(0), jnp.asarray(X))["params"]["hidden_1"]

    assert "bias" not in start(b_std=0.0)
    assert not np.any(start(b_std=0.5, bias_init="zeros")["bias"])
    assert np.all(start(b_std=0.5)["bias"] != 0)


def test_bias_that_starts_at_zero_is_trained_with_its_multiplier():
    net = MLP(4, 1, b_std=0.5, bias_init="zeros", activation="linear")
    slope = jax.jit(jax.grad(lambda p: output(net, {"params": p}, X[:1]).sum()))(some_params(net))
    assert slope["readout"]["bias"].tolist() == [0.5]


def test_images_are_flattened():
    net = MLP(8, 1, outputs=2)
    images = jnp.asarray(X).reshape(4, 3, 2, 1)
    params = {"params": some_params(net)}
    np.testing.assert_array_equal(output(net, params, images), output(net, params))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_forward_pass_is_the_formula_of_the_docstring(form):
    w, b, gamma = 1.3, 0.4, 2.0
    net = MLP(16, 2, 3, activation="erf", w_std=w, b_std=b, parameterization=form, gamma=gamma)
    p = parameterization(form)
    with jax.enable_x64(True):
        params = some_params(net)
        f, inside = output(net, {"params": params}, intermediates=True)
    a, hs, phis = X, [], []
    for layer, name in enumerate(("hidden_1", "hidden_2", "readout")):
        weight, bias = (np.asarray(params[name][part]) for part in ("kernel", "bias"))
        if form != "standard":  # the multipliers, spelled out; `standard` has none at all
            weight = weight * w * (X.shape[1] ** -0.5 * 16.0**-p.a_in if layer == 0 else 16.0**-p.a)
            bias = bias * b * 16.0**-p.a_in
        hs.append(a @ weight + bias)
        a = scipy.special.erf(hs[-1])
        phis.append(a)
    np.testing.assert_allclose(f, hs[2] / (gamma * 16.0**p.d), rtol=1e-12)
    assert len(inside["h"]) == len(inside["phi"]) == 2
    for h, phi, h_ref, phi_ref in zip(inside["h"], inside["phi"], hs, phis, strict=False):
        np.testing.assert_allclose(h, h_ref, rtol=1e-12)
        np.testing.assert_allclose(phi, phi_ref, rtol=1e-12)


@pytest.mark.parametrize(
    "form", [form if form in ("ntk", "mup") else pytest.param(form, marks=pytest.mark.slow) for form in FORMS], ids=str
)
def test_initial_variances(form):
    n, w, b, c = 2048, 1.5, 0.5, 64
    net = MLP(n, 2, c, activation="relu", w_std=w, b_std=b, parameterization=form)
    params: Any = jax.jit(net.init)(jax.random.key(1), jnp.asarray(X))["params"]
    f, inside = output(net, {"params": params}, intermediates=True)
    p = parameterization(form)
    first, second = (np.asarray(h, np.float64) for h in inside["h"])
    expected = [
        w**2 * np.mean(X**2, axis=1) + b**2,
        w**2 * np.mean(np.maximum(first, 0) ** 2, axis=1) + b**2,
        w**2 * np.mean(np.maximum(second, 0) ** 2, axis=1) + b**2,
    ]
    found = [np.mean(h**2, axis=1) for h in (first, second, np.asarray(f, np.float64) * n**p.d)]
    # Given the layer below, neurons are independent Gaussians: a variance over m of them has relative standard error
    # sqrt(2/m), 3.1 % for a hidden layer and 18 % for 64 outputs; four of those are allowed.
    for mine, theirs, m in zip(found, expected, (n, n, c), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=4 * np.sqrt(2 / m))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("layer", [1, 2])
def test_gradient_with_respect_to_a_field_is_a_finite_difference(layer):
    net = MLP(5, 2, activation="erf", b_std=0.3, parameterization="mup")
    params, x = some_params(net), jnp.asarray(X)

    def f(shift):
        return output(net, {"params": params, "perturbations": {f"h{layer}": shift.reshape(4, 5)}}, x).sum()

    step, many = 1e-5, jax.jit(jax.vmap(f))
    slope = jax.jit(jax.grad(f))(jnp.zeros(20))
    numeric = (many(step * jnp.eye(20)) - many(-step * jnp.eye(20))) / (2 * step)
    # Central differences at step s are off by s² f'''/6 < 1e-10 and by rounding / s ≈ 1e-11.
    np.testing.assert_allclose(slope, numeric, atol=1e-9)
    assert np.abs(slope).min() > 1e-6
