import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from limits import twin
from limits.kernels import dual, dual_for
from limits.kernels.exceedance import exceedance
from limits.kernels.kinks import as_kinked
from zoo import MLP, in_parameterization

pytestmark = pytest.mark.usefixtures("x64")
FUNCTIONS = {
    "hard tanh": (jax.nn.hard_tanh, lambda x: np.clip(x, -1, 1), (-1, 1)),
    "relu6": (jax.nn.relu6, lambda x: np.clip(x, 0, 6), (0, 6)),
    "offset relu": (lambda x: jax.nn.relu(x + 0.5), lambda x: np.maximum(x + 0.5, 0), (-0.5,)),
    "hat": (lambda x: jax.nn.relu(1 - jnp.abs(x)), lambda x: np.maximum(1 - abs(x), 0), (-1, 0, 1)),
}
QUICK = ("relu6", "offset relu")
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS]
PAIRS = [(1.0, 1.0, 0.3), (0.5, 2.0, -0.7), (3.0, 2.0, 0.95), (0.7, 0.7, 0.9999)]


def form_of(phi):
    assert dual_for(phi, 1.0)[0] == 0
    return dual(phi, 0)


def panels(f, edges):
    return sum(scipy.integrate.quad(f, a, b, epsabs=1e-13, epsrel=1e-12)[0] for a, b in itertools.pairwise(edges))


def average(f, kinks, r1, r2, c):
    """E f(u) f(v): over v given u, then over u, piece by piece."""
    s = r2 * np.sqrt(1 - c * c)

    def inner(u):
        m = c * r2 / r1 * u
        inside = [k for k in kinks if abs(k - m) < 10 * s]
        return panels(lambda v: f(v) * np.exp(-(((v - m) / s) ** 2) / 2), [m - 10 * s, *inside, m + 10 * s])

    edges = np.unique([-9 * r1, *(k for k in kinks if abs(k) < 9 * r1), *np.arange(-2, 3) * r1, 9 * r1])
    return panels(lambda u: f(u) * inner(u) * np.exp(-((u / r1) ** 2) / 2), edges) / (2 * np.pi * r1 * s)


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_are_the_double_integrals_of_functions_with_kinks(name):
    phi, f, kinks = FUNCTIONS[name]
    r1, r2, c = np.array(PAIRS[:2] if name == "hat" else PAIRS).T
    s1, s2, gap, _ = form_of(phi)(*map(jnp.asarray, (r1, r2, 1 - c)))
    expected = [average(f, kinks, *pair) for pair in zip(r1, r2, c, strict=True)]
    np.testing.assert_allclose(s1 * s2 * (1 - gap), expected, rtol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_slope_is_the_derivative_of_the_average(name):
    """Price's theorem, by central differences: an error of 1e-10 of rounding and of the step."""
    form, step = form_of(FUNCTIONS[name][0]), 1e-5
    r1, r2, c = np.array([(1.0, 1.0, 0.3), (0.5, 2.0, -0.7), (0.02, 0.9, 0.5), (3.0, 2.0, 0.9)]).T
    up, down = ((lambda found: found[0] * found[1] * (1 - found[2]))(form(r1, r2, 1 - c - d)) for d in (step, -step))
    np.testing.assert_allclose((up - down) / (2 * step * r1 * r2), form(r1, r2, 1 - c)[3], atol=3e-9)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "relu6" else n for n in CASES])
@pytest.mark.slow
def test_equal_inputs_stay_equal_and_exchanged_ones_the_same(name):
    form = form_of(FUNCTIONS[name][0])
    r = jnp.array([0.0, 1e-3, 0.3, 1.0, 40.0])
    s1, s2, gap, slope = form(r, r, jnp.zeros_like(r))
    assert np.array_equal(s1, s2)
    assert not gap.any()
    f, kinks = FUNCTIONS[name][1:]
    squares = []
    for a in r[1:]:
        edges = np.unique([-9, *(k / a for k in kinks if abs(k) < 9 * a), 9])
        squares.append(panels(lambda z, a=a: f(a * z) ** 2 * scipy.stats.norm.pdf(z), edges))
    np.testing.assert_allclose(s1[1:] ** 2, squares, rtol=1e-10)
    assert float(s1[0]) == abs(f(0.0))
    assert np.isfinite(slope).all()
    r1, r2, gap = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (3, 100)) * [[3], [3], [2]])
    for one, other in zip(form(r1, r2, gap)[2:], form(r2, r1, gap)[2:], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("a", "b", "gap"), [(0.3, 1.2, 0.4), (1.5, 1.5, 1.6), (3.0, 0.2, 1e-3), (2.0, 2.0, 1e-7)])
def test_both_exceed_their_thresholds_as_often_as_they_should(a, b, gap):
    w, c = np.sqrt(gap * (2 - gap)), 1 - gap
    normal = scipy.stats.norm
    edges = np.unique(np.clip([a, b / c - 9 * w, b / c, b / c + 9 * w, a + 1, a + 9], a, a + 9))
    chance = panels(lambda z: normal.pdf(z) * normal.sf((b - c * z) / w), edges)
    excess = panels(
        lambda z: (
            normal.pdf(z) * (z - a) * ((c * z - b) * normal.sf((b - c * z) / w) + w * normal.pdf((b - c * z) / w))
        ),
        edges,
    )
    np.testing.assert_allclose(exceedance(*map(jnp.asarray, (a, b, gap))), (chance, excess), rtol=1e-9, atol=1e-14)


