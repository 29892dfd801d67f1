"""Infinitely deep kernels: the notes' numbers, independent equations, networks of growing depth; the stated error; tables."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from limits import AbsentError, Task, twin
from limits import kernels as algebra
from limits.depth.layer_time import ChebyshevKernel, in_layer_time, layer_time, solver_error
from limits.types import Provenance
from zoo import CNN, MLP, HeResNet, Parameterization, ResNet, ViT

ANGLES = np.array([0, np.pi / 4, np.pi / 2])
# Theory notes, 4.7: relu, |x|²/D = 1, angles 0, π/4, π/2.
TABLE = {
    "branch": (0.412180, 0.225576, 0.071637),
    "readout": (0.824361, 0.636875, 0.323289),
    "input": (0.824361, 0.392196, 0.0),
}


def plane(angles):
    return np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def deep(net, trained=None):
    return dataclasses.replace(twin(net, depth=math.inf), trained=trained)


def is_extrapolated(net, x, depths=(64, 128, 256)):
    """Its kernels are those of finite depths, extrapolated; each a recursion that knows nothing of layer time."""
    found = twin(net, depth=math.inf).kernels(x)
    a, b, c = (twin(net.clone(depth=depth)).kernels(x) for depth in depths)
    for quantity in ("nngp", "ntk"):
        expected = (8 * getattr(c, quantity) - 6 * getattr(b, quantity) + getattr(a, quantity)) / 3
        np.testing.assert_allclose(getattr(found, quantity), expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("role", TABLE)
def test_relu_has_the_numbers_of_the_notes(role):
    kernels = deep(ResNet(8, 3), (role,)).kernels(plane(ANGLES))
    np.testing.assert_allclose(kernels.ntk[0], TABLE[role], atol=1e-6)
    assert "error" in kernels.provenance["ntk"].detail


def test_relu_against_scipy_on_the_equation_of_the_angle():
    """dcosθ/dτ = (sin θ − θ cos θ) / 2π and dG/dτ = −G (π − θ) / 2π backwards, with scipy's solver and quadrature."""
    start, x = 1.1, plane([0, 1.1, 2.0])

    def velocity(tau, y):
        theta, back, _ = y  # back = ∫ <φ'φ'>; ∫ G Φ = G(0) ∫ Φ exp(−back), the third
        slope = (np.pi - theta) / (2 * np.pi)
        phi = np.exp(tau / 2) / (2 * np.pi) * (np.sin(theta) + (np.pi - theta) * np.cos(theta))
        return [-(np.sin(theta) - theta * np.cos(theta)) / (2 * np.pi * np.sin(theta)), slope, phi * np.exp(-back)]

    run = scipy.integrate.solve_ivp(velocity, (0, 1), [start, 0, 0], rtol=1e-11, atol=1e-12)
    theta, back, body = run.y[:, -1]
    last = (np.pi - theta) / (2 * np.pi)
    g0 = last * np.exp(back)
    features = np.exp(0.5) / (2 * np.pi) * (np.sin(theta) + (np.pi - theta) * np.cos(theta))
    expected = g0 * body + features + g0 * np.cos(start)
    assert deep(ResNet(8, 3)).kernels(x).ntk[0, 1] == pytest.approx(expected, abs=1e-9)


DENSE = {
    "updates alone": {"activation": "erf", "b_std": 0.4, "parameterization": Parameterization.mup.replace(alpha=1.0)},
    "base depth": {
        "activation": "relu",
        "gamma": 2.0,
        "parameterization": Parameterization.ntk.replace(base_depth=2.0),
    },
}
SLOW = {
    "two layers, biases": (
        {"activation": "erf", "branch_layers": 2, "b_std": 0.4, "w_std": 1.2, "beta": 0.8},
        (),
    ),
    "start at zero": (
        {"activation": "relu", "branch_layers": 2, "zero_init": True, "b_std": 0.3, "bias_init": "zeros"},
        (),
    ),
    "tanh": ({"activation": "tanh"}, ()),
    "convolutions": ({"activation": "erf", "form": "conv", "b_std": 0.3}, (4, 4, 2)),
    "stages": ({"activation": "relu", "form": "conv", "stages": 2, "readout": "average"}, (4, 4, 2)),
}


