"""Kernels at great depth against extended precision, the twins of the networks, closed forms, and finite networks."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from closed_forms import exact_diagonal

from limits import twin
from limits.depth import deep_kernels, deep_pair, edge_of_chaos, log_normaliser, phase
from limits.kernels import Affine, State, activate, dense, dual, dual_for
from zoo import CNN, MLP, ResNet, activation_function

SQRT2 = math.sqrt(2)


def extended(depths, residual="none", c=0.5, a=1.0):
    """log K^L of relu without bias for q¹ = 1 in 80-bit numbers, from the angle itself: (1 − c^L, log K^L)."""
    ld = np.longdouble
    gap, k, log_q, shift, found = ld(1 - c), ld(c), ld(0), ld(0), []
    pi, a = ld("3.14159265358979323846264338327950288"), ld(a)
    for l in range(1, max(depths) + 1):
        if l > 1:
            theta = 2 * np.arcsin(np.sqrt(gap / 2))
            bracket = np.sin(theta) - theta * np.cos(theta)
            if theta < 0.1:
                bracket = theta**3 / 3 - theta**5 / 30 + theta**7 / 840 - theta**9 / 45360 + theta**11 / 3991680
            s = {"none": a, "fixed": a, "decreasing": a / l}[residual]
            bent, slope = gap - bracket / pi, 1 - theta / pi
            if residual == "none":
                k, gap, grown = k * s * slope, bent, s
                k = k / grown + (1 - gap)
            else:
                k, grown = k * (1 + s * slope) + s * (1 - bent), 1 + s
                gap, k = (gap + s * bent) / grown, k / grown
            log_q += np.log(grown)
        if l in depths:
            found.append((gap, np.log(k) + log_q + shift))
    return np.array(found, float).T


@pytest.mark.parametrize("residual", ["none", "fixed", "decreasing"])
def test_against_extended_precision(residual):
    depths = [1, 2, 3, 30, 1000, 20_000]
    gap, log_k = extended(depths, residual)
    found = deep_pair(0.5, depths, residual=residual, q=1.0)
    np.testing.assert_allclose(found.gap, gap, rtol=1e-11)
    np.testing.assert_allclose(found.log_ntk, log_k, rtol=1e-13, atol=1e-11)


@pytest.mark.slow
def test_a_hundred_thousand_layers_against_extended_precision():
    gap, log_k = extended([100_000])
    found = deep_pair(0.5, [100_000], q=1.0)
    np.testing.assert_allclose(found.gap, gap, rtol=1e-11)
    np.testing.assert_allclose(found.log_ntk, log_k, atol=1e-10)


def test_reference_values_of_relu():
    depths = [3, 30, 100, 300, 10_000]
    found = deep_pair([0.5, 1.0], depths, q=2.0)
    assert (found.ntk[:, 0] / (2 * found.depths)).round(6).tolist() == [
        0.450493,
        0.318775,
        0.277892,
        0.261038,
        0.250469,
    ]
    np.testing.assert_allclose(found.ntk[:, 1], 2 * found.depths, rtol=1e-11)  # (√2)² is 2 + 4e-16


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("activation", "w_std", "b_std"),
    [("tanh", 1.7, 0.3), *(pytest.param(*each, marks=SLOW) for each in (("relu", 1.3, 0.4), ("erf", 1.2, 0.1)))],
)
@pytest.mark.slow
def test_the_twin_of_the_mlp_agrees(activation, w_std, b_std):
    x = np.random.default_rng(0).normal(size=(4, 5))
    found = deep_kernels(x, [1, 12], activation, w_std, b_std)
    expected = twin(MLP(4, 11, activation=activation, w_std=w_std, b_std=b_std)).kernels(x)  # hidden layers
    np.testing.assert_allclose(found.nngp[1], expected.nngp, rtol=1e-10)
    np.testing.assert_allclose(found.ntk[1], expected.ntk, rtol=1e-9)
    assert found.ntk[0] == pytest.approx(b_std**2 + w_std**2 * x @ x.T / 5)


@pytest.mark.parametrize("residual", [pytest.param("none", marks=SLOW), "decreasing"])
def test_a_homogeneous_callable_is_its_two_slopes(residual):
    x = np.random.default_rng(0).normal(size=(3, 4))
    found, expected = (deep_kernels(x, [5], phi, 1.2, residual=residual) for phi in (jax.nn.leaky_relu, "leaky_relu"))
    np.testing.assert_allclose(found.ntk, expected.ntk, rtol=1e-13)


def read_out(found, t, activation, w_std, b_std):
    """(NNGP, NTK) of one more dense layer on φ(y^L), averaged over equal positions where there are any."""
    with jax.enable_x64(True):
        gap, k = jax.numpy.asarray(found.gap[t]), jax.numpy.asarray(found.ntk[t])
        r1, r2 = (jax.numpy.asarray(np.sqrt(v[t])) for v in (found.variance1, found.variance2))
        phi = activation_function(activation)
        state = activate(State(r1, r2, gap, k), dual(phi, dual_for(phi, float(r1.max()))[0]))
        state = dense(state, Affine(w_std**2, b_std**2, w_std**2, b_std**2), b_std > 0)
        pair = [np.asarray(a) for a in (state.covariance, state.ntk)]
    return [np.einsum("abpp->ab", a) / a.shape[-1] if a.ndim == 4 else a for a in pair]


@pytest.mark.parametrize(
    ("residual", "activation", "w_std", "b_std"),
    [
        ("fixed", "relu", 0.9, 0.3),
        pytest.param("decreasing", "relu", 0.9, 0.0, marks=SLOW),
        pytest.param("fixed", "tanh", 1.1, 0.2, marks=SLOW),
        pytest.param("decreasing", "tanh", 1.1, 0.2, marks=SLOW),
    ],
)
def test_the_twin_of_the_resnet_agrees(residual, activation, w_std, b_std):
    x = np.random.default_rng(1).normal(size=(3, 4))
    found = deep_kernels(x, [7], activation, w_std, b_std, residual)
    depth = 6 if residual == "fixed" else 7  # "fixed" counts blocks
    net = ResNet(4, depth, activation=activation, w_std=w_std, b_std=b_std, residual=residual)
    expected = twin(net).kernels(x)
    nngp, ntk = read_out(found, 0, activation, w_std, b_std)
    np.testing.assert_allclose(nngp, expected.nngp, rtol=1e-10)
    np.testing.assert_allclose(ntk, expected.ntk, rtol=1e-9)


@pytest.mark.parametrize(
    ("activation", "residual"),
    [("relu", "none"), *(pytest.param(*each, marks=SLOW) for each in (("tanh", "none"), ("relu", "decreasing")))],
)
def test_the_twin_of_the_cnn_agrees(activation, residual):
    # Images of height 1 in circular padding: a window of 3 × 3 then averages over one of 3 positions.
    x, w, b = np.random.default_rng(2).normal(size=(2, 5, 3)), 1.4, 0.2
    found = deep_kernels(x, [3], activation, w, b, residual, window=3)
    assert found.ntk.shape == (1, 2, 2, 5, 5)
    fields = {"activation": activation, "w_std": w, "b_std": b, "padding": "CIRCULAR", "readout": "flatten"}
    net = CNN(4, 3, **fields) if residual == "none" else ResNet(4, 3, form="conv", residual=residual, **fields)
    expected = twin(net).kernels(x[:, None])
    nngp, ntk = read_out(found, 0, activation, w, b)
    np.testing.assert_allclose(nngp, expected.nngp, rtol=1e-8)
    np.testing.assert_allclose(ntk, expected.ntk, rtol=1e-8)


@pytest.mark.slow
def test_constant_images_follow_the_dense_network():
    # The paper's assumption 1: q¹ independent of positions.
    x = np.random.default_rng(3).normal(size=(2, 1, 4))
    found = deep_kernels(np.repeat(x, 4, axis=1), [50], window=3)
    expected = deep_kernels(x[:, 0], [50])
    np.testing.assert_allclose(
        found.ntk[0], np.broadcast_to(expected.ntk[0][:, :, None, None], (2, 2, 4, 4)), rtol=1e-11
    )


@pytest.mark.parametrize("residual", ["fixed", "decreasing"])
def test_diagonal_of_residual_networks_in_closed_form(residual):
    depths = [2, 8, 1000, 100_000]
    found = deep_pair(1.0, depths, w_std=1.2, residual=residual)
    np.testing.assert_allclose(found.log_ntk, exact_diagonal(depths, residual, 1.2), rtol=1e-13, atol=1e-10)
    assert np.isfinite(found.normalised(log_normaliser(depths, residual, 1.2))).all()


@pytest.mark.slow
def test_what_a_float_cannot_hold():
    found = deep_pair([0.5, 1.0], [100_000], residual="fixed")
    with pytest.raises(OverflowError, match="normalised"):
        _ = found.ntk
    chaotic = deep_pair([0.5, 1.0], [4000, 5000], "tanh", 2.0, 0.3)
    chi = phase("tanh", 2.0, 0.3).chi
    assert chaotic.gap[1, 1] == 0  # rounding does not separate an input from itself
    assert np.diff(chaotic.log_ntk[:, 1]) == pytest.approx(1000 * math.log(chi), rel=1e-10)
    assert np.exp(chaotic.log_ntk[:, 0]) == pytest.approx(4.25891, abs=5e-6)
    decaying = deep_pair([0.5, 1.0], [5000], w_std=1.0, q=1.0)
    assert decaying.log_ntk[0, 1] == pytest.approx(math.log(5000) - 4999 * math.log(2), rel=1e-12)


def test_gap_smaller_than_rounding():
    tiny = deep_pair(None, [2, 40], "tanh", 2.0, 0.3, gap=[1e-18, 1e-25])
    chi = phase("tanh", 2.0, 0.3).chi
    np.testing.assert_allclose(tiny.gap[:, 0] / tiny.gap[:, 1], 1e7, rtol=1e-5)
    assert chi > 1
    assert tiny.gap[1, 1] > tiny.gap[0, 1]


@pytest.mark.slow
def test_settled_variances_continue_without_a_seam():
    w, b = 1.4, 0.2
    one = deep_pair(0.3, [700], "tanh", w, b, q=0.8)
    many = deep_pair(0.3, list(range(20, 701, 20)), "tanh", w, b, q=0.8)
    assert many.ntk[-1] == pytest.approx(one.ntk[0], rel=1e-12)
    x = math.sqrt(2) * np.array([[1.0, 0.0], [0.3, math.sqrt(1 - 0.09)]]) * math.sqrt((0.8 - b**2) / w**2)
    expected = twin(MLP(4, 699, activation="tanh", w_std=w, b_std=b)).kernels(x)
    c1 = (b**2 + w**2 * (x @ x.T)[0, 1] / 2) / 0.8
    pair = deep_pair(c1, [700], "tanh", w, b, q=0.8)
    assert pair.ntk[0] == pytest.approx(expected.ntk[0, 1], rel=1e-7)


def test_mistakes_are_answered():
    x = np.ones((2, 3))
    cases: Any = (
        ({"depths": [0]}, r"depths must be .*whole numbers from 1.* got \[0\]"),
        ({"depths": [3], "residual": "fixd"}, r'residual must be .*"fixed".* got .fixd'),
        ({"depths": [3], "window": 3}, "with a window"),
    )
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            deep_kernels(x, **arguments)
    with pytest.raises(ValueError, match="odd"):
        deep_kernels(np.ones((2, 4, 3)), [3], window=2)
    wrong: Any = ({"c": 1.5}, {"c": None}, {"c": None, "gap": 3.0}, {"c": 0.5, "q": 0.0})
    for arguments in wrong:
        with pytest.raises(ValueError, match=rf"\b{list(arguments)[-1]}\b"):
            deep_pair(depths=[3], **arguments)


C = 0.57266  # the pair of inputs of the theory notes' finite networks


def measured(residual, width, depth, nets, w_std=SQRT2):
    """tangent kernel (x, x) and (x, x') of finite networks, [net, 2]: y^L itself, over all of its units."""
    x = math.sqrt(2) * np.array([[1.0, 0.0], [C, math.sqrt(1 - C * C)]])
    rng, found = np.random.default_rng(0), []
    for _ in range(nets):
        weights = [rng.normal(size=(width, 2 if l == 0 else width)).astype(np.float32) for l in range(depth)]
        y = [w_std / math.sqrt(2) * weights[0] @ x.T.astype(np.float32)]
        scales = [1.0 if residual == "fixed" else (l + 1) ** -0.5 for l in range(depth)]
        steps = [w_std / math.sqrt(width) * s for s in scales]
        for l in range(1, depth):
            y.append(y[-1] + steps[l] * weights[l] @ np.maximum(y[-1], 0))
        unit = rng.normal(size=(width, 8))
        back = np.stack([unit, unit]).astype(np.float32) / np.linalg.norm(unit, axis=0).astype(np.float32)
        total = np.zeros((2, 2))  # Σ_l s_l² w²/N (φ·φ') (g·g'), in a few random directions of the output
        for l in range(depth - 1, 0, -1):
            phi = np.maximum(y[l - 1], 0).T
            total += steps[l] ** 2 * (phi @ phi.T) * np.einsum("ano,bno->ab", back, back) / 8
            back = back + steps[l] * (y[l - 1].T > 0)[:, :, None] * np.einsum("mn,amo->ano", weights[l], back)
        total += w_std**2 / 2 * (x @ x.T) * np.einsum("ano,bno->ab", back, back) / 8
        found.append([np.trace(total) / 2, total[0, 1]])
    return np.array(found)


def judge(residual, width, nets, printed):
    """The recursion is within 4 standard errors of finite networks (or 6 %), the printed numbers beyond 5."""
    depth = 8
    nets_found = measured(residual, width, depth, nets)
    mean, sem = nets_found.mean(0), nets_found.std(0, ddof=1) / math.sqrt(nets)
    ours = deep_pair([1.0, C], [depth], residual=residual, q=2.0).ntk[0]
    assert (np.abs(mean - ours) < np.maximum(4 * sem, 0.06 * ours)).all(), (mean, sem, ours)
    assert (np.abs(mean - printed) > 5 * sem).all(), (mean, sem, printed)


def printed_values(residual, depth=8):
    """K^L on and off the diagonal with the total covariance in every block, as in the paper's proofs of theorems 2 and 3."""
    gap, k, q = np.array([0.0, 1 - C]), np.array([2.0, 2 * C]), 2.0
    for l in range(2, depth + 1):
        s = 1.0 if residual == "fixed" else 1 / l
        theta = np.arccos(1 - gap)
        f = 1 - gap + (np.sin(theta) - theta * np.cos(theta)) / np.pi
        total = q * (1 - gap) + s * q * f
        k = k * (1 + s * (1 - theta / np.pi)) + total
        q, gap = q * (1 + s), 1 - total / (q * (1 + s))
    return k


@pytest.mark.parametrize("residual", ["fixed", "decreasing"])
def test_increments_against_finite_networks(residual):
    printed = printed_values(residual)
    assert printed == pytest.approx({"fixed": [2048, 955], "decreasing": [72, 39.5]}[residual], rel=2e-3)
    ours = deep_pair([1.0, C], [8], residual=residual, q=2.0).ntk[0]
    assert ours == pytest.approx({"fixed": [1152, 521], "decreasing": [20.96, 10.57]}[residual], rel=2e-3)
    judge(residual, width=256, nets=24, printed=printed)


@pytest.mark.slow
@pytest.mark.parametrize("residual", ["fixed", "decreasing"])
def test_increments_against_wider_networks(residual):
    judge(residual, width=1024, nets=16, printed=printed_values(residual))


def test_smooth_activations_lose_digits_nowhere():
    w = edge_of_chaos("tanh", 0.2)
    q = phase("tanh", w, 0.2).q
    found = deep_pair([0.5, 1.0], [10_000], "tanh", w, 0.2, q=q)
    assert found.ntk[0, 1] == pytest.approx(10_000 * q, rel=1e-9)
    assert found.ntk[0, 0] / (10_000 * q) == pytest.approx(1 / 3, abs=1.5e-3)


@pytest.mark.slow
def test_a_series_grows_with_the_signal():
    # In 50 digits; r is 2 at first, and 2^15 at depth 30: the series of the first layers is far too short there.
    found = deep_pair([0.5, 1.0], [30], "gelu", 2.0, q=4.0)
    np.testing.assert_allclose(found.log_ntk, [[23.65207555, 24.85128075]], atol=6e-9)
    assert found.provenance.kind == "exact"
    # The order in which depths are asked for changes nothing.
    np.testing.assert_allclose(deep_pair([0.5, 1.0], [3, 30], "gelu", 2.0, q=4.0).ntk[1], found.ntk[0], rtol=1e-6)
    large = deep_pair([0.5, 1.0], [2], jax.nn.silu, 2.0, q=4e8)  # what a series of 1024 terms misses is said
    assert large.provenance.kind == "approximate"


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": [[NAN, 1.0]]}, "x holds 1 values that are NaN or infinite"),
        ({"x": np.ones((0, 2))}, "x must hold samples along its first axis"),
        ({"x": [[1j, 1.0]]}, "x must hold real numbers"),
        ({"depths": np.array(5)}, r"depths must be a list .*such as \[5\]; got array\(5\)"),
        ({"depths": [INF]}, r"depths must be .*whole numbers from 1.* got \[inf\]"),
        ({"w_std": NAN}, "w_std must be a finite number > 0, got nan"),
        ({"w_std": -1.0}, r"w_std must be a finite number > 0, got -1\.0"),
        ({"b_std": INF}, "b_std must be a finite number ≥ 0, got inf"),
    ],
)
def test_numbers_that_make_no_kernel(arguments, message):
    fields: Any = {"x": [[1.0, 2.0]], "depths": [3]} | arguments
    with pytest.raises(ValueError, match=message):
        deep_kernels(**fields)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"c": NAN}, "c must be .*numbers between −1 and 1; got nan"),
        ({"q": INF}, "q must be a finite number > 0, got inf"),
        ({"q": NAN}, "q must be a finite number > 0, got nan"),
        ({"depths": [30], "activation": "quadratic"}, "The signal overflows before depth 30 at w_std"),
    ],
)
def test_numbers_that_make_no_pair(arguments, message):
    fields: Any = {"c": 0.5, "depths": [3]} | arguments
    with pytest.raises(ValueError, match=message):
        deep_pair(**fields)
