"""What holds for every architecture: the abc family, roles and learning rates, intermediates and precision."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from definitions import definitions
from flax.traverse_util import flatten_dict, unflatten_dict
from test_layers import HURRY, hurried, init, some_variables

from zoo import CNN, MLP, HeResNet, Parameterization, ResNet, ViT, learning_rate_factors, roles

X = np.sin(1.7 * np.arange(2 * 4 * 4 * 2).reshape(2, 4, 4, 2) ** 1.1)
Y = np.array([[1.0, -0.5], [0.3, 2.0]])
N, GAMMA, W, B, STEPS = 8, 1.5, 1.3, 0.4, 5
COMMON: dict[str, Any] = {"outputs": 2, "activation": "erf", "w_std": W, "b_std": B, "gamma": GAMMA}
HE: dict[str, Any] = {"norm": "layer", "stem": "small", "order": "pre", "windows": (2,), "parameterization": "ntk"}
NETS: dict[str, Any] = {
    "cnn": CNN(N, 2, **COMMON, pool_after=(1,), padding="CIRCULAR", kernel=2),
    "resnet": ResNet(N, 2, **COMMON, form="conv", branch_layers=2, stages=2, kernel=2),
    "he_resnet": HeResNet(N, (1, 1), **COMMON, **HE),
    "vit": ViT(N, 1, **COMMON, pool="class", query_init="zeros", heads=2, patch=2, mlp_ratio=2),
}
assert {MLP} | {type(net) for net in NETS.values()} == set(definitions())  # that of MLP is in test_abc_family.py
UNSEEN = "key.bias"  # adds the same to every logit of a query


@functools.cache
def training(name):
    """The steps of gradient descent as a function of exponents and factors, which are traced: one compilation."""

    def run(p, factors):
        net, x = NETS[name].clone(parameterization=p), jnp.asarray(X)

        def step(params, _):
            f, pullback = jax.vjp(lambda params: net.apply({"params": params}, x), params)
            slopes = pullback((f - Y) / len(X))[0]
            return jax.tree.map(lambda w, factor, slope: w - 0.1 * factor * slope, params, factors, slopes), f

        return jax.lax.scan(step, init(net, x)["params"], None, length=STEPS + 1)[1]

    return jax.jit(run, compiler_options=HURRY)


def factors_by_name(net, p):
    return flatten_dict(learning_rate_factors(net.clone(parameterization=p), X), sep=".")


def f_while_training(name, p, factors):
    with jax.enable_x64(True):
        return np.asarray(training(name)(p.replace(), unflatten_dict(jax.tree.map(float, factors), sep=".")))


@pytest.mark.parametrize("a", [pytest.param(0.25, marks=pytest.mark.slow), 0.0])
@pytest.mark.parametrize("name", NETS)
def test_members_of_the_family_are_one_function_at_every_step(name, a):
    members = [Parameterization.family(each, d=0.5) for each in (0.5, a)]
    expected, *found = (f_while_training(name, p, factors_by_name(NETS[name], p)) for p in members)
    assert np.abs(expected[-1] - expected[0]).max() > 0.05  # it has moved
    np.testing.assert_allclose(found, [expected], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", NETS)
def test_every_parameter_learns_and_a_power_of_the_width_left_out_of_its_factor_is_seen(name):
    p = Parameterization.family(a=0.25, d=0.5)
    factors = factors_by_name(NETS[name], p)
    expected = f_while_training(name, p, factors)[-1]
    for key in factors:
        moved = np.abs(f_while_training(name, p, factors | {key: GAMMA**2})[-1] - expected).max()
        assert moved < 1e-12 if UNSEEN in key else moved > 1e-8, key


def role(module, leaf):
    if leaf in ("embedding", "bias", "scale"):
        return "norm" if "norm" in module else leaf
    first = {"conv_1": "input", "read_in": "input", "stem": "input", "embedding": "input", "readout": "readout"}
    return first.get(module, "branch" if in_branch(module) else "hidden")


def in_branch(module):  # blocks, but neither shortcuts nor what doubles the channels
    return re.match(r"(stage_\d_)?block_\d_(?!shortcut)", module) is not None


@pytest.mark.parametrize("name", NETS)
def test_every_parameter_has_the_role_of_its_place(name):
    found = flatten_dict(roles(NETS[name], X))
    assert found == {path: role(*path) for path in flatten_dict(some_variables(NETS[name], X)["params"])}


@pytest.mark.parametrize(("alpha", "power"), [(0.0, 0), (0.5, 0), (0.75, 0.5), (1.0, 1)])
@pytest.mark.parametrize("name", NETS)
def test_everything_in_a_branch_learns_faster_with_depth_where_alpha_is_above_one_half(name, alpha, power):
    net = NETS[name].clone(depth=2) if name == "vit" else NETS[name]
    assert net.depth == 2
    factors = factors_by_name(net, Parameterization.family(a=0.25, d=0.5, alpha=alpha))
    expected = {key: GAMMA**2 * N**0.5 * (2**power if in_branch(key) else 1) for key in factors}
    assert factors == pytest.approx(expected, rel=1e-12)


def test_learning_rates_of_traced_exponents_are_the_same():
    net, p = NETS["resnet"], Parameterization.family(a=0.25, d=0.5, alpha=1.0)
    traced = hurried(lambda p: learning_rate_factors(net.clone(parameterization=p), X), p)
    assert flatten_dict(traced, sep=".") == pytest.approx(factors_by_name(net, p), rel=1e-12)


@functools.cache
def some_network(name):
    """Parameters, directions to move its fields in, and a function of moves: (Σ sin f, (f, intermediates)), slopes."""
    net, params, random = NETS[name], some_variables(NETS[name], X)["params"], np.random.default_rng(2)

    def total(fields, params, x):
        f, inside = net.apply({"params": params, "perturbations": fields}, x, intermediates=True)
        return jnp.sin(f).sum(), (f, inside)

    shapes = jax.eval_shape(total, {}, params, jax.ShapeDtypeStruct(X.shape, "float32"))[1][1]["h"]
    ways = {f"h{l}": random.normal(size=h.shape) for l, h in enumerate(shapes, start=1)}
    measure = jax.jit(jax.value_and_grad(total, has_aux=True), compiler_options=HURRY)
    return params, ways, lambda moves: measure(moves, params, jnp.asarray(X))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", NETS)
def test_features_and_fields_are_what_they_say(name):
    params, ways, measure = some_network(name)
    (_, (f, inside)), slopes = measure(jax.tree.map(np.zeros_like, ways))
    readout = W * inside["features"].shape[1] ** -0.5 * np.asarray(inside["features"]) @ params["readout"]["kernel"]
    np.testing.assert_allclose(f, (readout + B * params["readout"]["bias"]) / GAMMA, atol=1e-12)
    for key, way in ways.items():
        up, down = ({other: s * (key == other) * ways[other] for other in ways} for s in (1e-5, -1e-5))
        numeric = float(measure(up)[0][0] - measure(down)[0][0]) / 2e-5
        # Off by the step squared times a third derivative, and by rounding over the step, 1e-10.
        assert np.sum(slopes[key] * way) == pytest.approx(numeric, abs=1e-7)
        assert abs(numeric) > 1e-3


@pytest.mark.parametrize("name", NETS)
def test_bfloat16_is_the_type_of_the_computation_only(name):
    net, x = NETS[name].clone(dtype="bfloat16"), jnp.asarray(X, "float32")
    shapes: Any = jax.eval_shape(net.init, jax.random.key(0), x)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    params, ways, measure = some_network(name)
    with jax.enable_x64(True):
        exact = np.asarray(measure(jax.tree.map(np.zeros_like, ways))[0][1][0])
    run = jax.jit(functools.partial(net.apply, intermediates=True), compiler_options=HURRY)
    f, inside = run({"params": jax.tree.map(jnp.float32, params)}, x)
    assert (f.dtype, inside["h"][-1].dtype) == (jnp.float32, jnp.bfloat16)
    # 8 bits: a relative error of up to 2^-9 in each of some 20 roundings between x and f, which here add up at worst.
    assert 1e-6 < np.abs(f - exact).max() / np.abs(exact).max() < 20 * 2**-9
