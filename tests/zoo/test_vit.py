from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from test_layers import apply, hurried, some_variables, start

from zoo import Parameterization, ViT
from zoo.vit import sines

X = np.sin(1.7 * np.arange(3 * 4 * 6 * 2).reshape(3, 4, 6, 2) ** 1.1)
W, B, GAMMA, N = 1.3, 0.4, 2.0, 12
P = Parameterization.mup


def network(**options) -> Any:
    fields: Any = {"width": N, "depth": 1, "patch": 2, "heads": 2, "w_std": W, "b_std": B, "gamma": GAMMA, "outputs": 3}
    return ViT(**(fields | {"parameterization": P} | options))


def dense(p, x):
    return W * len(p["kernel"]) ** -0.5 * x @ p["kernel"] + B * p["bias"]


def normalised(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p.get("scale", 1) + p.get("bias", 0)


def attention(params, name, x, heads, power, softmax=True):
    """One head, one query and one key at a time, for the tokens [tokens, N] of one image."""
    q, k, v = (dense(params[f"{name}_{part}"], x) for part in ("query", "key", "value"))
    size, out = N // heads, np.zeros_like(v)
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        for a in range(len(x)):
            weights = np.array([q[a, own] @ k[b, own] / size**power for b in range(len(x))])
            weights = np.exp(weights) / np.exp(weights).sum() if softmax else weights
            out[a, own] = sum(weights[b] * v[b, own] for b in range(len(x)))
    return dense(params[f"{name}_out"], out)


def reference(params, x, heads=2, power=1, softmax=True, norm=True, depth=1, scale=1, pool="mean", at=1):
    """(f, the tokens after the embedding and after every block, features) by the equations of the docstring."""
    normed = lambda name, h: normalised(params.get(name, {}), h) if norm else h  # noqa: E731
    corners = [(i, j) for i in (0, 2) for j in (0, 2, 4)]
    h = np.stack([dense(params["embedding"], x[:, i : i + 2, j : j + 2].reshape(3, -1)) for i, j in corners], axis=1)
    if pool == "class":
        h = np.concatenate([np.broadcast_to(params["class_token"]["embedding"], (3, 1, N)), h], axis=1)
    h = h + at * (params["positions"]["embedding"] if "positions" in params else 0)
    hs = [h]
    for name in ("block_1", "block_2")[:depth]:
        images = normed(f"{name}_norm_1", h)
        h = h + scale * np.stack([attention(params, name, image, heads, power, softmax) for image in images])
        a = dense(params[f"{name}_mlp_1"], normed(f"{name}_norm_2", h))
        h = h + scale * dense(params[f"{name}_mlp_2"], a * scipy.special.ndtr(a))
        hs.append(h)
    features = normed("norm", h)[:, 0] if pool == "class" else normed("norm", h).mean(1)
    return dense(params["readout"], features) / (GAMMA * N**0.5), hs, features


LINEAR = {"attention": "identity", "norm": None, "positions": None}
DEEP = {"depth": 2, "beta": 0.7, "heads": "grow", "parameterization": P.replace(alpha=1.0), "position_std": 0.5}
CASES: dict[str, Any] = {
    "as it comes": ({}, {}),
    "tied, 1/sqrt(d)": ({"logits": "1/sqrt(d)", "tied": True, "heads": 1}, {"power": 0.5, "heads": 1}),
    "no softmax, no norm": (LINEAR, {"softmax": False, "norm": False}),
    "class token": ({"pool": "class", "norm_affine": False, "mlp_ratio": 1}, {"pool": "class"}),
    "two scaled blocks, growing heads": (DEEP, {"heads": 3, "depth": 2, "scale": 0.7 / 2, "at": 0.5}),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_pass_is_the_loop_of_the_docstring(case):
    options, spelled = CASES[case]
    net = network(**options)
    variables = some_variables(net, X)
    f, inside = apply(net, variables, X, intermediates=True)
    keys = {"block_1_key": variables["params"]["block_1_query"]} if net.tied else {}
    expected, hs, features = reference(variables["params"] | keys, X, **spelled)
    np.testing.assert_allclose(np.hstack([f, inside["features"]]), np.hstack([expected, features]), atol=1e-11)
    np.testing.assert_allclose([*inside["h"], *inside["phi"]], [*hs, *hs], atol=1e-11)


@pytest.mark.parametrize("pool", ["mean", "class"])
def test_fixed_positions_are_sines_and_cosines_of_unit_variance(pool):
    phase = np.arange(tokens := 6 + (pool == "class"))[:, None] * 1e4 ** -((np.arange(N // 2) + 0.5) / (N // 2))
    at = np.sqrt(2) * np.concatenate([np.sin(phase), np.cos(phase)], axis=1)
    np.testing.assert_allclose(np.mean(at**2, axis=1), 1)
    net, learned = (network(positions=kind, position_std=0.5, pool=pool) for kind in ("fixed", "learned"))
    variables = some_variables(net, X)
    other = {"params": variables["params"] | {"positions": {"embedding": at}}}
    np.testing.assert_allclose(apply(net, variables, X), apply(learned, other, X), atol=1e-12)
    np.testing.assert_allclose(hurried(lambda: sines(tokens, N)), at, rtol=1e-12)


@pytest.mark.parametrize("bias_init", ["zeros", "normal"])
def test_queries_that_start_at_zero_are_zero(bias_init):
    params = start(network(query_init="zeros", bias_init=bias_init), X)["params"]
    assert np.all(params["block_1_key"]["kernel"] != 0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(params["block_1_query"]))


@pytest.mark.parametrize("width", [4, 36])
def test_attention_of_zero_queries_is_exactly_uniform(width):
    net = network(width=width, mlp_ratio=1)
    params = some_variables(net, X)["params"]
    zeros, other = ({part: scale * p for part, p in params["block_1_key"].items()} for scale in (0, 3))
    with_zeros, with_others = ({"params": params | {"block_1_query": zeros, "block_1_key": k}} for k in (zeros, other))
    np.testing.assert_array_equal(apply(net, with_zeros, X), apply(net, with_others, X))


def test_patches_that_are_no_squares_are_cut_row_by_row():
    found = network(patch=(1, 3)).patches(X)
    np.testing.assert_array_equal(found[:, 3], X[:, 1, 3:].reshape(3, -1))
    tall = network(patch=(4, 2)).patches(X)
    np.testing.assert_array_equal(tall[:, 1], X[:, :, 2:4].reshape(3, -1))
    strips, squares = network(patch=(2, 2)), network()
    np.testing.assert_array_equal(strips.patches(X), squares.patches(X))


def test_heads_that_grow_are_the_largest_divisor_up_to_the_square_root():
    assert [network(width=width, heads="grow").head_count for width in (12, 16, 64, 7, 96)] == [3, 4, 8, 1, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 5}, "ViT: width 12 does not divide into 5 heads; change either"),
        ({"heads": 0}, 'ViT: heads must be an integer of at least 1, or "grow"; got 0'),
        ({"patch": 4}, "ViT: images of 4 × 6 do not divide into patches of 4 × 4: change patch, or crop or pad"),
        ({"patch": (2, 4)}, "ViT: images of 4 × 6 do not divide into patches of 2 × 4: change patch, or crop or pad"),
        (
            {"patch": (2,)},
            r"ViT: patch must be an integer of at least 1, or rows and columns, such as \(2, 8\); got \(2,\)",
        ),
        ({"logits": "1"}, r'ViT: logits must be one of "1/d", "1/sqrt\(d\)"; got \'1\''),
        ({"positions": "none"}, 'ViT: positions must be one of "learned", "fixed", None; got \'none\''),
        ({"tied": True, "query_init": "zeros"}, "tied queries and keys cannot start at zero"),
        ({"positions": "fixed", "width": 3, "heads": 1}, "pairs of sine and cosine; width 3 is odd"),
    ],
)
def test_a_bad_value_or_image_is_named_with_its_numbers(arguments, message):
    with pytest.raises(ValueError, match=message):
        some_variables(network(**arguments), X)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 4, 6, 3), "embedding was initialised for 8 input features and now gets 12: use inputs x of the shape"),
        ((4, 6, 2), r"ViT needs images .* the input has shape \(4, 6, 2\)"),
        ((1, 4, 4, 2), "positions.* 6 .* 4"),
    ],
)
def test_images_of_another_shape_than_at_init_are_answered_with_both_numbers(shape, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(network().apply, some_variables(network(), X), jnp.ones(shape))
