"""Numbers and keys of a program that are known, and equations between them: in double precision, whatever the program says."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.laws.law import Unknown

KEPT = {"copy", "copy_p", "stop_gradient", "convert_element_type", "sharding_constraint"}
MOVED = {
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "rev",
    "slice",
    "split",
    "unstack",
    "tile",
}
_KEYS = {
    "random_split",
    "random_fold_in",
    "random_wrap",
    "random_unwrap",
    "random_clone",
    "concatenate",
    "stack",
    "gather",
}
_FLOATS: dict[str, Callable] = {  # of constants: evaluated in double precision, whatever the program says
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "square": np.square,
}
_SINGLE, DOUBLE = 2.0**-24, 2.0**-52  # relative errors of rounding


@dataclasses.dataclass(frozen=True)
class Known:
    """Numbers or keys that are known; values: one, if all entries are equal. error: relative, of the float type."""

    values: Any
    shape: tuple[int, ...]
    error: float = 0.0
    secret: bool = False  # made from the key: known here only to tell draws apart


def known(value: Any, error: float | None = None) -> Known:
    """A constant of the program; a float32 with at most three digits is meant as that decimal number."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return Known(value, value.shape, secret=True)
    array = np.asarray(value)
    if array.size == 0 or (array == array.flat[0]).all():
        one, shape = (array.flat[0] if array.size else array.dtype.type(0)), array.shape
        if array.dtype == np.float32 and error is None:
            digits = np.format_float_scientific(one, trim="-")
            short = len(digits.split("e")[0].strip("-").replace(".", "")) <= 3
            return Known(np.asarray(float(digits if short else one)), shape, DOUBLE if short else _SINGLE)
        array = np.asarray(one)
    else:
        shape = array.shape
    if jnp.issubdtype(array.dtype, jnp.floating):
        own = {np.dtype(np.float32): _SINGLE, np.dtype(np.float64): DOUBLE}.get(array.dtype, 0.0)
        return Known(array.astype(np.float64), shape, own if error is None else error)
    return Known(array, shape)


def of_known(equation: Any, values: list[Any]) -> list[Any]:
    """The outputs of an equation between constants; keys are derived, but nothing is drawn from them."""
    name, outs = equation.primitive.name, [v.aval for v in equation.outvars]
    secret = any(value.secret for value in values)
    if secret and name not in _KEYS | KEPT | MOVED:
        return [Unknown(f'it comes from the random key through "{name}"')] * len(outs)
    error = sum(value.error for value in values)
    equal = all(not np.ndim(value.values) for value in values)
    if equal and not secret and name in MOVED:
        return [Known(values[0].values, out.shape, error) for out in outs]
    floats = all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in (*equation.invars, *equation.outvars))
    if equal and floats and name in {*_FLOATS, *KEPT} and outs[0].dtype.itemsize >= 4:
        result = _FLOATS.get(name, np.asarray)(*[value.values for value in values])
        return [Known(np.asarray(result), outs[0].shape, error + DOUBLE)]
    arrays = [array_of(value, v.aval.shape, v.aval.dtype) for value, v in zip(values, equation.invars, strict=True)]
    if name in ("random_fold_in", "random_split"):
        return [Known(_derived(arrays, equation.params.get("shape"), outs[0].shape), outs[0].shape, secret=True)]
    results = equation.primitive.bind(*arrays, **equation.params)
    results = results if equation.primitive.multiple_results else [results]
    loss = error + 2 * _SINGLE if any(out.dtype == np.float32 for out in outs) else error + 2 * DOUBLE
    found = [known(result, loss) for result in results]
    return [dataclasses.replace(each, secret=each.secret or secret) for each in found]


def _derived(arrays: list[Any], split: tuple[int, ...] | None, shape: tuple[int, ...]) -> Any:
    """Keys that are folded with numbers, or split, told apart as those of jax are, for each of which it compiles."""
    words, numbers = np.asarray(jax.random.key_data(arrays[0])), np.asarray(arrays[-1] if split is None else 0)
    if split is not None:
        words = words.reshape(*words.shape[:-1], *(1,) * len(split), -1)
        numbers = np.arange(math.prod(split)).reshape(split)
    words, numbers = np.broadcast_to(words, (*shape, words.shape[-1])), np.broadcast_to(numbers, shape)
    rows = [
        hashlib.blake2b(row.tobytes() + int(number).to_bytes(8, "little", signed=True), digest_size=row.nbytes).digest()
        for row, number in zip(words.reshape(-1, words.shape[-1]), numbers.ravel(), strict=True)
    ]
    found: Any = np.frombuffer(b"".join(rows), words.dtype).reshape(words.shape)
    return jax.random.wrap_key_data(found)


def array_of(known: Known, shape: tuple[int, ...], dtype: Any) -> Any:
    """All entries, in the type that the program has them in."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(known.values, shape)
    return np.broadcast_to(known.values, shape).astype(dtype)
