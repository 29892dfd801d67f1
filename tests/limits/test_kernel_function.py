"""Kernels as functions: equal to `twin(net).kernels`, with derivatives against central differences."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.test_util import check_grads

from limits import AbsentError, twin
from limits.kernels.differentiable import averages
from limits.kernels.hermite import ORDERS
from limits.kernels.kinks import as_kinked
from limits.program.differentiated import TwoFunctions, pair_average
from zoo import CNN, MLP, Dense, Norm, PiecewiseLinear, Quadratic, ResNet, ViT, in_parameterization, parameterization
from zoo import activations as zoo
from zoo.hyperparameters import hyperparameters, with_hyperparameters


def slow_case(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


STEP, TOLERANCE = 1e-5, 1e-7  # of a central difference: its error is of order STEP² and 1e-16 / STEP
SMOOTH = ["erf", *(slow_case(phi) for phi in ("tanh", "gelu", "sin", Quadratic(0.3), jax.nn.silu, jax.nn.softplus))]
KINKED = ["relu", *(slow_case(phi) for phi in (PiecewiseLinear(0.1, 1.0), "abs", jax.nn.elu))]


def named(phi):
    return getattr(phi, "__name__", str(phi))


class Product(nn.Module):
    """Functions of two signals, normalised ones too."""

    width: int
    parameterization: str = "ntk"
    slope: float = 0.7

    @nn.compact
    def __call__(self, x):
        p = parameterization(self.parameterization)
        h = Dense(self.width, "input", self.width, p)(x)
        h = Norm("layer", self.width, p)(jnp.tanh(h))
        gate, value = (Dense(self.width, "hidden", self.width, p)(h) for _ in range(2))
        h = nn.sigmoid(gate) * value + jnp.sin(self.slope * gate + jnp.tanh(value))
        return Dense(1, "readout", self.width, p)(h)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def points(shape):
    """Two inputs, of which the second is zero, against the first, its mirror image, a multiple of it, and another."""
    x, other = draw(2, *shape)
    return np.stack([x, 0 * x]), np.stack([x, -x, 1.5 * x, other])


def along(function, x, direction, step=STEP):
    """The central difference and the derivative in a direction, of every array that the function returns."""
    above, below = function(x + step * direction), function(x - step * direction)
    exact = jax.jvp(function, (x,), (direction,))[1]
    return [(np.asarray((a - b) / (2 * step)), np.asarray(d)) for a, b, d in zip(above, below, exact, strict=True)]


@pytest.mark.parametrize("activation", [*SMOOTH, *KINKED], ids=named)
def test_derivatives_by_inputs(activation):
    smooth = activation not in KINKED and activation not in [each.values[0] for each in KINKED[1:]]
    b_std = 0.0 if smooth else 0.3  # without biases what is kinked has a cone at zero
    with jax.enable_x64(True):
        k = twin(MLP(8, 2, activation=activation, w_std=1.2, b_std=b_std)).kernel_function()
        x1, x2 = (jnp.asarray(x) for x in points((4,)))
        compiled = jax.jit(lambda x: k(x, x2))
        for which, (difference, derivative) in enumerate(along(compiled, x1, draw(2, 4, seed=1))):
            loose = TOLERANCE if smooth or which == 0 else 1e-6
            np.testing.assert_allclose(derivative, difference, atol=loose * max(1, np.abs(difference).max()))
        own = jax.jit(lambda x: k(x, x))  # both sides move: the diagonal
        for difference, derivative in along(own, x1[:1], draw(1, 4, seed=2)):
            # Of elu the series ends at order 1024, with an error of 5e-5 at c = 1.
            most = 3e-6 if activation is jax.nn.elu else TOLERANCE
            np.testing.assert_allclose(derivative, difference, atol=most * max(1, np.abs(difference).max()))


HARD_TANH = as_kinked(lambda x: np.clip(x, -1, 1))


@pytest.mark.parametrize(
    "psi",
    [*map(slow_case, (zoo.erf, zoo.gelu, HARD_TANH)), jnp.sin, Quadratic(0.4), PiecewiseLinear(0.1, 1.0)],
    ids=named,
)
def test_second_derivatives_of_averages(psi):
    """∂²/∂x∂y E φ(u)φ(v) of two inputs, also where they coincide, are opposite, or one of them is zero."""

    def moment(x, y):
        q1, q2, k = x @ x, y @ y, x @ y
        c = k / jnp.where(q1 * q2 > 0, jnp.sqrt(q1 * q2), 1)
        gap = jax.lax.stop_gradient(jnp.where(q1 * q2 > 0, jnp.clip(1 - c, 0, 2), 0))
        gap = jnp.where(gap < 1e-14, 0, jnp.where(gap > 2 - 1e-14, 2, gap))
        return averages(psi).moment(q1, q2, k, gap)

    with jax.enable_x64(True):
        x, y = jnp.asarray(draw(2, 3))
        mixed, slope = jax.jit(jax.jacfwd(jax.grad(moment), 1)), jax.jit(jax.grad(moment))
        for other in (y, x, -x, 0 * x):
            difference = np.stack(
                [(slope(x, other + STEP * e) - slope(x, other - STEP * e)) / (2 * STEP) for e in np.eye(3)], 1
            )
            # At x and −x third derivatives of kinked functions jump, by less than 1.
            np.testing.assert_allclose(mixed(x, other), difference, atol=STEP)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_second_derivatives_through_equal_layers(activation):
    """By reverse mode, of which JAX forgot rules in loops: 40 % off."""
    with jax.enable_x64(True):
        k = twin(MLP(8, 4, activation=activation, w_std=1.2, b_std=0.3)).kernel_function()
        x, y = jnp.asarray(draw(2, 3)), jnp.asarray(draw(2, 3, seed=1))
        slope = jax.jit(jax.grad(lambda w: sum(each.sum() for each in k(x, y, w_std=w))))
        difference = (slope(1.2 + STEP) - slope(1.2 - STEP)) / (2 * STEP)
        assert float(jax.jit(jax.grad(slope))(1.2)) == pytest.approx(float(difference), rel=1e-7)


@pytest.mark.slow
def test_second_derivatives_of_what_is_cut_into_tiles():
    """By a number and along inputs, in reverse and forward: of 85 rows, one more than a tile has, by a factor 2 off once."""
    with jax.enable_x64(True):
        k = twin(MLP(8, 1, activation="relu", b_std=0.4)).kernel_function()
        x, y = (jnp.asarray(draw(85, 3, seed=seed)) for seed in range(2))
        weights = jnp.cos(jnp.arange(85.0**2)).reshape(85, 85)

        def total(w, shift):
            return (k(x + shift * jnp.sin(x), y, w_std=w).ntk * weights).sum()

        slope = jax.jit(jax.grad(total))
        for argnum, by in ((0, jax.jacfwd), (0, jax.grad), (1, jax.grad)):
            step = STEP * np.eye(2)[argnum]
            difference = (slope(1.3 + step[0], step[1]) - slope(1.3 - step[0], -step[1])) / (2 * STEP)
            assert float(jax.jit(by(slope, argnum))(1.3, 0.0)) == pytest.approx(float(difference), rel=1e-7)


NETS = [
    (MLP(8, 1, activation="erf", b_std=0.3, gamma=2.0, parameterization="mup"), (4,)),
    slow_case(MLP(8, 1, activation="tanh", b_std=0.3, gamma=2.0, parameterization="mup"), (4,)),
    slow_case(MLP(8, 5, activation=PiecewiseLinear(0.1, 1.0), b_std=0.3, gamma=2.0), (4,)),
    slow_case(MLP(8, 2, activation=Quadratic(0.3)), (4,)),
    slow_case(CNN(8, 2, activation=PiecewiseLinear(0.2, 1.1), b_std=0.2, readout="average"), (4, 4, 2)),
    slow_case(ResNet(8, 6, activation="gelu", b_std=0.2, beta=0.8), (4,)),
    slow_case(
        ResNet(8, 5, activation="relu", b_std=0.2, beta=0.8, residual="decreasing", parameterization="mup"), (4,)
    ),
    slow_case(ViT(8, 1, patch=2, activation="relu", b_std=0.2, position_std=0.5), (4, 4, 1)),
]


@pytest.mark.parametrize(("net", "shape"), NETS, ids=lambda each: type(each).__name__)
def test_hyperparameters(net, shape):
    """Kernels at other values are those of another twin, and derivatives by them are central differences."""
    x, y = draw(2, *shape), draw(2, *shape, seed=1)
    factors = (1.2, 0.8, 1.5, 0.7, 1.1, 0.9)
    with jax.enable_x64(True):
        k = twin(net).kernel_function()
        assert k.hyperparameters == hyperparameters(net) != {}
        values = {name: v * f for (name, v), f in zip(k.hyperparameters.items(), factors, strict=False)}
        function = jax.jit(lambda values: k(x, y, **values))
        want = twin(with_hyperparameters(net, **values)).kernels(x, y)
        np.testing.assert_allclose(function(values).nngp, want.nngp, rtol=1e-12)
        np.testing.assert_allclose(function(values).ntk, want.ntk, rtol=1e-11)
        slopes = jax.jit(jax.jacrev(lambda values: k(x, y, **values)))(values)
        for name, value in values.items():
            step = value * (STEP if value > 1e-3 else 0.1)  # what is tiny moves kernels by less than they are rounded
            above, below = (function({**values, name: value + s}) for s in (step, -step))
            for a, b, slope in zip(above, below, slopes, strict=True):
                difference = np.asarray((a - b) / (2 * step))
                scale = max(1, np.abs(difference).max())
                np.testing.assert_allclose(slope[name], difference, atol=TOLERANCE * scale)


def of_tanh(x, y, nodes=2001):
    """(NNGP, NTK) of one hidden layer of tanh with b_std = 0.2, by sums over a grid."""
    (q1, k), (_, q2) = (np.array([x, y]) @ np.array([x, y]).T / len(x) + 0.04).tolist()
    z = np.linspace(-9, 9, nodes)
    weights = np.exp(-z * z / 2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)
    z1, z2, weights = z[:, None], z[None, ::4], 4 * weights[:, None] * weights[None, ::4]
    c = k / np.sqrt(q1 * q2)
    u, v = np.sqrt(q1) * z1, np.sqrt(q2) * (c * z1 + np.sqrt(max(1 - c * c, 0)) * z2)
    nngp = np.sum(weights * np.tanh(u) * np.tanh(v)) + 0.04
    return np.array([nngp, nngp + k * np.sum(weights / np.cosh(u) ** 2 / np.cosh(v) ** 2)])


@pytest.mark.slow
@pytest.mark.parametrize("angle", [0.0, 0.05, np.pi - 0.05])
def test_derivatives_by_large_inputs_that_are_close(angle):
    """Slopes of what saturates have thousands of orders: E[f″f″] by the first 1,024 gave an NTK's Hessian 200 times too large."""
    k = twin(MLP(8, 1, activation="tanh", w_std=1.0, b_std=0.2)).kernel_function()
    x, y, h = np.array([9.6, 0.0]), 8 * np.array([np.cos(angle), np.sin(angle)]), 0.02

    def of_size(s):
        found = k(s * jnp.asarray(x)[None], jnp.asarray(y)[None])
        return jnp.concatenate([found.nngp[0], found.ntk[0]])

    with jax.enable_x64(True):
        slope, bend = jax.jit(lambda s: jax.jvp(lambda s: jax.jvp(of_size, (s,), (1.0,)), (s,), (1.0,)))(1.0)[1]
    at = {m: of_tanh((1 + m * h) * x, y) for m in (-2, -1, 0, 1, 2)}
    np.testing.assert_allclose(slope, (8 * (at[1] - at[-1]) - at[2] + at[-2]) / (12 * h), rtol=3e-6)
    expected = (16 * (at[1] + at[-1]) - at[2] - at[-2] - 30 * at[0]) / (12 * h * h)
    np.testing.assert_allclose(bend, expected, rtol=3e-5)


