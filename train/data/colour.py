"""Random colours of images [height, width, channels], uint8 or float in [0, 1], of 1 or 3 channels."""

import numpy as np

from train.data.normalise import as_float
from zoo import checks

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue, by ITU-R BT.601


@checks.options(
    brightness=checks.number(0), contrast=checks.number(0), saturation=checks.number(0), hue=checks.number(0)
)
def colour_jitter(
    image: np.ndarray,
    random: np.random.Generator,
    *,
    brightness: float = 0.2,
    contrast: float = 0.2,
    saturation: float = 0.2,
    hue: float = 0.05,
) -> np.ndarray:
    """Brightness, contrast and saturation times 1 ± strength, hue turned by ± strength of the circle, in random order."""
    if image.shape[-1] not in (1, 3):
        raise ValueError(f"Colours are of images of 1 or 3 channels; got {image.shape}.")
    strengths = np.array([brightness, contrast, saturation, hue])
    by = random.uniform(-1, 1, 4) * strengths
    x = as_float(image)
    for which in random.random(4).argsort():
        if strengths[which]:
            change, neutral = ((brightened, 1), (contrasted, 1), (saturated, 1), (turned, 0))[which]
            x = change(x, float(neutral + by[which]))
    return np.rint(x * 255).astype(np.uint8) if image.dtype == np.uint8 else x.astype(image.dtype)


def grey(x: np.ndarray) -> np.ndarray:
    """The luma [height, width, 1]."""
    return x if x.shape[-1] == 1 else (x * LUMA.astype(x.dtype)).sum(-1, keepdims=True)


def _between(x: np.ndarray, other: np.ndarray | float, factor: float) -> np.ndarray:
    """From `other` at factor 0 to x at 1, and beyond."""
    factor = max(factor, 0.0)
    return np.clip(factor * x + (1 - factor) * other, 0, 1)


def brightened(x: np.ndarray, factor: float) -> np.ndarray:
    """Black at 0.

    >>> brightened(np.full((1, 1, 3), 0.25), 2.0).ravel().tolist()
    [0.5, 0.5, 0.5]
    """
    return _between(x, 0.0, factor)


def contrasted(x: np.ndarray, factor: float) -> np.ndarray:
    """The mean grey everywhere at 0.

    >>> contrasted(np.array([[[0.0], [0.5]]]), 0.0).ravel().tolist()
    [0.25, 0.25]
    """
    return _between(x, float(grey(x).mean()), factor)


def saturated(x: np.ndarray, factor: float) -> np.ndarray:
    """Grey at 0.

    >>> saturated(np.array([[[0.5, 0.5, 0.0]]]), 0.0).round(3).ravel().tolist()
    [0.443, 0.443, 0.443]
    """
    return _between(x, grey(x), factor)


def turned(x: np.ndarray, turn: float) -> np.ndarray:
    """Hues turned by this part of the circle; images of one channel have none.

    >>> turned(np.array([[[1.0, 0.0, 0.0]]]), 1 / 3).round(6).ravel().tolist()  # red to green
    [0.0, 1.0, 0.0]
    """
    if x.shape[-1] == 1:
        return x
    from matplotlib.colors import hsv_to_rgb, rgb_to_hsv  # slow to import

    hsv = rgb_to_hsv(x)
    hsv[..., 0] = (hsv[..., 0] + turn) % 1
    return hsv_to_rgb(hsv)
