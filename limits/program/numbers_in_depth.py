"""Where numbers of a program go as the depth L of the network grows, from what they are at two depths."""

import dataclasses
import math

import numpy as np

from limits.program.trace import Constant, Equation, NetworkProgram

_SAME = 1e-5  # numbers of the code may be float32
_MARGIN = 0.02  # of a power of the depth
_SHIFT = 8  # of the depth, at most


@dataclasses.dataclass(frozen=True)
class InDepth:
    """limit + a L^(−1/2) + c/L + …, as (limit, (a, c, other)): `other` is 1 for what falls by a power between these two."""

    limit: float
    toward: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def over(self, blocks: float) -> "InDepth":
        """The same beside the number of blocks, of which there are so many for each of the depth; outside of them, its limit."""
        a, c, other = self.toward
        return dataclasses.replace(self, toward=(a * blocks**0.5, c * blocks, other * (blocks > 0)))


def in_depth(x: float, y: float, depths: tuple[int, int]) -> InDepth | None:
    """What a number does that is x and y at these depths: it vanishes as a power does, or goes to 1 as 1 − c/L. Else None.

    Numbers as κ (L + b)^(−p) are known for p = 1/2, 1 and whole b, and as (1 − a/L)^(±1/2), (1 − a/L)^(±1), exp(−c/L).

    >>> in_depth(8**-0.5, 32**-0.5, (8, 32))
    InDepth(limit=0.0, toward=(1.0, 0.0, 0.0))
    >>> in_depth(1 - 3 / 8, 1 - 3 / 32, (8, 32))
    InDepth(limit=1.0, toward=(0.0, -3.0, 0.0))
    """
    if not (np.isfinite(x) and np.isfinite(y) and x * y > 0):
        return None
    for k, p in enumerate((0.5, 1.0)):
        size = _falls(abs(x), abs(y), p, depths)
        if size is not None:
            return InDepth(0.0, (math.copysign(size, x), 0.0, 0.0) if k == 0 else (0.0, math.copysign(size, x), 0.0))
    power = math.log(y / x) / math.log(depths[1] / depths[0])
    if power < -0.5 - _MARGIN:
        return InDepth(0.0, (0.0, 0.0, float(power > -1 - _MARGIN)))
    lost = _lost(x, y, depths) if min(x, y) > 0 else None
    return None if lost is None else InDepth(1.0, (0.0, -lost, 0.0))


def _falls(x: float, y: float, p: float, depths: tuple[int, int]) -> float | None:
    """κ of κ (L + b)^(−p) with a whole b."""
    u, v = x ** (-1 / p), y ** (-1 / p)
    slope = (v - u) / (depths[1] - depths[0])
    if slope <= 0:
        return None
    b = u / slope - depths[0]
    near = abs(b - round(b)) < 10 * _SAME and abs(b) < _SHIFT
    return slope ** (-p) if near else None


def _lost(x: float, y: float, depths: tuple[int, int]) -> float | None:
    """c of (1 − a/L)^p, c = a p, with p = ±1/2 or ±1, and of exp(−c/L)."""
    tries = [[-L * math.log(v) for v, L in zip((x, y), depths, strict=True)]]
    tries += [[p * L * (1 - v ** (1 / p)) for v, L in zip((x, y), depths, strict=True)] for p in (1, 0.5, -1, -0.5)]
    return next((a for a, b in tries if abs(a - b) < _SAME), None)


def multiplied_out(program: NetworkProgram) -> NetworkProgram:
    """The same program, with products for divisions by numbers: h / √L as h · L^(−1/2). Itself where there are none."""
    equations = tuple(_multiplied_out(equation) for equation in program.equations)
    same = all(a is b for a, b in zip(equations, program.equations, strict=True))
    return program if same else dataclasses.replace(program, equations=equations)


def _multiplied_out(equation: Equation) -> Equation:
    number = equation.inputs[1] if equation.primitive == "div" else None
    if not isinstance(number, Constant) or any(np.size(each) != 1 or not np.all(each) for each in number):
        return equation
    if not all(np.issubdtype(np.asarray(each).dtype, np.floating) for each in number):
        return equation
    over = Constant(*(np.asarray(1 / np.asarray(each, float)) for each in number))
    return dataclasses.replace(equation, primitive="mul", inputs=(equation.inputs[0], over))
