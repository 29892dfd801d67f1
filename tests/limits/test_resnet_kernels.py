"""Residual networks: closed forms, and finite networks where published recursions differ from ours."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import empirical_ntk, twin
from limits import kernels as algebra
from limits.finite.observables import feature_kernels, gradient_kernels
from limits.kernels.propagation import Walk
from train.members import slopes
from zoo import Parameterization, ResNet, activation_function, learning_rate_factors, parameterization

PLAIN = Parameterization.ntk.replace(alpha=0.0)  # branches that are not scaled down
QUICK = {"xla_backend_optimization_level": 0}


@functools.cache
def _observer(shape, names):
    def one(params, p, gamma, keep, x):
        net = shape.clone(parameterization=p, gamma=gamma)
        rates = jax.tree.map(jnp.multiply, learning_rate_factors(net, x), keep)
        seen = {"ntk": empirical_ntk(lambda w, x: net.apply({"params": w}, x), params, x, rates=rates)}
        if "last" in names:
            inside = net.apply({"params": params}, x, intermediates=True)[1]["features"]
            seen["last"] = inside @ inside.T / inside.shape[1]
        if "layers" in names:
            seen |= {
                "phi": feature_kernels(net.apply({"params": params}, x, intermediates=True)[1]["phi"]),
                "g": gradient_kernels(net, slopes(net, params, x)),
            }
        return seen

    return jax.jit(jax.vmap(one, (0, None, None, None, None)), compiler_options=QUICK)


def ensemble(net, x, count, names=(), keep="", chunk=100) -> dict[str, Any]:
    """(mean, standard error) over `count` networks of the tangent kernel, and what else is named.

    With `keep`, only parameters whose name has this in it learn.
    """
    x, starts = jnp.asarray(x, jnp.float32), []
    for value in (1.0, -1.0):  # initialisation is linear in its normal numbers, beside what is constant
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "normal", lambda key, shape, dtype, v=value: jnp.full(shape, v, dtype))
            starts.append(net.lazy_init(jax.random.key(0), jax.ShapeDtypeStruct(x.shape, x.dtype))["params"])
    mean, std = (jax.tree.map(lambda a, b, sign=sign: np.asarray(a + sign * b) / 2, *starts) for sign in (1, -1))
    kept = jax.tree_util.tree_map_with_path(lambda path, _: float(keep in jax.tree_util.keystr(path)), mean)
    same = {name: value for name, value in (("zero_init", False), ("query_init", "normal")) if hasattr(net, name)}
    observe = _observer(net.clone(parameterization="ntk", gamma=1.0, bias_init="normal", **same), names)
    p = jax.tree.map(jnp.float32, parameterization(net.parameterization).replace())
    random, seen = np.random.default_rng(5), []
    for _ in range(count // chunk):
        params = jax.tree.map(lambda m, s: m + s * random.standard_normal((chunk, *s.shape), np.float32), mean, std)
        seen.append(jax.tree.map(np.float64, observe(params, p, net.gamma, kept, x)))
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *seen)
    return jax.tree.map(lambda a: (a.mean(0), a.std(0, ddof=1) / count**0.5), joined)


def pair(correlation=0.5):
    """Two points of the plane with |x|²/D = 1."""
    return np.sqrt(2) * np.array([[1, 0], [correlation, np.sqrt(1 - correlation**2)]])


def averages(name, q):
    """E φφ' and E φ'φ' of Gaussians with covariances q."""
    if name == "relu":
        r = np.sqrt(np.diag(q)[:, None] * np.diag(q)[None, :])
        turn = np.arccos(np.clip(q / r, -1, 1))
        return r * (np.sin(turn) + (np.pi - turn) * np.cos(turn)) / (2 * np.pi), (np.pi - turn) / (2 * np.pi)
    size = (1 + 2 * np.diag(q)[:, None]) * (1 + 2 * np.diag(q)[None, :])
    return 2 / np.pi * np.arcsin(2 * q / np.sqrt(size)), 4 / np.pi / np.sqrt(size - 4 * q**2)


