"""The forward–backward equations as a whole: they converge, and to what they say."""

import numpy as np
import pytest
from bayesian import at_fixed_point, clusters

from limits.posterior import DivergenceError, Draws, Stack, Sweeps, prior_kernels, solve
from limits.posterior.averages import pair_averages
from limits.posterior.equations import force_back, kernel_ahead, output_force

NOISE = 1e-3


def problem(w=1.2, samples=12, layers=3, draws=4000):
    x, y = clusters(samples, 0)
    stack = Stack(at_fixed_point(x, w, 0.05), [w] * layers, [0.05] * layers)
    return stack, y, Draws("erf", np.random.default_rng(1).normal(size=(draws, samples)))


@pytest.mark.parametrize("w", [pytest.param(0.8, marks=pytest.mark.slow), 1.2])
def test_converges_in_less_than_fifty_iterations_to_a_solution(w, row):
    stack, y, draws = problem(w)
    found = solve(stack, y, NOISE, 500, draws)
    row(24, f"σ_w² = {w}: {found.iterations[0]} iterations (50), residual {found.residual:.0e} (1e-7)")
    assert found.widths == (500,)
    assert found.iterations[0] < 50
    assert found.residual < 1e-7
    np.testing.assert_allclose(output_force(found.kernels[3], y, NOISE), found.forces[3], rtol=1e-5)
    for l in range(3):
        mean, own, across = pair_averages("erf", found.kernels[l])
        ahead = kernel_ahead(mean, draws, found.kernels[l], found.forces[l + 1], w, 0.05, 500)
        np.testing.assert_allclose(ahead, found.kernels[l + 1], atol=1e-6)
        size = abs(found.forces[l]).max()
        np.testing.assert_allclose(force_back(found.forces[l + 1], own, across, w), found.forces[l], atol=1e-6 * size)


def test_infinite_width_is_the_limit():
    stack, y, draws = problem(samples=8, draws=1000)
    wide = prior_kernels(stack)
    shifts = [np.linalg.norm(solve(stack, y, NOISE, n, draws).kernels[3] - wide[3]) for n in (10_000, 40_000)]
    assert shifts[0] / shifts[1] == pytest.approx(4, rel=0.05)


@pytest.mark.slow  # half a minute by itself
def test_annealing_is_the_same_solution_and_reaches_smaller_widths(row):
    stack, y, draws = problem(0.8)
    direct = solve(stack, y, NOISE, 500, draws)
    annealed = solve(stack, y, NOISE, 500, draws, widths=(4000, 1000))
    row(25, f"annealed against direct: {np.abs(annealed.kernels[3] - direct.kernels[3]).max():.0e} in C^(3)")
    assert annealed.widths == (4000, 1000, 500)
    assert max(annealed.iterations) < 50
    np.testing.assert_allclose(annealed.kernels[3], direct.kernels[3], atol=1e-6)
    stack, y, draws = problem(0.5, draws=1000)
    narrow = solve(stack, y, NOISE, 60, draws)
    assert len(narrow.widths) > 1
    assert narrow.residual < 1e-7
    with pytest.raises(DivergenceError, match="width 60"):
        solve(stack, y, NOISE, 60, draws, widths=())
    assert solve(stack, y, NOISE, 200, draws).widths == (200,)  # with half the step


def test_divergence_says_what_to_change():
    stack, y, draws = problem(0.5)
    with pytest.raises(DivergenceError, match=r"larger width.*Annealing from width 96 to the 3 that.*they fail"):
        solve(stack, y, NOISE, 3, draws)
    with pytest.raises(DivergenceError, match=r"after 3 iterations.*raise `iterations`"):
        solve(stack, y, NOISE, 500, draws, sweeps=Sweeps(limit=3), widths=())
    with pytest.raises(ValueError, match="order must be"):
        solve(stack, y, NOISE, 500, draws, order="second")


def test_layers_are_checked():
    with pytest.raises(ValueError, match="one variance a layer each"):
        Stack(np.eye(2), [1.0, 1.0], [0.0])


@pytest.mark.slow
def test_a_hundred_samples_and_three_layers(row):
    import time

    stack, y, draws = problem(samples=100, draws=20_000)
    started = time.monotonic()
    found = solve(stack, y, NOISE, 2000, draws)
    assert found.residual < 1e-7
    row(24, f"P = 100, L = 3: {time.monotonic() - started:.0f} s (60), residual {found.residual:.0e}")
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_five_hundred_samples_fit_in_eight_gigabytes():
    import resource

    stack, y, draws = problem(samples=500, layers=2, draws=20_000)
    found = solve(stack, y, 0.1, 20_000, draws)
    assert found.residual < 1e-7
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8e6  # of the whole process, in kB
