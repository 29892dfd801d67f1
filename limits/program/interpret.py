"""From the equations of a program to the graph of its fields: one rule for each primitive of jax."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program import (
    concatenation,
    conversions,
    copies,
    deterministic,
    elementwise,
    images,
    lookups,
    scattered,
    shapes,
    slices,
    sums,
)
from limits.program.deterministic import ONES_OWN
from limits.program.evaluated import evaluated
from limits.program.nodes import Det, FieldSum, Image, Mask, Moved, Node, OfWeights, Weights
from limits.program.primitives import ENTRY_BY_ENTRY, RANDOM, primitives
from limits.program.shared_weights import same_parts, same_weights
from limits.program.trace import ADDED, Constant, Equation, NetworkProgram
from limits.program.values import Atom, NoLimitError, Parameter, Refused, Value, error_of, fresh, one, reason_of, size

_REDUCTIONS = {
    "reduce_max": jnp.max,
    "reduce_min": jnp.min,
    "reduce_and": jnp.all,
    "reduce_or": jnp.any,
    "reduce_prod": jnp.prod,
}


class Interpreter:
    """Reads a program for inputs x [n, …]; `own` are the moments of each input with itself, `parameters` their laws.

    `rolling` reads loops of equal blocks, where there are some (`rolled`).
    """

    def __init__(
        self, program: NetworkProgram, parameters: dict[str, Value | Refused], own: Any, rolling: Any = None
    ) -> None:
        self.program, self.parameters, self.own, self.rolling = program, parameters, own, rolling
        self.uses: dict[tuple, OfWeights] = {}
        self.taken: dict[str, tuple] = {}  # axes along which entries of a parameter are taken
        self.changed: dict[tuple[int, int], Value] = {}  # constants, by equation and input
        self.like = ""  # said of places in a loop

    def output(self, x: Any) -> Value:
        """What the output of the program holds; `NoLimitError` where it has no limit."""
        known: dict[int, Any] = {number: self.parameters[path] for path, number in self.program.params.items()}
        (number,) = self.program.inputs
        known[number] = of_inputs(x, self.program.shapes[number])
        self.read(0, len(self.program.equations), known)
        output = known[self.program.output] if isinstance(self.program.output, int) else _held(self.program.output)
        if isinstance(output, Refused):
            raise error_of(output.reason)
        return output

    def inside(self, own: Any, loop: Any, changed: dict[tuple[int, int], Value]) -> "Interpreter":
        """What reads one block of a loop; `changed`: its constants that differ from block to block."""
        reader = Interpreter(self.program, self.parameters, own)
        reader.changed = self.changed | {(loop.start + i, k): value for (i, k), value in changed.items()}
        reader.like = f" (and {loop.count - 1} like it)"
        return reader

    def read(self, first: int, stop: int, known: dict[int, Any]) -> None:
        """These equations, from what is known of their inputs."""
        i = first
        while i < stop:
            loop = self.rolling and self.rolling(self, i, known)
            if loop:
                i = loop.stop
                continue
            equation = self.program.equations[i]
            given = [
                known[each] if isinstance(each, int) else self.changed.get((i, k)) or _held(each)
                for k, each in enumerate(equation.inputs)
            ]
            known |= dict(zip(equation.outputs, self._read(equation, given), strict=True))
            i += 1

    def _read(self, equation: Equation, given: list[Any]) -> list[Any]:
        refused = next((value for value in given if isinstance(value, Refused)), None)
        if refused is not None:
            return [refused] * len(equation.outputs)
        if any(0 in (n for n, _, _ in shape) for shape in equation.shapes):
            return [_empty(shape) for shape in equation.shapes]
        try:
            made = self._apply(equation, given)
            for value in made:
                self._note(value.held, equation.where + self.like)
            return made
        except NoLimitError as error:
            return [Refused(type(reason_of(error))(f"{equation.where}: {error}"))] * len(equation.outputs)

    def _note(self, node: Any, where: str) -> None:
        """A matrix that is met from both sides makes signals and gradients depend on each other."""
        if isinstance(node, Node):
            self.own.places.setdefault(id(node), (where, node))
        while isinstance(node, Moved):
            node = node.source
        if not isinstance(node, OfWeights):
            return
        same_parts(self.taken, node.matrix)
        same_weights(self.uses.setdefault((node.matrix.path, node.matrix.index), node), node)
        if self.own.series.measures and isinstance(node, Image) and not node.matrix.gaussian and node.matrix.std:
            self._note_read_in(node, where)

    def _note_read_in(self, node: Image, where: str) -> None:
        """Weights that are not normal, where no sum over neurons makes their images Gaussian."""
        if isinstance(node.source, Det) and node.fan == 1:
            sides = [width for width, *_ in node.window.axes] if node.window else []
            inputs = math.prod([*node.source.shape[len(node.source.shape) - node.contracted :], *sides])
            self.own.series.not_gaussian(where, node.matrix.kind, inputs)

    def _apply(self, equation: Equation, given: list[Value]) -> list[Value]:
        name, params, shape = equation.primitive, equation.params, equation.shapes[0]
        by_entry = lambda word, *two: self._entry_by_entry(  # noqa: E731
            dataclasses.replace(equation, primitive=word, params={}), [*two]
        )[0]
        if name != "gather" and (found := evaluated(equation, given)):
            return found
        match name:
            case "reshape" | "squeeze" | "expand_dims":
                return [shapes.reshaped(given[0], shape)]
            case "transpose":
                return [shapes.transposed(given[0], params["permutation"])]
            case "broadcast_in_dim":
                return [shapes.broadcast(given[0], shape, tuple(map(int, params["broadcast_dimensions"])))]
            case "slice":
                steps = params["strides"] or (1,) * len(shape)
                return [slices.sliced(given[0], params["start_indices"], params["limit_indices"], steps, shape)]
            case "dynamic_slice":
                starts = [_whole(value) for value in given[1:]]
                stops = [a + n for a, n in zip(starts, params["slice_sizes"], strict=True)]
                return [slices.sliced(given[0], tuple(starts), tuple(stops), (1,) * len(shape), shape)]
            case "split":
                return self._split(given[0], params, equation.shapes)
            case "concatenate":
                number = int(params["dimension"])  # of jnp.roll a number of NumPy
                return [concatenation.concatenated(given, number, shape[number])]
            case "stack" | "scan_stack":
                return [concatenation.stacked(given, params["axis"], shape)]
            case "unstack":
                return [_indexed(given[0], i, each, params["axis"]) for i, each in enumerate(equation.shapes)]
            case "tile":
                return [concatenation.tiled(given[0], params["reps"], shape)]
            case "scan_index":
                return [_indexed(given[0], params["index"], shape)]
            case "pad":
                return [concatenation.padded(given[0], _number(given[1]), params["padding_config"], shape)]
            case "rev":
                return [shapes.reversed_along(given[0], params["dimensions"])]
            case "reduce_sum":
                return [sums.summed(given[0], params["axes"], self.own)]
            case "cumsum":
                return [sums.running(given[0], params["axis"], params["reverse"])]
            case "reduce_window_sum":
                return [sums.windows(given[0], params, shape)]
            case "dot_general":
                return [sums.dot(given[0], given[1], params["dimension_numbers"], self.own)]
            case "conv_general_dilated":
                return [images.convolution(given[0], given[1], params, shape)]
            case "gather":
                return self._gathered(equation, given)
            case "dynamic_update_slice":
                starts = [_whole(value) for value in given[2:]]
                return [scattered.updated(given[0], given[1], starts, shape, by_entry)]
            case "scatter-add" | "scatter" | "scatter-mul":
                return [scattered.scattered(equation, given, self.own, by_entry)]
            case "iota":
                return [_iota(params, shape)]
            case "convert_element_type":
                return [conversions.converted(given[0], params["old_dtype"], params["new_dtype"])]
            case "stop_gradient" if "own_rule" in params and not isinstance(given[0].held, Det):
                raise NoLimitError(
                    f"{params['own_rule']} has a derivative rule of its own, which is not that of what it computes, so that the "
                    "tangent kernel is not that of a function"
                )
        if name in _REDUCTIONS:
            return [sums.reduced(name, given[0], params["axes"], _REDUCTIONS[name])]
        if name == "bernoulli":
            return [_mask(given[0], shape, equation.outputs[0])]
        if name == "select_n" and conversions.is_mask(given[0].held):
            return [self._masked(equation, *given)]
        if name in RANDOM:
            raise NoLimitError("random numbers are drawn in the forward pass (dropout?): switch them off")
        if name in ("while", "cond"):
            raise NoLimitError(f"control flow that depends on data (lax.{name}_loop or cond) cannot be read")
        return self._entry_by_entry(equation, given)

    def _entry_by_entry(self, equation: Equation, given: list[Value]) -> list[Value]:
        name, params = equation.primitive, {k: v for k, v in equation.params.items() if k not in ADDED}
        if "whole" in equation.params and any(isinstance(value.held, Node) for value in given):
            raise NoLimitError("whole numbers that signals were made are divided, or taken by their bits")
        shape = equation.shapes[0]
        given = [_stretched(value, shape) for value in given]
        alike = all([size(a) for a in value.axes] == list(shape) for value in given if value.axes)
        known = name in ENTRY_BY_ENTRY and len(equation.outputs) == 1
        if not known or not alike or (shape and not any(value.axes for value in given)):
            raise NoLimitError(f"there is no rule for the primitive {name}")
        written = ",".join(
            f"{key}={value}"
            for key, value in sorted(params.items())
            if key not in ("sharding", "accuracy") and not callable(value)
        )
        return [elementwise.elementwise(f"{name}[{written}]", _function(name, params), copies.told_apart(given))]

    def _masked(self, equation: Equation, mask: Value, off: Value, on: Value) -> Value:
        """`on` where the mask is one, 0 where it is zero."""
        if not (isinstance(off.held, Det) and off.held.number == 0):
            raise NoLimitError("where random numbers say so, something other than 0 is taken")
        product = dataclasses.replace(equation, primitive="mul", params={})
        return self._entry_by_entry(product, [mask, on])[0]

    def _gathered(self, equation: Equation, given: list[Value]) -> list[Value]:
        try:
            return [lookups.gathered(given[0], given[1], equation.params, equation.shapes[0])]
        except NoLimitError:
            if found := evaluated(equation, given):
                return found
            raise

    def _split(self, value: Value, params: dict[str, Any], parts: Any) -> list[Value]:
        made, start = [], 0
        axis = params["axis"]
        for length, shape in zip(map(int, params["sizes"]), parts, strict=True):
            low, high = [0] * len(shape), [s[0] for s in shape]
            low[axis], high[axis] = start, start + length
            made.append(slices.sliced(value, tuple(low), tuple(high), (1,) * len(shape), shape))
            start += length
        return made


def _held(each: Constant) -> Value | Refused:
    try:
        return deterministic.constant(*each)
    except NoLimitError as error:
        return Refused(str(error))


def _empty(shape: tuple) -> Value:
    """An array without entries, as scans over pairs of neighbours make of an odd one."""
    axes = tuple(fresh(sizes) for sizes in shape)
    counts = [atom.sizes[0] for axis in axes for atom in axis if atom.kind == "p"]
    return Value(axes, Det(np.zeros((1, *counts))))


def _stretched(value: Value, shape: tuple) -> Value:
    """With axes of size 1 made as long as the result's."""
    pairs = list(zip(value.axes, shape, strict=False)) if len(value.axes) == len(shape) else []
    short = any(not axis and wanted != (1, 1, 1) for axis, wanted in pairs)
    alike = all(not axis or size(axis) == wanted for axis, wanted in pairs)
    return shapes.broadcast(value, shape, tuple(range(len(shape)))) if short and alike else value