def recursion(net, x, inner=True, faster=True, printed=False):
    """(q^L, K^L, nngp, ntk) by the equations of `ResNetTwin` in plain NumPy, or by equations that leave something out.

    inner: a branch's inner weights learn; faster: its learning rate has the factor L^(2α − 1); printed: the total q^(l+1)
    stands for the increment of K beside s² w² E[φ'φ'] K.
    """
    w, b, alpha = net.w_std**2, net.b_std**2, parameterization(net.parameterization).alpha
    start, rate = b * (net.bias_init == "normal"), net.depth ** max(2 * alpha - 1, 0) if faster else 1.0

    def dense(k, t, rate=1.0, zero=False):
        return (1 - zero) * (w * k + start), (1 - zero) * w * t + rate * (w * k + b)

    q, t = dense(x @ x.T / x.shape[1], 0.0)
    with jax.enable_x64(True):
        scales = np.broadcast_to(net.branch_scale, net.branches)
    for scale in scales:
        k, s = q, t
        for layer in range(1, net.branch_layers + 1):
            k, slope = averages(net.activation, k)
            last = layer == net.branch_layers
            k, s = dense(k, s * slope, rate * (inner or last), zero=net.zero_init and last)
        q = q + scale**2 * k
        t = t + scale**2 * (s - k) + q if printed else t + scale**2 * s
    k, slope = averages(net.activation, q)
    return q, t, *dense(k, t * slope)


@dataclasses.dataclass
class Watching(Walk):
    """Remembers the state that the last activation was applied to: h^L."""

    before: Any = None

    def activate(self, state):
        self.before = state
        return super().activate(state)


@functools.cache
def _deep(activation):
    limit = twin(ResNet(1, 1000, activation=activation, w_std=1.0))

    def run(layers, scales, x):
        walk = Watching(layers, algebra.dual(activation_function(activation), 0), False, scales, {})
        features, ntk = limit._walk(limit._start(x, x), walk)
        last = walk.before
        return last.covariance, last.ntk, layers["readout"].w * ntk + layers["readout"].w_tangent * features

    return jax.jit(run)


def at_last(net, x, only=None):
    """(q^L, K^L, ntk) of a dense network; branches that are not there have scale 0, so that all depths are one program."""
    limit, scales = twin(net), np.zeros(999)
    with jax.enable_x64(True):
        layers, found, _ = limit._arguments(np.float64)
        scales[: net.branches] = found
        if only is not None:  # weights of this role alone learn
            layers = {
                role: layer if role == only else dataclasses.replace(layer, w_tangent=0.0)
                for role, layer in layers.items()
            }
        return [np.asarray(part) for part in _deep(net.activation)(layers, scales, jnp.asarray(x))]


def increasing(depth, w2, **options):
    return ResNet(8, depth, w_std=w2**0.5, **options)


