"""Sums over neurons of products by entry with weights, Σ_i h_i v_i: written as the products of arrays that they are."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from limits.program.simplified import simplified
from limits.program.trace import Constant, Equation, NetworkProgram, Sizes, needed

_PLACES = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "convert_element_type", "copy", "neg")
_ONE = (1, 1, 1)
Shape = tuple[Sizes, ...]


def each_law(laws: Any) -> list[Any]:
    """Of every parameter, in order."""
    return jax.tree.leaves(laws, is_leaf=lambda v: hasattr(v, "kind") or hasattr(v, "reason"))


def as_products(program: NetworkProgram, laws: Any) -> NetworkProgram:
    """The same function of parameters of these laws, with Σ over neurons of signals times weights as a "dot_general" of both.

    A mean over neurons of signals is deterministic; with weights of mean zero it is a layer's output.
    """
    pairs = zip(program.params.values(), each_law(laws), strict=True)
    weights = {number for number, law in pairs if getattr(law, "mean", None) == 0}
    shapes = program.shapes | {v: s for e in program.equations for v, s in zip(e.outputs, e.shapes, strict=True)}
    new, own = itertools.count(1 + max(shapes, default=0)), set(weights)
    met: dict[int, tuple[Equation, ...]] = {}  # a product by entry, and the numbers that it is multiplied by
    equations = list[Equation]()
    for e in program.equations:
        held = [i for i in e.inputs if isinstance(i, int)]
        number = len(e.inputs) == 1 or _of_one(e)
        if len(held) == 1 and held[0] in own and (e.primitive in _PLACES or (e.primitive in ("mul", "div") and number)):
            own |= set(e.outputs)
        elif e.primitive == "mul" and len(held) == 2 and sum(i in own for i in held) == 1:
            met[e.outputs[0]] = (e,)
        elif len(held) == 1 and held[0] in met and _is_factor(e) and number:
            met[e.outputs[0]] = (*met[held[0]], e)
        elif e.primitive == "reduce_sum" and held and held[0] in met:
            first, *after = met[held[0]]
            signal, w = first.inputs if first.inputs[1] in own else first.inputs[::-1]
            made = _product(e, first.shapes[0], (signal, shapes[signal]), (w, shapes[w]), new)  # pyright: ignore
            if made:
                equations += _then(made, after, e, new)
                continue
        equations.append(e)
    if equations == [*program.equations]:
        return program
    return simplified(dataclasses.replace(program, equations=needed(equations, program.output)))


def _of_one(e: Equation) -> bool:
    constants = [i for i in e.inputs if isinstance(i, Constant)]
    return all(getattr(part, "size", 1) == 1 for each in constants for part in each)


def _is_factor(e: Equation) -> bool:
    """Multiplies by a number."""
    by = e.primitive == "div" and isinstance(e.inputs[0], int)
    return by or e.primitive in ("mul", "neg", "convert_element_type", "copy")


def _product(
    e: Equation, whole: Shape, signal: tuple[int, Shape], weights: tuple[int, Shape], new: Iterator[int]
) -> list[Equation] | None:
    """What makes the sum, its last result being that of `e`; None for what is no sum over neurons with weights for each."""
    gone = [i for i in e.params["axes"] if whole[i] != _ONE]
    summed = [i for i in gone if weights[1][i] != _ONE]
    if not any(whole[i][1] != whole[i][0] for i in summed) or any(signal[1][i] == _ONE for i in gone):
        return None
    made = list[Equation]()

    def then(primitive: str, params: dict, inputs: Sequence[int], shape: Shape, wide: dict | None = None) -> int:
        made.append(Equation(primitive, params, (*inputs,), (next(new),), (shape,), wide or params, e.where))
        return made[-1].outputs[0]

    def bare(operand: tuple[int, Shape], axes: Sequence[int]) -> tuple[int, list[int]]:
        """Summed over axes that the other lacks, without axes of size 1; and which are left."""
        v, shape = operand
        left = [i for i in range(len(shape)) if i not in axes]
        if axes:
            v = then("reduce_sum", e.params | {"axes": tuple(axes)}, [v], tuple(shape[i] for i in left))
        kept = [i for i in left if shape[i] != _ONE]
        if len(kept) < len(left):
            ones = tuple(k for k, i in enumerate(left) if shape[i] == _ONE)
            v = then("squeeze", {"dimensions": ones}, [v], tuple(shape[i] for i in kept))
        return v, kept

    sides = [bare(signal, [i for i in gone if i not in summed]), bare(weights, [])]
    left, right = (kept for _, kept in sides)
    beside = [i for i in left if i in right and i not in summed]
    dims = tuple(tuple(tuple(kept.index(i) for i in axes) for kept in (left, right)) for axes in (summed, beside))
    order = [*beside, *(i for kept in (left, right) for i in kept if i not in (*beside, *summed))]
    options = {"precision": None, "preferred_element_type": None, "out_sharding": None}
    v = then("dot_general", {"dimension_numbers": dims} | options, [sides[0][0], sides[1][0]],
             tuple(whole[i] for i in order))  # fmt: skip
    if order != sorted(order):
        permutation = tuple(order.index(i) for i in sorted(order))
        v = then("transpose", {"permutation": permutation}, [v], tuple(whole[i] for i in sorted(order)))
    sizes = [{"new_sizes": tuple(n[t] for n in e.shapes[0]), "dimensions": None, "sharding": None} for t in (0, 1)]
    if len(e.shapes[0]) != len(order):
        then("reshape", sizes[0], [v], e.shapes[0], sizes[1])
    return made


def _then(made: list[Equation], after: Sequence[Equation], e: Equation, new: Iterator[int]) -> list[Equation]:
    """The sum multiplied by the numbers that its terms were."""
    for each in after:
        v = made[-1].outputs[0]
        inputs = tuple(v if isinstance(i, int) else i for i in each.inputs)
        made.append(dataclasses.replace(each, inputs=inputs, outputs=(next(new),), shapes=e.shapes))
    return [*made[:-1], dataclasses.replace(made[-1], outputs=e.outputs)]
