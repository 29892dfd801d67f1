import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import apply, convolve, some_variables, start

from zoo import HeResNet, Parameterization, ResNet

X = np.sin(1.7 * np.arange(2 * 8 * 12 * 2).reshape(2, 8, 12, 2) ** 1.1)
W, B, GAMMA, N = 1.3, 0.4, 2.0, 8
COMMON = {"outputs": 3, "activation": "tanh", "w_std": W, "b_std": B, "gamma": GAMMA, "bias_init": "normal"}


def linear(p, x, stride=1, padding="SAME"):
    """w_std fan_in^(-1/2) W x + b_std b, if there is a bias."""
    w = p["kernel"]
    y = x @ w if w.ndim == 2 else convolve(x, w, stride, padding)
    return W * math.prod(w.shape[:-1]) ** -0.5 * y + B * p.get("bias", 0)


def averaged(x):
    """Over 2 × 2 positions."""
    return x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))


def network(depth=4, **options) -> Any:
    p = Parameterization.mup.replace(alpha=options.pop("alpha", 0.5))
    return ResNet(N, depth, parameterization=p, beta=0.7, **(COMMON | options))


# What is asked for, the scales of the branches, and how many blocks come before each doubling of the channels.
CASES: dict[str, Any] = {
    "uniform": ({}, [0.7 * 4**-0.5] * 3),
    "decreasing": ({"residual": "decreasing"}, [0.7 * 2**-0.5, 0.7 * 3**-0.5, 0.7 * 4**-0.5]),
    "fixed": ({"residual": "fixed", "depth": 2}, [0.7, 0.7]),
    "another α": ({"alpha": 1.0, "depth": 3}, [0.7 / 3] * 2),
    "only a read-in": ({"depth": 1}, []),
    "three layers": ({"branch_layers": 3, "depth": 3}, [0.7 * 3**-0.5] * 2),
    "conv": ({"form": "conv", "padding": "CIRCULAR", "kernel": 2, "branch_layers": 2}, [0.35] * 3),
    "two stages": ({"form": "conv", "stages": 2, "readout": "average"}, [0.35] * 3, (2,)),
    "three stages": (
        {"form": "conv", "stages": 3, "residual": "decreasing", "depth": 3, "kernel": 1},
        [0.7 * 2**-0.5],
        (1, 1),
    ),
}


def reference(net, params, x, scales, doublings=()):
    """(h of every layer, f) by the equations of the docstring."""
    x = x if net.form == "conv" else x.reshape(len(x), -1)
    hs = [linear(params["read_in"], x, padding=net.padding)]
    for block in range(len(scales) + 1):
        for stage, blocks in enumerate(doublings, start=1):
            if blocks == block:
                hs.append(linear(params[f"double_{stage}"], np.tanh(averaged(hs[-1])), padding=net.padding))
        if block < len(scales):
            branch = hs[-1]
            for k in range(1, net.branch_layers + 1):
                branch = linear(params[f"block_{block + 1}_{k}"], np.tanh(branch), padding=net.padding)
            hs.append(hs[-1] + scales[block] * branch)
    a = np.tanh(hs[-1])
    features = a.mean((1, 2)) if net.readout == "average" else a.reshape(len(a), -1)
    return hs, linear(params["readout"], features) / (GAMMA * N**0.5)


@pytest.mark.parametrize("case", CASES)
def test_forward_pass_is_the_loop_of_the_docstring(case):
    options, scales, *doublings = CASES[case]
    net, x = network(**options), X[:, :4, :8]
    assert net.branches == len(scales)
    np.testing.assert_allclose(np.broadcast_to(net.branch_scale, len(scales)), scales, rtol=1e-6)
    variables = some_variables(net, x)
    f, inside = apply(net, variables, x, intermediates=True)
    hs, expected = reference(net, variables["params"], x, scales, *doublings)
    np.testing.assert_allclose(f, expected, atol=1e-12)
    for found, phi, theirs in zip(inside["h"], inside["phi"], hs, strict=True):
        np.testing.assert_allclose(found, theirs, atol=1e-12)
        np.testing.assert_allclose(phi, np.tanh(theirs), atol=1e-12)


ZERO: dict[str, Any] = {
    "theory": ResNet(N, 2, b_std=B, branch_layers=2, zero_init=True),
    "norm": HeResNet(N, (1,), order="pre", stem="small", zero_init=True, b_std=B, windows=(1, 1)),
    "no norm": HeResNet(
        N, (1,), order="pre", stem="small", zero_init=True, b_std=B, bias_init="normal", windows=(1, 1), norm=None
    ),
}