@pytest.mark.slow
def test_derivatives_of_what_has_a_closed_form_and_of_larger_inputs_than_those_measured():
    """Slopes of an average that is a closed form or a series of a few orders are series of all there are."""
    x = np.array([[30.0, 0.0]])
    k = twin(MLP(8, 1, activation=jax.nn.sigmoid, b_std=0.3)).kernel_function()
    z = np.linspace(-9, 9, 100_001)
    weights = np.exp(-z * z / 2) * (z[1] - z[0]) / np.sqrt(2 * np.pi)

    def ntk(s):
        q = (s * 30.0) ** 2 / 2 + 0.09
        f = 0.5 * (1 + np.tanh(np.sqrt(q) * z / 2))
        return np.sum(weights * f * f) + 0.09 + q * np.sum(weights * (f * (1 - f)) ** 2)

    with jax.enable_x64(True):
        slope = jax.jvp(lambda s: k(s * jnp.asarray(x)).ntk[0, 0], (1.0,), (1.0,))[1]
    h = 0.01
    expected = (8 * (ntk(1 + h) - ntk(1 - h)) - ntk(1 + 2 * h) + ntk(1 - 2 * h)) / (12 * h)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


@pytest.mark.slow
def test_own_modules_have_one():
    """Averages over several variables too: of which derivatives are exact on the diagonal (there are two)."""
    x = draw(3, 4)
    with jax.enable_x64(True):
        k, want = twin(Product(width=8)).kernel_function(), twin(Product(width=8)).kernels(x)
        assert want.provenance["ntk"].kind == "approximate"
        function = jax.jit(k.diagonal)
        for difference, derivative in along(function, jnp.asarray(x), draw(3, 4, seed=1)):
            np.testing.assert_allclose(derivative, difference, atol=TOLERANCE * max(1, np.abs(difference).max()))
        function = jax.jit(lambda slope: k.diagonal(x, slope=slope))
        want = twin(Product(width=8, slope=1.1)).kernels(x, diagonal=True)
        np.testing.assert_allclose(function(1.1).ntk, want.ntk, rtol=1e-8)
        for difference, derivative in along(function, jnp.asarray(1.1), 1.0):
            np.testing.assert_allclose(derivative, difference, atol=TOLERANCE * max(1, np.abs(difference).max()))