def of_inputs(x: Any, shape: tuple) -> Value:
    """Inputs [n, …] as a deterministic value."""
    axes = tuple(fresh(sizes) for sizes in shape)
    kept = [n for n, axis in zip(x.shape[1:], axes[1:], strict=True) if axis]
    if [axis and axis[0].kind for axis in axes[:1]] != ["b"]:
        raise ValueError("the first axis of x must be that of inputs")
    return Value(axes, Det(jnp.asarray(x).reshape(len(x), *kept)))


def _function(name: str, params: dict[str, Any]) -> Any:
    """A primitive as a function of arrays of any float type."""
    primitive = primitives()[name]
    if name == "select_n":
        return _selected

    def apply(*given: Any) -> Any:
        arrays: Any = given
        arrays = jnp.broadcast_arrays(*arrays) if len(arrays) > 1 else arrays
        kinds = {jnp.asarray(a).dtype for a in arrays}
        if len(kinds) > 1:
            arrays = [jnp.asarray(a, jnp.result_type(*kinds)) for a in arrays]
        return primitive.bind(*(jnp.asarray(a) for a in arrays), **params)

    return apply


def _selected(which: Any, *cases: Any) -> Any:
    kind = jnp.result_type(*cases)
    return jax.lax.select_n(*jnp.broadcast_arrays(which, *(jnp.asarray(case, kind) for case in cases)))


