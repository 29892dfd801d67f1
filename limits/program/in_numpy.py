"""Equations on NumPy's arrays, of which a compilation would take longer."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import Literal

from limits.kernels.alike import INLINED

_FLOATS: dict[str, Callable] = {  # of floating-point numbers alone
    "abs": np.abs, "add": np.add, "add_any": np.add, "ceil": np.ceil, "cos": np.cos, "cosh": np.cosh, "div": np.divide,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "floor": np.floor, "log": np.log, "log1p": np.log1p, "log2": np.log2,
    "max": np.maximum, "min": np.minimum, "mul": np.multiply, "neg": np.negative, "pow": np.power,
    "rsqrt": lambda a: 1 / np.sqrt(a), "sign": np.sign, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt,
    "square": np.square, "sub": np.subtract, "tan": np.tan, "tanh": np.tanh,
    "erf": np.vectorize(math.erf, [float]), "erfc": np.vectorize(math.erfc, [float]),
    "logistic": lambda a: 1 / (1 + np.exp(-a)), "one_minus_square": lambda a: (1 - a) * (1 + a),
    "polynomial": lambda a, *terms: np.polynomial.polynomial.polyval(a, terms),
    "clamp": lambda low, a, high: np.minimum(np.maximum(low, a), high),
}  # fmt: skip
ARITHMETIC = ("add", "sub", "mul", "div", "neg", "max", "min", "sqrt", "square")  # to the last digit as anywhere
_ANY: dict[str, Callable] = {
    "eq": np.equal, "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
    "copy": np.asarray, "copy_p": np.asarray, "stop_gradient": np.asarray,
}  # fmt: skip


def evaluated(name: str, params: dict[str, Any], given: Sequence[Any]) -> np.ndarray | None:
    """What a primitive gives of arrays; None of one that is not known here.

    >>> float(evaluated("integer_pow", {"y": 3}, [np.float64(2)]))
    8.0
    """
    arrays = [np.asarray(each) for each in given]
    floats = all(array.dtype in (np.float32, np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        if name in _ANY or (name in _FLOATS and floats):
            made = (_ANY.get(name) or _FLOATS[name])(*arrays)
            return np.asarray(made, made.dtype if name in _ANY else arrays[0].dtype)
        if name == "integer_pow" and floats:
            return np.asarray(arrays[0] ** params["y"])
        if name == "select_n" and arrays[0].dtype == bool and len(arrays) == 3:
            return np.where(arrays[0], arrays[2], arrays[1])
        if name == "bitcast_convert_type" and np.dtype(params["new_dtype"]).itemsize == arrays[0].itemsize:
            return arrays[0].view(params["new_dtype"])
        if name == "convert_element_type" and np.dtype(params["new_dtype"]).kind == "f":
            return arrays[0].astype(params["new_dtype"])
    return _MOVES[name](params, *arrays) if name in _MOVES else None


def _broadcast(params: dict[str, Any], array: np.ndarray, *sizes: Any) -> np.ndarray | None:
    if sizes:  # of axes that only a run knows
        return None
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], array.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(array.reshape(shape), params["shape"])


def _slice(params: dict[str, Any], array: np.ndarray) -> np.ndarray:
    steps = params["strides"] or (None,) * array.ndim
    return array[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


_MOVES: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast, "slice": _slice,
    "squeeze": lambda params, array: array.squeeze(tuple(params["dimensions"])),
}  # fmt: skip
EXACT = (*ARITHMETIC, *_MOVES)


def run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], more: Callable = evaluated) -> list[np.ndarray] | None:
    """The outputs of a program; None where a primitive in it is not known here, nor to what knows `more`."""
    held = dict(zip((*jaxpr.constvars, *jaxpr.invars), map(np.asarray, (*consts, *given)), strict=True))
    read = lambda v: np.asarray(v.val, getattr(v.aval, "dtype", None)) if isinstance(v, Literal) else held[v]  # noqa: E731
    for eqn in jaxpr.eqns:
        values, inner = [read(v) for v in eqn.invars], eqn.params.get(INLINED.get(eqn.primitive.name, ""))
        if inner is not None:
            made = run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), values, more)
        else:
            one = more(eqn.primitive.name, eqn.params, values)
            made = None if one is None else [one]
        if made is None:
            return None
        held |= zip(eqn.outvars, made, strict=True)
    return [read(v) for v in jaxpr.outvars]
