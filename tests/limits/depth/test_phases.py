"""Edge of chaos, fixed points and phases, against quadrature of scipy, finite differences, and the tables of the notes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from limits.depth import correlation_map, edge_of_chaos, limiting_kernel, phase, variance_map
from limits.depth.averages import moment
from limits.types import AbsentError

SQRT2 = math.sqrt(2)


def gaussian(f):
    """E f(Z), by adaptive quadrature."""
    return quad(
        lambda z: f(z) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi), -12, 12, epsabs=1e-13, epsrel=1e-13, limit=400
    )[0]


@pytest.mark.parametrize(
    ("activation", "b_std", "q", "w_std"),
    [
        ("tanh", 0.05, 0.15369, 1.12254), ("tanh", 0.1, 0.27330, 1.19340), ("tanh", 0.2, 0.51208, 1.30415),
        ("tanh", 0.3, 0.76348, 1.39558), ("tanh", 0.5, 1.31794, 1.54967), ("tanh", 1.0, 3.03640, 1.85559),
        ("erf", 0.1, 0.25321, 1.05560), ("erf", 0.2, 0.46576, 1.15279), ("erf", 0.3, 0.68877, 1.23367),
    ],
)  # fmt: skip
def test_edge_of_chaos_of_the_table(activation, b_std, q, w_std):
    found = edge_of_chaos(activation, b_std)
    assert found == pytest.approx(w_std, abs=1.1e-5)
    at = phase(activation, found, b_std)
    assert at.name == "critical"
    assert at.q == pytest.approx(q, abs=1.1e-5)
    assert abs(at.chi - 1) < 1e-10
    assert at.depth_scale == at.gradient_depth_scale == math.inf


def test_the_critical_weight_variance_of_the_posterior_figures():
    assert edge_of_chaos("erf", 0.05**0.5) ** 2 == pytest.approx(1.38, abs=0.005)


def test_the_edge_by_independent_quadrature():
    w, b = edge_of_chaos("tanh", 0.3), 0.3
    q = phase("tanh", w, b).q
    assert b**2 + w**2 * gaussian(lambda z: math.tanh(math.sqrt(q) * z) ** 2) == pytest.approx(q, abs=1e-11)
    assert w**2 * gaussian(lambda z: math.cosh(math.sqrt(q) * z) ** -4) == pytest.approx(1, abs=1e-10)
    assert variance_map("tanh", w, b)(np.array([q, 0.1]))[0] == pytest.approx(q, abs=1e-13)


def test_relu_has_one_critical_point():
    assert edge_of_chaos("relu", 0.0) == pytest.approx(SQRT2, abs=1e-15)
    assert edge_of_chaos(lambda x: jax.numpy.maximum(x, 0.5 * x), 0.0) == pytest.approx(math.sqrt(2 / 1.25), abs=1e-12)
    with pytest.raises(AbsentError, match="no fixed point"):
        edge_of_chaos("relu", 0.1)
    with pytest.raises(AbsentError, match=r"^tanh: at b_std 0 the edge is degenerate"):
        edge_of_chaos("tanh", 0.0)
    with pytest.raises(AbsentError, match=r"^relu6: "):  # an object without a name of its own
        edge_of_chaos(jax.nn.relu6, 0.0)
    with pytest.raises(AbsentError, match="stays above q"):
        edge_of_chaos(jax.nn.softplus, 0.5)
    with pytest.raises(ValueError, match="≥ 0"):
        edge_of_chaos("tanh", -0.1)


def test_an_edge_may_be_repelling():
    # gelu bends upwards: its smallest root has χ = 1, but variances leave it.
    w = edge_of_chaos("gelu", 0.1)
    with pytest.raises(AbsentError, match="grows without end"):
        phase("gelu", w, 0.1)
    w, b = edge_of_chaos("quadratic", 0.2), 0.2
    q = min(roots_of_quadratic(w, b))
    at = phase("quadratic", w, b, start=q * 0.9)
    assert at.q <= q * (1 + 1e-6)
    assert w**2 * (1 + q) == pytest.approx(1, abs=1e-9)  # E φ'² = 1 + 4ε² q with ε = 1/2


def roots_of_quadratic(w, b):
    """q = b² + w² (q + 3ε² q²) with ε = 1/2, at which w² (1 + q) = 1: the solution of q = b² + (q + 3q²/4)/(1 + q)."""
    return [q.real for q in np.roots([0.25, -(b**2), -(b**2)]) if q.real > 0 and abs(q.imag) < 1e-12]


@pytest.mark.slow
def test_phases_of_tanh():
    ordered, chaotic = phase("tanh", 1.0, 0.3), phase("tanh", 2.0, 0.3)
    assert (ordered.name, chaotic.name) == ("ordered", "chaotic")
    assert ordered.chi == pytest.approx(0.70026, abs=5e-6)
    assert chaotic.c == pytest.approx(0.2639, abs=5e-5)
    assert chaotic.slope == pytest.approx(0.860, abs=5e-4)
    assert phase("tanh", 2.5, 0.2).slope == pytest.approx(0.83009, abs=5e-6)
    assert chaotic.depth_scale == pytest.approx(-1 / math.log(chaotic.slope))
    assert chaotic.gradient_depth_scale == pytest.approx(1 / math.log(chaotic.chi))
    gap, slope = correlation_map("tanh", 2.0, 0.3, chaotic.q)(1 - chaotic.c)
    assert gap == pytest.approx(1 - chaotic.c, abs=1e-12)
    assert slope == pytest.approx(chaotic.slope, abs=1e-12)
    assert phase("tanh", 3.0, 0.0).c == pytest.approx(0, abs=1e-12)  # odd and without bias
    assert phase("tanh", 0.5, 0.0).q == 0


def test_phases_of_relu():
    ordered = phase("relu", 1.0, 1.0)
    assert (ordered.name, ordered.q, ordered.chi, ordered.c) == ("ordered", 2.0, 0.5, 1.0)
    assert math.isinf(ordered.curvature)
    assert math.isinf(phase("relu", 2.0, 0.1).q)
    assert phase("relu", 1.0, 0.0).slope == 1  # a rescaled critical network: it forgets no faster
    assert phase("relu", SQRT2, 0.0, start=3.0).q == 3


@pytest.mark.parametrize(
    ("activation", "squared_slopes"),
    [(jax.nn.relu6, (0, 1)), (lambda x: jnp.clip(x, 0, 2.0), (0, 1)), (lambda x: jnp.sin(jnp.abs(x)), (1, 1)),
     (jax.nn.selu, (1.0507009873554805**2 * 1.6732632423543772**2, 1.0507009873554805**2))],
)  # fmt: skip
@pytest.mark.slow
def test_a_signal_that_dies_at_a_kink(activation, squared_slopes):
    """φ near 0 is leaky relu: χ = σ_w² (φ'(0−)² + φ'(0+)²)/2, and angles close, slower than any exponential."""
    power = sum(squared_slopes) / 2
    at = phase(activation, 0.62, 0.0)
    assert (at.name, at.q, at.chi) == ("ordered", 0, pytest.approx(0.62**2 * power, rel=1e-12))
    assert (at.c, at.slope, at.curvature, at.depth_scale) == (1, 1, math.inf, math.inf)
    assert at.variance_slope == pytest.approx(at.chi)
    with pytest.raises(AbsentError, match=f"degenerate, w_std = 1/√E φ'² = {power**-0.5:g} with"):
        edge_of_chaos(activation, 0.0)
    with pytest.raises(AbsentError, match="critical kernel: divide by"):
        limiting_kernel(activation, 0.62, 0.0)


@pytest.mark.slow
def test_a_signal_that_dies_keeps_angles_if_smooth():
    for activation in ("tanh", "linear", jax.nn.hard_tanh):
        at = phase(activation, 0.5, 0.0)
        assert (at.name, at.q, at.chi, at.slope, at.depth_scale) == ("ordered", 0, 0.25, 1, math.inf)
        assert math.isnan(at.c)
        mapped, slope = correlation_map(activation, 0.5, 0.0, 1e-10)([0.5, 1.5])
        np.testing.assert_allclose(mapped, [0.5, 1.5], rtol=1e-8)
        np.testing.assert_allclose(slope, 1, rtol=1e-8)
    # Where φ'(0) = 0 it is the map of the first power: (9c + 6c³)/15 of x³, (1 + 2c²)/3 of x².
    at = phase(lambda x: jnp.tanh(x) ** 3, 0.5)
    assert (at.name, at.chi, at.c, at.slope) == ("ordered", 0, pytest.approx(0, abs=1e-9), pytest.approx(0.6))
    at = phase(lambda x: jnp.tanh(x * x), 0.5)
    assert (at.chi, at.c, at.slope, at.curvature) == (0, *(pytest.approx(v, rel=1e-9) for v in (1 / 2, 2 / 3, 4 / 3)))
    assert math.isnan(phase(lambda x: jnp.sign(x) * jax.nn.relu(jnp.abs(x) - 1), 0.5).c)  # 0 around 0
    with pytest.raises(AbsentError, match="infinite slope"):  # q* = 1e-60
        phase(lambda x: jnp.sign(x) * jnp.abs(x) ** 0.99, 0.5)


def test_derivatives_of_the_correlation_map_at_one():
    w, b = edge_of_chaos("tanh", 0.2), 0.2
    at = phase("tanh", w, b)
    assert at.curvature == pytest.approx(0.28234, abs=5e-6)
    assert at.third == pytest.approx(0.59669, abs=5e-6)
    kappa = 2 / at.curvature
    assert kappa == pytest.approx(7.084, abs=5e-4)
    assert 1 - kappa**2 * at.third / 6 == pytest.approx(-3.990, abs=5e-4)
    gaps = np.array([0.0, 1e-3, 2e-3])
    mapped, slopes = correlation_map("tanh", w, b, at.q)(gaps)
    assert mapped[0] == 0
    # f' = 1 − f'' gap + f''' gap²/2 − …
    first = (slopes[0] - slopes) / np.maximum(gaps, 1e-30)
    assert 2 * first[1] - first[2] == pytest.approx(at.curvature, rel=1e-4)
    assert 2 * (first[1] - first[2]) / 1e-3 == pytest.approx(at.third, rel=2e-2)


def test_variance_slope_by_differences():
    at, ahead = phase("tanh", 1.5, 0.3), variance_map("tanh", 1.5, 0.3)
    change = float(ahead(at.q + 1e-5) - ahead(at.q - 1e-5)) / 2e-5
    assert at.variance_slope == pytest.approx(change, rel=1e-7)


def test_correlation_map_by_simulation():
    rng, n, c = np.random.default_rng(0), 400_000, 0.4
    u, v = rng.normal(size=(2, n))
    v = c * u + math.sqrt(1 - c * c) * v
    w, b, q = 1.6, 0.3, 1.2
    gap, slope = correlation_map("tanh", w, b, q)(1 - c)
    after = variance_map("tanh", w, b)(q)
    root = math.sqrt(q)
    products = (b**2 + w**2 * np.tanh(root * u) * np.tanh(root * v)) / after
    slopes = w**2 * q / after / (np.cosh(root * u) * np.cosh(root * v)) ** 2
    for sample, exact in ((products, 1 - gap), (slopes, slope)):
        assert abs(sample.mean() - exact) < 4 * sample.std() / math.sqrt(n)


def test_expansion_of_relu_near_one():
    gap = np.array([1e-3, 1e-5, 1e-8])
    mapped, slope = correlation_map("relu", SQRT2, 0.0, 1.0)(gap)
    s, b = 2 * SQRT2 / (3 * math.pi), SQRT2 / (30 * math.pi)
    np.testing.assert_allclose((gap - mapped) / gap**1.5, s + b * gap, rtol=1e-6)
    np.testing.assert_allclose((1 - slope) / np.sqrt(gap), 1.5 * s, rtol=1e-3)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_moments(order):
    derivative = {
        0: math.tanh,
        1: lambda x: math.cosh(x) ** -2,
        2: lambda x: -2 * math.tanh(x) * math.cosh(x) ** -2,
    }[order]
    expected = [gaussian(lambda z, q=q: derivative(math.sqrt(q) * z) ** 2) for q in (0.3, 4.0)]
    np.testing.assert_allclose(moment("tanh", np.array([0.3, 4.0]), order), expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-4, 3e3])
def test_fixed_points_scale_with_the_numbers_given(scale):
    """φ(x) = s tanh(x/s) with s b_std is the network of tanh with b_std, its variances times s²."""
    wide, start = (lambda x: scale * jnp.tanh(x / scale)), scale**2
    for w, b in ((2.0, 0.3), (2.0, 0.0), (0.5, 1e-3)):
        at, plain = phase(wide, w, scale * b, start), phase("tanh", w, b)
        assert (at.name, at.q) == (plain.name, pytest.approx(scale**2 * plain.q, rel=1e-9))
        assert (at.chi, at.c) == (pytest.approx(plain.chi, rel=1e-9), pytest.approx(plain.c, abs=1e-9))
    for b in (0.2, 5.0):
        assert edge_of_chaos(wide, scale * b) == pytest.approx(edge_of_chaos("tanh", b), rel=1e-9)


@pytest.mark.slow
def test_large_and_small_fixed_points():
    # tanh² → 1: q* = b² + w² (1 − O(1/w)); for small signals tanh is linear: q* = b² / (1 − w²).
    assert 0.999 < phase("tanh", 1500.0, 0.0).q / 1500**2 < 1
    assert phase("tanh", 1.0, 2000.0).q == pytest.approx(2000**2, rel=1e-6)
    assert phase("tanh", 0.5, 1e-6).q == pytest.approx(4e-12 / 3, rel=1e-9)
    assert phase("tanh", 1 + 1e-11, 0.0).q == pytest.approx(1e-11, rel=1e-3)  # q (1 − 2q) w² = q
    assert phase("tanh", 1.0, 0.0).q == 0
    # E φ'² = 4 / (3 √(2πq)) (1 + O(1/q)).
    for b in (300.0, 1500.0):
        assert edge_of_chaos("tanh", b) == pytest.approx(math.sqrt(3 / 4 * math.sqrt(2 * math.pi) * (b + 1)), rel=2e-4)
    assert phase("tanh", 1500.0, 0.0).chi == pytest.approx(1500 * 4 / 3 / math.sqrt(2 * math.pi), rel=1e-3)


def test_numbers_of_any_kind_and_what_is_none():
    assert (
        edge_of_chaos("tanh", jnp.float32(0.25)) == edge_of_chaos("tanh", np.array(0.25)) == edge_of_chaos("tanh", 0.25)
    )
    for wrong in (math.nan, math.inf, "0.2", np.array([0.1, 0.2]), None):
        with pytest.raises(ValueError, match=r"edge_of_chaos: b_std (must be a finite number ≥ 0, got |is None)"):
            edge_of_chaos("tanh", wrong)
    for arguments, name in (((-1.5, 0.1), "w_std"), ((0.0, 0.1), "w_std"), ((math.nan, 0.1), "w_std"),
                            ((1.5, -0.1), "b_std"), ((1.5, 0.1, math.nan), "start"), ((1.5, 0.1, 0.0), "start")):  # fmt: skip
        with pytest.raises(ValueError, match=rf"phase: {name} must be a finite number . 0, got "):
            phase("tanh", *arguments)
    with pytest.raises(ValueError, match="variance_map: w_std"):
        variance_map("tanh", -1.0, 0.1)
    with pytest.raises(ValueError, match="correlation_map: q must"):
        correlation_map("tanh", 1.0, 0.1, 0.0)
    with pytest.raises(AbsentError, match="0 everywhere"):
        edge_of_chaos(lambda x: 0 * x, 0.0)
    for q in (-1.0, math.nan):
        with pytest.raises(ValueError, match="variances must be ≥ 0"):
            variance_map("tanh", 1.0, 0.1)(q)
    for gap in (-0.5, 3.0, math.nan):
        with pytest.raises(ValueError, match="between 0 and 2"):
            correlation_map("tanh", 1.0, 0.1, 1.0)(gap)


@pytest.mark.slow
def test_the_edge_of_a_function_with_kinks_is_that_of_its_closed_averages():
    """E φ² = q (P − 2 a n(a)) + 1 − P and E φ′² = P of hard tanh, for a = 1/√q and P the chance of |u| < 1."""
    b, w = 0.3, edge_of_chaos(jax.nn.hard_tanh, b_std=0.3)
    at = phase(jax.nn.hard_tanh, w, b)
    a, inside = at.q**-0.5, math.erf((2 * at.q) ** -0.5)
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    assert w**2 * (at.q * (inside - 2 * a * density) + 1 - inside) + b**2 == pytest.approx(at.q, rel=1e-9)
    assert w**2 * inside == pytest.approx(1, rel=1e-9)
    assert moment(jax.nn.hard_tanh, 1.0, 2) == math.inf


@pytest.mark.slow
def test_kinks_away_from_zero():
    """A tanh with corners is no linear function: f'' is infinite at c = 1, as 1 − f(c) = gap − s gap^(3/2) + … there."""
    corners, b = lambda x: jnp.clip(x, -1, 1), 0.2
    at = phase(corners, edge_of_chaos(corners, b), b)
    assert (at.name, at.curvature, at.third) == ("critical", math.inf, math.inf)
    # 1 − f' = σ_w² 2 p(1/√q) √(gap/π) + …, the share of pairs between which a corner lies; p the Gaussian density.
    gap, w = np.array([1e-2, 4e-2]), edge_of_chaos(corners, b)
    bent = gap - correlation_map(corners, w, b, at.q)(gap)[0]
    share = w**2 * 2 * math.exp(-1 / (2 * at.q)) / math.sqrt(2 * math.pi) / math.sqrt(math.pi)
    ratio = bent / (2 / 3 * share * gap**1.5)
    assert (4 * ratio[0] - ratio[1]) / 3 == pytest.approx(1, abs=0.001)  # the next term is smaller by a factor of gap
    assert limiting_kernel(corners, edge_of_chaos(corners, b), b).ratio == 0.25
    assert 0 < phase(corners, 2.0, b).c < 1
    assert math.isfinite(phase(lambda x: jnp.tanh(1e5 * x), 1.0, 1.0).curvature)  # steep, and smooth
