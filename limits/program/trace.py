"""The program of a network: one list of equations, traced at two widths and two numbers of inputs, read in step.

An axis that is longer at twice the width is one of neurons; one that is longer with one more input is one of inputs; all
others are positions. So sizes that coincide confuse nothing.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
from jax._src import source_info_util  # jax.extend has no way from an equation to the user's line
from jax.extend.core import Literal

import zoo
from limits.kernels.alike import INLINED
from limits.program import own_rules
from zoo.scans import scan_counts

INPUTS = 2  # of the first trace
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (flax.__file__, jax.__file__, zoo.__file__, __file__)
)
_WRAPPED = r"^PlainNetwork(/inner)?/?"  # what stands round a user's module is none of theirs
_SAME = {"add_any": "add"}  # as gradients are added up
_OF_WHOLE = ("div", "rem", "and", "or", "xor", "not")  # other functions of whole numbers than of numbers
ADDED = ("old_dtype", "whole", "own_rule")  # parameters of equations that jax's primitives do not have
Sizes = tuple[int, int, int]  # of an axis: at (N, n), (2N, n), (N, n + 1)


class Constant(NamedTuple):
    """A number or an array of the program, at the first width and at the second."""

    value: Any
    wide: Any


@dataclasses.dataclass(frozen=True)
class Equation:
    """One step. Inputs are numbers of variables or constants; `shapes` are those of its results, an axis a `Sizes`."""

    primitive: str
    params: dict[str, Any]
    inputs: tuple[int | Constant, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[Sizes, ...], ...]
    wide: dict[str, Any]  # params at the second width
    where: str  # layer and line of the user's source


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkProgram:
    """Equations from parameters and inputs to the output; no parameter enters the first `free`."""

    equations: tuple[Equation, ...]
    params: dict[str, int]  # path: variable
    inputs: tuple[int, ...]  # the variable of x
    output: int | Constant
    shapes: dict[int, tuple[Sizes, ...]]  # of parameters and inputs
    free: int = 0


class _Flat(NamedTuple):
    """A program at one size: (primitive, params, inputs, outputs, shapes, where) by equation."""

    equations: list[tuple]
    arguments: list[tuple[int, tuple[int, ...]]]
    output: Any


def trace(apply: Callable, sizes: Sequence[tuple[Any, Any]]) -> NetworkProgram:
    """The program of apply(params, x) from three pairs (params, x) of abstract arrays: at (N, n), (2N, n) and (N, n + 1).

    `apply` is a function of the number of the pair too: apply(0, params, x).
    """
    rules = own_rules.OwnRules()
    flats = [_flat(jax.make_jaxpr(lambda p, x, i=i: apply(i, p, x))(*pair), rules) for i, pair in enumerate(sizes)]
    first = flats[0]
    for other, what in zip(flats[1:], ("width", "number of inputs"), strict=True):
        same = len(other.equations) == len(first.equations) and all(
            a[0] == b[0] and _names(a[2]) == _names(b[2]) for a, b in zip(first.equations, other.equations, strict=True)
        )
        if not same:
            raise ValueError(
                f"The network's code takes another path at another {what}, so that its program cannot be read as one: write it "
                "without Python branches on sizes."
            )
    equations = []
    for parts in zip(*(flat.equations for flat in flats), strict=True):
        primitive, params, _, outputs, _, where = parts[0]
        inputs = tuple(
            a if isinstance(a, int) else Constant(a, b) for a, b in zip(parts[0][2], parts[1][2], strict=True)
        )
        shapes = tuple(_sizes(each) for each in zip(*(part[4] for part in parts), strict=True))
        equations.append(Equation(primitive, params, inputs, outputs, shapes, parts[1][1], where))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(sizes[0][0])]
    arguments = [flat.arguments for flat in flats]
    variables = [number for number, _ in first.arguments]
    shapes = {each[0][0]: _sizes([shape for _, shape in each]) for each in zip(*arguments, strict=True)}
    output = first.output if isinstance(first.output, int) else Constant(first.output, flats[1].output)
    return NetworkProgram(needed(equations, output), dict(zip(names, variables, strict=False)),
                   tuple(variables[len(names) :]), output, shapes)  # fmt: skip


def _sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[Sizes, ...]:
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError("An array of the network has another number of axes at another width or number of inputs.")
    return tuple(zip(*shapes, strict=True))


def _names(inputs: Sequence[Any]) -> tuple:
    return tuple(each if isinstance(each, int) else None for each in inputs)


def needed(equations: Sequence[Equation], output: Any) -> tuple[Equation, ...]:
    """Those that the output depends on."""
    wanted, kept = {output}, []
    for equation in reversed(equations):
        if wanted & set(equation.outputs):
            kept.append(equation)
            wanted |= {each for each in equation.inputs if isinstance(each, int)}
    return tuple(reversed(kept))


def _flat(closed: Any, rules: own_rules.OwnRules) -> _Flat:
    """With every call inside inlined and every scan unrolled."""
    numbers, equations, keys, calls = itertools.count(), [], set[int](), itertools.count()

    def emit(primitive: str, params: dict, inputs: list, shapes: list, where: str) -> list[int]:
        outputs = [next(numbers) for _ in shapes]
        equations.append((primitive, params, tuple(inputs), tuple(outputs), tuple(shapes), where))
        return outputs

    def ruled(eqn: Any, given: list, where: str) -> list:
        """What a call is given, marked where its rule is not the derivative of what it computes."""
        number, word = next(calls), eqn.params[INLINED[eqn.primitive.name]].jaxpr.debug_info.func_name
        another = rules.another(number, eqn, [None if isinstance(v, int) else v for v in given])
        marked = {"own_rule": word.split(" ")[0]}
        return [
            emit("stop_gradient", marked, [v], [tuple(eqn.invars[i].aval.shape)], where)[0] if i in another else v
            for i, v in enumerate(given)
        ]

    def run(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], layer: str, line: str) -> list[Any]:
        known = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, inputs, strict=True))
        look = lambda v: np.asarray(v.val, getattr(v.aval, "dtype", None)) if isinstance(v, Literal) else known[v]  # noqa: E731
        for eqn in jaxpr.eqns:
            given, name = [look(v) for v in eqn.invars], str(_SAME.get(eqn.primitive.name, eqn.primitive.name))
            inside = "/".join(part for part in (layer, str(eqn.source_info.name_stack)) if part)
            inside, here = re.sub(_WRAPPED, "", inside), line_of(eqn) or line
            masks = eqn.params.get("name") == "_bernoulli" and isinstance(given[0], int)
            if masks and given[0] not in keys:  # of a key that nothing else is drawn from
                keys.add(int(given[0]))
                made = emit(
                    "bernoulli", {}, given[1:], [tuple(eqn.outvars[0].aval.shape)], f"{inside or 'the network'}{here}"
                )
            elif name in INLINED:
                inner = eqn.params[INLINED[name]]
                if name in own_rules.RULED:
                    given = ruled(eqn, given, f"{inside or 'the network'}{here}")
                made = run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), given, inside, here)
            elif name == "scan":
                made = _unrolled(eqn.params, given, run, emit, (inside, here))
            elif name == "concatenate" and len(some := [i for i, v in enumerate(eqn.invars) if v.aval.size]) == 1:
                made = [given[some[0]]]  # the others are empty, as of axes that `jnp.pad` leaves as they are
            else:
                shapes = [tuple(v.aval.shape) for v in eqn.outvars]
                made = emit(name, eqn.params | _added(name, eqn), given, shapes, f"{inside or 'the network'}{here}")
            known |= dict(zip(eqn.outvars, made, strict=True))
        return [look(v) for v in jaxpr.outvars]

    arguments = [(next(numbers), tuple(v.aval.shape)) for v in closed.jaxpr.invars]
    # Copies: while jax holds an array of the module's as a float64 constant, it is one in every later trace too.
    constants = [_copied(constant) for constant in closed.consts]
    (output,) = run(closed.jaxpr, constants, [number for number, _ in arguments], "", "")
    return _Flat(equations, arguments, output)


def _added(name: str, eqn: Any) -> dict[str, Any]:
    """What of types the rules ask for, in `ADDED`."""
    if name == "convert_element_type":
        return {"old_dtype": eqn.invars[0].aval.dtype}
    whole = name in _OF_WHOLE and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.integer)
    return {"whole": True} if whole else {}


def _copied(constant: Any) -> Any:
    return constant if jnp.issubdtype(constant.dtype, jax.dtypes.prng_key) else np.array(constant)


def line_of(eqn: Any) -> str:
    """The user's line that an equation comes from, which is not one of a library's layers."""
    for frame in source_info_util.user_frames(eqn.source_info.traceback):
        if not frame.file_name.startswith(_LIBRARIES):
            return f", {os.path.basename(frame.file_name)}:{frame.start_line}"
    return ""


def _unrolled(params: dict, given: list, run: Callable, emit: Callable, place: tuple[str, str]) -> list[Any]:
    """A scan, step by step: slices of what it runs over go in ("scan_index"), and what every step returns is stacked."""
    body, length = params["jaxpr"], params["length"]
    consts, carries = scan_counts(params)
    fixed, state, over = given[:consts], given[consts : consts + carries], given[consts + carries :]
    avals = body.in_avals[consts + carries :]
    results: list[Any] = [None] * length
    for i in reversed(range(length)) if params["reverse"] else range(length):
        here = [
            each[i]
            if not isinstance(each, int)
            else emit("scan_index", {"index": i}, [each], [tuple(aval.shape)], "".join(place))[0]
            for each, aval in zip(over, avals, strict=True)
        ]
        made = run(body.jaxpr, body.consts, [*fixed, *state, *here], *place)
        state, results[i] = made[:carries], made[carries:]
    shapes = [(length, *aval.shape) for aval in body.out_avals[carries:]]
    stacks = [
        emit("scan_stack", {"axis": 0}, [step[j] for step in results], [shape], "".join(place))[0]
        for j, shape in enumerate(shapes)
    ]
    return [*state, *stacks]
