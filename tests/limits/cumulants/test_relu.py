import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from limits import cumulants
from limits.cumulants import relu_moments
from limits.cumulants.relu import piecewise_linear_moments
from zoo.activations import PiecewiseLinear

pytestmark = pytest.mark.usefixtures("x64")
bivariate = jax.jit(cumulants.bivariate)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def panels(edges):
    low, high = edges[..., :-1, None], edges[..., 1:, None]
    x = (low + high) / 2 + (high - low) / 2 * NODES
    return x.reshape(*edges.shape[:-1], -1), ((high - low) / 2 * WEIGHTS).reshape(*edges.shape[:-1], -1)


def by_quadrature(mean, s, r, f=lambda x: x, g=lambda x: x):
    """E[f(z₁) 1(z₁>0) g(z₂) 1(z₂>0)] over z₁ = μ₁ + s₁ u, z₂ = μ₂ + s₂ (r u + c v), on panels that end at the kinks."""
    a, b, c = mean[0] / s[0], mean[1] / s[1], np.sqrt((1 - r) * (1 + r))
    bend = -b / r if r else 0.0
    edges = np.concatenate([np.linspace(-9, 9, 19), [-a, *(bend + c * np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8]))]])
    u, wu = panels(np.sort(np.clip(edges, -a, max(9.0, 9.0 - a))))
    start = np.clip(-(b + r * u) / c, -9, 9)
    v, wv = panels(start[:, None] + (9 - start[:, None]) * np.linspace(0, 1, 7))
    z1, z2 = mean[0] + s[0] * u, mean[1] + s[1] * (r * u[:, None] + c * v)
    inner = (wv * norm.pdf(v) * g(z2)).sum(1)
    return (wu * norm.pdf(u) * f(z1) * inner).sum()


def cases():
    random = np.random.default_rng(0)
    rs = [0.999, -0.999, 0.999, -0.999, 0.99, -0.95, 0.0, *random.uniform(-0.9, 0.9, 13)]
    for i, r in enumerate(rs):
        mean, s = random.normal(size=2), np.exp(random.normal(size=2) / 2)
        if i in (2, 3):  # where the two kinks nearly coincide
            mean[1] = np.sign(r) * mean[0] / s[0] * s[1] * (1 + 0.02 * random.normal())
        yield mean, s, r


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"r={case[2]:.3f}")
def test_covariance_is_that_of_two_dimensional_quadrature(case, row):
    mean, s, r = case
    one = [norm.cdf(m / t) * m + t * norm.pdf(m / t) for m, t in zip(mean, s, strict=True)]
    found = relu_moments(jnp.asarray(mean), jnp.asarray(np.outer(s, s) * [[1, r], [r, 1]]))
    error = abs(float(found[1][0, 1]) - (by_quadrature(mean, s, r) - one[0] * one[1]))
    row(3, f"relu covariance at r = {r:+.3f}: {error:.0e} from quadrature (1e-8)")
    np.testing.assert_allclose(found[0], one, rtol=1e-13)
    assert abs(found[1][0, 1] - (by_quadrature(mean, s, r) - one[0] * one[1])) < 1e-11  # 1e-8 is asked for
    assert abs(found[1][1, 0] - found[1][0, 1]) < 1e-15
    for i in range(2):
        a = mean[i] / s[i]
        square = (mean[i] ** 2 + s[i] ** 2) * norm.cdf(a) + mean[i] * s[i] * norm.pdf(a)
        assert abs(found[1][i, i] - (square - one[i] ** 2)) < 1e-13