def _whole(value: Value) -> int:
    held = value.held
    if not isinstance(held, Det) or not isinstance(held.array, np.ndarray) or held.array.size != 1:
        raise NoLimitError("a slice begins where data says")
    return int(held.array.reshape(()))


def _number(value: Value) -> float:
    if isinstance(value.held, Det) and value.held.number is not None:
        return value.held.number
    raise NoLimitError("an array is padded with what is no number")


def _indexed(value: Value, index: int, shape: tuple, axis: int = 0) -> Value:
    """One of a stack of parameters or arrays."""
    if isinstance(value.held, Parameter):
        return copies.entry(value, axis, index)
    sizes = [size(each) for each in value.axes]
    low, high = [0] * len(sizes), [s[0] for s in sizes]
    low[axis], high[axis] = index, index + 1
    sizes[axis] = (1, 1, 1)
    part = slices.sliced(value, tuple(low), tuple(high), (1,) * len(sizes), tuple(sizes))
    return shapes.reshaped(part, shape)


def _mask(p: Value, shape: tuple, number: int) -> Value:
    """Zeros and ones that are drawn anew for every entry: p + (mask − p). `number` tells masks apart."""
    keep, axes = _number(p), tuple(fresh(sizes) for sizes in shape)
    places = [atom.sizes[0] for axis in axes for atom in axis if atom.kind == "p"]
    by_input = any(atom.kind == "b" for axis in axes for atom in axis)
    weights = Weights(f"mask {number}", (), (), (keep * (1 - keep)) ** 0.5, 0.0, False, "zeros and ones of dropout")
    drawn = Mask(tuple(places), 0.0, weights, (True,) * len(places), by_input)
    return Value(axes, FieldSum(drawn.shape, 0.0, ((one(len(places)), drawn),), one(len(places), keep)))


def _iota(params: dict[str, Any], shape: tuple) -> Value:
    axes = tuple(fresh(sizes) for sizes in shape)
    along = axes[params["dimension"]]
    if along and along[0].kind != "p":
        numbered = (
            "inputs of a call are numbered" if along[0].kind == "b" else f"neurons are numbered (arange): {ONES_OWN}"
        )
        raise NoLimitError(numbered)
    n = shape[params["dimension"]][0]
    flat = tuple(Atom("p", s) for s in shape if s != (1, 1, 1))
    ones = [1 if params["dimension"] != i else n for i, axis in enumerate(axes) if axis and axis[0].kind == "p"]
    del flat
    return Value(axes, Det(np.arange(n, dtype=params["dtype"]).reshape(1, *ones)))
