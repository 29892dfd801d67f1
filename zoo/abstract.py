"""Arrays of which only shape and type are known."""

from typing import Any

import jax


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Of this shape, and of the type that JAX would give an array of this one (it warns of what it would round).

    >>> import numpy as np
    >>> abstract((2, 3), np.float64).dtype
    dtype('float32')
    """
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))
