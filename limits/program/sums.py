"""Rules for sums: over neurons (the law of large numbers), over positions, and products of signals and numbers."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits.program.copies import apart, are_copies
from limits.program.deterministic import check_steady, powers
from limits.program.elementwise import field_of
from limits.program.images import of_weights
from limits.program.nodes import Concat, Det, Moved, Node
from limits.program.order import reordered
from limits.program.shapes import moved, settled
from limits.program.values import Atom, Axes, NoLimitError, Parameter, Value, growth, positions


def summed(value: Value, dimensions: tuple[int, ...], own: Any) -> Value:
    """Σ over axes."""
    left = [atom for i, axis in enumerate(value.axes) if i not in dimensions for atom in axis if atom.kind == "n"]
    if any(growth(atom.sizes) for atom in left):
        for i in dimensions:
            value = apart(value, i) if are_copies(value, i) else value
    gone = [atom for i in dimensions for atom in value.axes[i]]
    axes = tuple(axis for i, axis in enumerate(value.axes) if i not in dimensions)
    if isinstance(value.held, Parameter):
        value = Value(value.axes, field_of(value, value.axes))
    if any(atom.kind == "b" for atom in gone):
        raise NoLimitError(
            "a sum over the inputs of a call (batch statistics): kernels of a pair depend on the other inputs"
        )
    held = settled(value)
    neurons = [atom for atom in gone if atom.kind == "n"]
    if neurons and isinstance(held, Node):
        held = _over_neurons(held, neurons, own)
    elif neurons:
        n = math.prod(atom.sizes[0] for atom in neurons)
        power = sum(growth(atom.sizes) for atom in neurons)
        held = Det(held.array * n, held.power + power, held.noise + power, held.zero)
    at = _positions_of(value.axes, dimensions)
    if not at:
        return Value(axes, held)
    shape = tuple(n for i, n in enumerate(held.shape) if i not in at)
    return Value(axes, moved(held, lambda a, i: a.sum(tuple(i + each for each in at)), shape, selects=False))


def running(value: Value, axis: int, backwards: bool) -> Value:
    """Σ over the positions up to each."""
    if not value.axes[axis]:
        return value
    if [atom.kind for atom in value.axes[axis]] != ["p"]:
        raise NoLimitError("a running sum (cumsum) is taken over neurons or inputs")
    if isinstance(value.held, Parameter):
        value = Value(value.axes, field_of(value, value.axes))
    held, at = settled(value), len(positions(value.axes[:axis]))
    act = lambda a, i: jax.lax.cumsum(1 * jnp.asarray(a), i + at, backwards)  # noqa: E731  # 1 *: of truths too
    return Value(value.axes, moved(held, act, held.shape, selects=False))


def _positions_of(axes: Axes, dimensions: Sequence[int]) -> list[int]:
    """Where among the positions of what is held those of some axes are."""
    owners = [i for i, axis in enumerate(axes) for atom in axis if atom.kind == "p"]
    return [place for place, i in enumerate(owners) if i in dimensions]


def _over_neurons(node: Node, neurons: list[Atom], own: Any) -> Det:
    """N E u, which differs from the finite sum by the square root of that many terms."""
    power = sum(growth(atom.sizes) for atom in neurons)
    if power == 0:
        raise NoLimitError("a sum over axes of independent copies that do not grow with the width stays random")
    mean = own.mean(node)
    n = math.prod(atom.sizes[0] for atom in neurons)
    if mean is None:
        return Det(jnp.zeros((1, *(1,) * len(node.shape))), 0.0, node.power + power / 2, True)
    return Det(jnp.broadcast_to(n * mean, (len(mean), *node.shape)), node.power + power, node.power + power / 2)


def reduced(word: str, value: Value, dimensions: tuple[int, ...], function: Any) -> Value:
    """Maxima and the like, of numbers."""
    if not isinstance(value.held, Det):
        raise NoLimitError(f"{word} of a field: the largest of random signals is not Gaussian")
    axes = tuple(axis for i, axis in enumerate(value.axes) if i not in dimensions)
    if any(atom.kind == "b" for i in dimensions for atom in value.axes[i]):
        raise NoLimitError(f"{word} over the inputs of a call")
    array, at, held = settled(value).array, _positions_of(value.axes, dimensions), value.held
    found = function(jnp.asarray(array), tuple(1 + each for each in at)) if at else array
    return Value(axes, Det(found, held.power, held.noise))


def dot(left: Value, right: Value, numbers: Any, own: Any) -> Value:
    """A product of arrays, summed over contracted axes, side by side over batch axes."""
    (c_left, c_right), (b_left, b_right) = numbers
    for i, j in zip((*c_left, *b_left), (*c_right, *b_right), strict=True):
        if are_copies(left, i) and [atom.kind for atom in right.axes[j]] == ["p"]:
            left = apart(left, i)
        elif are_copies(right, j) and [atom.kind for atom in left.axes[i]] == ["p"]:
            right = apart(right, j)
    sides = [(left, c_left, b_left), (right, c_right, b_right)]
    order = [*b_left, *(i for i in range(len(left.axes)) if i not in (*b_left, *c_left))]
    rest = [i for i in range(len(right.axes)) if i not in (*b_right, *c_right)]
    axes = (*(left.axes[i] for i in order), *(right.axes[i] for i in rest))
    if any(atom.kind == "b" for i in c_left for atom in left.axes[i]) and not (
        isinstance(left.held, Parameter) or isinstance(right.held, Parameter)
    ):
        raise NoLimitError("inputs of a call are mixed")
    held = [isinstance(value.held, Parameter) for value, _, _ in sides]
    if all(held):
        sides[0] = (Value(left.axes, field_of(left, left.axes)), c_left, b_left)
        held = [False, True]
    if any(held):
        which = held.index(True)
        return of_weights(sides[1 - which], sides[which], which == 0)
    if isinstance(left.held, Det) and isinstance(right.held, Det):
        return _of_numbers(sides, axes)
    if isinstance(left.held, Node) and isinstance(right.held, Node):
        return _of_fields(sides, axes, own)
    return _mixed(sides, axes, own)


def _letters(value: Value, names: dict[tuple, str], side: int) -> str:
    """A letter for every position of a value."""
    return "".join(
        names[side, i, j] for i, axis in enumerate(value.axes) for j, atom in enumerate(axis) if atom.kind == "p"
    )


def _names(sides: list) -> dict[tuple, str]:
    """A letter for every position of two values; those of axes that are contracted or side by side are shared."""
    free = iter("abcdefghijklmopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    (left, c_left, b_left), (right, c_right, b_right) = sides
    names: dict[tuple, str] = {}
    for i, axis in enumerate(left.axes):
        for j, atom in enumerate(axis):
            if atom.kind == "p":
                names[0, i, j] = next(free)
    partner = dict(zip((*c_right, *b_right), (*c_left, *b_left), strict=True))
    for i, axis in enumerate(right.axes):
        if i in partner and axis != left.axes[partner[i]]:
            raise NoLimitError("axes meet in a product that were merged in different ways")
        for j, atom in enumerate(axis):
            if atom.kind == "p":
                shared = names.get((0, partner[i], j)) if i in partner else None
                names[1, i, j] = shared or next(free)
    return names


def _out(sides: list, names: dict[tuple, str]) -> str:
    """The letters of the result, in its order."""
    (left, c_left, b_left), (right, c_right, b_right) = sides
    order = [(0, i) for i in b_left] + [(0, i) for i in range(len(left.axes)) if i not in (*b_left, *c_left)]
    order += [(1, i) for i in range(len(right.axes)) if i not in (*b_right, *c_right)]
    axes = (left.axes, right.axes)
    return "".join(names[s, i, j] for s, i in order for j, a in enumerate(axes[s][i]) if a.kind == "p")


def _repeats(sides: list) -> tuple[float, float]:
    """(number, power of N) of the neurons that a product is summed over."""
    (left, c_left, _), _ = sides
    gone = [atom for i in c_left for atom in left.axes[i] if atom.kind == "n"]
    return math.prod(atom.sizes[0] for atom in gone), sum(growth(atom.sizes) for atom in gone)


def _of_numbers(sides: list, axes: Axes) -> Value:
    names, (n, power) = _names(sides), _repeats(sides)
    a, b = (jnp.asarray(settled(value).array, float) for value, _, _ in sides)
    letters = [_letters(value, names, i) for i, (value, _, _) in enumerate(sides)]
    pair = _same_batch(a, b)
    found = jnp.einsum(f"n{letters[0]},n{letters[1]}->n{_out(sides, names)}", *pair, precision="highest")
    held = [value.held for value, _, _ in sides]
    size_, noise, zero = powers("dot", held)
    return Value(axes, Det(n * found, size_ + power, noise + power, zero))


def _same_batch(a: Any, b: Any) -> tuple[Any, Any]:
    n = max(len(a), len(b))
    return jnp.broadcast_to(a, (n, *a.shape[1:])), jnp.broadcast_to(b, (n, *b.shape[1:]))


def _of_fields(sides: list, axes: Axes, own: Any) -> Value:
    """Σ over neurons of u v within each input: N ⟨u v⟩."""
    (left, c_left, _), (right, c_right, _) = sides
    n, power = _repeats(sides)
    loose = [
        atom for value, gone, batch in sides for i, axis in enumerate(value.axes) if i not in (*gone, *batch)
        for atom in axis if atom.kind == "n"
    ]  # fmt: skip
    if power == 0 or any(growth(atom.sizes) for atom in loose):
        raise NoLimitError("a product of fields along different neurons")
    for i in c_left:
        pair = [atom.sizes for atom in left.axes[i]], [a.sizes for a in right.axes[c_right[list(c_left).index(i)]]]
        if pair[0] != pair[1]:
            raise NoLimitError("axes meet in a product that were merged in different ways")
    names = _names(sides)
    u, v = (
        settled(each._replace(held=reordered(each, [*beside, *_others(each, (*gone, *beside)), *gone])))
        for each, gone, beside in sides
    )
    moment = own.second(u, v, True)
    spread = u.power + v.power + power / 2
    if moment is None:
        shape = [1] * len(_out(sides, names))
        return Value(axes, Det(jnp.zeros((1, *shape)), 0.0, spread, True))
    mine, theirs, out = _letters(left, names, 0), _letters(right, names, 1), _out(sides, names)
    # einsum takes equal letters on one operand for a diagonal: of shared positions (heads), or their sum
    found = jnp.einsum(f"n{mine}{theirs}->n{out}", moment)
    return Value(axes, Det(n * found, u.power + v.power + power, spread))


def _mixed(sides: list, axes: Axes, own: Any) -> Value:
    """Σ_b p_ab u_b with numbers p: a linear map of positions; over neurons too, the numbers being the same for all."""
    which = 0 if isinstance(sides[0][0].held, Det) else 1
    (numbers, _, _), (value, gone, beside) = sides[which], sides[1 - which]
    n, power = _repeats(sides)
    names = _names(sides)
    order = (*beside, *_others(value, (*beside, *gone)), *gone)
    det, node = settled(numbers), settled(value._replace(held=reordered(value, order)))
    check_steady(det, 0.0 if det.zero else det.power)
    contracted = [atom for i in gone for atom in value.axes[i] if atom.kind == "n"]
    if contracted and power == 0:
        raise NoLimitError("a sum over axes of independent copies that do not grow with the width stays random")
    coefficients, mine, out = (
        _letters(numbers, names, which), _letters(value, names, 1 - which), _out(sides, names)
    )  # fmt: skip
    sizes = {
        letter: s
        for letters, shape in ((coefficients, det.shape), (mine, node.shape))
        for letter, s in zip(letters, shape, strict=True)
    }
    shape = tuple(sizes[letter] for letter in out)
    made = mixed_by(node, det, coefficients, mine, out, shape)
    if contracted:
        return Value(axes, _summed_mix(made, n, power, own))
    return Value(axes, made)


def _others(value: Value, but: Sequence[int]) -> list[int]:
    return [i for i in range(len(value.axes)) if i not in but]


def _summed_mix(node: Node, n: float, power: float, own: Any) -> Det:
    mean = own.mean(node)
    if mean is None:
        return Det(jnp.zeros((1, *(1,) * len(node.shape))), 0.0, node.power + power / 2, True)
    return Det(n * jnp.broadcast_to(mean, (len(mean), *node.shape)), node.power + power, node.power + power / 2)


def mixed_by(node: Any, det: Det, coefficients: str, mine: str, out: str, shape: tuple[int, ...]) -> Any:
    """Σ det[…] node[…] over letters that are not in `out`."""
    if isinstance(node, Concat):
        return Concat(
            shape,
            node.power + det.power,
            tuple((s, mixed_by(u, det, coefficients, mine, out, shape)) for s, u in node.parts),
            node.before,
        )
    k = len(mine)

    def act(a: Any, first: int, side: Any) -> Any:
        placed = side(det.array)  # [batch, coefficients]
        b = placed.ndim - len(coefficients)
        batch = "ZY"[:b]
        before = "".join(chr(ord("À") + i) for i in range(first - b))
        after = "".join(chr(ord("à") + i) for i in range(a.ndim - first - k))
        full = np.broadcast_shapes(a.shape[:b], placed.shape[:b])
        kept = [(x, "".join(l for l, s in zip(batch, x.shape[:b], strict=True) if s > 1)) for x in (a, placed)]
        (a_, ba), (p_, bp) = ((x.reshape(*(s for s in x.shape[:b] if s > 1), *x.shape[b:]), l) for x, l in kept)
        bo = "".join(l for l, s in zip(batch, full, strict=True) if s > 1)
        found = jnp.einsum(
            f"{ba}{before}{mine}{after},{bp}{coefficients}->{bo}{before}{out}{after}", a_, p_, precision="highest"
        )
        return found.reshape(*full, *found.shape[len(bo) :])

    return Moved(shape, node.power + det.power, node, act, False)


def windows(value: Value, params: dict[str, Any], shape: tuple) -> Value:
    """Σ over windows of positions (average pooling)."""
    held, axes = settled(value), list(value.axes)
    dims, strides, edges = params["window_dimensions"], params["window_strides"], params["padding"]
    slots: list[tuple[int, int, tuple[int, int]]] = []
    for number, axis in enumerate(value.axes):
        if dims[number] == 1 and strides[number] == 1:
            slots += [(1, 1, (0, 0))] * sum(atom.kind == "p" for atom in axis)
            continue
        if any(atom.kind != "p" for atom in axis) or len(axis) > 1:
            raise NoLimitError("a window slides over neurons or inputs")
        slots += [(dims[number], strides[number], tuple(edges[number]))] if axis else []
        axes[number] = (Atom("p", shape[number]),) if shape[number] != (1, 1, 1) else ()
    kept = [i for i, atom in enumerate(positions(value.axes))]
    new = tuple((held.shape[i] + sum(e) - w) // s + 1 for i, (w, s, e) in zip(kept, slots, strict=True))
    single = [number for number, axis in enumerate(axes) if not axis and value.axes[number]]
    k, squeezed = len(slots), _positions_of(value.axes, single)

    def act(a: Any, i: int) -> Any:
        ones: tuple[Any, Any] = (1,) * i, (1,) * (a.ndim - i - k)
        widths: Any = tuple(slot[0] for slot in slots)
        steps: Any = tuple(slot[1] for slot in slots)
        pads = [(0, 0)] * i + [slot[2] for slot in slots] + [(0, 0)] * len(ones[1])
        found = jax.lax.reduce_window(
            a, jnp.zeros((), a.dtype), jax.lax.add, (*ones[0], *widths, *ones[1]), (*ones[0], *steps, *ones[1]), pads
        )
        return found.reshape(
            *found.shape[:i], *(n for j, n in enumerate(new) if j not in squeezed), *found.shape[i + k :]
        )

    final = tuple(n for j, n in enumerate(new) if j not in squeezed)
    return Value(tuple(axes), moved(held, act, final, selects=False))
