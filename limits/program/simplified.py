"""A program without what is not the network's: constants are worked out, and what no parameter enters is done first, once.

What is left has equal blocks one after the other as equal equations, which `loops` finds.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from limits.program.in_numpy import EXACT, evaluated
from limits.program.primitives import RANDOM, primitives
from limits.program.trace import ADDED, Constant, Equation, NetworkProgram

_LEFT = ("while", "cond", *RANDOM)  # what is refused, by its own rule


def simplified(program: NetworkProgram) -> NetworkProgram:
    """The same function of parameters and inputs."""
    known: dict[int, int | Constant] = {}
    first, then, seen = list[Equation](), list[Equation](), dict[tuple, tuple[int, ...]]()
    free = set(program.inputs)
    for old in program.equations:
        equation = dataclasses.replace(
            old, inputs=tuple(known.get(i, i) if isinstance(i, int) else i for i in old.inputs)
        )
        worked_out = _worked_out(equation)
        if worked_out is not None:
            known |= dict(zip(equation.outputs, worked_out, strict=True))
        elif any(isinstance(i, int) and i not in free for i in equation.inputs) or equation.primitive in _LEFT:
            then.append(equation)
        else:
            same = seen.setdefault(written(equation), equation.outputs)
            known |= dict(zip(equation.outputs, same, strict=True))
            if same is equation.outputs:
                first.append(equation)
                free |= set(same)
    output = known.get(program.output, program.output) if isinstance(program.output, int) else program.output
    return dataclasses.replace(program, equations=(*first, *then), free=len(first), output=output)


def written(equation: Equation) -> tuple:
    """Equal for equations that do the same to the same."""
    inputs = tuple(i if isinstance(i, int) else constant_written(i) for i in equation.inputs)
    return (
        operation_written(equation),
        equation.params.get("index") if equation.primitive == "scan_index" else None,
        inputs,
    )


def operation_written(equation: Equation) -> tuple:
    """What an equation does, whatever it does it to; of a loop's slices that is which one, as of the step it is in."""
    if equation.primitive == "scan_index":
        return "scan_index", equation.shapes
    params = tuple(
        tuple(f"{key}={id(value) if callable(value) else value}" for key, value in sorted(each.items()))
        for each in (equation.params, equation.wide)
    )
    return equation.primitive, params, equation.shapes


def constant_written(constant: Constant) -> tuple:
    """Equal for equal constants."""
    parts = []
    for value in constant:
        array = np.asarray(value) if _numeric(value) else None
        parts.append(id(value) if array is None else (array.shape, str(array.dtype), array.tobytes()))
    return tuple(parts)


def _numeric(value: Any) -> bool:
    kind = np.dtype(value.dtype) if isinstance(getattr(value, "dtype", None), np.dtype) else None
    return kind is not None and (np.issubdtype(kind, np.number) or kind == np.bool_)


def _worked_out(equation: Equation) -> list[Constant] | None:
    """What constants give; None for others, and for what is as long as there are neurons or inputs."""
    name = equation.primitive
    given: Any = equation.inputs
    if name in _LEFT or (not given and name != "iota") or any(isinstance(i, int) for i in given):
        return None
    if any(not _numeric(value) for constant in given for value in constant):
        return None
    if any(len(set(sizes)) > 1 for shape in equation.shapes for sizes in shape):
        return None
    narrow, wide = (_evaluated(name, params, [constant[i] for constant in given])
                    for i, params in enumerate((equation.params, equation.wide)))  # fmt: skip
    return [Constant(*pair) for pair in zip(narrow, wide, strict=True)]


def _evaluated(name: str, params: dict[str, Any], given: list[Any]) -> list[np.ndarray]:
    if name == "scan_stack":
        return [np.stack(given)]
    if name == "scan_index":
        return [np.asarray(np.asarray(given[0])[params["index"]])]
    here = evaluated(name, params, given) if name in EXACT else None
    if here is not None:
        return [here]
    own = {key: value for key, value in params.items() if key not in ADDED}
    found = primitives()[name].bind(*map(jnp.asarray, given), **own)
    return [np.asarray(part) for part in (found if isinstance(found, list | tuple) else [found])]
