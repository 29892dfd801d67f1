"""A program whose numbers stand as far out as they can: (c φ(h)) W and φ(h) (c W) as c · (φ(h) W).

At infinite depth a branch is known by the number that multiplies it, wherever the code has it: before the last layer of weights,
on these weights, or in the standard deviation that they start with, which here is a number of the code too: W = σ ω, ω of
variance 1.
"""

import dataclasses
from typing import Any

import numpy as np

from limits.program.trace import Constant, Equation, NetworkProgram
from limits.program.values import Parameter, Refused, Value

_LINEAR = {
    "dot_general": 2, "conv_general_dilated": 2, "mul": 2, "div": 1, "neg": 1, "convert_element_type": 1, "copy": 1,
    "transpose": 1, "reshape": 1, "squeeze": 1, "expand_dims": 1, "broadcast_in_dim": 1, "scan_index": 1, "slice": 1,
    "reduce_sum": 1, "reduce_window_sum": 1, "rev": 1,
}  # fmt: skip # in so many of their first inputs, each by itself
_Numbers = tuple[Constant, ...]


def outward(
    program: NetworkProgram, parameters: dict[str, Value | Refused]
) -> tuple[NetworkProgram, dict[str, Value | Refused]]:
    """The same function of inputs and of weights of variance 1 (of those that are drawn around 0), and the laws of these."""
    starts, laws = dict[int, Constant](), dict(parameters)
    for path, number in program.params.items():
        value = parameters[path]
        if isinstance(value, Refused) or value.held.law.mean or not value.held.law.variance:
            continue
        held: Parameter = value.held
        std = held.law.variance**0.5
        unit = dataclasses.replace(
            held, law=dataclasses.replace(held.law, variance=1.0), rate=held.rate / std**2, growth=0.0
        )
        laws[path] = Value(value.axes, unit)
        starts[number] = Constant(np.asarray(std), np.asarray(std * 2.0**held.growth))
    return _Outward(program, starts).program, laws


class _Outward:
    def __init__(self, old: NetworkProgram, starts: dict[int, Constant]) -> None:
        self.equations, self.where = list[Equation](), ""
        self.shapes = old.shapes | {v: s for e in old.equations for v, s in zip(e.outputs, e.shapes, strict=True)}
        self.next = 1 + max(self.shapes, default=0)
        self.held: dict[int, tuple[int, _Numbers]] = {v: (v, (std,)) for v, std in starts.items()}
        self.made = dict[int, int]()
        for e in old.equations[: old.free]:
            self.equations.append(e)
        for e in old.equations[old.free :]:
            self._read(e)
        output = self._whole(old.output, "the network")
        self.program = dataclasses.replace(old, equations=tuple(self.equations), output=output)

    def _read(self, e: Equation) -> None:
        pair = self._multiplied(e)
        if pair is not None:
            base, numbers = self._taken(pair[0])
            self.held[e.outputs[0]] = base, (*numbers, pair[1])
            return
        linear = min(_LINEAR.get(e.primitive, 0), len(e.inputs))
        taken = [self._taken(v) for v in e.inputs[:linear]]
        numbers = tuple(number for _, each in taken for number in each)
        inputs = (*(base for base, _ in taken), *(self._whole(v, e.where) for v in e.inputs[linear:]))
        if not numbers:
            self.equations.append(dataclasses.replace(e, inputs=inputs))
            return
        base, self.next = self.next, self.next + 1
        self.shapes[base] = e.shapes[0]
        self.equations.append(dataclasses.replace(e, inputs=inputs, outputs=(base,)))
        self.held[e.outputs[0]] = base, numbers

    def _multiplied(self, e: Equation) -> tuple[int, Constant] | None:
        """(what, the number) where an equation multiplies by a number."""
        if e.primitive != "mul":
            return None
        for v, number in (e.inputs, e.inputs[::-1]):
            one = isinstance(number, Constant) and np.size(number.value) == 1 and np.size(number.wide) == 1
            if one and isinstance(v, int) and self.shapes[v] == e.shapes[0]:  # pyright: ignore[reportAttributeAccessIssue]
                return v, number  # pyright: ignore[reportReturnType]
        return None

    def _taken(self, v: Any) -> tuple[Any, _Numbers]:
        return self.held.get(v, (v, ())) if isinstance(v, int) else (v, ())

    def _whole(self, v: Any, where: str) -> Any:
        """A variable with its numbers, multiplied where it is asked for."""
        base, numbers = self._taken(v)
        if not numbers:
            return v
        if v not in self.made:
            for number in numbers:
                found, self.next = self.next, self.next + 1
                shape = self.shapes[found] = self.shapes[base]
                number = Constant(*(np.asarray(each).reshape(()) for each in number))
                self.equations.append(Equation("mul", {}, (base, number), (found,), (shape,), {}, where))
                base = found
            self.made[v] = base
        return self.made[v]
