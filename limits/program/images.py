"""Rules for what weights give: images of a matrix, convolutions, rows of a table."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from limits.program.concatenation import concatenated, padded
from limits.program.copies import MOST, apart, are_copies, entry
from limits.program.deterministic import check_steady
from limits.program.elementwise import elementwise, signed
from limits.program.nodes import Det, FieldSum, Image, Node, Window
from limits.program.order import reordered
from limits.program.shapes import broadcast, moved, permuted, settled, transposed
from limits.program.slices import sliced
from limits.program.values import (
    Atom,
    Axes,
    Axis,
    MixedError,
    NoLimitError,
    Parameter,
    Value,
    fresh,
    growth,
    one,
    positions,
    size,
)


def of_weights(signal: tuple, weights: tuple, first: bool) -> Value:
    """W u: over contracted axes, with outputs along the free axes of W; (value, contracted axes, axes side by side)."""
    (value, contracted, batch), (matrix, w_contracted, w_batch) = signal, weights
    free = [i for i in range(len(value.axes)) if i not in (*contracted, *batch)]
    together = next((i for i in free if are_copies(value, i)), None)
    if together is not None:  # one matrix for all of them
        return of_weights((apart(value, together), contracted, batch), weights, first)
    if any(atom.kind == "n" and growth(atom.sizes) for i in batch for atom in value.axes[i]):
        return _gains(signal, weights, first)
    if any(not are_copies(value, i) for i in batch):
        return _one_by_one(signal, weights, first)
    gone = [atom for i in contracted for atom in value.axes[i]]
    if any(atom.kind == "b" for atom in gone):
        raise NoLimitError("inputs of a call are mixed by weights")
    loose = [atom for i in free for atom in value.axes[i] if atom.kind == "n"]
    if isinstance(value.held, Node) and (loose or (batch and not any(growth(atom.sizes) for atom in gone))):
        raise NoLimitError(
            f"the parameter {matrix.held.path} acts on positions of every neuron alike: outputs of different neurons share "
            "random weights and are not independent"
        )
    out = [axis for i, axis in enumerate(matrix.axes) if i not in (*w_contracted, *w_batch)]
    new = tuple(tuple(Atom("n", atom.sizes) for atom in axis) for axis in out)
    beside, mine = (tuple(value.axes[i] for i in numbers) for numbers in (batch, free))
    held = _contracted_last(Value(value.axes, settled(value)), contracted)
    layout = (
        (tuple(w_contracted), tuple(w_batch)),
        tuple(tuple((a.kind, a.sizes) for a in value.axes[i]) for i in contracted),
        _origin(matrix),
    )
    made = image(matrix.held, held, gone, layout, None)
    return Value((*beside, *new, *mine) if first else (*beside, *mine, *new), made)


def _gains(signal: tuple, weights: tuple, first: bool) -> Value:
    """Σ_q W_pqi u_qi: weights of their own for every neuron i, multiplied and summed over positions."""
    (value, contracted, batch), (matrix, w_contracted, w_batch) = signal, weights
    free, w_free = (
        [i for i in range(len(each.axes)) if i not in (*gone, *beside)]
        for each, gone, beside in ((value, contracted, batch), (matrix, w_contracted, w_batch))
    )
    if any(atom.kind != "p" for i in contracted for atom in value.axes[i]):
        raise NoLimitError(f"the parameter {matrix.held.path} has a matrix for every neuron of its input")
    value = transposed(value, (*batch, *free, *contracted))
    matrix = transposed(matrix, (*w_batch, *w_free, *w_contracted))
    b, s, w, k = len(batch), len(free), len(w_free), len(contracted)
    mine = (*range(b), *range(b + w * first, b + w * first + s), *range(b + s + w, b + s + w + k))
    theirs = (*range(b), *range(b + s * (not first), b + s * (not first) + w), *range(b + s + w, b + s + w + k))
    whole: list[Any] = [None] * (b + s + w + k)
    for each, places in ((matrix, theirs), (value, mine)):
        for axis, place in zip(each.axes, places, strict=True):
            whole[place] = size(axis)
    pair = [broadcast(each, tuple(whole), places) for each, places in ((matrix, theirs), (value, mine))]
    product = elementwise("mul[]", jnp.multiply, pair)
    held, kept = settled(product), product.axes[: b + s + w]
    left = len(positions(kept))
    summed = moved(
        held, lambda a, i: a.sum(tuple(range(i + left, i + len(held.shape)))), held.shape[:left], selects=False
    )
    return Value(kept, summed)


def _one_by_one(signal: tuple, weights: tuple, first: bool) -> Value:
    """A matrix for each position: one image after the other, each of weights of its own."""
    (value, contracted, (b, *batch)), (matrix, w_contracted, (w, *w_batch)) = signal, weights
    sizes: Any = size(value.axes[b])
    if any(atom.kind != "p" for atom in value.axes[b]) or len(value.axes[b]) > 1 or sizes[0] > MOST:
        raise NoLimitError(
            f"the parameter {matrix.held.path} has a matrix for every input or neuron, or for more than {MOST} positions"
        )
    low, high = [0] * len(value.axes), [size(axis)[0] for axis in value.axes]
    wanted = tuple((1, 1, 1) if i == b else size(axis) for i, axis in enumerate(value.axes))
    found = []
    for i in range(sizes[0]):
        low[b], high[b] = i, i + 1
        part = sliced(value, tuple(low), tuple(high), (1,) * len(low), wanted)
        part = Value((*part.axes[:b], *part.axes[b + 1 :]), part.held)
        mine, theirs = (
            [[k - (k > gone) for k in numbers] for numbers in sides]
            for gone, sides in ((b, (contracted, batch)), (w, (w_contracted, w_batch)))
        )
        made = of_weights((part, *mine), (entry(matrix, w, i), *theirs), first)
        found.append(Value(((), *made.axes), made.held))
    return concatenated(found, 0, sizes)


def _origin(matrix: Value) -> tuple:
    """Which axes of the parameter the axes of these weights are."""
    return matrix.held.origin


def _contracted_last(value: Value, contracted: Sequence[int]) -> Any:
    """What is held, with the positions and neurons of the contracted axes behind the others."""
    order = [i for i in range(len(value.axes)) if i not in contracted] + list(contracted)
    return permuted(reordered(value, order), _behind(value.axes, contracted))


def _behind(axes: Axes, last: Sequence[int]) -> list[int]:
    """The order of positions that puts those of some axes last, in the order of these."""
    numbers, count = [], 0
    for axis in axes:
        here = sum(atom.kind == "p" for atom in axis)
        numbers.append(list(range(count, count + here)))
        count += here
    order = [i for i in range(len(axes)) if i not in last] + list(last)
    return [number for i in order for number in numbers[i]]


def image(weights: Parameter, source: Any, gone: list[Atom], layout: tuple, window: Window | None) -> Node:
    """The image of a field or of numbers, the contracted parts `gone` of its axes last among its positions."""
    if weights.law.mean != 0:
        raise NoLimitError(f"entries of the matrix {weights.path} have mean {weights.law.mean:g}, not 0")
    if isinstance(source, Det):
        check_steady(source, 0.0 if source.zero else source.power)
    elif not any(growth(atom.sizes) for atom in gone):
        raise MixedError(
            f"the matrix {weights.path} multiplies signals of which there are equally many at every width: they stay random, and "
            "so does all after them. Let their number grow with the width"
        )
    neurons = [atom for atom in gone if atom.kind == "n"]
    fan = math.prod(atom.sizes[0] for atom in neurons)
    power = source.power  # of weights that start at zero, which have no power of their own
    if weights.law.variance:
        power += weights.growth + sum(growth(atom.sizes) for atom in neurons) / 2
    k = sum(atom.kind == "p" for atom in gone)
    kept = source.shape[: len(source.shape) - k]
    shape = kept if window is None else slid_shape(kept, window)
    return signed(weights, Image(shape, power, weights.matrix(), source, k, float(fan), layout, window))


def slid_shape(shape: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """Positions after a window has gone over them."""
    return tuple(
        (n + sum(edges) - (width - 1) * spacing - 1) // stride + 1
        for n, (width, stride, edges, spacing) in zip(shape, window.axes, strict=True)
    )


def convolution(signal: Value, weights: Value, params: dict[str, Any], shape: tuple) -> Value:
    """A convolution: an image whose window slides over positions."""
    spec = params["dimension_numbers"]
    if not isinstance(weights.held, Parameter):
        raise NoLimitError("a convolution whose window is no parameter")
    if params["batch_group_count"] != 1:
        raise NoLimitError("a convolution whose inputs of a call are in groups (batch_group_count)")
    batch, channel, *places = spec.lhs_spec
    signal = _dilated(signal, places, params["lhs_dilation"])
    if params["feature_group_count"] > 1 and not weights.axes[spec.rhs_spec[1]]:
        return _depthwise(signal, weights, params, shape)
    gone = list(signal.axes[channel])
    if params["feature_group_count"] > 1:  # each output sees the neurons of its group
        if [atom.kind for atom in gone] != ["n"] or not growth(size(weights.axes[spec.rhs_spec[1]])):
            raise NoLimitError(f"the convolution with {weights.held.path} has groups of fixed numbers of features")
        gone = [Atom("n", size(weights.axes[spec.rhs_spec[1]]))]
    held = permuted(settled(signal), _behind(signal.axes, [channel]))
    window = Window(tuple(
        (size(weights.axes[k])[0] or 1, stride, tuple(edges), spacing)
        for k, stride, edges, spacing in zip(spec.rhs_spec[2:], params["window_strides"], params["padding"],
                                             params["rhs_dilation"], strict=True)
    ))  # fmt: skip
    held = _with_places(signal, held, places, gone)
    sides = tuple(width for width, *_ in window.axes)
    layout = ("window", spec.rhs_spec, sides, tuple((a.kind, a.sizes) for a in gone), weights.held.origin)
    made = image(weights.held, held, gone, layout, window)
    axes: list[Axis] = [()] * len(shape)
    out_batch, out_channel, *out_places = spec.out_spec
    axes[out_batch] = signal.axes[batch]
    axes[out_channel] = (Atom("n", shape[out_channel]),) if shape[out_channel] != (1, 1, 1) else ()
    for place in out_places:
        axes[place] = (Atom("p", shape[place]),)
    made = _without_single(made, [shape[place] for place in out_places])
    return Value(tuple(axis if axis and size(axis) != (1, 1, 1) else () for axis in axes), made)


def _dilated(signal: Value, places: Sequence[int], steps: Sequence[int]) -> Value:
    """With step − 1 zeros between neighbouring positions, over which a transposed convolution slides."""
    if all(step == 1 for step in steps):
        return signal
    shape: list[tuple] = [size(axis) for axis in signal.axes]
    config = [(0, 0, 0)] * len(signal.axes)
    for place, step in zip(places, steps, strict=True):
        n = shape[place][0]
        if n > 1:
            config[place], shape[place] = (0, 0, step - 1), ((n - 1) * step + 1,) * 3
    return padded(signal, 0.0, tuple(config), tuple(shape))


def _depthwise(signal: Value, weights: Value, params: dict[str, Any], shape: tuple) -> Value:
    """A window on every feature by itself: its weights are gains, of which every offset has its own."""
    spec = params["dimension_numbers"]
    batch, channel, *places = spec.lhs_spec
    if size(weights.axes[spec.rhs_spec[0]]) != size(signal.axes[channel]) or not isinstance(signal.held, Node):
        raise NoLimitError(f"the convolution with {weights.held.path} makes several features of one, or is of inputs")
    order = (batch, *places, channel)
    signal = transposed(signal, order)
    held = _with_places(signal, settled(signal), range(1, len(order) - 1), [])
    sizes = [size(weights.axes[k])[0] for k in spec.rhs_spec[2:]]
    steps = list(zip(params["window_strides"], params["padding"], params["rhs_dilation"], strict=True))
    new = tuple(shape[place][0] for place in spec.out_spec[2:])
    kept = tuple(n for n, place in zip(new, spec.out_spec[2:], strict=True) if shape[place] != (1, 1, 1))
    axes = (signal.axes[0], *(fresh(shape[place]) for place in spec.out_spec[2:]), signal.axes[-1])
    terms = []
    for at in itertools.product(*map(range, sizes)):

        def seen(a: Any, i: int, at: tuple[int, ...] = at) -> Any:
            a = jnp.pad(a, [steps[k - i][1] if 0 <= k - i < len(at) else (0, 0) for k in range(a.ndim)])
            for k, (o, (stride, _, gap)) in enumerate(zip(at, steps, strict=True)):
                first = o * gap
                a = jax.lax.slice_in_dim(a, first, first + (new[k] - 1) * stride + 1, stride, i + k)
            return a.reshape(*a.shape[:i], *kept, *a.shape[i + len(at) :])

        gain = weights
        for k in sorted([*spec.rhs_spec[2:], spec.rhs_spec[1]], reverse=True):
            gain = entry(gain, k, at[spec.rhs_spec[2:].index(k)] if k in spec.rhs_spec[2:] else 0)
        gain = broadcast(gain, tuple(map(size, axes)), (len(axes) - 1,))
        terms.append(
            (one(len(kept)), elementwise("mul[]", jnp.multiply, [gain, Value(axes, moved(held, seen, kept))]).held)
        )
    whole = FieldSum(kept, terms[0][1].power, tuple(terms))
    placed = (spec.out_spec[0], *spec.out_spec[2:], spec.out_spec[1])
    return transposed(Value(axes, whole), tuple(placed.index(i) for i in range(len(placed))))


def _with_places(signal: Value, held: Any, places: Sequence[int], gone: list[Atom]) -> Any:
    """With an axis for every place of the window, where single positions have none."""
    if any(len(signal.axes[p]) > 1 for p in places):
        raise NoLimitError("a convolution over an axis that merges positions with others")
    sizes = [size(signal.axes[p])[0] if signal.axes[p] else 1 for p in places]
    sizes += [atom.sizes[0] for atom in gone if atom.kind == "p"]
    if tuple(sizes) == held.shape:
        return held
    k = len(held.shape)
    return moved(held, lambda a, i: a.reshape(*a.shape[:i], *sizes, *a.shape[i + k :]), tuple(sizes))


def _without_single(node: Node, sizes: list) -> Node:
    """Without axes of one position."""
    kept = tuple(n for n, s in zip(node.shape, sizes, strict=True) if s != (1, 1, 1))
    if kept == node.shape:
        return node
    k = len(node.shape)
    return moved(node, lambda a, i: a.reshape(*a.shape[:i], *kept, *a.shape[i + k :]), kept)
