"""Programs that differ in numbers only are compiled once; where a number decides what is done, they are told apart."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf
from stock import GAUSS, Dense, readout

from limits import kernels as algebra
from limits import twin
from limits.kernels import alike
from limits.kernels.alike import Alike, shared
from limits.kernels.compiled import of_own_numbers
from limits.program import closed, in_numpy
from zoo import MLP, ResNet, in_parameterization

X = np.random.default_rng(0).normal(size=(3, 5))


class Numbers(nn.Module):
    """A loop of blocks whose sizes fall, a leaky slope, a gain in a Gaussian, one constant for every input feature."""

    width: int
    numbers: tuple[float, ...]

    @nn.compact
    def __call__(self, x):
        slope, size, power, shift, spread = self.numbers
        draw = nn.initializers.normal(spread)
        h = nn.Dense(self.width, bias_init=draw, kernel_init=GAUSS)(x * jnp.linspace(shift, 2, 5)[None])
        for l in range(3):
            h = h + size * (l + 1.0) ** -power * Dense(self.width)(nn.leaky_relu(h, slope))
        return readout(erf(size * Dense(self.width)(h)) + shift * self.param("gain", draw, (self.width,))[None] * h)


FIRST = (0.2, 0.5, 0.5, 0.3, 0.4)


def read(numbers, x=X, kind: Any = Numbers):
    net = in_parameterization(lambda width: kind(width, numbers), "ntk", width=32)
    found, how, _ = closed.closed_kernels(net, x, None)
    assert how.kind == "exact"
    return np.stack([found["nngp"], found["ntk"]])


def compiled_apart(numbers, monkeypatch):
    """The same kernels by a compilation of their own, with all numbers in it."""
    with monkeypatch.context() as patch:
        patch.setattr(closed, "_compiled_pair", algebra.compiled(closed._whole, static_argnums=0))
        return read(numbers)


@pytest.mark.slow
def test_other_numbers_compile_nothing_and_are_those_of_a_compilation_of_their_own(compilations, monkeypatch):
    first, other, third = read(FIRST), (0.3, 0.4, 0.6, 0.2, 0.35), (0.05, 0.45, 0.25, -0.4, 0.3)
    compilations()
    for numbers in (other, third):
        assert np.abs(read(numbers) / first - 1).min() > 1e-3
    assert read(third, np.tile(X, (2, 1))[:4]).shape == (2, 4, 4)  # the same bucket of inputs
    assert compilations() == []
    np.testing.assert_allclose(read(third), compiled_apart(third, monkeypatch), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "number"),
    [
        pytest.param(0, 0.0, id="relu"),
        pytest.param(0, 1.0, id="linear"),
        pytest.param(2, 0.0, id="blocks of one size"),
        pytest.param(4, 0.0, id="neither bias nor gain"),
    ],
)
def test_numbers_that_decide_what_is_done_are_told_apart(compilations, monkeypatch, place, number):
    numbers = (*FIRST[:place], number, *FIRST[place + 1 :])
    read(FIRST)
    compilations()
    found = read(numbers)
    assert "jit(run)" in compilations()
    np.testing.assert_allclose(found, compiled_apart(numbers, monkeypatch), rtol=1e-13)


def test_a_first_call_compiles_one_program(compilations):
    net = MLP(16, depth=3, w_std=1.3, b_std=0.2, activation="erf")
    read = lambda x: closed.closed_kernels(net, x, None)[0]  # noqa: E731
    compilations()
    found = read(X[:, :4])
    assert set(compilations()) - {"jit(broadcast_in_dim)"} <= {"jit(run)", "jit(stage)"}  # newer JAX makes ones so
    np.testing.assert_allclose(found["ntk"], twin(net).kernels(X[:, :4]).ntk, rtol=1e-12)


def test_numbers_of_the_algebra_are_no_arguments():
    own = of_own_numbers(lambda x, a: 0.7 * x + a)
    given = shared(jax.make_jaxpr(lambda x: own(x, 0.3) * 2.5)(jnp.ones(3)))[1]
    np.testing.assert_allclose(sorted(given[0]), [0.3, 2.5], rtol=1e-6)


@pytest.mark.parametrize(
    "phi",
    [nn.gelu, nn.silu, nn.softplus, nn.relu6, nn.elu, nn.hard_swish, jnp.tanh, erf, jax.nn.hard_tanh],
)
def test_equations_in_numpy_are_those_of_jax(phi):
    with jax.enable_x64(True):
        x = np.linspace(-4, 4, 41)
        slope = lambda x: jax.jvp(phi, (x,), (jnp.ones_like(x),))[1]  # noqa: E731
        traced = jax.make_jaxpr(lambda x: [phi(x), slope(x)])(jax.ShapeDtypeStruct(x.shape, "float64"))
        found: Any = in_numpy.run(traced.jaxpr, traced.consts, [x])
        np.testing.assert_allclose(
            found, [phi(jnp.asarray(x)), slope(jnp.asarray(x))], rtol=1e-13, atol=1e-14
        )  # of sums of terms up to 8


@pytest.mark.parametrize("move", [lambda a: a[1:5:2], lambda a: a[2], lambda a: jnp.broadcast_to(a[:, None], (6, 3))])
def test_parts_and_copies_in_numpy_are_those_of_jax(move):
    a = np.arange(6.0, dtype=np.float32)
    traced = jax.make_jaxpr(move)(jax.ShapeDtypeStruct(a.shape, a.dtype))
    assert all(eqn.primitive.name in in_numpy.EXACT for eqn in traced.eqns)
    np.testing.assert_array_equal(in_numpy.run(traced.jaxpr, traced.consts, [a])[0], move(jnp.asarray(a)))  # pyright: ignore


def test_a_residual_network_compiles_one_program_too(compilations):
    net = ResNet(8, 6, w_std=1.3, activation="relu")
    compilations()
    closed.closed_kernels(net, X[:, :4], None)
    assert set(compilations()) <= {"jit(run)", "jit(stage)"}


class Small(nn.Module):
    """A slope, a size, the law of biases."""

    width: int
    numbers: tuple[float, ...]

    @nn.compact
    def __call__(self, x):
        slope, size, spread = self.numbers
        h = nn.Dense(self.width, bias_init=nn.initializers.normal(spread), kernel_init=GAUSS)(x)
        return readout(size * nn.leaky_relu(h, slope))


def test_a_slope_a_size_and_a_law_are_arguments(compilations):
    first = read((0.2, 0.5, 0.3), kind=Small)
    assert "jit(run)" in compilations()
    found = read((0.45, 0.7, 1.1), kind=Small)
    assert compilations() == []
    alike._programs.clear()
    fresh = read((0.45, 0.7, 1.1), kind=Small)
    assert "jit(run)" in compilations()
    np.testing.assert_allclose(found, fresh, rtol=1e-14)
    assert np.abs(fresh / first - 1).min() > 1e-2


@pytest.mark.slow
def test_zoo_networks_that_are_read_share_their_program(compilations):
    first, second = (MLP(16, depth=3, w_std=w, b_std=b, activation="relu") for w, b in ((1.2, 0.3), (1.7, 0.1)))
    closed.closed_kernels(first, X, None)
    compilations()
    found = closed.closed_kernels(second, X, None)[0]
    assert compilations() == []
    np.testing.assert_allclose(found["ntk"], twin(second).kernels(X).ntk, rtol=1e-12)


def every_loop(numbers, x):
    """Of all that has a program inside: loops of three kinds, branches, functions of functions."""
    a, b, power, at = numbers

    @jax.custom_jvp
    def own(y):
        return b * y

    own.defjvp(lambda p, t: (own(*p), b * t[0]))
    y = jax.lax.scan(lambda h, row: (a * h + row * b, h * a), x, jnp.stack([x, x + a]), reverse=True)
    z = jax.lax.fori_loop(0, 3, lambda i, h: h * a + i + x[at], y[0])
    z = jax.lax.while_loop(lambda h: h.sum() < 40 * a, lambda h: 1.5 * h + b, jnp.abs(z))
    w = jax.lax.cond(z[0] > b, lambda h: h * a, lambda h: h - b, z)
    return (
        jax.jit(lambda h: h**power + own(h))(jnp.abs(w)),
        y[1],
        jnp.asarray([a, b, 1.0])[None] * x[None],
        jax.checkpoint(own)(x),
    )


def test_programs_with_others_inside(compilations):
    x, call = jnp.array([0.4, -1.3, 2.2]), Alike(every_loop)
    call((0.7, 0.3, 1.5, 1), x)
    for numbers in ((0.6, 0.2, 1.5, 1), (1.3, -0.4, 1.5, 1)):
        compilations()
        found = call(numbers, x)
        assert compilations() == []
        for a, b in zip(found, every_loop(numbers, x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    for numbers in ((0.6, 0.2, 2.5, 1), (0.6, 0.2, 1.5, 2), (0.6, 1.0, 1.5, 1)):
        compilations()
        found = call(numbers, x)
        assert compilations() == ["jit(run)"]
        for a, b in zip(found, every_loop(numbers, x), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_other_shapes_types_orders_and_equations_are_other_programs():
    def program(function, *x):
        return shared(jax.make_jaxpr(function)(*x))[0]

    x, y = jnp.ones(3), jnp.ones(4)
    one = program(lambda x: 2.5 * x + 0.3, x)
    assert program(lambda x: 0.7 * x - -4.0, x) is not one
    assert program(lambda x: 0.7 * x + 4.0, x) is one
    others = [
        (lambda x: 2.5 * x + 0.3, y),
        (lambda x: 2.5 * x + 0.3, x.astype(jnp.float16)),
        (lambda x: 2.5 * x + 1, x),
    ]
    others += [(lambda x: (2.5 * x + 0.3, x), x), (lambda x: 2.5 + (x * x + 0.3), x), (lambda x: x + 0.3 * x, x)]
    for function, at in others:
        assert program(function, at) is not one
    a, b = jnp.arange(3.0), jnp.arange(3.0) + 5
    two = program(lambda x: (a - x, a * x), x)
    assert program(lambda x: (b - x, b * x), x) is two
    given = shared(jax.make_jaxpr(lambda x: (b - x, b * x))(x))[1]
    np.testing.assert_allclose(np.stack(two(given, [x])), [b - 1, b])


def test_barriers_hold_in_loops_over_little():
    """What CPUs make of such a loop has no barriers, and XLA gave up."""
    x = jnp.array([0.3, 0.6])
    step = lambda a, _: (jax.lax.optimization_barrier(jnp.sin(a)), None)  # noqa: E731
    found = alike.Alike(lambda _, a: jax.lax.scan(step, a, length=100)[0])(0, x)
    expected = np.asarray(x)
    for _ in range(100):
        expected = np.sin(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Plain(nn.Module):
    """One layer of a function without a closed form."""

    width: int

    @nn.compact
    def __call__(self, x):
        return readout(jnp.tanh(Dense(self.width)(x)))


@pytest.mark.slow
def test_what_would_be_compiled_for_minutes_is_drawn_and_says_so(monkeypatch):
    read_off = twin(in_parameterization(Plain(24), "ntk")).kernels(X)
    monkeypatch.setattr(alike, "MOST", 5)
    drawn = twin(in_parameterization(Plain(20), "ntk")).kernels(X)
    for name in ("nngp", "ntk"):
        detail = drawn.provenance[name].detail
        assert "equations, which would be compiled for minutes (up to 5 are taken)" in detail
        z = (getattr(drawn, name) - getattr(read_off, name)) / drawn.errors[name]
        assert np.abs(z).max() < 6  # 6 entries, 7 degrees of freedom
