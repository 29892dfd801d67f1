"""Networks that end in a sum over neurons, as Σ_i a_i b_i / √N of two towers: the same limit as with weights there.

Each term is odd in a matrix row of its own (a_i = Σ_k A_ik u_k, with A used nowhere else), so that random signs
v_i before the terms change no law: f = Σ_i v_i a_i b_i / √N has the kernels of a readout v that is not trained,

    K = E[a a′] E[b b′],    Θ = K_a Θ_b + Θ_a K_b

for independent towers. Where terms are not odd in that way there is no rule and the sum stays as it was: Σ_i tanh(a_i), Σ_i a_i²;
Σ_i (a_i − ā) / √N too, with the mean ā of all, which is small in each term and as large as the rest in their sum (it is 0).
"""

import contextlib
import dataclasses
from typing import Any

import jax

from limits.program.accuracy import SeriesLengths
from limits.program.interpret import Interpreter
from limits.program.nodes import Det
from limits.program.rolled import ReadMoments
from limits.program.trace import Equation, NetworkProgram, Sizes
from limits.program.values import Atom, NoLimitError, Parameter, Value, growth
from zoo.abstract import abstract
from zoo.laws import Law

SIGNS = "the signs of a sum over neurons"  # in place of the path of a parameter
_SAME = ("neg", "reshape", "squeeze", "broadcast_in_dim", "transpose", "convert_element_type", "copy", "slice")
_LINEAR = ("mul", "div", "add", "sub", *_SAME)


def with_signs(program: NetworkProgram, parameters: dict[str, Any], x: Any) -> tuple[NetworkProgram, dict[str, Any]]:
    """The program, and the laws of its parameters, with signs before the terms of its last sum over neurons, if it has one.

    x: the shape and type of inputs.
    """
    made = {each: equation for equation in program.equations for each in equation.outputs}
    found = _last_sum(program.output, made)
    if found is None:
        return program, parameters
    place = program.equations.index(found)
    until = dataclasses.replace(program, equations=program.equations[: place + 1], output=found.outputs[0])
    odd = _Odd(made, _used_once(program))
    if not any(map(odd, found.inputs)) or not _vanishes(until, parameters, x):
        return program, parameters
    made_of, signs = _signed(found, 1 + max(*made, *program.shapes), made)
    equations = (*program.equations[:place], *made_of, *program.equations[place + 1 :])
    number: Any = made_of[-1].inputs[1]
    params, shapes = {**program.params, SIGNS: number}, {**program.shapes, number: (signs,)}
    law = Parameter(SIGNS, (), (), Law(0.0, 1.0, True, "normal"), 0.0, 1.0, 0.0, (0,))
    changed = dataclasses.replace(program, equations=equations, params=params, shapes=shapes)
    return changed, {**parameters, SIGNS: Value(((Atom("n", signs),),), law)}


def _used_once(program: NetworkProgram) -> set[int]:
    """Parameters that, or whose multiples, are met by one equation, and all that is made of them before that."""
    found = set[int]()
    for param in program.params.values():
        same, uses = {param}, 0
        for equation in program.equations:
            if same.isdisjoint(i for i in equation.inputs if isinstance(i, int)):
                continue
            rest = [i for i in equation.inputs if isinstance(i, int) and i not in same]
            if equation.primitive in (*_SAME, "mul", "div") and not rest:
                same |= set(equation.outputs)
            else:
                uses += 1
        found |= same if uses == 1 else set()
    return found


@dataclasses.dataclass(frozen=True)
class _Odd:
    """Whether variables are odd in rows of weights of their own, exactly at any width, and not for large ones alone."""

    made: dict[int, Equation]
    weights: set[int]  # that are used once

    def __call__(self, number: Any) -> bool:
        equation = self.made.get(number) if isinstance(number, int) else None
        if equation is None:
            return False
        match equation.primitive:
            case "dot_general" | "conv_general_dilated":
                return any(map(self._weights, equation.inputs))
            case "mul":
                return any(map(self, equation.inputs))
            case "add" | "sub":
                odd = list(map(self, equation.inputs))
                return any(odd) and all(o or self._weights(i) for o, i in zip(odd, equation.inputs, strict=True))
            case "div":
                return self(equation.inputs[0])
        return equation.primitive in _SAME and self(equation.inputs[0])

    def _weights(self, number: Any) -> bool:
        """What does not start odd around zero (a gain that starts at one) has a mean."""
        return isinstance(number, int) and number in self.weights


def _vanishes(program: NetworkProgram, parameters: dict[str, Any], x: Any) -> bool:
    """Whether the output has mean zero by structure, and no weights at its end. Nothing is computed."""
    found = [False]

    def traced(x: Any) -> None:
        with contextlib.suppress(NoLimitError):
            held = Interpreter(program, parameters, ReadMoments(SeriesLengths(), len(x), None).own).output(x).held
            found[0] = isinstance(held, Det) and held.zero

    jax.eval_shape(traced, abstract(x.shape, x.dtype))
    return found[0]


def _last_sum(output: object, made: dict[int, Equation]) -> Equation | None:
    """What the output is a linear function of with numbers: a sum over one axis of neurons, of fields."""
    reached, seen = [output], set[int]()
    while reached:
        number = reached.pop()
        if not isinstance(number, int) or number in seen or number not in made:
            continue
        equation = made[number]
        seen.add(number)
        if _gone(equation, made) is not None:
            return equation
        if equation.primitive in _LINEAR:
            reached += equation.inputs
    return None


def _gone(equation: Equation, made: dict[int, Equation]) -> tuple[int, Sizes] | None:
    """(which axis of its first operand, its sizes) of the neurons that an equation sums over, and nothing else."""
    if any(not isinstance(number, int) or number not in made for number in equation.inputs):
        return None  # parameters, inputs, constants
    shape = _shape(equation.inputs[0], made)
    if equation.primitive == "reduce_sum":
        axes = equation.params["axes"]
    elif equation.primitive == "dot_general":
        (axes, other), (mine, theirs) = equation.params["dimension_numbers"]
        if len(mine) != len(shape) - 1 or tuple(mine) != tuple(theirs) or tuple(axes) != tuple(other):
            return None
    else:
        return None
    if len(axes) != 1 or not growth(shape[axes[0]]):
        return None
    return int(axes[0]), shape[axes[0]]


def _shape(number: Any, made: dict[int, Equation]) -> tuple[Sizes, ...]:
    """Of a variable."""
    return made[number].shapes[made[number].outputs.index(number)]


def _signed(equation: Equation, number: int, made: dict[int, Equation]) -> tuple[list[Equation], Sizes]:
    """(the equations of Σ_i v_i z_i, the sizes of v); variables from `number` on are new."""
    axis, sizes = _gone(equation, made)  # pyright: ignore[reportGeneralTypeIssues]
    before, terms = list[Equation](), equation.inputs[0]
    if equation.primitive == "dot_general":
        product = {"params": {}, "wide": {}, "outputs": (number,), "shapes": (_shape(terms, made),)}
        before = [dataclasses.replace(equation, primitive="mul", **product)]
        terms, number = number, number + 1
    product = {"dimension_numbers": (((axis,), (0,)), ((), ()))}
    end = dataclasses.replace(equation, primitive="dot_general", params=product, wide=product, inputs=(terms, number))
    return [*before, end], sizes
