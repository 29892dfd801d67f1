"""Deep linear networks: closed forms against derivatives, against each other, and against sampled networks."""

import numpy as np
import pytest

from limits.posterior import Draws, Stack, prior_kernels, solve
from limits.posterior import linear as closed
from limits.types import AbsentError

W, B, N = 1.3, 0.05, 40.0
C = np.array([[0.8, 0.3, -0.2], [0.3, 0.5, 0.1], [-0.2, 0.1, 0.6]])
FORCE = np.array([[1.0, 0.4, -0.3], [0.4, -0.5, 0.2], [-0.3, 0.2, 0.7]])
DRAWS = Draws("linear", np.zeros((1, 20)))


def gradient(function, at):
    """Derivative in a symmetric matrix, entries (a, b) and (b, a) moved independently on average."""
    found = np.zeros_like(at)
    for a in range(len(at)):
        for b in range(len(at)):
            change = np.zeros_like(at)
            change[a, b] += 5e-6
            change[b, a] += 5e-6
            found[a, b] = (function(at + change) - function(at - change)) / 2e-5
    return found


def test_forward_and_backward_are_derivatives():
    in_force = gradient(lambda f: closed.cumulant_generating_function(C, f, W, B, N), FORCE)
    in_kernel = gradient(lambda c: closed.cumulant_generating_function(c, FORCE, W, B, N), C)
    np.testing.assert_allclose(closed.linear_forward(C, FORCE, W, B, N), in_force, atol=1e-8)
    np.testing.assert_allclose(closed.linear_backward(C, FORCE, W, N), in_kernel, atol=1e-8)


def test_rate_function_is_a_legendre_transform_and_a_divergence():
    later = closed.linear_forward(C, FORCE, W, B, N)
    np.testing.assert_allclose(closed.conjugate_of(later, C, W, B, N), FORCE, atol=1e-10)
    legendre = np.sum(FORCE * later) - closed.cumulant_generating_function(C, FORCE, W, B, N)
    np.testing.assert_allclose(closed.rate_function(later, C, W, B, N), legendre, rtol=1e-12)
    p, q = later - B, W * C
    divergence = 0.5 * (np.trace(np.linalg.solve(q, p)) - 3 + np.log(np.linalg.det(q) / np.linalg.det(p)))
    np.testing.assert_allclose(closed.rate_function(later, C, W, B, N), N * divergence, rtol=1e-12)


def test_rate_function_is_the_law_of_drawn_kernels():
    # Wishart: −log density differences are those of Γ plus (P + 1)/2 log det, exactly.
    import scipy.stats

    near, far = (closed.linear_forward(C, s * FORCE, W, 0.0, N) for s in (1.0, -1.0))
    law = scipy.stats.wishart(df=int(N), scale=W * C / N)
    expected = law.logpdf(near) - law.logpdf(far)
    ours = closed.rate_function(far, C, W, 0.0, N) - closed.rate_function(near, C, W, 0.0, N)
    ours -= 2.0 * (np.linalg.slogdet(near)[1] - np.linalg.slogdet(far)[1])
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


@pytest.fixture(scope="module")
def deep():
    x = np.random.default_rng(0).normal(size=(6, 12))
    y = np.sign(x[:, :1])
    stack = Stack(W * x @ x.T / 12 + B, [W] * 3, [B] * 3, "linear")
    return stack, y, solve(stack, y, 0.05, 60, DRAWS, "full")


def test_symmetry_relation(deep, row):
    _, _, found = deep
    cases = [(C, FORCE, N)] + [(found.kernels[l - 1], found.forces[l], 60) for l in (1, 2, 3)]
    for c, force, width in cases:
        gain = np.linalg.inv(np.eye(len(c)) - 2 * W / width * force @ c)
        back, ahead = closed.linear_backward(c, force, W, width), closed.linear_forward(c, force, W, B, width)
        for found_gain in (np.linalg.solve(W * force, back).T, np.linalg.solve(W * c, ahead - B)):
            row(34, f"symmetry relation: {np.abs(found_gain - gain).max() / abs(gain).max():.0e} (1e-10)")
            np.testing.assert_allclose(found_gain, gain, atol=1e-10 * abs(gain).max())