def test_bivariate_distribution_is_scipys_and_quadratures():
    random = np.random.default_rng(1)
    for r in (0.0, 0.4, -0.8, 0.97, -0.999, 0.999):
        a, b = random.normal(size=2)
        found = float(bivariate(a, b, r))

        def one(z):
            return np.ones_like(z)

        assert abs(found - by_quadrature((a, b), (1, 1), r, one, one)) < 1e-11
        scipys = multivariate_normal(cov=[[1, r], [r, 1]])  # pyright: ignore[reportArgumentType]
        assert abs(found - scipys.cdf([a, b])) < 1e-5
    zeros = [float(bivariate(0.0, 0.0, r)) for r in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    np.testing.assert_allclose(zeros, [0, 1 / 6, 1 / 4, 1 / 3, 1 / 2], atol=1e-15)
    ends = [
        float(bivariate(a, b, r))
        for a, b, r in ((0.0, -1.0, 1.0), (2.0, 0.5, 1.0), (1.0, 0.5, -1.0), (1.0, -1.0, -1.0))
    ]
    expected = np.array([norm.cdf(-1), norm.cdf(0.5), norm.cdf(1) + norm.cdf(0.5) - 1, 0.0])
    np.testing.assert_allclose(ends, expected, atol=1e-15)


@pytest.mark.slow
def test_gradient_of_the_bivariate_distribution():
    at = (0.3, -0.7, 0.6)
    found = jax.grad(lambda *z: bivariate(*z), argnums=(0, 1, 2))(*map(jnp.asarray, at))
    for i, slope in enumerate(found):
        ahead, behind = ([z + (h if i == j else 0) for j, z in enumerate(at)] for h in (1e-5, -1e-5))
        assert abs(slope - (bivariate(*ahead) - bivariate(*behind)) / 2e-5) < 1e-9


def random_gaussian(n, seed):
    random = np.random.default_rng(seed)
    root = random.normal(size=(n, n))
    return jnp.asarray(random.normal(size=n)), jnp.asarray(root @ root.T / n)


def test_gradients_are_finite_differences():
    mean, covariance = random_gaussian(4, 2)
    pick = [jnp.asarray(np.random.default_rng(3).normal(size=shape)) for shape in ((4,), (4, 4))]

    @jax.jit
    def total(mean, covariance):
        return sum((p * part).sum() for p, part in zip(pick, relu_moments(mean, covariance), strict=True))

    by_mean, by_covariance = jax.jit(jax.grad(total, (0, 1)))(mean, covariance)
    step = 1e-5
    for i in range(4):
        e = step * jnp.eye(4)[i]
        assert abs(by_mean[i] - (total(mean + e, covariance) - total(mean - e, covariance)) / (2 * step)) < 1e-8
        for j in range(i + 1):
            e = np.zeros((4, 4))
            e[i, j] = e[j, i] = step
            slope = by_covariance[i, j] + (by_covariance[j, i] if i != j else 0)
            assert abs(slope - (total(mean, covariance + e) - total(mean, covariance - e)) / (2 * step)) < 1e-8


def test_gradients_are_finite_and_right_where_neurons_are_copies():
    # z₂ = z₁, z₃ = −z₁, z₄ does not vary, z₅ sits on the kink and does not vary, z₆ is far off.
    mean, row = jnp.array([0.4, 0.4, -0.4, 1.0, 0.0, 1e6]), np.array([1.0, 1.0, -1.0, 0.0, 0.0, 0.0])
    covariance = jnp.asarray(np.outer(row, row) + np.diag([0, 0, 0, 0, 0, 1.0]))
    out, cov = relu_moments(mean, covariance)
    np.testing.assert_allclose(cov[0], [cov[0, 0], cov[0, 0], -out[0] * out[2], 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(np.diag(cov)[3:], [0, 0, 1], rtol=1e-12)
    slopes = jax.jit(jax.jacfwd(relu_moments, (0, 1)))(mean, covariance)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(slopes))
    assert bool(jnp.isfinite(relu_moments(mean[:1], covariance[:1, :1])[1]).all())  # a layer of one neuron
    # Moving z₁ and its copy together is the same as moving the diagonal entry of one neuron.
    together = jax.jvp(relu_moments, (mean[:2], covariance[:2, :2]), (jnp.ones(2), jnp.ones((2, 2))))[1][1]
    alone = jax.jvp(relu_moments, (mean[:1], covariance[:1, :1]), (jnp.ones(1), jnp.ones((1, 1))))[1][1]
    np.testing.assert_allclose(together, jnp.full((2, 2), alone[0, 0]), rtol=1e-12)


def test_small_variances_keep_their_digits():
    # A neuron far on the right is linear; the covariance is not lost beside μ².
    covariance = 1e-8 * jnp.array([[1.0, 0.5], [0.5, 2.0]])
    np.testing.assert_allclose(relu_moments(jnp.array([3.0, 5.0]), covariance)[1], covariance, rtol=1e-13)


@pytest.mark.parametrize(("negative", "positive"), [(0.1, 1.0), (-1.0, 1.0), (0.0, 2**0.5), (1.0, 1.0)])
def test_piecewise_linear_activations(negative, positive):
    mean, covariance = random_gaussian(3, 5)
    z = np.random.default_rng(6).multivariate_normal(mean, covariance, size=(20, 20_000))
    y = np.asarray(PiecewiseLinear(negative, positive)(jnp.asarray(z)))
    parts = np.stack([np.cov(part.T) for part in y])
    found = piecewise_linear_moments(PiecewiseLinear(negative, positive), mean, covariance)
    for seen, value in ((y.mean(1), found[0]), (parts, found[1])):
        error = seen.std(0, ddof=1) / len(seen) ** 0.5
        assert (np.abs(seen.mean(0) - np.asarray(value)) < 4 * error).all()


@pytest.mark.slow
def test_width_1024_takes_less_than_a_second(row):
    code = """
        import time, jax, numpy as np
        from limits.cumulants import relu_moments
        with jax.enable_x64(True):
            random = np.random.default_rng(0)
            root = random.normal(size=(1024, 1024)) / 32
            at = random.normal(size=1024), root @ root.T
            run, times = jax.jit(relu_moments), []
            jax.block_until_ready(run(*at))
            for _ in range(5):
                start = time.perf_counter()
                jax.block_until_ready(run(*at))
                times.append(time.perf_counter() - start)
            slopes = jax.jit(jax.grad(lambda m, c: relu_moments(m, c)[1].sum(), (0, 1)))(*at)
            assert all(np.isfinite(s).all() for s in slopes)
        print(min(times))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    row(3, f"relu map at width 1024: {float(done.stdout):.2f} s after compilation (1 s)")
    assert float(done.stdout) < 1
