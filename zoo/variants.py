"""Definitions by name, with the sizes of the literature."""

from collections.abc import Callable
from typing import Any

from zoo import checks
from zoo.messages import did_you_mean
from zoo.resnet import HeResNet
from zoo.vit import ViT

_TRANSFORMER = {"outputs": 1000, "patch": 16, "pool": "class", "b_std": 1.0, "bias_init": "zeros", "position_std": 0.02}
_TRANSFORMER |= {"parameterization": "standard", "logits": "1/sqrt(d)"}
_IMAGENET = {"outputs": 1000, "b_std": 1.0}
_BOTTLENECK = {"windows": (1, 3, 1), "expansion": 4}

# name → (definition, its fields, the image it is made for)
VARIANTS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[int, int, int]]] = {
    "resnet_tiny": (HeResNet, {"width": 8, "stages": (1, 1), "stem": "small", "outputs": 10, "b_std": 1.0}, (8, 8, 1)),
    "resnet18": (HeResNet, {"width": 64, "stages": (2, 2, 2, 2), **_IMAGENET}, (224, 224, 3)),
    "resnet34": (HeResNet, {"width": 64, "stages": (3, 4, 6, 3), **_IMAGENET}, (224, 224, 3)),
    "resnet50": (HeResNet, {"width": 64, "stages": (3, 4, 6, 3), **_IMAGENET, **_BOTTLENECK}, (224, 224, 3)),
    "vit_tiny": (ViT, {**_TRANSFORMER, "width": 32, "depth": 2, "heads": 2, "patch": 2, "outputs": 10}, (8, 8, 1)),
    "vit_s16": (ViT, {**_TRANSFORMER, "width": 384, "depth": 12, "heads": 6}, (224, 224, 3)),
    "vit_b16": (ViT, {**_TRANSFORMER, "width": 768, "depth": 12, "heads": 12}, (224, 224, 3)),
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
