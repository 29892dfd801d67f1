"""In what precision `limits` computes, whatever the device takes for its own default."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


@contextlib.contextmanager
def full_products() -> Iterator[None]:
    """Products of float32 matrices are those of float32 in here; unless the caller has set `jax_default_matmul_precision`.

    JAX's default rounds the factors on accelerators, to 10 bits of the mantissa on a GPU (TF32) and to 7 on a TPU: errors of
    1e-3 and 1e-2, with no word of it, where deviations of order 1/width are measured. A thread has its own setting.

    >>> with full_products():
    ...     jax.config.jax_default_matmul_precision
    'highest'
    """
    if jax.config.jax_default_matmul_precision is not None:  # pyright: ignore[reportAttributeAccessIssue]
        yield
        return
    with jax.default_matmul_precision("highest"):
        yield


@contextlib.contextmanager
def computing_in(dtype: Any) -> Iterator[None]:
    """The same, with float64 switched on where `dtype` is that, and off where not."""
    with jax.enable_x64(np.dtype(dtype) == np.float64), full_products():
        yield
