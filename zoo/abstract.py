"""Arrays of which only shape and type are known."""

from typing import Any

import jax

from zoo.once import once


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """Of this shape, and of the type that JAX would give an array of this one (it warns of what it would round).

    >>> import numpy as np
    >>> abstract((2, 3), np.float64).dtype
    dtype('float32')
    """
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))


def variables_of(net: Any, x: Any) -> Any:
    """What net.init(key, one input like x) gives, as shapes: found once for each kind of inputs, and nothing is computed.

    >>> import flax.linen as nn
    >>> variables_of(nn.Dense(2), abstract((5, 3), "float32"))["params"]["kernel"].shape
    (3, 2)
    """
    kind, real = (str(jax.dtypes.canonicalize_dtype(each)) for each in (x.dtype, float))
    return _variables_of(net, (1, *x.shape[1:]), kind, real)


@once(maxsize=256)
def _variables_of(net: Any, shape: tuple[int, ...], kind: str, real: str) -> Any:
    del real  # of which a module may make its parameters
    # A function of its own: interceptors of Linen's methods see no trace of net.init that jax has kept.
    return jax.eval_shape(lambda key, x: net.init(key, x), jax.eval_shape(jax.random.key, 0), abstract(shape, kind))