VARIANTS = {
    "uniform": {"w_std": 1.3, "beta": 0.7},
    "decreasing": {"w_std": 1.3, "residual": "decreasing", "b_std": 0.4},
    "fixed": {"residual": "fixed", "beta": 0.3, "b_std": 0.4, "bias_init": "zeros"},
    "inner": {"branch_layers": 3, "w_std": 1.3, "b_std": 0.4, "activation": "erf"},
    "zero": {"branch_layers": 2, "zero_init": True, "w_std": 1.3, "b_std": 0.4, "activation": "erf"},
    "faster": {"branch_layers": 2, "b_std": 0.4, "parameterization": Parameterization.mup.replace(alpha=1.0)},
    "slower": {"parameterization": Parameterization.ntk.replace(alpha=0.25)},
    "plain": {"parameterization": PLAIN, "w_std": 2**0.5},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_follow_the_recursion(variant):
    net, x = ResNet(8, **{"depth": 4, "gamma": 1.5, **VARIANTS[variant]}), pair()
    _, _, nngp, ntk = recursion(net, x)
    found = twin(net).kernels(x)
    over = 1.5**2 if variant != "faster" else 1  # γ² divides what stays random
    np.testing.assert_allclose(found.nngp, nngp / over, rtol=1e-12)
    np.testing.assert_allclose(found.ntk, ntk, rtol=1e-12)


@pytest.mark.parametrize("w2", [1.0, 1.7, 2.0])
@pytest.mark.parametrize("depth", [1, 2, 8, 100, 1000])
def test_relu_diagonal_of_branches_that_are_not_scaled(depth, w2):
    a = w2 / 2
    q, k, ntk = at_last(increasing(depth, w2, parameterization=PLAIN), pair())
    # Rounding adds up over as many products as there are blocks.
    np.testing.assert_allclose(np.diag(q), w2 * (1 + a) ** (depth - 1), rtol=1e-12)
    np.testing.assert_allclose(np.diag(k), np.diag(q) * (1 + (depth - 1) * a / (1 + a)), rtol=1e-12)
    np.testing.assert_allclose(np.diag(ntk), w2 / 2 * np.diag(q + k), rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 8, 1000])
def test_relu_diagonal_of_branches_scaled_by_their_layer(depth):
    w2 = 2.0
    s = w2 / (2 * np.arange(2, depth + 1))
    _, k, _ = at_last(increasing(depth, w2, residual="decreasing"), pair())
    np.testing.assert_allclose(np.diag(k), np.prod(1 + s) * w2 * (1 + np.sum(s / (1 + s))), rtol=1e-12)


@pytest.mark.parametrize(("depth", "expected"), [(10, 0.4486), (100, 0.4082), (1000, 0.3822)])
def test_inputs_stay_apart_for_long_where_branches_are_scaled_by_their_layer(depth, expected):
    _, k, _ = at_last(increasing(depth, 2.0, residual="decreasing"), pair())
    assert k[0, 1] / k[0, 0] == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("options", "ours", "printed"),
    [({"parameterization": PLAIN}, (1152, 521), (2048, 955)), ({"residual": "decreasing"}, (20.96, 10.57), (72, 39.5))],
)
def test_the_recursion_as_printed_is_far_off(options, ours, printed):
    net, x = increasing(8, 2.0, **options), pair(0.5731)  # the reference's points, to its three digits
    assert recursion(net, x)[1][0] == pytest.approx(ours, rel=1e-3)
    assert recursion(net, x, printed=True)[1][0] == pytest.approx(printed, rel=1e-3)
    np.testing.assert_allclose(at_last(net, x)[1], recursion(net, x)[1], rtol=1e-12)


@pytest.mark.parametrize(
    "p", [pytest.param(PLAIN, marks=pytest.mark.slow), Parameterization.ntk], ids=["alpha=0", "alpha=1/2"]
)
def test_finite_networks_exclude_the_recursion_as_printed(p):
    net = ResNet(128, 8, 4, w_std=2**0.5, parameterization=p, residual="decreasing")
    mean, sem = ensemble(net, pair(), 200)["ntk"]
    assert np.all(sem < 0.05 * mean)
    # Off by O(L/N), 3 % as seen, which is one standard error; four of them are allowed.
    assert np.all(np.abs(mean - recursion(net, pair())[3]) < 4 * sem)
    assert np.all(np.abs(mean - recursion(net, pair(), printed=True)[3]) > 5 * sem)


# ReLU, Φ⁰ = 1, at angles 0, π/4, π/2: body, readout and read-in at infinite depth.
LAZY = {1.0: (0.412180, 0.824361, 0.824361), 0.5**0.5: (0.225576, 0.636875, 0.392196), 0.0: (0.071637, 0.323289, 0.0)}


