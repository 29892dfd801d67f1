"""What becomes of numbers that change their type: of truths and whole numbers, numbers; of numbers, whole ones."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.elementwise import of_fields
from limits.program.nodes import Det, FieldSum, Mask, Moved, Node
from limits.program.values import NoLimitError, Value, as_power


def converted(value: Value, old: Any, new: Any) -> Value:
    """A value of type `old` as `new`; floating-point numbers stay what is computed in here, whatever their precision there.

    >>> converted(Value((), Det(np.array([[True, False]]))), bool, jnp.float32).held.array
    array([[1., 0.]])
    >>> converted(Value((), Det(np.array([[1.7, -2.3]]))), jnp.float32, jnp.int32).held.array
    array([[ 1, -2]], dtype=int32)
    """
    held, was, is_now = value.held, _kind(old), _kind(new)
    if (was is is_now and (was is not int or isinstance(held, Node))) or is_mask(held):
        return value
    if isinstance(held, Det):
        return Value(value.axes, _number(held, new, was, is_now))
    if isinstance(held, Node) and was is not float and is_now is not bool:
        return Value(value.axes, of_fields("convert_element_type[whole]", lambda a: a.astype(_work(a)), [held]))
    if isinstance(held, Node) and was is float and jnp.issubdtype(new, jnp.signedinteger):
        return Value(value.axes, of_fields("trunc[]", jnp.trunc, [held]))  # whole numbers of fields are numbers in here
    raise NoLimitError(f"a signal is made {'true or false' if is_now is bool else 'a whole number without a sign'}")


def is_mask(held: Any) -> bool:
    """Whether it is zeros and ones that a forward pass draws."""
    while isinstance(held, Moved):
        held = held.source
    return isinstance(held, Mask) or (isinstance(held, FieldSum) and any(isinstance(u, Mask) for _, u in held.terms))


def _kind(dtype: Any) -> type:
    if jnp.issubdtype(dtype, jnp.inexact):
        return float
    return bool if np.dtype(dtype) == np.bool_ else int


def _number(det: Det, new: Any, was: type, is_now: type) -> Det:
    if is_now is float:
        return dataclasses.replace(det, array=det.array.astype(_work(det.array)))
    if was is float and is_now is int and (det.power or det.noise > -math.inf):
        raise NoLimitError(f"whole numbers are made of what goes as {as_power(det.power)} with the width")
    default = None if det.default is None else float(np.asarray(det.default).astype(new))
    here = new if isinstance(det.array, np.ndarray) else jax.dtypes.canonicalize_dtype(new)
    return dataclasses.replace(det, array=det.array.astype(here), default=default)


def _work(array: Any) -> Any:
    return np.float64 if isinstance(array, np.ndarray) else jnp.result_type(float)