@pytest.mark.slow
def test_derivatives_of_averages_over_four_variables():
    with jax.enable_x64(True):
        x = jnp.asarray(draw(3, 4))
        k, want = twin(Product(width=8)).kernel_function(), twin(Product(width=8)).kernels(np.asarray(x))
        found = jax.jit(k)(x)
        np.testing.assert_allclose(found.nngp, want.nngp, rtol=1e-8)
        np.testing.assert_allclose(found.ntk, want.ntk, rtol=1e-8)
        for difference, derivative in along(jax.jit(lambda x: k(x, x[:1])), jnp.asarray(x), draw(3, 4, seed=1)):
            np.testing.assert_allclose(derivative, difference, atol=1e-3 * np.abs(difference).max())


@pytest.mark.slow
def test_transformations_and_precision():
    net = MLP(8, 1, activation="erf", b_std=0.1)
    x = draw(6, 3).astype("float32")
    k = twin(net).kernel_function()
    single, compiled = k(x), jax.jit(k)
    assert single.nngp.dtype == jnp.float32
    want = twin(net).kernels(x)
    np.testing.assert_allclose(single.ntk, want.ntk, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(k.diagonal)(x).nngp, np.diag(want.nngp), rtol=1e-5)
    batched = jax.jit(jax.vmap(lambda w: k(x, w_std=w).ntk))(jnp.array([1.0, 1.3]))
    np.testing.assert_allclose(batched[0], want.ntk, rtol=1e-5, atol=1e-6)
    assert np.abs(batched[1] - want.ntk).max() > 0.01
    assert jax.jit(jax.hessian(lambda a: k(a[None], x[:1]).nngp[0, 0]))(jnp.asarray(x[0])).shape == (3, 3)
    with jax.enable_x64(True):  # float32 inputs where jax has float64 too
        assert compiled(x).ntk.dtype == jnp.float32
    mesh = jax.make_mesh((len(jax.devices()),), ("rows",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    count = 2 * len(jax.devices())
    many = jax.device_put(draw(count, 3).astype("float32"), rows)
    sharded = jax.jit(k, out_shardings=NamedSharding(mesh, PartitionSpec("rows")))(many, x)
    np.testing.assert_allclose(sharded.nngp, twin(net).kernels(np.asarray(many), x).nngp, rtol=1e-5, atol=1e-6)


def test_what_is_refused():
    x = draw(2, 4)
    k = twin(MLP(8, 2, activation="erf")).kernel_function()
    for values, words in (
        ({"b_std": 0.1}, ("b_std", "0 in the definition")),
        ({"wstd": 1.0}, ("wstd", "w_std")),
        ({"w_std": [1.0, 2.0]}, ("w_std", "shape")),
        ({"w_std": np.nan}, ("w_std", "finite")),
        ({"w_std": 1j}, ("w_std must be real", "complex")),
        ({"w_std": "a"}, ("w_std must be real", "U1")),
        ({"w_std": jnp.array(1j)}, ("w_std must be real", "complex")),
    ):
        with pytest.raises(ValueError, match=".*".join(words)):
            k(x, **values)
    with pytest.raises(ValueError, match="x2"):
        k(x, draw(2, 5))
    with pytest.raises(ValueError, match=r"x2 must hold samples \[n, …\], n ≥ 1"):
        k(x, x[:0])
    with pytest.raises(ValueError, match="kernel_function"):
        jax.jit(lambda x: twin(MLP(8, 2)).kernels(x).nngp)(x)
    standard = twin(MLP(8, 2, parameterization="standard")).kernel_function()
    assert jax.jit(standard)(x).ntk is None
    assert standard.provenance(x)["ntk"].kind == "absent"
    with pytest.raises(AbsentError, match="depth"):
        twin(ResNet(8, 4), depth=np.inf).kernel_function()
    with pytest.raises(AbsentError, match="kernels"):
        twin(ViT(8, 1, patch=2, logits="1/sqrt(d)", heads="grow")).kernel_function()(draw(1, 4, 4, 1))


@pytest.mark.parametrize("activation", ["erf", "gelu"])
def test_large_inputs_that_coincide_have_their_kernel_in_float32(activation):
    """q1 q2 − k² of inputs of size 1e4 has no digit in float32: it comes from their angle."""
    x = np.tile(1e4 * np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), (2, 1))
    limit = twin(MLP(width=8, depth=1, activation=activation, w_std=1.3, b_std=0.2))
    found, known = limit.kernel_function()(jnp.asarray(x)), limit.kernels(x)
    for name in ("nngp", "ntk"):
        a, b = getattr(found, name), getattr(known, name)
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-3 * np.abs(b).max())
        np.testing.assert_allclose(np.diag(a[:8, 8:]), np.diag(b[:8, 8:]), rtol=1e-5)


