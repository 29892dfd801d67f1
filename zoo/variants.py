"""Definitions by name, with the sizes of the literature."""

from collections.abc import Callable
from typing import Any

from zoo import checks
from zoo.gpt import GPT
from zoo.messages import did_you_mean
from zoo.resnet import HeResNet
from zoo.vit import ViT

_TRANSFORMER = {"outputs": 1000, "patch": 16, "pool": "class", "b_std": 1.0, "bias_init": "zeros", "position_std": 0.02}
_TRANSFORMER |= {"parameterization": "standard", "logits": "1/sqrt(d)"}
_IMAGENET = {"outputs": 1000, "b_std": 1.0}
_BOTTLENECK = {"windows": (1, 3, 1), "expansion": 4}
_STANDARD: dict[str, Any] = {"parameterization": "standard", "logits": "1/sqrt(d)", "embedding_std": 0.02}
_GPT2 = {**_STANDARD, "vocabulary": 50257, "context": 1024, "b_std": 1.0, "bias_init": "zeros", "position_std": 0.02}
_GPT2 |= {"mlp": "gelu_tanh", "tied": True, "norm_epsilon": 1e-5}
_LLAMA = {**_STANDARD, "norm": "rms", "mlp": "swiglu", "positions": "rotary", "norm_epsilon": 1e-5}
_SMOL = {"vocabulary": 49152, "context": 2048, "heads": 9, "kv_heads": 3, "mlp_ratio": 1536 / 576, "tied": True}
_TINY = {"vocabulary": 32000, "context": 2048, "heads": 32, "kv_heads": 4, "mlp_ratio": 5632 / 2048}
_7B = {"vocabulary": 32000, "context": 4096, "heads": 32, "mlp_ratio": 11008 / 4096}
_8B = {"vocabulary": 128256, "context": 8192, "heads": 32, "kv_heads": 8, "mlp_ratio": 3.5, "rotary_base": 5e5}

# name → (definition, its fields, what it is made for: the shape of an image, or the number of tokens)
VARIANTS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[int, ...]]] = {
    "resnet_tiny": (HeResNet, {"width": 8, "stages": (1, 1), "stem": "small", "outputs": 10, "b_std": 1.0}, (8, 8, 1)),
    "resnet18": (HeResNet, {"width": 64, "stages": (2, 2, 2, 2), **_IMAGENET}, (224, 224, 3)),
    "resnet34": (HeResNet, {"width": 64, "stages": (3, 4, 6, 3), **_IMAGENET}, (224, 224, 3)),
    "resnet50": (HeResNet, {"width": 64, "stages": (3, 4, 6, 3), **_IMAGENET, **_BOTTLENECK}, (224, 224, 3)),
    "vit_tiny": (ViT, {**_TRANSFORMER, "width": 32, "depth": 2, "heads": 2, "patch": 2, "outputs": 10}, (8, 8, 1)),
    "vit_s16": (ViT, {**_TRANSFORMER, "width": 384, "depth": 12, "heads": 6}, (224, 224, 3)),
    "vit_b16": (ViT, {**_TRANSFORMER, "width": 768, "depth": 12, "heads": 12}, (224, 224, 3)),
    "gpt2": (GPT, {**_GPT2, "width": 768, "depth": 12, "heads": 12}, (1024,)),
    "gpt2_medium": (GPT, {**_GPT2, "width": 1024, "depth": 24, "heads": 16}, (1024,)),
    "gpt2_large": (GPT, {**_GPT2, "width": 1280, "depth": 36, "heads": 20}, (1024,)),
    "gpt2_xl": (GPT, {**_GPT2, "width": 1600, "depth": 48, "heads": 25}, (1024,)),
    "smollm_135m": (GPT, {**_LLAMA, **_SMOL, "width": 576, "depth": 30}, (2048,)),
    "tinyllama_1b": (GPT, {**_LLAMA, **_TINY, "width": 2048, "depth": 22}, (2048,)),
    "llama2_7b": (GPT, {**_LLAMA, **_7B, "width": 4096, "depth": 32}, (4096,)),
    "llama3_8b": (GPT, {**_LLAMA, **_8B, "width": 4096, "depth": 32}, (8192,)),
}


@checks.arguments(name=checks.word)
def variant(name: str, **changes: Any) -> Any:
    """The definition of that name (ResNet-18, resnet18 and "ViT-B/16", vit_b16 are the same), with some fields changed.

    >>> variant("ResNet-18", outputs=10).stages
    (2, 2, 2, 2)
    """
    key = name.lower().replace("-", "_").replace("/", "").replace("resnet_1", "resnet1")
    key = key.replace("resnet_3", "resnet3").replace("resnet_5", "resnet5")
    if key not in VARIANTS:
        raise ValueError(f'Unknown variant "{name}". {did_you_mean(key, VARIANTS)}')
    make, fields, _ = VARIANTS[key]
    return make(**{**fields, **changes})
