"""A program whose numbers stand as far out as they can: (c φ(h)) W and φ(h) (c W) as c · (φ(h) W).

At infinite depth a branch is known by the number that multiplies it, wherever the code has it: before the last layer of weights,
on these weights, or in the standard deviation that they start with, which here is a number of the code too: W = σ ω, ω of
variance 1. Numbers that are the same at all depths stay where they are.
"""

import dataclasses
from typing import Any, TypeGuard

import numpy as np

from limits.program.trace import Constant, Equation, NetworkProgram
from limits.program.values import Refused, Value

_LINEAR = {
    "dot_general": 2, "conv_general_dilated": 2, "mul": 2, "div": 1, "neg": 1, "convert_element_type": 1, "copy": 1,
    "transpose": 1, "reshape": 1, "squeeze": 1, "expand_dims": 1, "broadcast_in_dim": 1, "scan_index": 1, "slice": 1,
    "reduce_sum": 1, "reduce_window_sum": 1, "rev": 1,
}  # fmt: skip # in so many of their first inputs, each by itself
_Numbers = tuple[Constant, ...]


def outward(program: NetworkProgram, parameters: dict[str, Value | Refused], fixed: set[str]) -> dict[str, Any]:
    """The same function of inputs and weights, and the laws of these; only numbers that are not `fixed` are moved.

    Weights that start around 0 with another standard deviation than one of these have variance 1 instead.
    """
    starts, laws = dict[int, Constant](), dict(parameters)
    for path, std in _stds(parameters).items():
        if _std_written(std) not in fixed:
            value: Any = parameters[path]
            held, law = value.held, dataclasses.replace(value.held.law, variance=1.0)
            laws[path] = Value(value.axes, dataclasses.replace(held, law=law, rate=held.rate / std**2, growth=0.0))
            starts[program.params[path]] = Constant(np.asarray(std), np.asarray(std * 2.0**held.growth))
    return {"program": _Outward(program, starts, fixed).program, "parameters": laws}


def numbers_of(program: NetworkProgram, parameters: dict[str, Value | Refused]) -> set[str]:
    """What signals are multiplied by in a program, and standard deviations, in words."""
    met = {_written(v.value) for e in program.equations for v in e.inputs if e.primitive == "mul" and _is_number(v)}
    return met | {_std_written(std) for std in _stds(parameters).values()}


def _stds(parameters: dict[str, Value | Refused]) -> dict[str, float]:
    laws = {path: value.held.law for path, value in parameters.items() if isinstance(value, Value)}
    return {path: law.variance**0.5 for path, law in laws.items() if law.variance and not law.mean}


def _is_number(v: int | Constant) -> TypeGuard[Constant]:
    return isinstance(v, Constant) and np.size(v.value) == 1 and np.size(v.wide) == 1


def _std_written(std: float) -> str:
    return f"std {_written(std)}"


def _written(number: Any) -> str:
    return f"{float(np.asarray(number).reshape(())):.9g}"


class _Outward:
    def __init__(self, old: NetworkProgram, starts: dict[int, Constant], fixed: set[str]) -> None:
        self.equations, self.fixed = list[Equation](), fixed
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
            if not _is_number(number) or _written(number.value) in self.fixed:
                continue
            if isinstance(v, int) and self.shapes[v] == e.shapes[0]:
                return v, number
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
