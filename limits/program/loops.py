"""Equal blocks one after the other in a program: runs of equations that repeat, each block with weights of its own.

Every equation is coded by what it does and by what it is done to: a result of so many equations before, a parameter that is
new here (or was new so many equations before), a constant. Where codes repeat with a period, equations do.

Reference: theory notes, "Kernels from the forward code", section 5.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from limits.program.simplified import constant_written, operation_written
from limits.program.trace import Constant, Equation, NetworkProgram

_FEWEST = 3  # blocks: two are as fast read one after the other
Slot = tuple[int, int]  # (equation of a block, which of its inputs)


@dataclasses.dataclass(frozen=True)
class Repetition:
    """Equations from `first` to before `stop`, each like the one `period` later."""

    first: int
    stop: int
    period: int


@dataclasses.dataclass(frozen=True)
class EqualBlocks:
    """`count` blocks of `period` equations from `start`, through which one value goes: variable `enters`, then `leaves`.

    `leaves` is what the first block makes of it and `last` what the last one makes. `changing`: constants that differ between
    blocks, by slot.
    """

    start: int
    period: int
    count: int
    enters: int
    leaves: int
    last: int
    changing: dict[Slot, tuple[Constant, ...]]

    @property
    def stop(self) -> int:
        """The equation after it."""
        return self.start + self.period * self.count


class Loops:
    """The loops of a program. `signature(path)`: equal for parameters of equal laws.

    `moving`: constants that move with numbers of the network, and how; they may do so in another way in each block.
    """

    def __init__(self, program: NetworkProgram, signature: Any, moving: dict[Slot, Any] | None = None) -> None:
        self.equations, self.free, self.moving = program.equations, program.free, moving or {}
        self._paths = {number: path for path, number in program.params.items()}
        self._signature = signature
        self._fixed = {*program.inputs, *(v for e in self.equations[: self.free] for v in e.outputs)}
        self._made = {
            v: (i, k) for i, e in enumerate(self.equations) for k, v in enumerate(e.outputs) if i >= self.free
        }
        self._uses = self._used()
        self._crossing = self._crossings(program.output)
        self.runs = self._runs()

    @property
    def length(self) -> int:
        """How many equations are left where each run is read as one block, beside what comes before its first."""
        return len(self.equations) - sum(run.stop - run.first - 2 * run.period for run in self.runs)

    def at(self, i: int) -> EqualBlocks | None:
        """The longest loop that starts with this equation."""
        run = next((run for run in self.runs if run.first <= i < run.stop), None)
        if run is None:
            return None
        p, count = run.period, (run.stop - i) // run.period
        through = [self._crossing.get(i + k * p) for k in range(count + 1)]
        while count >= _FEWEST and through[count] is None:
            count -= 1
        blocks = [(i + k * p, i + (k + 1) * p) for k in range(count)]
        if count < _FEWEST or None in through[:count] or not all(self._has_own_weights(*block) for block in blocks):
            return None
        enters, leaves, last = (through[k] for k in (0, 1, count))
        return EqualBlocks(i, p, count, enters, leaves, last, self._changing(i, p, count))  # pyright: ignore[reportArgumentType]

    def _used(self) -> dict[Any, tuple[int, int]]:
        """The first and last equation that use a parameter, or one of a stack of them."""
        uses = dict[Any, tuple[int, int]]()
        for i, equation in enumerate(self.equations):
            for v in self._parameters_of(equation):
                key = _key(equation, v)
                uses[key] = uses.get(key, (i, i))[0], i
        return uses

    def _parameters_of(self, equation: Equation) -> list[int]:
        return [v for v in equation.inputs if isinstance(v, int) and v in self._paths]

    def _crossings(self, output: Any) -> dict[int, int]:
        """By equation the value that was made before it, of parameters, and is used from it on: where there is just one."""
        n = len(self.equations)
        last = {v: i for i, e in enumerate(self.equations) for v in e.inputs if isinstance(v, int) and v in self._made}
        if output in self._made if isinstance(output, int) else False:
            last[output] = n
        steps = np.zeros((2, n + 2), int)
        for v, stop in last.items():
            steps[:, self._made[v][0] + 1] += (1, v)
            steps[:, stop + 1] -= (1, v)
        count, which = np.cumsum(steps, axis=1)
        return {int(i): int(which[i]) for i in np.flatnonzero(count == 1)}

    def _has_own_weights(self, start: int, stop: int) -> bool:
        """Whether these equations use parameters, and share none with others."""
        keys = [_key(e, v) for e in self.equations[start:stop] for v in self._parameters_of(e)]
        stacks = {key[0] for key in self._uses if isinstance(key, tuple)}
        both = (key[0] in self._uses if isinstance(key, tuple) else key in stacks for key in keys)
        return bool(keys) and not any(both) and all(start <= a and b < stop for a, b in map(self._uses.get, keys))  # pyright: ignore

    def _changing(self, start: int, period: int, count: int) -> dict[Slot, tuple[Constant, ...]]:
        found = {}
        for i in range(period):
            for k, each in enumerate(self.equations[start + i].inputs):
                if isinstance(each, Constant):
                    at = [start + i + j * period for j in range(count)]
                    all_of: Any = tuple(self.equations[each].inputs[k] for each in at)
                    ways = {self.moving.get((each, k)) for each in at}
                    if len({constant_written(constant) for constant in all_of}) > 1 or len(ways) > 1:
                        found[i, k] = all_of
        return found

    def _codes(self) -> np.ndarray:
        """A number for each equation that parameters enter, equal where equations are alike."""
        table = dict[tuple, int]()
        codes = [
            table.setdefault((operation_written(e), *(self._operand(i, e, v) for v in e.inputs)), len(table))
            for i, e in enumerate(self.equations[self.free :], self.free)
        ]
        return np.array(codes, int)

    def _operand(self, i: int, equation: Equation, v: Any) -> tuple:
        if isinstance(v, Constant):
            return _constant_code(v)
        if v in self._paths:
            return "parameter", self._signature(self._paths[v]), i - self._uses[_key(equation, v)][0]
        if v in self._fixed:
            return "fixed", v
        at, which = self._made[v]
        return "made", i - at, which

    def _runs(self) -> list[Repetition]:
        codes, found = self._codes(), list[Repetition]()
        parts = [(0, len(codes))]
        while parts:
            low, high = parts.pop()
            best = _longest(codes[low:high])
            if best is not None:
                first, stop, period = best
                found.append(Repetition(self.free + low + first, self.free + low + stop, period))
                parts += [(low, low + first), (low + stop, high)]
        return sorted(found, key=lambda run: run.first)


def _key(equation: Equation, v: int) -> Any:
    return (v, equation.params["index"]) if equation.primitive == "scan_index" else v


def _longest(codes: np.ndarray) -> tuple[int, int, int] | None:
    """(first, stop, period) of the repetition that spares most equations."""
    best, spared = None, 0
    for period in range(1, len(codes) // _FEWEST + 1):
        alike = np.concatenate([[False], codes[:-period] == codes[period:], [False]])
        edges = np.flatnonzero(alike[1:] != alike[:-1])
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            count = (end - first) // period + 1
            if count >= _FEWEST and (count - 1) * period > spared:
                best, spared = (int(first), int(end) + period, period), (count - 1) * period
    return best


def _constant_code(constant: Constant) -> tuple:
    """Numbers may differ between blocks, if they go alike with the width."""
    narrow, wide = (np.asarray(value) for value in constant)
    if not np.issubdtype(narrow.dtype, np.floating) or not (np.isfinite(narrow).all() and np.isfinite(wide).all()):
        return "constant", constant_written(constant)
    a, b = (float(np.abs(value).max(initial=0.0)) for value in (narrow, wide))
    power = round(math.log2(b / a), 6) if a and b else None
    return "number", narrow.shape, wide.shape, str(narrow.dtype), power
