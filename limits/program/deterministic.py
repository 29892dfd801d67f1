"""Deterministic values: constants of a program, and functions of numbers with the powers of N that they go with."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program import in_numpy
from limits.program.nodes import Det
from limits.program.values import Atom, NoLimitError, Value, as_power

# Of constants that say which neuron is which.
ONES_OWN = (
    "features that are others for every neuron, as sinusoids of positions, have no law over neurons here. A parameter (nn.Embed, "
    "self.param) has one; or read a table of a fixed number of features with weights, nn.Dense(width)(table)"
)


def of_numbers(word: str, function: Callable, dets: Sequence[Det]) -> Det:
    """A function of deterministic values, with its powers of N."""
    if all(isinstance(det.array, np.ndarray) for det in dets):
        array: Any = _of_arrays(word, function, np.broadcast_arrays(*(det.array for det in dets)))
    else:
        array = function(*jnp.broadcast_arrays(*(jnp.asarray(det.array) for det in dets)))
    power, noise, zero = powers(word, dets)
    return Det(array, power, noise, zero, _default(word, function, dets))


def _default(word: str, function: Callable, dets: Sequence[Det]) -> float | None:
    """The number that a function of numbers is by default, where one of them moves."""
    if all(det.default is None for det in dets) or any(det.usual is None for det in dets):
        return None
    return float(_of_arrays(word, function, [np.asarray(det.usual) for det in dets]))


def _of_arrays(word: str, function: Callable, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Also while a caller traces."""
    found = in_numpy.evaluated(word, {}, arrays) if word in in_numpy.ARITHMETIC else None
    if found is not None:
        return found
    with jax.ensure_compile_time_eval():
        return np.asarray(function(*map(jnp.asarray, arrays)))


def powers(word: str, dets: Sequence[Det]) -> tuple[float, float, bool]:
    """(power of N of the size, of what a finite network's differs by, whether it is zero by structure) of a function."""
    low = -math.inf
    size = [low if det.zero else det.power for det in dets]
    noise, zero = [det.noise for det in dets], [det.zero for det in dets]
    if word in ("mul", "dot"):
        a, b = size
        both = max(noise[0] + b, noise[1] + a, noise[0] + noise[1])
        return (0.0 if any(zero) else a + b), both, any(zero)
    if word == "div":
        if zero[1]:
            raise NoLimitError("something is divided by what vanishes with the width")
        return (
            (0.0 if zero[0] else size[0] - size[1]),
            max(noise[0] - size[1], noise[1] + size[0] - 2 * size[1]),
            zero[0],
        )
    if word in ("add", "sub", "max", "min", "select_n", "clamp", "concatenate"):
        return (0.0 if all(zero) else max(size)), max(noise), all(zero) and word in ("add", "sub")
    if word in ("neg", "abs", "real", "reduce_max", "reduce_min", "copy"):
        return dets[0].power, noise[0], zero[0]
    if word in ("square", "sqrt", "rsqrt"):
        k = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5}[word]
        if zero[0] and k < 0:
            raise NoLimitError("something is divided by what vanishes with the width")
        return (0.0, k * noise[0], True) if zero[0] else (k * size[0], noise[0] + (k - 1) * size[0], False)
    if any(
        s > 1e-9  # what is left of powers that cancel
        for s, det in zip(size, dets, strict=True)
        if np.issubdtype(
            np.asarray(det.array).dtype if isinstance(det.array, np.ndarray) else det.array.dtype, np.floating
        )
    ):
        raise NoLimitError(f"{word} is taken of numbers that grow with the width")
    return 0.0, max(noise, default=low), False


def check_steady(det: Det, power: float) -> None:
    """Raises where a number that meets a field of this size stays random in the limit."""
    if det.noise > power - 0.25:
        how = "as much at every width" if as_power(det.noise) == as_power(0) else f"as {as_power(det.noise)}"
        raise NoLimitError(
            f"a sum over neurons that meets a field here still fluctuates, {how}: it is random in the limit (logits "
            "q·k/√d are; q·k/d are not), and averages over it have no closed form"
        )


def _held(array: Any) -> np.ndarray:
    """Numbers as the precision of the reading can hold them: the least one, which masks put in place of others, stays finite."""
    most = np.inf if jax.config.jax_enable_x64 else float(np.finfo(np.float32).max)  # pyright: ignore[reportAttributeAccessIssue]
    return np.where(np.isfinite(array), np.clip(array, -most, most), array)


def constant(value: Any, wide: Any) -> Value:
    """A number or an array of the program, which must be the same along neurons."""
    narrow, wide = np.asarray(value), np.asarray(wide)
    axes, index, power = [], [], 0.0
    for n, m in zip(narrow.shape, wide.shape, strict=True):
        kind = "n" if n != m else "p"
        axes.append(() if n == m == 1 else (Atom(kind, (n, m, n)),))
        index.append(slice(0, 1) if kind == "n" else slice(None))
        if kind == "n" and np.ptp(narrow.astype(float), axis=len(axes) - 1).any():
            raise NoLimitError(f"constants that differ between neurons: {ONES_OWN}")
    small, large = narrow[tuple(index)], wide[tuple(index)]
    if small.dtype.kind in "iuf" and small.size:
        a, b = np.abs(small.astype(float)).max(), np.abs(large.astype(float)).max()
        power = math.log2(b / a) if 0 < a < math.inf and 0 < b < math.inf and a != b else 0.0
        small = _held(small.astype(float)) if np.issubdtype(small.dtype, np.floating) else small
    kept = [n for n, axis in zip(small.shape, axes, strict=True) if axis and axis[0].kind == "p"]
    return Value(tuple(axes), Det(small.reshape(1, *kept), power))
