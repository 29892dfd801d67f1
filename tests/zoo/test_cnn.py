from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import apply, convolve, some_variables

from zoo import CNN

X = np.sin(1.7 * np.arange(3 * 8 * 7 * 2).reshape(3, 8, 7, 2) ** 1.1)
W, B, GAMMA, N = 1.3, 0.4, 2.0, 5


def network(depth=2, **options) -> Any:
    fields = {"activation": "tanh", "w_std": W, "b_std": B, "gamma": GAMMA, "parameterization": "mup"}
    return CNN(N, depth, 2, **(fields | options))


def pool_over_windows(x, size, function):
    rows, columns = (range(0, n - size + 1, size) for n in x.shape[1:3])
    found = [[function(x[:, i : i + size, j : j + size], (1, 2)) for j in columns] for i in rows]
    return np.array(found).transpose(2, 0, 1, 3)


def reference(params, x, padding="SAME", strides=(1, 1), pools=(None, None), flatten=True):
    """(f, h, φ, features) by the equations of the docstring; pools: (size, NumPy function) after each layer."""
    hs, phis = [], []
    for l, (stride, pool) in enumerate(zip(strides, pools, strict=True), start=1):
        w, b = params[f"conv_{l}"]["kernel"], params[f"conv_{l}"]["bias"]
        hs.append(W * (w.shape[0] ** 2 * x.shape[-1]) ** -0.5 * convolve(x, w, stride, padding) + B * b)
        phis.append(np.tanh(hs[-1]))
        x = pool_over_windows(phis[-1], *pool) if pool else phis[-1]
    features = x.reshape(len(x), -1) if flatten else x.mean((1, 2))
    f = W * features.shape[1] ** -0.5 * features @ params["readout"]["kernel"] + B * params["readout"]["bias"]
    return f / (GAMMA * N**0.5), hs, phis, features


CASES: dict[str, Any] = {
    "same": ({}, {}),
    "circular, even window": ({"padding": "CIRCULAR", "kernel": 2, "strides": 2}, {"strides": (2, 2)}),
    "valid": ({"padding": "VALID", "strides": (1, 2), "readout": "average"}, {"strides": (1, 2), "flatten": 0}),
    "same, strides": ({"kernel": 4, "strides": (3, 1)}, {"strides": (3, 1)}),
    "sums": ({"pool_after": [1], "pool": "sum"}, {"pools": ((2, np.sum), None)}),
    "averages": (
        {"pool_after": (1, 2), "readout": "average", "kernel": 2},
        {"pools": ((2, np.mean),) * 2, "flatten": 0},
    ),
    "last of three": (
        {"depth": 3, "kernel": 1, "pool_after": (3,), "pool_size": 3},
        {"pools": (None, None, (3, np.mean))},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_pass_is_the_loop_of_the_docstring(case):
    options, spelled = CASES[case]
    net: Any = network(**options)
    variables, shared = some_variables(net, X), {"padding": net.padding, "strides": (1,) * net.depth}
    f, inside = apply(net, variables, X, intermediates=True)
    expected, hs, phis, features = reference(variables["params"], X, **(shared | spelled))
    np.testing.assert_allclose(f, expected, atol=1e-12)
    np.testing.assert_allclose(inside["features"], features, atol=1e-12)
    for found, theirs in ((inside["h"], hs), (inside["phi"], phis)):
        for mine, other in zip(found, theirs, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (2 * 9 + 1) * 5 + (5 * 9 + 1) * 5 + (56 * 5 + 1) * 2),
        ({"b_std": 0.0, "readout": "average", "kernel": 2}, 2 * 4 * 5 + 5 * 4 * 5 + 5 * 2),
        # 8 × 7 positions become 4 × 4, 2 × 2, 1; 4 × 3 become 2 × 1.
        ({"strides": 2, "depth": 3}, (2 * 9 + 1) * 5 + 2 * (5 * 9 + 1) * 5 + (5 + 1) * 2),
        ({"pool_after": (2,), "padding": "VALID"}, (2 * 9 + 1) * 5 + (5 * 9 + 1) * 5 + (2 * 5 + 1) * 2),
    ],
)
def test_exact_number_of_parameters(options, expected):
    assert sum(leaf.size for leaf in jax.tree.leaves(some_variables(network(**options), X))) == expected


def test_moving_a_circular_image_leaves_an_average_readout_alone():
    net = network(padding="CIRCULAR", readout="average")
    f = apply(net, some_variables(net, X), np.concatenate([X, np.roll(X, (3, 5), (1, 2))]))
    np.testing.assert_allclose(f[: len(X)], f[len(X) :], atol=1e-12)


def test_lists_from_configs_are_tuples_afterwards():
    net = CNN(4, 2, strides=[1, 2], pool_after=[2])  # pyright: ignore[reportArgumentType]
    assert net == CNN(4, 2, strides=(1, 2), pool_after=(2,))
    assert hash(net) == hash(net.clone())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strides": (1,)}, "CNN: strides has 1 entries for 2 layers; give one a layer"),
        ({"strides": (1, 0)}, r"CNN: strides must be .* integers of at least 1, .* got \(1, 0\)"),
        ({"kernel": 0}, "CNN: kernel must be an integer of at least 1, got 0"),
        ({"padding": "FULL"}, 'CNN: padding must be one of "SAME", "VALID", "CIRCULAR"; got \'FULL\''),
        ({"pool": "max"}, 'CNN: pool must be one of "average", "sum"; got \'max\''),
        ({"readout": "mean"}, 'CNN: readout must be one of "flatten", "average"; got \'mean\''),
        ({"pool_after": (3,)}, r"CNN: pool_after \(3,\) must name layers from 1 to 2"),
        ({"depth": 4, "padding": "VALID"}, "CNN: layer 4 has windows of 3 positions along each axis .* only 2 × 1"),
        ({"pool_after": (2,), "strides": 4}, r"CNN: the pooling after layer 2 has windows of 2 .* only 1 × 1"),
    ],
)
def test_a_bad_value_or_image_is_named_with_its_numbers(arguments, message):
    with pytest.raises(ValueError, match=message):
        some_variables(network(**arguments), X)


@pytest.mark.parametrize(
    ("seen", "given", "message"),
    [
        ((1, 8, 8, 3), (1, 8, 8, 1), "conv_1 was initialised for 3 input features and now gets 1: use inputs"),
        ((1, 8, 8, 3), (1, 8, 4, 3), "readout was initialised for 320 input features and now gets 160: use inputs"),
        ((1, 8, 8, 3), (8, 8, 3), r"CNN needs images \[n, height, width, channels\]; the input has shape \(8, 8, 3\)"),
    ],
)
def test_inputs_of_another_shape_than_at_init_are_answered_with_both_numbers(seen, given, message):
    net = network()
    variables = some_variables(net, np.ones(seen))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(net.apply, variables, jnp.ones(given))
