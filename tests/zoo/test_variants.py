"""The named variants, the practical residual network that some of them are, and its norms."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_layers import apply, hurried, normal_numbers, some_variables, start
from test_resnet import COMMON, GAMMA, X, linear

from zoo import VARIANTS, HeResNet, Norm, Parameterization, ViT, variant

AXES = {"layer": (3,), "spatial": (1, 2), "batch": (0, 1, 2)}


@pytest.mark.parametrize("kind", AXES)
def test_normalisation_is_over_the_axes_it_says(kind):
    layer = Norm(kind, 16, Parameterization.family(a=0.25, d=0.5), epsilon=0.1)
    first = start(layer, X)["params"]
    np.testing.assert_allclose(first["scale"] * 16**0.25, 1, rtol=1e-14)  # a gain of 1, whatever the member
    assert not np.any(first["bias"])
    variables, options = some_variables(layer, X), {"train": True, "mutable": "batch_stats"}
    plain = (X - X.mean(AXES[kind], keepdims=True)) / np.sqrt(X.var(AXES[kind], keepdims=True) + 0.1)
    expected = 16**0.25 * (plain * variables["params"]["scale"] + variables["params"]["bias"])
    np.testing.assert_allclose(apply(layer, variables, X, **options)[0], expected, atol=1e-12)
    np.testing.assert_allclose(apply(layer.clone(affine=False), {}, X, **options)[0], plain, atol=1e-12)


def test_batch_normalisation_keeps_running_averages_and_uses_them_without_train():
    layer = Norm("batch", 3, Parameterization.ntk, affine=False, momentum=0.8)
    state = hurried(functools.partial(layer.init, train=True), jax.random.key(0), X)
    mean, var = np.zeros(2), np.ones(2)  # at the start, also after an init that saw train=True
    for x in (X, 3 * X + 1):
        state = apply(layer, state, x, train=True, mutable="batch_stats")[1]
        mean, var = 0.8 * mean + 0.2 * x.mean((0, 1, 2)), 0.8 * var + 0.2 * x.var((0, 1, 2))
    kept = [state["batch_stats"][name].ravel() for name in ("mean", "var")]
    np.testing.assert_allclose(kept, [mean, var], atol=1e-14)
    np.testing.assert_allclose(apply(layer, state, X), (X - mean) / np.sqrt(var + 1e-6), atol=1e-12)


def he_reference(net, variables, x, scale, halving, train):
    """f by the docstring; `halving`: the strides of the first branch of a later stage."""
    params, phi, post = variables["params"], np.tanh, net.order == "post"

    def conv(name, x, stride=1):
        y, kept = linear(params[name], x, stride), variables["batch_stats"].get(f"{name}_norm")
        if net.norm is None:
            return y
        mean, var = (function(y, AXES[net.norm], keepdims=True) for function in (np.mean, np.var))
        mean, var = (kept["mean"], kept["var"]) if kept and not train else (mean, var)
        return (y - mean) / np.sqrt(var + 1e-6) * params[f"{name}_norm"]["scale"] + params[f"{name}_norm"]["bias"]

    x = conv("stem", x, 2 if net.stem == "imagenet" else 1)
    x = phi(x) if post else x
    if net.stem == "imagenet":  # windows of 3 every 2 positions, over the edge at the end
        x = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=-np.inf)
        rows, columns = (range(0, n - 2, 2) for n in x.shape[1:3])
        x = np.array([[x[:, i : i + 3, j : j + 3].max((1, 2)) for j in columns] for i in rows]).transpose(2, 0, 1, 3)
    for stage, block in [(s, b) for s, blocks in enumerate(net.stages) for b in range(blocks)]:
        name, halve = f"stage_{stage + 1}_block_{block + 1}", stage > 0 and block == 0
        a = x if post else phi(x)
        for k, stride in enumerate(halving if halve else (1,) * len(halving), start=1):
            a = conv(f"{name}_{k}", phi(a) if k > 1 else a, stride)
        if f"{name}_shortcut" in params:
            x = conv(f"{name}_shortcut", x, 1 + halve)
        x = phi(x + scale * a) if post else x + scale * a
    return linear(params["readout"], (x if post else phi(x)).mean((1, 2))) / GAMMA


BOTTLENECK = {"windows": (1, 3, 1), "expansion": 4}
SHORT = {"windows": (3,), "norm": None, "stem": "imagenet", "order": "pre", "beta": 0.5}
HE_CASES: dict[str, Any] = {
    "post, running averages": ({"norm": "batch"}, 2**-0.5, (2, 1), False),
    "post, averages of the batch": ({"norm": "batch", "stages": (2, 1), "windows": (2,)}, 3**-0.5, (2,), True),
    "pre, every position its features": ({"norm": "layer", "order": "pre"} | BOTTLENECK, 2**-0.5, (1, 2, 1), False),
    "pre, every channel its positions": ({"norm": "spatial", "order": "pre", "windows": (2,)}, 2**-0.5, (2,), False),
    "post, without norm": ({"norm": None, "stem": "imagenet"}, 2**-0.5, (2, 1), False),
    "pre, with β": (SHORT, 0.5 * 2**-0.5, (2,), False),
}


@pytest.mark.parametrize("case", HE_CASES)
def test_practical_network_is_the_loop_of_the_docstring(case):
    options, scale, halving, train = HE_CASES[case]
    fields = {"stages": (1, 1), "stem": "small", "parameterization": "ntk"} | COMMON | options
    net: Any = HeResNet(4, **fields)
    x = X if net.stem == "imagenet" else X[:, :4, :6]
    variables = some_variables(net, x)
    f, _ = apply(net, variables, x, train=train, mutable="batch_stats")
    np.testing.assert_allclose(f, he_reference(net, variables, x, scale, halving, train), atol=1e-11)


# What the literature counts; the tiny ones by hand.
CONVS, NORMS = 9 * 8 + 2 * 9 * 8 * 8 + 9 * 8 * 16 + 9 * 16 * 16 + 8 * 16, 2 * (3 * 8 + 3 * 16)
BLOCK = 4 * 33 * 32 + 33 * 128 + 129 * 32 + 4 * 32
COUNTS = {
    "resnet_tiny": CONVS + NORMS + 17 * 10,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "vit_tiny": 5 * 32 + 32 + 17 * 32 + 2 * BLOCK + 2 * 32 + 33 * 10,
    "vit_s16": 22_050_664,
    "vit_b16": 86_567_656,
    "gpt2": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "smollm_135m": 134_515_008,
    "tinyllama_1b": 1_100_048_384,
    "llama2_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
}


def test_every_variant_has_a_count():
    assert set(COUNTS) == set(VARIANTS)


@functools.cache
def shapes(name) -> Any:
    """((f, intermediates), variables) as shapes."""
    init = functools.partial(variant(name).init_with_output, intermediates=True)
    with normal_numbers(jnp.zeros):
        kind, shape = ("float32", "int32")[len(VARIANTS[name][2]) == 1], VARIANTS[name][2]
        return jax.eval_shape(init, jax.random.key(0), jax.ShapeDtypeStruct((1, *shape), kind))


@pytest.mark.parametrize("name", VARIANTS)
def test_exact_number_of_parameters(name):
    (f, _), variables = shapes(name)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == COUNTS[name]
    positions = VARIANTS[name][2] if "vocabulary" in VARIANTS[name][1] else ()
    assert f.shape == (1, *positions, variant(name).outputs)


def test_sizes_of_resnet50_are_those_of_the_literature():
    (_, inside), variables = shapes("resnet50")
    blocks = [(56, 256)] * 3 + [(28, 512)] * 4 + [(14, 1024)] * 6 + [(7, 2048)] * 3
    assert [h.shape[1:] for h in inside["h"]] == [(size, size, channels) for size, channels in [(56, 64), *blocks]]
    assert len(variables["batch_stats"]) == 1 + 3 * 16 + 4


@pytest.mark.parametrize(
    ("spellings", "cls"),
    [(("ResNet-18", "resnet18", "RESNET_18", "ResNet18"), HeResNet), (("ViT-B/16", "vit_b16", "vit-b16"), ViT)],
)
def test_names_may_be_spelled_as_in_the_literature(spellings, cls):
    nets = [variant(name, outputs=7) for name in spellings]
    assert nets == [nets[0]] * len(nets)
    assert (type(nets[0]), nets[0].outputs) == (cls, 7)


def test_an_unknown_variant_is_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r'Unknown variant "ViT-L/16"\. Did you mean "vit_s16"\? Known: gpt2, gpt2_large'
    ):
        variant("ViT-L/16")
    with pytest.raises(TypeError, match="HeResNet has no argument num_classes: use outputs"):
        variant("resnet18", num_classes=10)
