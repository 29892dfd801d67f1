"""Corrected kernels against the exact posterior of finite networks, layer by layer."""

import numpy as np
import pytest
from bayesian import at_fixed_point, closer, clusters, elliptical_slice, printed_backward

from limits.posterior import Draws, Stack, prior_kernels, solve, solver


def compared(monkeypatch, w, width, samples, layers, noise, chains, steps, warm_up):
    """Standard errors by which each layer's corrected and printed kernels are closer to the exact one than the prior's."""
    x, y = clusters(samples, 0)
    k0 = at_fixed_point(x, w, 0.05)
    stack = Stack(k0, [w] * layers, [0.05] * layers)
    draws = Draws("erf", np.random.default_rng(1).normal(size=(10_000, samples)))
    right = solve(stack, y, noise, width, draws).kernels[1:]
    monkeypatch.setattr(solver, "force_back", printed_backward)
    printed = solve(stack, y, noise, width, draws).kernels[1:]
    prior = prior_kernels(stack)[1:]
    seen = elliptical_slice(k0, w, 0.05, layers, y, noise, width, steps, chains)[:, warm_up:].mean(1)
    return closer(seen, right, prior), closer(seen, printed, prior)


@pytest.mark.slow
def test_every_layer_is_closer_than_at_infinite_width(monkeypatch, row):
    right, printed = compared(monkeypatch, 1.2, 100, 8, 2, 0.01, chains=12, steps=1000, warm_up=250)
    row(27, f"σ_w² = 1.2, N = 100, P = 8: closer by {right.round(1)} standard errors, printed form {printed.round(1)}")
    assert np.all(right > 3), right
    assert printed[0] < -3, printed


@pytest.mark.slow
@pytest.mark.parametrize("w", [0.8, 1.2])
def test_at_the_settings_of_the_theory(monkeypatch, w, row):
    # Three minutes: the exact posterior of 500 neurons in three layers mixes slowly.
    right, printed = compared(monkeypatch, w, 500, 12, 3, 1e-3, chains=8, steps=3000, warm_up=1000)
    row(
        27,
        f"σ_w² = {w}, N = 500: closer than the NNGP by {right.round(1)} standard errors, printed form {printed.round(1)}",
    )
    assert np.all(right > 3), right
    assert np.all(printed[:2] < -3), printed
