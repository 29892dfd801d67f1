"""What becomes of numbers that change their type: of truths and whole numbers, numbers; of numbers, whole ones."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.elementwise import of_fields
from limits.program.nodes import Det, Mask, Node
from limits.program.values import NoLimitError, Value, as_power


def converted(value: Value, old: Any, new: Any) -> Value:
    """A value of type `old` as `new`; floating-point numbers stay what is computed in here, whatever their precision there.

    >>> converted(Value((), Det(np.array([[True, False]]))), bool, jnp.float32).held.array
    array([[1., 0.]])
    >>> converted(Value((), Det(np.array([[1.7, -2.3]]))), jnp.float32, jnp.int32).held.array
    array([[ 1, -2]], dtype=int32)
    """
    held, kinds = value.held, [jnp.issubdtype(dtype, jnp.inexact) for dtype in (old, new)]
    if all(kinds) or old == new or isinstance(held, Mask):
        return value
    if isinstance(held, Det):
        return Value(value.axes, _number(held, new, *kinds))
    if isinstance(held, Node) and np.dtype(old) == np.bool_:
        return Value(value.axes, of_fields("convert_element_type[0 or 1]", lambda a: a.astype(_work(a)), [held]))
    raise NoLimitError(f"a signal is made {'true or false' if np.dtype(new) == np.bool_ else 'a whole number'}")


def _number(det: Det, new: Any, was: bool, is_float: bool) -> Det:
    if is_float:
        return dataclasses.replace(det, array=det.array.astype(_work(det.array)))
    if was and np.dtype(new) != np.bool_ and (det.power or det.noise > -math.inf):
        raise NoLimitError(f"whole numbers are made of what goes as {as_power(det.power)} with the width")
    default = None if det.default is None else float(np.asarray(det.default).astype(new))
    here = new if isinstance(det.array, np.ndarray) else jax.dtypes.canonicalize_dtype(new)
    return dataclasses.replace(det, array=det.array.astype(here), default=default)


def _work(array: Any) -> Any:
    return np.float64 if isinstance(array, np.ndarray) else jnp.result_type(float)
