"""Random flips, shifts, rotations and affine maps of images [height, width, channels], uint8 or float.

Pixels from outside are 0. Interpolation is bilinear, by Pillow (which comes with matplotlib), between centres of pixels.
"""

import math
from collections.abc import Callable

import numpy as np
from PIL import Image

from zoo import checks


@checks.options(probability=checks.share)
def flip(image: np.ndarray, random: np.random.Generator, *, probability: float = 0.5) -> np.ndarray:
    """Left and right exchanged, or not.

    >>> flip(np.array([[[1], [2]]]), np.random.default_rng(0), probability=1.0).ravel().tolist()
    [2, 1]
    """
    return image[:, ::-1] if random.random() < probability else image


@checks.options(padding=checks.count(0))
def crop(image: np.ndarray, random: np.random.Generator, *, padding: int = 4) -> np.ndarray:
    """A window of the image's size out of the image with a border of zeros: a shift by up to `padding` pixels each way."""
    down, right = random.integers(-padding, padding + 1, 2).tolist()
    return shifted(image, down, right)


def shifted(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """The image moved by whole pixels.

    >>> shifted(np.array([[[1], [2]]]), 0, 1).ravel().tolist()
    [0, 1]
    """
    out = np.zeros_like(image)
    (to_y, from_y), (to_x, from_x) = (_overlap(n, by) for n, by in zip(image.shape[:2], (down, right), strict=True))
    out[to_y, to_x] = image[from_y, from_x]
    return out


def _overlap(size: int, by: int) -> tuple[slice, slice]:
    kept = max(size - abs(by), 0)
    return slice(max(by, 0), max(by, 0) + kept), slice(max(-by, 0), max(-by, 0) + kept)


@checks.options(degrees=checks.number(0))
def rotation(image: np.ndarray, random: np.random.Generator, *, degrees: float = 10.0) -> np.ndarray:
    """Turned about the middle by a uniform angle in ± degrees."""
    return warped(image, degrees=random.uniform(-degrees, degrees))


@checks.options(translate=checks.number(0), scale=checks.number(0, 1), shear=checks.number(0, 90))
def affine(
    image: np.ndarray,
    random: np.random.Generator,
    *,
    translate: float = 0.1,
    scale: float = 0.1,
    shear: float = 10.0,
) -> np.ndarray:
    """Moved by up to `translate` of the size each way, scaled by 1 ± scale, sheared by up to ± shear degrees."""
    if not 0 <= scale < 1:
        raise ValueError(f"affine: images are scaled by 1 ± scale, so scale must lie in [0, 1); got {scale}.")
    height, width = image.shape[:2]
    down, right, larger, slant = random.uniform(-1, 1, 4).tolist()
    return warped(
        image,
        right=right * translate * width,
        down=down * translate * height,
        scale=1 + larger * scale,
        shear=slant * shear,
    )


@checks.options(area=checks.share, aspect=checks.number(1))
def resized_crop(
    image: np.ndarray, random: np.random.Generator, *, area: float = 0.08, aspect: float = 4 / 3
) -> np.ndarray:
    """A part of the image (from `area` to all of it, sides in a ratio of up to `aspect` either way) at the image's size.

    The crop of ImageNet training. Sides that would leave the image end at its border, where other implementations draw again.
    """
    height, width = image.shape[:2]
    part, ratio = random.uniform(area, 1), math.exp(random.uniform(-1, 1) * math.log(aspect))
    h, w = min(height, height * math.sqrt(part / ratio)), min(width, width * math.sqrt(part * ratio))
    top, left = (random.random(2) * (height - h, width - w)).tolist()
    box = (left, top, left + w, top + h)
    return _by_plane(image, lambda plane: plane.resize((width, height), Image.Resampling.BILINEAR, box))


def warped(
    image: np.ndarray,
    degrees: float = 0.0,
    right: float = 0.0,
    down: float = 0.0,
    scale: float = 1.0,
    shear: float = 0.0,
) -> np.ndarray:
    """Sheared (to the right for what is lower), scaled and turned counter-clockwise about the middle, then moved by pixels.

    >>> warped(np.arange(4.0).reshape(2, 2, 1), degrees=90.0).round(6)[..., 0].tolist()  # 0 1 over 2 3
    [[1.0, 3.0], [0.0, 2.0]]
    """
    height, width = image.shape[:2]
    c, s, slant = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), math.tan(math.radians(shear))
    # Where each pixel comes from, in (x to the right, y down): the inverse of scale · [[c, s], [−s, c]] · [[1, slant], [0, 1]].
    a, b, d, e = (c - slant * s) / scale, (-s - slant * c) / scale, s / scale, c / scale
    x, y = width / 2 + right, height / 2 + down
    coefficients = (a, b, width / 2 - a * x - b * y, d, e, height / 2 - d * x - e * y)
    method, sampling = Image.Transform.AFFINE, Image.Resampling.BILINEAR
    return _by_plane(image, lambda plane: plane.transform(plane.size, method, coefficients, sampling))


def _by_plane(image: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """The change of every channel, in the type of the image."""
    if image.dtype == np.uint8 and image.shape[-1] == 3:
        return np.asarray(change(Image.fromarray(np.ascontiguousarray(image))))
    kind = np.uint8 if image.dtype == np.uint8 else np.float32
    planes = [Image.fromarray(np.ascontiguousarray(image[..., k], kind)) for k in range(image.shape[-1])]
    return np.stack([np.asarray(change(plane)) for plane in planes], -1).astype(image.dtype)