@pytest.mark.parametrize("correlation", LAZY)
def test_parts_of_the_kernel_reach_those_of_infinite_depth_at_rate_one_over_depth(correlation):
    depths = [32, 64, 128, 256]
    parts = np.array([
        [at_last(increasing(L, 1.0), pair(correlation), only=role)[2][0, 1] for role in ("branch", "readout", "input")]
        for L in depths
    ])  # fmt: skip
    whole = [at_last(increasing(L, 1.0), pair(correlation))[2][0, 1] for L in depths]
    np.testing.assert_allclose(parts.sum(1), whole, rtol=1e-12)
    # Twice the value at double depth, less the one at half, leaves some 1.6/L² = 2.5e-5; the table has six digits.
    np.testing.assert_allclose(2 * parts[-1] - parts[-2], LAZY[correlation], atol=3e-5)
    errors = np.abs(np.array(whole) - sum(LAZY[correlation]))
    assert np.polyfit(np.log(depths), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.05)


@pytest.mark.parametrize("depth", [1, 4, 1000])
def test_linear_networks_of_any_depth(depth):
    grow = 1 + 1 / depth
    q, _, ntk = at_last(increasing(depth, 1.0, activation="linear"), pair())
    np.testing.assert_allclose(q, grow ** (depth - 1) * pair() @ pair().T / 2, rtol=1e-11, atol=1e-12)
    body = (depth - 1) / depth * grow ** (depth - 2)
    np.testing.assert_allclose(ntk[0, 0], 2 * grow ** (depth - 1) + body, rtol=1e-11)
    if depth == 4:
        assert q[0, 0] == pytest.approx(1.953125, rel=1e-12)


@pytest.mark.parametrize(
    ("activation", "p"),
    [
        ("relu", PLAIN),
        ("relu", Parameterization.mup),
        pytest.param("tanh", Parameterization.mup, marks=pytest.mark.slow),
    ],
)
def test_a_thousand_layers(activation, p):
    kernels = twin(ResNet(8, 1000, activation=activation, parameterization=p)).kernels(pair())
    assert np.isfinite(kernels.ntk).all()
    if activation == "relu":
        a = 0.5 if p is PLAIN else 0.5 / 1000
        np.testing.assert_allclose(np.diag(kernels.nngp), (1 + a) ** 999 / 2, rtol=1e-11)
    assert 0 < kernels.ntk[0, 1] < kernels.ntk[0, 0]


BRANCHES = ResNet(128, 3, 4, "erf", 1.3, 0.3, Parameterization.mup.replace(alpha=1.0), gamma=1.5, branch_layers=2)


@pytest.mark.slow
@pytest.mark.parametrize("zero", [False, True])
def test_branches_of_several_layers_against_finite_networks(zero):
    net, x = BRANCHES.clone(zero_init=zero), pair()
    seen, (_, _, nngp, ntk) = ensemble(net, x, 200, ("last", "layers")), recursion(net, x)
    mean, sem = seen["ntk"]
    assert np.all(np.abs(mean - ntk) < 4 * sem + 0.01 * ntk)
    last, error = seen["last"]
    assert np.all(np.abs(twin(net).readout(last) - nngp) < 4 * 1.3**2 * error + 0.01 * nngp)
    assert np.all(np.abs(mean - recursion(net, x, faster=False)[3]) > 5 * sem)
    if not zero:
        assert np.all(np.abs(mean - recursion(net, x, inner=False)[3]) > 5 * sem)
    for name, limit in zip(("phi", "g"), twin(net).layers(x), strict=True):
        for (found, error), expected in zip(seen[name], limit, strict=True):
            assert np.all(np.abs(found - expected) < 4 * error + 0.01 * expected.max())


def test_signals_that_leave_the_range_of_floats_are_reported():
    net = ResNet(width=8, depth=1000, residual="fixed", w_std=3.0)
    with pytest.raises(FloatingPointError, match=r"4 of 4 entries of the NNGP .* at depth 1000 .* range of float64"):
        twin(net).kernels(np.eye(2))
