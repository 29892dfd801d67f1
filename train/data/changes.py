"""The changes of `train.data.geometry`, `colour` and `normalise`, of many images [n, height, width, channels] at once in a
compiled program: the same names, options and draws, in float32 with values in [0, 1].

Divergences: coordinates are float32 where Pillow has float64; and images stored as bytes are not rounded to whole levels between
two changes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from train.data import colour, geometry, normalise
from train.data.draws import PositionDraws

Images = Any  # float32 [n, height, width, channels]


def flip(images: Images, draws: PositionDraws, *, probability: float = 0.5) -> Images:
    """Left and right exchanged, or not."""
    return jnp.where(_each(draws.random() < probability), images[:, :, ::-1], images)


def crop(images: Images, draws: PositionDraws, *, padding: int = 4) -> Images:
    """Moved by up to `padding` whole pixels each way."""
    height, width = images.shape[1:3]
    down, right = (draws.integer(-padding, padding + 1) for _ in range(2))
    y, x = jnp.arange(height)[None] - down[:, None], jnp.arange(width)[None] - right[:, None]
    return _inside(y, x, height, width) * _picked(images, y[:, :, None], x[:, None, :])


def rotation(images: Images, draws: PositionDraws, *, degrees: float = 10.0) -> Images:
    """Turned about the middle."""
    return warped(images, degrees=draws.uniform(-degrees, degrees))


def affine(
    images: Images, draws: PositionDraws, *, translate: float = 0.1, scale: float = 0.1, shear: float = 10.0
) -> Images:
    """Moved, scaled, sheared."""
    height, width = images.shape[1:3]
    down, right, larger, slant = (draws.uniform(-1, 1) for _ in range(4))
    return warped(
        images,
        right=right * (translate * width),
        down=down * (translate * height),
        scale=1 + larger * scale,
        shear=slant * shear,
    )


def resized_crop(images: Images, draws: PositionDraws, *, area: float = 0.08, aspect: float = 4 / 3) -> Images:
    """A part of the image at the image's size."""
    height, width = images.shape[1:3]
    part, ratio = draws.uniform(area, 1), jnp.exp(draws.uniform(-1, 1) * np.float32(math.log(aspect)))
    h, w = jnp.minimum(height, height * jnp.sqrt(part / ratio)), jnp.minimum(width, width * jnp.sqrt(part * ratio))
    top, left = draws.random() * (height - h), draws.random() * (width - w)
    rows, columns = _resampling(top, h, height), _resampling(left, w, width)
    return jnp.einsum("nyi,nxj,nijc->nyxc", rows, columns, images, precision="highest")


def colour_jitter(
    images: Images,
    draws: PositionDraws,
    *,
    brightness: float = 0.2,
    contrast: float = 0.2,
    saturation: float = 0.2,
    hue: float = 0.05,
) -> Images:
    """Brightness, contrast, saturation and hue, in an order of every image's."""
    by = [draws.uniform(-1, 1) for _ in range(4)]
    when = draws.ranks(4)
    kinds = ((brightness, 1, brightened), (contrast, 1, contrasted), (saturation, 1, saturated), (hue, 0, turned))

    def at(turn: Any, images: Images) -> Images:
        found = images
        for amount, rank, (strength, neutral, change) in zip(by, when, kinds, strict=True):
            if strength:
                changed = change(images, _each(neutral + amount * np.float32(strength)))
                found = jnp.where(_each(rank == turn), changed, found)
        return found

    return jax.lax.fori_loop(0, 4, at, images)


def as_float(x: Images) -> Images:
    """As they are."""
    return x


def tokens(x: Any) -> Any:
    """Whole numbers, as they are."""
    return x


def by_image(x: Images) -> Images:
    """Each without its mean, at mean square 1."""
    axes = tuple(range(1, x.ndim))
    from_first = x - x[(slice(None), *[slice(1)] * len(axes))]  # of an image of one colour nothing is left
    return to_sphere(from_first - from_first.mean(axes, keepdims=True))


def to_sphere(x: Any) -> Any:
    """Each at mean square 1."""
    norm = jnp.sqrt((x * x).sum(tuple(range(1, x.ndim)), keepdims=True))
    return x * (np.float32(x[0].size ** 0.5) / jnp.where(norm > 0, norm, 1))


def by_dataset(x: Images, *, mean: Sequence[float], std: Sequence[float]) -> Images:
    """With the data set's numbers."""
    centre, spread = (np.asarray(a, np.float32).reshape(*[1] * (x.ndim - 1), -1) for a in (mean, std))
    return (x - centre) / spread


# Of the functions that `train.data` has on the host.
CHANGES: dict[Callable[..., Any], Callable[..., Images]] = {
    geometry.flip: flip,
    geometry.crop: crop,
    geometry.resized_crop: resized_crop,
    geometry.rotation: rotation,
    geometry.affine: affine,
    colour.colour_jitter: colour_jitter,
}
NORMALISATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    normalise.as_float: as_float,
    normalise.tokens: tokens,
    normalise.by_image: by_image,
    normalise.to_sphere: to_sphere,
    normalise.by_dataset: by_dataset,
}