WHOLE = np.array([[200, 100, 3], [10, 250, 90]])


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("uint8", lambda k, x: jax.jit(k)(x)),
        ("bool", lambda k, x: k(x)),
        ("int64", lambda k, x: k(x)),
        slow_case("uint8", lambda k, x: k.on_mesh(x, jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Auto,)))),
        slow_case("int16", lambda k, x: (k + 0.5 * k * k)(100 * x)),
    ],
)
def test_whole_numbers_are_taken_as_numbers(kind, call):
    """Their products would overflow."""
    x, limit = (WHOLE > 50 if kind == "bool" else WHOLE.astype(kind)), twin(MLP(width=8, depth=1, w_std=1.4))
    x = 10**12 * x if kind == "int64" else x
    found = call(limit.kernel_function(), x)
    known = (limit + 0.5 * limit * limit).kernels(100 * x) if kind == "int16" else limit.kernels(x)
    np.testing.assert_allclose(found.nngp, known.nngp, rtol=1e-5)
    np.testing.assert_allclose(found.ntk, known.ntk, rtol=1e-5)


def test_whole_numbers_with_themselves():
    limit = twin(MLP(width=8, depth=1, w_std=1.4))
    found, known = limit.kernel_function().diagonal(WHOLE.astype("int8")), limit.kernels(WHOLE.astype("int8"))
    np.testing.assert_allclose(found.ntk, np.diag(known.ntk), rtol=1e-5)
    assert limit.kernel_function().provenance(WHOLE)["ntk"].kind == "exact"


