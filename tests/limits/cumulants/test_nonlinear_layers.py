"""Quadratic, quadrature, Gram–Charlier, diagrams."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from limits.cumulants import (
    diagrams,
    gaussian_moments,
    mean_correction,
    pooled,
    quadratic_moments,
    quadrature_moments,
    relu_moments,
    sample,
    taylor_mean,
    third_cumulant_mixture,
    through_linear,
)
from limits.cumulants.cumulants import repeated
from limits.cumulants.quadrature import shares_missed
from zoo.activations import Quadratic, erf, gelu

pytestmark = pytest.mark.usefixtures("x64")


def random_gaussian(n, seed):
    random = np.random.default_rng(seed)
    root = random.normal(size=(n, n))
    return jnp.asarray(random.normal(size=n)), jnp.asarray(root @ root.T / n)


def standardised(seen, value):
    """(mean over parts − value) in standard errors."""
    return (seen.mean(0) - np.asarray(value)) / (seen.std(0, ddof=1) / len(seen) ** 0.5)


@pytest.mark.parametrize("eps", [0.5, pytest.param(0.1, marks=pytest.mark.slow)])
def test_quadratic_layer_with_third_and_fourth_cumulants_is_exact(eps, row):
    # 10⁶ samples of a task that is far from Gaussian, 50 parts; each class by itself.
    random, data = np.random.default_rng(0), pooled(third_cumulant_mixture(), order=4)
    w, b = random.normal(size=(3, 2)), random.normal(size=3)
    x, t = sample(third_cumulant_mixture(), 1_000_000, seed=1)
    for k, target in enumerate(data.target[:, 0]):
        own = data.cumulants._replace(
            **{n: getattr(data.cumulants, n)[k] for n in ("mean", "covariance", "third", "fourth")}
        )
        z = through_linear(own.upto(2), w, b)
        mean, covariance = quadratic_moments(eps, z.mean, z.covariance, *repeated(own, w))
        rows = x[t[:, 0] == target]
        parts = np.array_split(np.asarray(Quadratic(eps)(jnp.asarray(rows @ w.T + b))), 50)
        assert np.abs(standardised(np.stack([p.mean(0) for p in parts]), mean)).max() < 3.5
        away = [(p - np.asarray(mean)) for p in parts]  # about the exact mean: unbiased
        z_scores = standardised(np.stack([a.T @ a / len(a) for a in away]), covariance)
        row(4, f"quadratic layer, eps {eps}, with G3 and G4: largest of 9 {np.abs(z_scores).max():.1f} standard errors")
        assert np.abs(z_scores).max() < 3.5
        # Without the higher cumulants the same samples reject it.
        gaussian = quadratic_moments(eps, z.mean, z.covariance)[1]
        assert np.abs(standardised(np.stack([a.T @ a / len(a) for a in away]), gaussian)).max() > 20


@pytest.mark.parametrize("phi", [jnp.tanh, erf, gelu], ids=["tanh", "erf", "gelu"])
def test_quadrature_is_monte_carlo(phi, row):
    mean, covariance = random_gaussian(3, 5)
    z = np.random.default_rng(6).multivariate_normal(mean, covariance, size=(20, 20_000))
    y = np.asarray(phi(jnp.asarray(z)))
    found = quadrature_moments(phi, mean, covariance)
    away = y - np.asarray(found[0])
    z_scores = standardised(y.mean(1), found[0])
    row(5, f"mean by quadrature, {phi.__name__}: largest of 3 {np.abs(z_scores).max():.1f} standard errors")
    assert np.abs(standardised(y.mean(1), found[0])).max() < 3.5
    assert np.abs(standardised(np.einsum("pni,pnj->pij", away, away) / y.shape[1], found[1])).max() < 3.5


def test_quadrature_is_the_closed_forms(row):
    mean, covariance = random_gaussian(4, 7)
    for found, exact in zip(
        quadrature_moments(jax.nn.relu, mean, covariance, 128), relu_moments(mean, covariance), strict=True
    ):
        np.testing.assert_allclose(found, exact, atol=1e-4)
        row(
            5,
            f"relu by quadrature: {np.abs(np.asarray(found) - np.asarray(exact)).max():.0e} from the closed form (1e-4)",
        )
    square = Quadratic(0.3)
    for found, exact in zip(
        quadrature_moments(square, mean, covariance), gaussian_moments(square, mean, covariance), strict=True
    ):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-12)
    slopes = jax.jit(jax.grad(lambda m, c: quadrature_moments(jnp.tanh, m, c)[1].sum(), (0, 1)))(mean, covariance)
    assert all(bool(jnp.isfinite(s).all()) for s in slopes)


def test_gradient_of_the_quadrature_between_copies_of_a_neuron():
    # ∂Σ'_ij/∂Σ_ij = E φ'(z_i) φ'(z_j), here E sech⁴; with rounding in Σ_ij, of variances that are no squares too
    u, w = np.polynomial.hermite_e.hermegauss(200)
    slope = jax.jit(jax.grad(lambda c: gaussian_moments("tanh", jnp.zeros(2), c)[1][0, 1]))
    for variance, r in ((1.0, 1.0), (1.0, -1.0), (0.3, 1.0), (0.3, -1.0)):
        covariance = jnp.asarray(variance * np.array([[1, r], [r, 1]]) * (1 + 2e-16))
        exact = w @ np.cosh(variance**0.5 * u) ** -4 / w.sum()
        assert slope(covariance)[0, 1] == pytest.approx(exact, rel=1e-8)


def test_quadrature_of_neurons_that_hardly_vary_is_linear():
    mean = jnp.array([0.7, -0.3])
    slope = 1 - np.tanh(mean) ** 2
    both, bend = np.outer(slope, slope), -np.tanh(mean) * slope
    slopes = jax.jit(jax.jacfwd(lambda c: gaussian_moments("tanh", mean, c)))
    for scale in (0.0, 1e-13, 1e-8):
        small = jnp.asarray(scale * np.array([[1.0, 0.4], [0.4, 2.0]]))
        value = gaussian_moments("tanh", mean, small)
        np.testing.assert_allclose(value[0], np.tanh(mean) + bend * np.diagonal(small), atol=1e-10, rtol=0)
        np.testing.assert_allclose(value[1], both * small, rtol=1e-6, atol=1e-17)
        by_mean, by_covariance = slopes(small)
        for i in range(2):
            assert by_mean[i, i, i] == pytest.approx(bend[i], rel=1e-5)
            for j in range(2):
                assert by_covariance[i, j, i, j] == pytest.approx(both[i, j], rel=1e-5)


def jump(z):
    return jnp.where(z > 0, 1.0, 0.0)


@pytest.mark.parametrize(("phi", "s", "r"), [(jump, 1.0, 0.99), (jnp.tanh, 100.0, 0.99), (jnp.sin, 100.0, 0.0)])
def test_quadrature_says_where_it_is_coarse(phi, s, r):
    mean, covariance = jnp.ones(2), jnp.asarray(s**2 * np.array([[1, r], [r, 1]]))
    with pytest.warns(UserWarning, match=r"changes too sharply.* of its covariance"):
        coarse = gaussian_moments(phi, mean, covariance)[1]
    exact = {jump: norm.cdf(1) * norm.cdf(-1), jnp.sin: 0.5}.get(phi)
    if exact is None or s == 1:  # against more orders, enough for this correlation
        exact = quadrature_moments(phi, mean, covariance, 500)[1][0, 1] / coarse[0, 0]
        error = abs(coarse[0, 1] / coarse[0, 0] - exact)
    else:
        error = abs(coarse[0, 0] / exact - 1)
    assert 1e-3 < error < 2 * max(shares_missed(phi, mean, covariance))


def test_quadrature_of_ordinary_layers_is_not_coarse():
    covariance = jnp.asarray(np.array([[1.0, 0.99], [0.99, 1.0]]))
    for phi, variance in ((jnp.tanh, 4.0), (erf, 4.0), (gelu, 9.0), (jnp.sin, 25.0)):
        assert max(shares_missed(phi, jnp.ones(2), variance * covariance)) < 1e-4


def by_density(phi, mean, s, third, fourth=0.0):
    """E φ over [1 + G3/(6 s³) He₃ + G4/(24 s⁴) He₄] N(μ, s²), by panels that end at the kink."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.sort(np.append(np.linspace(-12, 12, 25), np.clip(-mean / s, -12, 12)))
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    u, w = (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()
    bend = 1 + third / (6 * s**3) * (u**3 - 3 * u) + fourth / (24 * s**4) * (u**4 - 6 * u**2 + 3)
    return (w * norm.pdf(u) * bend * np.asarray(phi(jnp.asarray(mean + s * u)))).sum()


@pytest.mark.parametrize("phi", [jax.nn.relu, jnp.tanh, gelu], ids=["relu", "tanh", "gelu"])
@pytest.mark.parametrize(
    ("mean", "s", "third", "fourth"), [(0.7, 1.3, 0.4, 0.0), (-1.1, 0.6, -0.2, 0.3), (0.0, 1.0, 1.0, 0.0)]
)
def test_gram_charlier_is_the_mean_over_its_density(phi, mean, s, third, fourth, row):
    found = mean_correction(phi, *(jnp.array([v]) for v in (mean, s**2, third, fourth)))[0]
    expected = by_density(phi, mean, s, third, fourth) - by_density(phi, mean, s, 0.0)
    row(6, f"Gram–Charlier at mean {mean}: {abs(float(found) - expected):.0e} from quadrature (1e-8)")
    assert abs(found - expected) < 1e-10


def test_gram_charlier_lowers_relus_mean_for_right_skewed_neurons_above_zero():
    found = mean_correction("relu", jnp.array([1.0, -1.0, 0.0]), jnp.ones(3), jnp.ones(3))
    assert np.sign(found).tolist() == [-1.0, 1.0, 0.0]
    for phi in ("relu", "tanh"):  # a neuron that does not vary
        assert mean_correction(phi, jnp.ones(1), jnp.zeros(1), jnp.zeros(1), jnp.zeros(1))[0] == 0
        slope = jax.jit(jax.grad(lambda v, phi=phi: mean_correction(phi, jnp.ones(2), v, jnp.ones(2))[1]))(
            np.array([0.0, 1.0])
        )
        assert jnp.isfinite(slope).all()
    # The note's case: -0.010089639 for the third cumulant and position chosen there has this form.
    assert abs(found[0] + np.exp(-0.5) / (6 * np.sqrt(2 * np.pi))) < 1e-15


def test_gram_charlier_moves_towards_a_skewed_distribution():
    # z = (gamma − k)/√k · s + μ has cumulants 2 s³/√k and 6 s⁴/k; E relu by quadrature over the gamma density.
    from scipy.integrate import quad
    from scipy.stats import gamma

    k, mean, s = 50.0, 0.8, 1.0
    exact = quad(lambda g: gamma.pdf(g, k) * max(mean + s * (g - k) / k**0.5, 0), 0, 150, limit=400, epsabs=1e-12)[0]
    plain = float(relu_moments(jnp.array([mean]), jnp.array([[s**2]]))[0][0])
    third = mean_correction("relu", jnp.array([mean]), jnp.ones(1), jnp.array([2 / k**0.5]))[0]
    both = mean_correction("relu", jnp.array([mean]), jnp.ones(1), jnp.array([2 / k**0.5]), jnp.array([6 / k]))[0]
    assert abs(plain + third - exact) < abs(plain - exact) / 5
    assert abs(plain + both - exact) < abs(plain - exact) / 5


def test_diagrams_count_the_pairings():
    assert [sum(ways for _, ways in diagrams(m)) for m in range(7)] == [1, 1, 2, 5, 15, 52, 203]  # Bell numbers
    assert dict(diagrams(6))[2, 2, 2] == 15


def test_taylor_series_is_exact_for_polynomials_of_any_distribution():
    # x exponential: κ_n = (n − 1)!, E x^n = n!.
    kappa = [jnp.ones(1) * v for v in (1.0, 1.0, 2.0, 6.0)]
    assert float(taylor_mean(lambda z: z**4 - z**3 + 2 * z, kappa, order=4)[0]) == pytest.approx(24 - 6 + 2)


@pytest.mark.parametrize(
    ("phi", "mean", "order", "power"),
    [
        (jnp.tanh, 0.3, 3, 5),
        (jnp.exp, 0.2, 4, 5),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((jnp.tanh, 0.3, 2, 3), (gelu, 0.1, 4, 6))),
    ],
)
def test_error_of_the_taylor_series_is_of_the_next_order_in_the_scale(phi, mean, order, power, row):
    scales = np.array([0.05, 0.1])
    errors = []
    for scale in scales:
        m, v = jnp.array([mean * scale]), jnp.array([scale**2])
        exact = quadrature_moments(phi, m, v[None])[0][0]
        errors.append(abs(float(taylor_mean(phi, (m, v), order)[0] - exact)))
    row(7, f"Taylor series to order {order}: error ~ scale^{np.log(errors[1] / errors[0]) / np.log(2):.2f} ({power})")
    assert np.log(errors[1] / errors[0]) / np.log(2) == pytest.approx(power, abs=0.15)


def test_a_kink_has_no_taylor_series():
    with pytest.raises(ValueError, match="kink"):
        taylor_mean("relu", (jnp.zeros(1), jnp.ones(1)), 2)