def warped(
    images: Images, degrees: Any = 0.0, right: Any = 0.0, down: Any = 0.0, scale: Any = 1.0, shear: Any = 0.0
) -> Images:
    """As `train.data.geometry.warped`, with a number for every image."""
    height, width = images.shape[1:3]
    turn, zero = jnp.deg2rad(degrees), jnp.zeros(len(images), jnp.float32)
    c, s, slant = jnp.cos(turn), jnp.sin(turn), jnp.tan(jnp.deg2rad(shear))
    a, b, d, e = (_column(zero + v) for v in ((c - slant * s) / scale, (-s - slant * c) / scale, s / scale, c / scale))
    # From the middle of the moved image, and back to that of the image.
    x = (jnp.arange(width) + 0.5 - width / 2).astype(jnp.float32)[None, None, :] - _column(zero + right)
    y = (jnp.arange(height) + 0.5 - height / 2).astype(jnp.float32)[None, :, None] - _column(zero + down)
    return bilinear(images, d * x + e * y + np.float32(height / 2), a * x + b * y + np.float32(width / 2))


def bilinear(images: Images, y: Any, x: Any) -> Images:
    """Between the centres of pixels at (y, x) [n, height, width], 0 outside."""
    height, width = images.shape[1:3]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    y, x = y - 0.5, x - 0.5
    top, left = jnp.floor(y), jnp.floor(x)
    down, right = (y - top)[..., None], (x - left)[..., None]
    i, j = top.astype(jnp.int32), left.astype(jnp.int32)
    upper = (1 - right) * _picked(images, i, j) + right * _picked(images, i, j + 1)
    lower = (1 - right) * _picked(images, i + 1, j) + right * _picked(images, i + 1, j + 1)
    return jnp.where(inside[..., None], (1 - down) * upper + down * lower, 0)


def brightened(x: Images, factor: Any) -> Images:
    """Black at 0."""
    return _between(x, 0.0, factor)


def contrasted(x: Images, factor: Any) -> Images:
    """The mean grey everywhere at 0."""
    return _between(x, grey(x).mean((1, 2, 3), keepdims=True), factor)


def saturated(x: Images, factor: Any) -> Images:
    """Grey at 0."""
    return _between(x, grey(x), factor)


def turned(x: Images, turn: Any) -> Images:
    """Hues turned by this part of the circle, by way of hue, saturation and value."""
    if x.shape[-1] == 1:
        return x
    value, low = x.max(-1), x.min(-1)
    chroma = value - low
    safe = jnp.where(chroma > 0, chroma, 1)
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    # By order, not by which equals the largest: a compiled program may work out the same pixel twice, with other rounding.
    green_or_blue = jnp.where(g >= b, (b - r) / safe + 2, (r - g) / safe + 4)
    sixths = jnp.where((r >= g) & (r >= b), _modulo((g - b) / safe, 6), green_or_blue)
    hue = jnp.where(chroma > 0, sixths, 0) + 6 * turn[..., 0]
    # Of each channel: the value, less what its distance from the hue takes off.
    channels = [
        value - chroma * jnp.clip(jnp.minimum(k, 4 - k), 0, 1) for k in (_modulo(n + hue, 6) for n in (5, 3, 1))
    ]
    return jnp.stack(channels, -1)


def grey(x: Images) -> Images:
    """The luma [n, height, width, 1]."""
    return x if x.shape[-1] == 1 else (x * colour.LUMA[None, None, None]).sum(-1, keepdims=True)


def _modulo(x: Any, n: int) -> Any:
    return x - n * jnp.floor(x / n)  # several times faster than `%` on a CPU


def _between(x: Images, other: Any, factor: Any) -> Images:
    factor = jnp.maximum(factor, 0)
    return jnp.clip(factor * x + (1 - factor) * other, 0, 1)


def _each(a: Any) -> Any:
    return a[:, None, None, None]


def _column(a: Any) -> Any:
    return a[:, None, None]


def _inside(y: Any, x: Any, height: int, width: int) -> Any:
    rows, columns = (y >= 0) & (y < height), (x >= 0) & (x < width)
    return (rows[:, :, None] & columns[:, None, :])[..., None].astype(jnp.float32)


def _picked(images: Images, y: Any, x: Any) -> Images:
    """The pixels at these rows and columns, or the nearest there are."""
    n, height, width, channels = images.shape
    first = (jnp.arange(n) * height).astype(jnp.int32)
    at = (_column(first) + jnp.clip(y, 0, height - 1)) * width + jnp.clip(x, 0, width - 1)
    return images.reshape(-1, channels).at[at].get(mode="promise_in_bounds")


def _resampling(start: Any, length: Any, size: int) -> Any:
    """Weights [n, to, from] of Pillow's bilinear filter: a triangle, as wide as the pixels are reduced."""
    scale = (length / size)[:, None, None]
    middles = jnp.arange(size, dtype=jnp.float32) + 0.5
    centre = start[:, None, None] + middles[None, :, None] * scale
    away = jnp.abs(middles[None, None] - centre) / jnp.maximum(scale, 1)
    weights = jnp.maximum(1 - away, 0)
    return weights / weights.sum(-1, keepdims=True)