def test_a_norm_without_a_gain_has_nothing_that_starts_at_zero():
    with pytest.raises(
        ValueError, match="zero_init starts the gain of a norm at zero, and norm_affine=False has no gain"
    ):
        ZERO["norm"].clone(norm_affine=False)


@pytest.mark.parametrize("case", ZERO)
def test_branches_that_start_at_zero_leave_the_read_in(case):
    net, x = ZERO[case], X[:, :4, :4]
    variables = start(net, x)
    f, inside = apply(net, variables, x, intermediates=True)
    for later in inside["h"]:
        np.testing.assert_allclose(
            later, inside["h"][0], rtol=1e-6
        )  # a float32's rounding: loops are fused as the compiler likes
    if isinstance(net, ResNet):
        np.testing.assert_array_equal(f, apply(net.clone(depth=1), variables, x))  # which has only the read-in
    moved = jax.tree.map(lambda leaf: leaf + 0.1, variables)
    assert not np.array_equal(*apply(net, moved, x, intermediates=True)[1]["h"][:2])  # but there are branches


def test_every_block_of_the_practical_network_has_its_scale():
    half = Parameterization.standard.replace(alpha=0.5)
    net = HeResNet(N, (2,), stem="small", order="pre", norm=None, parameterization=half, beta=0.7)
    falling, x = net.clone(residual="decreasing"), X[:, :4, :4]
    variables = some_variables(net, x)

    def steps(net: Any) -> list[Any]:
        h = apply(net, variables, x, intermediates=True)[1]["h"]
        return [after - before for before, after in itertools.pairwise(h)]

    np.testing.assert_allclose(falling.branch_scale, 0.7 / np.sqrt([2, 3]), rtol=1e-6)
    for name in list(variables["params"]):
        if "block_1" in name:
            variables["params"][name] = jax.tree.map(jnp.zeros_like, variables["params"][name])  # the second alone
    even, uneven = steps(net), steps(falling)
    np.testing.assert_allclose(uneven[1], np.sqrt(2 / 3) * even[1], rtol=1e-6)
    assert np.abs(even[1]).max() > 0.1


def test_integer_inputs_are_numbers_too():
    net, x = network(depth=3), np.arange(12).reshape(2, 6)
    variables = some_variables(net, x)
    np.testing.assert_allclose(apply(net, variables, x), apply(net, variables, x.astype(float)), rtol=1e-12)


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (ResNet, {"form": "conv", "stages": 5}, r"at least 4 and a width .* multiple of 16; got depth 4 and width 8"),
        (ResNet, {"stages": 2}, r'ResNet: stages are for form="conv"; got 2 with form="dense"'),
        (ResNet, {"padding": "VALID"}, 'must keep the shape of its input; use padding="SAME" or "CIRCULAR"'),
        (ResNet, {"residual": "none"}, '"uniform", "decreasing", "fixed"; got \'none\''),
        (ResNet, {"beta": -1.0}, "ResNet: beta must be a finite number ≥ 0, got -1.0"),
        (HeResNet, {"stages": (1, 0)}, r"HeResNet: stages must be .* integers of at least 1, .* got \(1, 0\)"),
        (HeResNet, {"stages": 2}, r"HeResNet: stages must be a tuple of integers .* such as \(2, 2\); got 2"),
        (HeResNet, {"windows": ()}, r"HeResNet: windows must be a tuple of integers .* such as \(2, 2\); got \(\)"),
        (HeResNet, {"norm": "group"}, '"batch", "layer", "spatial", None; got \'group\''),
        (HeResNet, {"order": "both"}, 'HeResNet: order must be one of "post", "pre"; got \'both\''),
    ],
)
def test_a_bad_value_is_named_with_its_numbers(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**({"width": N} | ({"depth": 4} if cls is ResNet else {}) | arguments))


@pytest.mark.parametrize(
    ("net", "seen", "given", "message"),
    [
        (ResNet(N, 2), (2, 6), (2, 5), "read_in was initialised for 6 input features and now gets 5"),
        (ResNet(N, 2, form="conv", stages=2), (1, 4, 1, 2), (1,), r"pooling before stage 2 has windows of 2 .* 4 × 1"),
        (HeResNet(N, (1,)), (1, 8, 8, 3), (1, 8, 8, 1), "stem was initialised for 3 input features and now gets 1"),
        (HeResNet(N, (1,)), (1, 8, 8, 3), (8, 8, 3), r"HeResNet needs images .* the input has shape \(8, 8, 3\)"),
    ],
)
def test_an_input_that_does_not_fit_is_named_with_its_numbers(net, seen, given, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(net.apply, some_variables(net, np.ones(seen)), jnp.ones(given))