class Words(nn.Module):
    """An average over embedded words."""

    width: int

    @nn.compact
    def __call__(self, x):
        x = nn.Embed(7, self.width, embedding_init=nn.initializers.normal(1.0))(x).mean(1)
        return nn.Dense(1)(nn.relu(nn.Dense(self.width)(x)))


def test_words_stay_words():
    limit, x = twin(in_parameterization(Words(8), "ntk")), np.array([[1, 2, 3], [3, 3, 0]], np.uint8)
    found, known = jax.jit(limit.kernel_function())(x), limit.kernels(x)
    np.testing.assert_allclose(found.ntk, known.ntk, rtol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "erf"])
def test_slopes_of_huge_inputs_in_float32(activation):
    """Those of a relu are as large as its inputs, those of erf as small; products of two variances are beyond float32."""
    x, power = jnp.array([[0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]), 1 if activation == "relu" else -1
    k = twin(MLP(width=8, depth=1, activation=activation)).kernel_function()
    slope = jax.jit(jax.grad(lambda x: sum(each[0, 1] for each in k(x))))
    near, far = slope(1e7 * x), slope(1e10 * x)
    np.testing.assert_allclose(far, 1e3**power * near, rtol=1e-4, atol=1e-4 * np.abs(1e3**power * near).max())


class Factors(nn.Module):
    """Its numbers stand in laws and in the code, in single precision where initialisers and JAX make it of them."""

    width: int
    law: int = 0
    s: float = 1.3
    c: float = 0.7

    @nn.compact
    def __call__(self, x):
        draw = (
            nn.initializers.variance_scaling(self.s**2, "fan_in", "normal"),
            nn.initializers.normal(self.s / x.shape[-1] ** 0.5),
            nn.initializers.truncated_normal(jnp.float32(self.s) / 3),
        )[self.law]
        h = self.c * nn.Dense(self.width, kernel_init=draw)(x) * jnp.float32(0.3 * self.c)
        return nn.Dense(1, kernel_init=nn.initializers.normal(self.s / self.width**0.5))(nn.relu(h))


@pytest.mark.parametrize("law", [0, 1, 2])
@pytest.mark.parametrize("s", [1.3, 0.8])
@pytest.mark.slow
def test_numbers_that_are_rounded_are_factors_still(law, s):
    x = draw(2, 3).astype("float32")
    k = twin(in_parameterization(Factors(32, law, s), "ntk")).kernel_function()
    want = twin(in_parameterization(Factors(32, law, 1.7, 0.9), "ntk")).kernels(x)
    found = k(x, s=1.7, c=0.9)
    np.testing.assert_allclose(found.nngp, want.nngp, rtol=2e-6)
    np.testing.assert_allclose(found.ntk, want.ntk, rtol=2e-6)


def test_what_is_added_to_a_number_is_no_rounding():
    class Guarded(nn.Module):
        width: int
        s: float = 1.3

        @nn.compact
        def __call__(self, x):
            h = nn.Dense(self.width, kernel_init=nn.initializers.normal((self.s**2 + 1e-6) ** 0.5))(x)
            return nn.Dense(1, kernel_init=nn.initializers.normal(self.width**-0.5))(nn.relu(h))

    with pytest.raises(AbsentError, match="depends on s in another way"):
        twin(in_parameterization(Guarded(32), "ntk")).kernel_function()(draw(2, 3), s=1e-3)


@pytest.mark.slow
def test_steep_averages_have_slopes_by_numbers_inside_in_reverse_too():
    """Of as many orders as there are: what is beyond is estimated by a law that is not linear in the function."""
    f = lambda x, p: jax.nn.silu(p[0][..., None] * x) + jnp.tanh(p[1][..., None] * x)  # noqa: E731
    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        pair = TwoFunctions(f, f, (True, True), lambda a, side: a, ORDERS[-1])
        assert pair.steep
        q, gap, other = jnp.array([3.0]), jnp.array([0.01]), (jnp.array([2.0]), jnp.array([3.0]))

        @jax.jit
        def average(*p):
            return pair_average(pair, q, q, q * (1 - gap), gap, p, other).sum()

        check_grads(average, other, order=1, modes=["rev"], rtol=1e-5)


@pytest.mark.parametrize("given", [None, [["a"]], np.array([["a"]]), np.array([[None, 1]]), [[1, 2], [3]], {"x": 1}])
def test_inputs_that_are_no_numbers_are_said_to_be(given):
    kernel = twin(MLP(width=8, depth=1)).kernel_function()
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Auto,))
    calls = (kernel, kernel.diagonal, kernel.provenance, lambda x: kernel.on_mesh(x, mesh))
    for call in calls:
        with pytest.raises(ValueError, match="inputs must be arrays"):
            call(given)
    if given is not None:
        with pytest.raises(ValueError, match="inputs must be arrays"):
            kernel(np.ones((1, 2)), given)


def test_another_function_of_the_same_limit_compiles_nothing(compilations):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    first = twin(MLP(8, 2, activation="erf")).kernel_function()(x)
    compilations()
    again = twin(MLP(8, 2, activation="erf")).kernel_function()(x)
    assert not compilations()
    np.testing.assert_array_equal(first.ntk, again.ntk)
    assert np.abs(twin(MLP(8, 2, activation="relu")).kernel_function()(x).ntk - first.ntk).max() > 0.1