def test_full_order_solves_the_closed_equations(deep):
    _, _, found = deep
    for l in range(1, 4):
        expected = closed.linear_forward(found.kernels[l - 1], found.forces[l], W, B, 60)
        np.testing.assert_allclose(found.kernels[l], expected, rtol=1e-5)
        if l < 3:
            np.testing.assert_allclose(
                found.forces[l], closed.linear_backward(found.kernels[l], found.forces[l + 1], W, 60), rtol=1e-5
            )


def test_output_kernel_moves_towards_the_targets_by_1_over_n(row):
    x = np.random.default_rng(1).normal(size=(4, 8))
    y = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    widths, left = np.array([400, 800, 1600, 3200]), []
    for order in ("leading", "full"):
        for n in widths.tolist():
            stack = Stack(W * x @ x.T / 8, [W, W], [0.0, 0.0], "linear")
            found = solve(stack, y, 0.0, n, DRAWS, order)
            left.append(np.abs(closed.target_direction(found.kernels[1], found.kernels[2], y, W, n)).max())
            assert left[-1] < 0.2 * np.abs(found.kernels[2] - W * found.kernels[1]).max()
    for part in np.split(np.array(left), 2):
        if part.max() > 1e-9:  # with all orders the identity is exact
            row(35, f"target direction: ~ N^{np.polyfit(np.log(widths), np.log(part), 1)[0]:.2f} (-2)")
            assert np.polyfit(np.log(widths), np.log(part), 1)[0] == pytest.approx(-2, abs=0.1)


def test_tilt_that_outgrows_the_gaussian():
    with pytest.raises(AbsentError, match="not positive definite"):
        closed.linear_forward(C, 100 * np.eye(3), W, B, N)


def ising(samples, seed):
    random = np.random.default_rng(seed)
    y = np.where(np.arange(samples) < samples // 2, 1.0, -1.0)[:, None]
    return np.where(random.uniform(size=(samples, 1000)) < np.where(y > 0, 0.3, 0.7), 1.0, -1.0), y


def exact_kernel(k0, force, w, b, y, noise, width, draws, seed):
    """Posterior mean of C of one hidden linear layer, [16, P, P] independent estimates.

    Neurons are drawn from the tilted Gaussian of `force` and weighted by what is left of the likelihood: exact whatever the
    force, and nearly without spread in the weights when it is right.
    """
    random, size = np.random.default_rng(seed), len(k0)
    root = np.linalg.cholesky(np.linalg.inv(np.linalg.inv(k0) - 2 * w / width * force))
    logs, kernels = [], []
    for _ in range(draws):
        h = random.normal(size=(width, size)) @ root.T
        c = w / width * h.T @ h + b
        factor = np.linalg.cholesky(c + noise * np.eye(size))
        v = np.linalg.solve(factor, y)
        logs.append(-0.5 * np.sum(v * v) - np.log(np.diag(factor)).sum() - np.sum(force * c))
        kernels.append(c)
    p = np.exp(np.array(logs) - np.max(logs))
    assert p.sum() ** 2 / np.sum(p**2) > 0.5 * draws
    parts = zip(np.split(p, 16), np.split(np.array(kernels), 16), strict=True)
    return np.array([np.einsum("s,sab->ab", q, k) / q.sum() for q, k in parts])


@pytest.mark.parametrize("width", [50])
def test_ising_kernels_all_orders_linear_order_prior(width, row):
    x, y = ising(width // 10, 0)
    stack = Stack(x @ x.T / 1000 + 0.05, [1.0], [0.05], "linear")
    full, leading = (solve(stack, y, 1e-3, width, DRAWS, order) for order in ("full", "leading"))
    found = {"full": full.kernels[1], "leading": leading.kernels[1], "prior": prior_kernels(stack)[1]}
    parts = exact_kernel(stack.k0, full.forces[1], 1.0, 0.05, y, 1e-3, width, 16_000, 0)
    squares = {name: [np.mean((k - part) ** 2) for part in parts] for name, k in found.items()}
    noise = np.mean(np.var(parts, axis=0, ddof=1)) * 15 / 16
    errors = {name: np.mean(each) - noise for name, each in squares.items()}
    row(34, "Ising, N = 50: " + ", ".join(f"{name} {error:.1e}" for name, error in errors.items()))
    # |k − m|² differences are linear in the reference: their spread over its 16 parts is their error
    gap = np.array(squares["leading"]) - np.array(squares["full"])
    assert gap.mean() > 3 * gap.std(ddof=1) / 4
    assert errors["full"] < errors["leading"] < errors["prior"] / 3
