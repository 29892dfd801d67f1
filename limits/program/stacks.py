"""Layers that are taken out of a stack of weights [layers, …], however the code says so: each is one of a scan's.

W[i] is a slice, or one whose beginning a loop counts; and what acts on every number of a stack, as W / √N does, acts on the layer
that is taken. So equal blocks are equal equations, which `loops` finds, and weights of different blocks are different ones.
"""

import dataclasses
from typing import Any

import numpy as np

from limits.program.trace import Constant, Equation, NetworkProgram

_BY_ENTRY = ("mul", "div", "neg", "convert_element_type", "copy")


def taken_apart(program: NetworkProgram) -> NetworkProgram:
    """The same function of parameters and inputs."""
    return _Taken(program).program()


class _Taken:
    def __init__(self, old: NetworkProgram) -> None:
        self.old, self.equations = old, list[Equation]()
        self.made = {v: e for e in old.equations for v in e.outputs}
        parameters = set(old.params.values())
        self.shapes = old.shapes | {v: s for e in old.equations for v, s in zip(e.outputs, e.shapes, strict=True)}
        self.stacks = {v for v in parameters if self.shapes[v]}
        for e in old.equations:
            if e.primitive in _BY_ENTRY and any(self._is_stack(v) for v in e.inputs) and self._by_layers(e):
                self.stacks |= set(e.outputs)
        for e in reversed(old.equations):  # of what is used as a whole, too, no layer is taken
            layered = self._index(e) is not None or (e.outputs[0] in self.stacks and self._by_layers(e))
            self.stacks -= set() if layered else {v for v in e.inputs if isinstance(v, int)}
        self.stacks.discard(old.output)  # pyright: ignore[reportArgumentType]
        self.next = 1 + max((*old.shapes, *(v for e in old.equations for v in e.outputs)), default=0)
        self.taken = dict[tuple[int, int], int]()

    def _is_stack(self, v: Any) -> bool:
        return isinstance(v, int) and v in self.stacks

    def _by_layers(self, e: Equation) -> bool:
        """Whether a layer of what it gives is a function of that layer of its inputs."""
        shape = e.shapes[0]
        return all(
            (np.size(v.value) == 1 and np.size(v.wide) == 1)
            if isinstance(v, Constant)
            else (self._is_stack(v) and self.shapes[v] == shape)
            for v in e.inputs
        )

    def program(self) -> NetworkProgram:
        for e in self.old.equations:
            index = self._index(e)
            if index is None:
                self.equations.append(e)
                continue
            layer = self._layer(e.inputs[0], index, e.where)
            self._emit("reshape", {"new_sizes": (), "dimensions": None}, (layer,), e.shapes[0], e.where, e.outputs[0])
        wanted, kept = {self.old.output}, []
        for e in reversed(self.equations):
            if wanted & set(e.outputs):
                kept.append(e)
                wanted |= {v for v in e.inputs if isinstance(v, int)}
        before = {v for e in self.old.equations[: self.old.free] for v in e.outputs}
        free = sum(not before.isdisjoint(e.outputs) for e in kept)
        return dataclasses.replace(self.old, equations=tuple(reversed(kept)), free=free)

    def _index(self, e: Equation) -> int | None:
        """Which layer of a stack this equation takes; None where it does something else."""
        stack = e.inputs[0] if e.inputs else None
        if not self._is_stack(stack):
            return None
        if e.primitive == "scan_index":
            return e.params["index"] if stack in self.made else None
        if e.primitive not in ("slice", "dynamic_slice"):
            return None
        old, new = self.shapes[stack], e.shapes[0]  # pyright: ignore[reportArgumentType]
        if len(set(old[0])) > 1 or old[0][0] == 1 or new[0] != (1, 1, 1) or old[1:] != new[1:]:
            return None
        if e.primitive == "slice":
            return int(e.params["start_indices"][0])
        start = e.inputs[1]
        if isinstance(start, Constant) and np.array_equal(start.value, start.wide):
            return int(np.clip(int(start.value), 0, old[0][0] - 1))
        return None

    def _layer(self, stack: Any, index: int, where: str) -> int:
        """The variable that holds it."""
        if (stack, index) not in self.taken:
            shape, e = self.shapes[stack][1:], self.made.get(stack)
            if e is None:
                found = self._emit("scan_index", {"index": index}, (stack,), shape, where)
            else:
                inputs = tuple(
                    _number(v) if isinstance(v, Constant) else self._layer(v, index, where) for v in e.inputs
                )
                found = self._emit(e.primitive, e.params, inputs, shape, e.where)
            self.taken[stack, index] = found
        return self.taken[stack, index]

    def _emit(self, name: str, params: dict, inputs: tuple, shape: tuple, where: str, output: int | None = None) -> int:
        if output is None:
            output, self.next = self.next, self.next + 1
        self.equations.append(Equation(name, params, inputs, (output,), (shape,), params, where))
        return output


def _number(constant: Constant) -> Constant:
    """One number as such, whatever the axes that it is written with."""
    return Constant(*(np.reshape(each, ()) for each in constant))