@pytest.mark.parametrize("name", ["updates alone", pytest.param("base depth", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_finite_depths_extrapolate_to_it(name):
    is_extrapolated(ResNet(8, 3, **DENSE[name]), np.random.default_rng(0).normal(size=(3, 4)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_finite_depths_extrapolate_to_it_slow(name):
    options, shape = SLOW[name]
    net, x = ResNet(8, 4, **options), np.random.default_rng(0).normal(size=(2, *(shape or (4,))))
    is_extrapolated(net, x, (33, 65, 129) if net.stages > 1 else (32, 64, 128))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"pool": "class", "tied": True, "b_std": 0.2}, {"norm": None, "heads": "grow"}]
)
def test_vision_transformers(options):
    is_extrapolated(ViT(16, 4, patch=2, **options), np.random.default_rng(0).normal(size=(2, 4, 4, 3)))


@pytest.mark.slow  # half a minute of compilation: gradients of the solver
def test_layers_of_linear_networks_are_exponentials():
    """H = e^τ Φ⁰ and G = e^(1−τ), recorded at nine layer times."""
    x = np.random.default_rng(0).normal(size=(3, 4))
    limit, gram = deep(ResNet(8, 3, activation="linear")), x @ x.T / 4
    phi, g = limit.layers(x)
    tau = np.linspace(0, 1, 9)
    np.testing.assert_allclose(phi, np.exp(tau)[:, None, None] * gram, rtol=1e-10)
    np.testing.assert_allclose(g, np.exp(1 - tau)[:, None, None] * np.ones((3, 3)), rtol=1e-10)


@pytest.mark.slow
def test_the_kernel_of_linear_networks_is_3e():
    """Body, readout and read-in each add e Φ⁰."""
    x = np.random.default_rng(0).normal(size=(3, 4))
    limit = deep(ResNet(8, 3, activation="linear"))
    np.testing.assert_allclose(limit.kernels(x).ntk, 3 * math.e * x @ x.T / 4, rtol=1e-10)


@pytest.mark.slow
def test_nearly_equal_inputs_keep_their_digits():
    """At a small angle relu leaves 1 − c as it is, to order θ³: there is no rounding of c."""
    limit = deep(ResNet(8, 3))
    x = plane(np.array([0, 1e-6]))
    with jax.enable_x64(True):
        static, arguments = limit._static(0), limit._arguments(np.float64)
        layers, times, numbers = arguments
        walk = limit._walker(layers, algebra.dual(static[1], 0), False, times, numbers)
        points = jnp.asarray(x)
        start = walk.dense(limit._start(points, points), "input")
        state = walk.repeat(
            lambda h, s: walk.add(h, walk.dense(walk.activate(h), "branch"), s), start, jnp.asarray(times)
        )
    assert float(state.gap[0, 1]) == pytest.approx(5e-13, rel=1e-3)
    assert float(state.gap[0, 0]) == 0


@pytest.mark.slow
def test_lazy_training_uses_it():
    x = np.random.default_rng(0).normal(size=(3, 4))
    task = Task(x[:2], [1.0, -1.0], x[2:], [0.5])
    limit = deep(ResNet(8, 3, activation="linear", parameterization="mup"))
    run = limit.lazy(task, steps=1, learning_rate=0.1, kernels=("ntk",))
    expected = 0.1 * limit.kernels(x).ntk[:, :2] @ np.array([1.0, -1.0]) / 2
    np.testing.assert_allclose(np.concatenate([run.f_train, run.f_test], 1)[1, :, 0], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (MLP(8, 3), "without residual branches"),
        (CNN(8, 3), "without residual branches"),
        (HeResNet(8), "only GPT, ResNet and ViT"),
        (ResNet(8, 3, residual="fixed"), "fixed size"),
        (ResNet(8, 3, residual="decreasing"), "∞"),
        (
            ResNet(8, 3, residual="decreasing", parameterization=Parameterization.ntk.replace(alpha=1.0)),
            "learning rate",
        ),
        (ResNet(8, 3, parameterization="standard"), "alpha"),
        (ViT(16, 3, parameterization=Parameterization.ntk.replace(alpha=0.4)), "0.4"),
    ],
)
def test_what_has_no_limit_says_why(net, why):
    with pytest.raises(AbsentError, match=why):
        twin(net, depth=math.inf)


def test_layer_time():
    assert layer_time(ResNet(8, 3, beta=2.0, parameterization=Parameterization.ntk.replace(base_depth=3.0))) == 12


def test_the_depth_of_the_definition_plays_no_part():
    x = plane(ANGLES)
    np.testing.assert_array_equal(deep(ResNet(8, 2)).kernels(x).ntk, deep(ResNet(8, 50)).kernels(x).ntk)


def test_overflow_is_said():
    with pytest.raises(FloatingPointError, match="depth inf"):
        deep(ResNet(8, 3, beta=100.0)).kernels(plane(ANGLES))


def solve(a, b, tolerance):
    """A kernel that is off by as much as it is allowed to."""
    gram = a @ b.T / a.shape[1]
    return [np.cos(gram) + tolerance, 2 * np.sin(gram) + 2]


X = np.random.default_rng(0).normal(size=(160, 5))


def test_the_error_is_measured():
    largest = solve(X[:8], X[:8], 0)[0].max()
    assert solver_error(solve, X[:8], 1e-4, 8) == pytest.approx(0.99e-4 / largest, rel=1e-2)


def test_many_pairs_of_a_series_are_interpolated():
    pair, how = in_layer_time(solve, X, None, 400, 1e-9, Provenance("exact", "quadrature"), series=True)
    assert isinstance(pair, ChebyshevKernel)
    assert "tabulated" in how.detail
    for found, expected in zip(pair(X, X), solve(X, X, 1e-9), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_closed_forms_are_not():
    pair, how = in_layer_time(solve, X, None, 400, 1e-9, Provenance("exact", "closed form"), series=False)
    np.testing.assert_array_equal(pair(X, X)[0], solve(X, X, 1e-9)[0])
    assert how.kind == "approximate"


def test_inputs_of_one_size_need_no_polynomial_in_it():
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) * np.sqrt(5)
    table = ChebyshevKernel.of(lambda a, b: solve(a, b, 0), unit, None)
    assert table.error < 1e-9