def test_what_is_taken_for_straight_pieces():
    known = {
        lambda x: jnp.clip(x / 3, -1 / 7, 1 / 7): (0.0, 1 / 3, ((-1.0, 3 / 7, 1 / 3), (1.0, 3 / 7, -1 / 3))),
        lambda x: jnp.clip(x, -0.01, 0.01): (0.0, 1.0, ((-1.0, 0.01, 1.0), (1.0, 0.01, -1.0))),
        jax.nn.hard_sigmoid: (0.5, 1 / 6, ((-1.0, 3.0, 1 / 6), (1.0, 3.0, -1 / 6))),
    }
    for phi, (value, slope, kinks) in known.items():
        found = as_kinked(lambda x, phi=phi: np.asarray(phi(jnp.asarray(x))))
        assert found is not None
        np.testing.assert_allclose([found.value, found.slope], [value, slope], rtol=1e-14)
        np.testing.assert_allclose(found.kinks, kinks, rtol=1e-12)
    for phi in (
        jnp.tanh,
        jnp.sign,
        jnp.round,
        jax.nn.celu,
        jax.nn.hard_silu,
        lambda x: x + 1,
        lambda x: jnp.where(x > 0.5, x, 0),
    ):
        assert as_kinked(lambda x, phi=phi: np.asarray(phi(jnp.asarray(x)))) is None


@pytest.mark.slow
def test_rounding_of_large_signals_is_stated():
    exact, large = (dual_for(jax.nn.hard_tanh, r)[1] for r in (10.0, 1e6))
    assert (exact.kind, large.kind) == ("exact", "approximate")
    stated = float(large.detail.split("about ")[1].split()[0])
    square = float(dual(jax.nn.hard_tanh, 0)(*jnp.array([[1e6], [1e6], [0.0]]))[0][0]) ** 2
    missing = scipy.integrate.quad(lambda u: (1 - u * u) * np.exp(-((u / 1e6) ** 2) / 2), 0, 1)[0]
    expected = 1 - 2 * missing / 1e6 / np.sqrt(2 * np.pi)
    assert 1e-6 * stated < abs(square - expected) <= stated < 0.01
    assert dual_for(FUNCTIONS["hat"][0], 1e6)[0] > 0  # of which nothing would be left: a series
    net = MLP(8, 1, activation=jax.nn.hard_tanh, w_std=1e4)
    assert "rounding of about" in twin(net).kernels(np.eye(3)).provenance["nngp"].detail
    plain = in_parameterization(Offsets(64, 3e4), "ntk")
    assert "rounding of about" in twin(plain).kernels(np.eye(3)).provenance["nngp"].detail


def test_kinks_far_out_are_no_straight_line():
    s1, *_ = dual(lambda x: jnp.clip(x, -50, 50), 0)(*jnp.array([[35.0], [35.0], [0.0]]))
    square = panels(lambda u: min(u * u, 2500) * scipy.stats.norm.pdf(u / 35) / 35, [-350, -50, 0, 50, 350])
    assert float(s1[0]) ** 2 == pytest.approx(square, rel=1e-10)


class Offsets(nn.Module):
    """Kinks inside a plain module: constants beside activations, and a factor in front of one."""

    width: int
    size: float = 0.8

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(self.width, kernel_init=nn.initializers.normal(self.size), use_bias=False)(x) + 0.5)
        h = nn.hard_tanh(2 * nn.Dense(self.width, kernel_init=nn.initializers.lecun_normal())(h))
        return nn.Dense(1, kernel_init=nn.initializers.lecun_normal())(h)


@pytest.mark.slow
def test_a_plain_module_with_kinks_has_exact_kernels():
    x = np.random.default_rng(0).normal(size=(5, 4))
    found = twin(in_parameterization(Offsets(64), "ntk")).kernels(x)
    assert {how.kind for how in found.provenance.values()} == {"exact"}
    k = 0.64 * x @ x.T
    for name, factor in (("offset relu", 4.0), ("hard tanh", 1.0)):
        r = np.sqrt(np.diag(k))
        s1, s2, gap, _ = form_of(FUNCTIONS[name][0])(*np.broadcast_arrays(r[:, None], r, 1 - k / np.outer(r, r)))
        k = factor * np.asarray(s1 * s2 * (1 - gap))
    np.testing.assert_allclose(found.nngp, k, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "b_std"), [("hard tanh", 0.0), ("offset relu", 0.3)])
def test_kernel_functions_move_with_their_numbers(name, b_std):
    """Values at another w_std are another twin's, derivatives are central differences; without biases w_std is inside of φ."""
    phi, x = FUNCTIONS[name][0], np.random.default_rng(0).normal(size=(3, 4))
    k, step = twin(MLP(8, 1, activation=phi, w_std=1.5, b_std=b_std)).kernel_function(), 1e-5
    at = jax.jit(lambda w: jnp.stack(k(x, x[:2] + 0.1, w_std=w)))
    other = twin(MLP(8, 1, activation=phi, w_std=2.5, b_std=b_std)).kernels(x, x[:2] + 0.1)
    np.testing.assert_allclose(at(2.5), [other.nngp, other.ntk], rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(at)(1.5), (at(1.5 + step) - at(1.5 - step)) / (2 * step), rtol=1e-7)
