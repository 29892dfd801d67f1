"""How the numbers of a program go with those of its network: as powers of w_std, of a branch's scale, of a slope …

A network is read again with each of its numbers doubled, and once with all of them changed. Where every constant of the code,
every law and every learning rate goes as a product of powers of them, the reading is one for all their values.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from limits.program.deterministic import constant
from limits.program.loops import Slot
from limits.program.trace import Constant, Equation
from limits.program.values import NoLimitError, Parameter, Refused, Value

_FACTORS = (1.3, 0.7, 1.9, 0.6, 1.6, 0.8)  # of numbers that are changed together
_TOLERANCE, _ROUNDED = 1e-9, 5e-7  # of numbers in double precision, and of those that code rounds to single precision
Powers = tuple[float, ...]  # of each number
_ANOTHER = (
    "the code is another one where {} is changed (it takes another path, or the value now is a special one, such as 0 or 1), so "
    "that the kernel is not read as a function of it"
)


class Usual(float):
    """The number that a constant is by default, and the powers of the network's numbers that it goes with."""

    powers: Powers

    def __new__(cls, value: float, powers: Powers) -> "Usual":  # noqa: D102
        made = super().__new__(cls, value)
        made.powers = powers
        return made


@dataclasses.dataclass(frozen=True, eq=False)
class Dependence:
    """Powers of the numbers, in constants by equation and input, and in parameters by path (of mean, size, learning rate)."""

    constants: dict[Slot, Powers]
    parameters: dict[str, tuple[Powers, Powers, Powers]]

    def values(self, equations: Sequence[Equation], ratios: Sequence[Any]) -> dict[Slot, Value]:
        """Constants that move, where numbers are so many times those that the network was read with (none: they are those)."""
        found = {}
        for (i, k), powers in self.constants.items():
            number: Any = equations[i].inputs[k]
            value = constant(*number)
            array = value.held.array
            default = Usual(float(array.reshape(())), powers) if array.size == 1 else None
            moved = jnp.asarray(array) * _product(powers, ratios)
            found[i, k] = Value(value.axes, dataclasses.replace(value.held, array=moved, default=default))
        return found

    def laws(self, parameters: dict[str, Value | Refused], ratios: Sequence[Any]) -> dict[str, Value | Refused]:
        """Parameters whose laws and learning rates move."""
        moved = {}
        for path, powers in self.parameters.items():
            value: Any = parameters[path]
            moving = tuple(_product(each, ratios) for each in powers)
            moved[path] = Value(value.axes, Parameter(**{**value.held.__dict__, "moving": moving}))
        return parameters | moved


def _product(powers: Powers, ratios: Sequence[Any]) -> Any:
    found: Any = 1.0
    for power, ratio in zip(powers, ratios or (1.0,) * len(powers), strict=True):
        if power:
            found = found * (ratio if power == 1 else jnp.asarray(ratio) ** power)
    return found


def dependence(read: Callable[[tuple[float, ...]], Any], names: Sequence[str]) -> Dependence:
    """Of `ProgramKernels` read(factors) of a network whose numbers are so many times what they are.

    NoLimitError where something goes with them in another way.
    """
    ones = (1.0,) * len(names)
    usual = read(ones)
    base = _numbers(usual, "", None)

    def changed(factors: tuple[float, ...], name: str) -> dict[Any, tuple[np.ndarray, str]]:
        other = read(factors)
        found = _numbers(other, name, base)
        if _code(other) != _code(usual):
            raise NoLimitError(_ANOTHER.format(name))
        return found

    doubled = [changed((*ones[:j], 2.0, *ones[j + 1 :]), name) for j, name in enumerate(names)]
    factors = tuple(_FACTORS[j % len(_FACTORS)] for j in range(len(names)))
    powers = {key: tuple(_power(value, table[key][0]) for table in doubled) for key, (value, _) in base.items()}
    rounded = _check_powers(base, powers, factors, changed(factors, ", ".join(names)), names, doubled)
    # Rounding stays what it is however far numbers move; what is added to one shows beside a small or a large one.
    for far in (2.0**-10, 2.0**10) if rounded else ():
        moved = tuple(far * factor for factor in factors)
        _check_powers(base, powers, moved, changed(moved, ", ".join(names)), names, doubled)
    powers = {key: here for key, here in powers.items() if any(here)}
    zero = (0.0,) * len(names)
    constants = {key: each for key, each in powers.items() if not isinstance(key[0], str)}
    paths = {key[0] for key in powers if isinstance(key[0], str)}
    parameters = {path: tuple(powers.get((path, what), zero) for what in ("mean", "size", "rate")) for path in paths}
    return Dependence(constants, parameters)  # pyright: ignore[reportArgumentType]


