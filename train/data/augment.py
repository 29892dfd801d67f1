"""Random changes of images that keep their label, chosen by name in a config.

The depthwise-transfer experiments (Bordelon et al., https://arxiv.org/abs/2309.16620, appendix A.4) use flips, rotations by 10°,
affine maps and colour jitter on CIFAR-10, crops and flips on ImageNet. It gives no strength but the 10°; the others are ours.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from train.data.colour import colour_jitter
from train.data.geometry import affine, crop, flip, resized_crop, rotation
from train.data.normalise import chosen
from zoo import checks

AUGMENTATIONS: dict[str, Callable[..., np.ndarray]] = {
    "flip": flip,
    "crop": crop,
    "resized_crop": resized_crop,
    "rotation": rotation,
    "affine": affine,
    "colour_jitter": colour_jitter,
}


_ROUNDING = 1e-3  # of images that were resized, or are kept in half precision


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """(image, generator) → image: one step after the other."""

    steps: tuple[Callable[..., np.ndarray], ...]

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The image changed; shape and type stay."""
        for step in self.steps:
            image = step(image, random)
        return image

    def check(self, images: np.ndarray, name: str) -> None:
        """Raises where a step is of colours, and these images [n, height, width, channels] are none."""
        colours = any(getattr(step, "func", step) is colour_jitter for step in self.steps)
        if not colours or images.dtype in (np.uint8, bool) or not images.size:
            return
        low, high = float(images.min()), float(images.max())
        if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
            raise ValueError(
                f"colour_jitter is of images in [0, 1], or of bytes; {name} has values from {low:.3g} to {high:.3g}, which it "
                "would clip. Give uint8, or values in [0, 1], and `normalise` after it."
            )


@checks.arguments()
def augmentation(steps: Sequence[Any]) -> Augmentation:
    """The composition of named steps, each "name" or ("name", options).

    >>> change = augmentation([("crop", {"padding": 1}), "flip", ("rotation", {"degrees": 10.0})])
    >>> change(np.ones((8, 8, 1)), np.random.default_rng(0)).shape
    (8, 8, 1)
    """
    if isinstance(steps, str):
        raise ValueError(f'Augmentation is a list of steps: ["{steps}"], not "{steps}".')
    if not isinstance(steps, list | tuple):
        raise ValueError(f"Augmentation is a list of steps; got {checks.shown(steps)}.")
    return Augmentation(tuple(chosen(AUGMENTATIONS, step, "augmentation") for step in steps))
