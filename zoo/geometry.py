"""Where windows lie on images: one place for the finite layers and for their kernels."""

import jax

PADDINGS = ("SAME", "VALID", "CIRCULAR")


def pads(size: int, window: int, stride: int, padding: str) -> tuple[int, int]:
    """How many positions are added on both sides of an axis.

    >>> pads(8, 3, 1, "SAME"), pads(8, 3, 2, "SAME"), pads(8, 3, 1, "VALID")
    ((1, 1), (0, 1), (0, 0))
    """
    if padding not in PADDINGS:
        raise ValueError(f'padding must be one of {", ".join(PADDINGS)}; got "{padding}".')
    if padding == "VALID":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def out_size(size: int, window: int, stride: int, padding: str) -> int:
    """How many windows fit along an axis.

    >>> out_size(8, 3, 1, "SAME"), out_size(8, 3, 2, "VALID")
    (8, 3)
    """
    return (size + sum(pads(size, window, stride, padding)) - window) // stride + 1


def check_window(owner: str, shape: tuple[int, ...], window: int, padding: str, what: str) -> None:
    """Raises if a window does not fit on an image of this shape."""
    if min(shape) < window and padding == "VALID":
        raise ValueError(
            f"{owner}: {what} has windows of {window} positions along each axis and its inputs have only "
            f'{" × ".join(map(str, shape))}: use larger images, fewer or smaller windows, or padding="SAME".'
        )


def mean_pool(x: jax.Array, window: int) -> jax.Array:
    """Averages over windows that do not overlap, of [n, *positions, channels]; what is left over at the end is dropped.

    >>> mean_pool(jax.numpy.arange(4.0).reshape(1, 4, 1), 2).ravel().tolist()
    [0.5, 2.5]
    """
    for axis in range(1, x.ndim - 1):
        count = x.shape[axis] // window
        x = jax.lax.slice_in_dim(x, 0, count * window, axis=axis)
        x = x.reshape(*x.shape[:axis], count, window, *x.shape[axis + 1 :]).mean(axis + 1)
    return x