def _check_powers(
    base: dict, powers: dict, factors: tuple[float, ...], found: dict, names: Sequence[str], doubled: Sequence[dict]
) -> bool:
    """Raises where numbers are not these powers of the factors; whether some are so only up to single precision."""
    rounded = False
    for key, (value, where) in base.items():
        wanted = value * math.prod(factor**power for factor, power in zip(factors, powers[key], strict=True))
        if np.allclose(found[key][0], wanted, rtol=_TOLERANCE, atol=0, equal_nan=True):
            continue
        rounded = True
        single = isinstance(key[0], str) or _is_single(found[key][0])  # of laws initialisers make single precision
        if not (single and np.allclose(found[key][0], wanted, rtol=_ROUNDED, atol=0, equal_nan=True)):
            moves = [
                name for name, table in zip(names, doubled, strict=True) if not np.array_equal(table[key][0], value)
            ]
            raise NoLimitError(
                f"{where}: a number of the code depends on {' and '.join(moves or names)} in another way than as a factor or a "
                "power, so that the kernel is not read as a function of it. Multiply signals by it in the forward code, or make "
                "a twin for every value"
            )
    return rounded


def _is_single(value: np.ndarray) -> bool:
    """Whether these have no more digits than in single precision."""
    with np.errstate(over="ignore"):
        return np.array_equal(value, value.astype(np.float32), equal_nan=True)


def _power(value: np.ndarray, other: np.ndarray) -> float:
    """p where other = 2^p value."""
    at = np.flatnonzero((value != 0) & np.isfinite(value))
    if not len(at):
        return 0.0
    ratio = other.ravel()[at[0]] / value.ravel()[at[0]]
    return round(4 * math.log2(ratio)) / 4 if ratio > 0 else 0.0


def _numbers(kernels: Any, name: str, like: dict | None) -> dict[Any, tuple[np.ndarray, str]]:
    """All numbers of a reading, with the places where they stand."""
    if isinstance(kernels, Refused):
        raise NoLimitError(kernels.reason)
    found: dict[Any, tuple[np.ndarray, str]] = {}
    for i, equation in enumerate(kernels.program.equations):
        for k, each in enumerate(equation.inputs):
            if isinstance(each, Constant) and jnp.issubdtype(np.asarray(each.value).dtype, jnp.floating):
                found[i, k] = np.asarray(each.value, float), f"{equation.where} ({equation.primitive})"
    for path, value in kernels.parameters.items():
        if isinstance(value, Refused):
            continue
        held = value.held
        parts = {"mean": held.law.mean, "size": held.law.variance**0.5, "rate": held.rate}
        found |= {(path, what): (np.asarray(part, float), f"the {what} of {path}") for what, part in parts.items()}
    if like is not None and (
        found.keys() != like.keys() or any(found[key][0].shape != like[key][0].shape for key in found)
    ):
        raise NoLimitError(_ANOTHER.format(name))
    return found


def _code(kernels: Any) -> list[Any]:
    """What its equations do, beside numbers: exponents, axes, lengths of windows, places, masks."""
    found = []
    for equation in kernels.program.equations:
        params = sorted(f"{key}={value}" for key, value in equation.params.items() if _said(value))
        places = [np.asarray(each.value) for each in equation.inputs if isinstance(each, Constant)]
        whole = [(a.shape, a.tobytes()) for a in places if a.dtype.kind in "iub"]
        found.append((equation.primitive, params, equation.shapes, whole))
    return found


def _said(value: Any) -> bool:
    """Whether it is numbers and words, and not a function or a program, which are others in every reading."""
    return all(map(_said, value)) if isinstance(value, tuple) else isinstance(value, int | float | str)
