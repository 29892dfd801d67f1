"""The program of a plain module, run with revealed matrices: weights with the width on both sides are met, not multiplied.

Its forward code is traced with those weights as shapes only, and its equations are run one by one. Where a product or a
convolution meets such a weight, by whichever side, it is the `Matrix` that answers; all other equations are run as they are.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from limits.fields.joined import Joined, through_joined
from limits.fields.matrix import REVEALED, TOLERANCE, Matrix, multiply
from limits.fields.patches import patches
from limits.program.run import EquationRun, Noted, run_network
from zoo.abstract import abstract, variables_of
from zoo.laws import Law
from zoo.plain import PlainNetwork
from zoo.starts import starts

_AS_IT_IS = ("convert_element_type", "copy", "copy_p", "stop_gradient", "sharding_constraint", "reduce_precision")
_UNUSUAL = (
    "rich: the weights {name}, whose inputs and outputs grow with the width, are used in {what}, where they cannot be revealed. "
    "Multiply signals by them, by a product or a convolution."
)
_ORTHOGONAL = (
    "The weights {name} start as an orthogonal matrix, which takes back what it gave (Wᵀ W = 1), where independent entries "
    "give something new: {what} of another limit. Initialise with nn.initializers.lecun_normal(), as kernel_init or "
    "recurrent_kernel_init."
)
Path = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Wide:
    """A parameter whose inputs and outputs both grow with the width: axes by which side they are on."""

    path: Path
    shape: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    law: Law

    @property
    def beside(self) -> tuple[int, ...]:
        """Axes along which it is matrices side by side."""
        return tuple(i for i in range(len(self.shape)) if i not in (*self.inputs, *self.outputs))

    def size(self, axes: Sequence[int]) -> int:
        """How many entries these axes have."""
        return math.prod(self.shape[i] for i in axes)

    @property
    def copies(self) -> list[Path]:
        """Where its matrices are kept."""
        if not self.beside:
            return [self.path]
        return [(*self.path, _number(at)) for at in itertools.product(*(range(self.shape[i]) for i in self.beside))]


def _number(at: Sequence[int]) -> str:
    return "_".join(map(str, at))


@dataclasses.dataclass(frozen=True)
class Unseen:
    """Such a parameter as the program holds it: its axes are made of those of the parameter; times a factor."""

    wide: Wide
    axes: tuple[tuple[int, ...], ...]
    at: tuple[tuple[int, int], ...] = ()  # axes of `beside` along which an entry was taken, and which
    factor: Any = 1.0
    turned: tuple[int, ...] = ()  # axes of the parameter whose entries are in reversed order

    @classmethod
    def of(cls, wide: Wide) -> "Unseen":
        """As it enters the program."""
        return cls(wide, tuple((i,) if n > 1 else () for i, n in enumerate(wide.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that it stands for."""
        return tuple(self.wide.size(axis) for axis in self.axes)


def wide_parameters(net: PlainNetwork, x: Any) -> dict[Path, Wide]:
    """Of this network, for inputs like x, by their path in "params"."""
    wide = [start for start in starts(net, x).values() if start.role == "hidden"]
    return {start.path: Wide(start.path, start.place.shape, *start.place.matrix, start.law) for start in wide}


def check_independent(net: Any, x: Any) -> None:
    """Refuses weights that are orthogonal at the start, where features are learnt, and at finite width: |W a| is |a| for them."""
    for wide in wide_parameters(net, x).values() if isinstance(net, PlainNetwork) else ():
        if "orthogonal" in wide.law.kind:
            raise ValueError(
                _ORTHOGONAL.format(name=".".join(wide.path), what="features that learn, and finite widths, are")
            )


def without(params: Any, paths: Any) -> Any:
    """A tree of parameters without these."""
    flat = {path: leaf for path, leaf in flax.traverse_util.flatten_dict(params).items() if path not in paths}
    return flax.traverse_util.unflatten_dict(flat)


def start(net: PlainNetwork, x: Any, key: Any, capacity: int) -> dict[str, Any]:
    """Its variables at initialisation: parameters, and matrices of which nothing is known. The wide ones are not drawn."""
    return _begun(net, x, net.init(key, x[:1]), capacity)


def _begun(net: PlainNetwork, x: Any, variables: Any, capacity: int) -> dict[str, Any]:
    wide, dtype = wide_parameters(net, x), jax.dtypes.canonicalize_dtype(float)
    variables = dict(nn.unbox(variables))
    params = without(variables["params"], wide)  # under jit, nothing that is left out is computed
    variables["params"] = jax.tree.map(
        lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, params
    )
    matrices = {
        copy: Matrix.fresh(w.size(w.inputs), w.size(w.outputs), capacity, w.law.variance**0.5, dtype)
        for w in wide.values()
        for copy in w.copies
    }
    return variables | ({REVEALED: flax.traverse_util.unflatten_dict(matrices)} if matrices else {})


def forward(
    net: PlainNetwork, variables: dict[str, Any], x: Any, key: Any, rows: dict[Path, int] | None = None, **options: Any
) -> tuple[Any, dict[str, Any], Any]:
    """(outputs, its collections but for "params" afterwards, what enters the readout); `rows` counts what matrices meet."""
    wide = wide_parameters(net, x)
    given: Any = flax.traverse_util.flatten_dict(variables["params"])
    given |= {path: abstract(w.shape, jax.dtypes.canonicalize_dtype(float)) for path, w in wide.items()}
    fixed = {name: part for name, part in variables.items() if name not in ("params", REVEALED, "perturbations")}
    revealed: Any = flax.traverse_util.flatten_dict(variables.get(REVEALED, {}))
    run = _Revealing(revealed, key, rows)
    hold = lambda path, leaf: Unseen.of(wide[path]) if path in wide else leaf  # noqa: E731
    out, after = run_network(run, net, given, fixed, x, hold, **options)
    met = flax.traverse_util.unflatten_dict(run.revealed)
    return out, fixed | dict(after) | ({REVEALED: met} if met else {}), run.features


def vectors_met(net: PlainNetwork, x: Any) -> dict[Path, int]:
    """How many vectors each matrix meets in one pass of inputs of this shape. Nothing is computed."""
    rows: dict[Path, int] = {}
    key, x = jax.random.key(0), abstract(x.shape, x.dtype)
    jax.eval_shape(lambda v, x: forward(net, _begun(net, x, v, 1), x, key, rows)[0], variables_of(net, x), x)
    return rows


class _Revealing(EquationRun):
    """The matrices as they are met, and how many vectors each has met."""

    special = (Noted, Unseen, Joined)

    def __init__(self, revealed: dict[Path, Matrix], key: Any, rows: dict[Path, int] | None) -> None:
        super().__init__()
        self.revealed, self.key, self.rows, self.uses = dict(revealed), key, rows, itertools.count()
        self.sides: dict[Path, set[bool]] = {}

    def rule(self, eqn: Any, values: list[Any]) -> list[Any]:
        if any(isinstance(value, Joined) for value in values):
            made = through_joined(eqn, values, lambda each: self._outputs(eqn, each)[0])
            if made is None:
                raise ValueError(
                    _UNUSUAL.format(name=_names(values), what=f'"{eqn.primitive.name}" of several together')
                )
            return [made]
        weights = next((value for value in values if isinstance(value, Unseen)), None)
        if weights is None:
            return super().rule(eqn, values)
        if eqn.primitive.name == "concatenate" and not any(isinstance(value, Noted) for value in values):
            return [Joined(tuple(values), eqn.params["dimension"])]
        if eqn.primitive.name == "dot_general":
            return [self._product(eqn, *values)]
        if eqn.primitive.name == "conv_general_dilated" and isinstance(values[1], Unseen):
            return [self._convolution(eqn, *values)]
        return [_moved(eqn, weights, values)]

    def entry(self, value: Any, i: int) -> Any:
        if not isinstance(value, Unseen):
            return super().entry(value, i)
        if len(value.axes[0]) != 1 or value.axes[0][0] not in value.wide.beside:
            raise ValueError(_UNUSUAL.format(name=_name(value), what="a loop over its inputs or outputs"))
        return dataclasses.replace(value, axes=value.axes[1:], at=(*value.at, (value.axes[0][0], i)))

    def _product(self, eqn: Any, left: Any, right: Any) -> jax.Array:
        (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
        swapped = isinstance(left, Unseen)
        w, a = (left, right) if swapped else (right, left)
        (wc, ac), (wb, ab) = ((lc, rc), (lb, rb)) if swapped else ((rc, lc), (rb, lb))
        if isinstance(a, Unseen | Noted):
            raise ValueError(_UNUSUAL.format(name=_name(w), what="a product with another parameter"))
        kept = [[i for i in range(n) if i not in used] for n, used in ((len(w.axes), (*wc, *wb)), (a.ndim, (*ac, *ab)))]
        gone, left_over, beside = (_joined(w, axes) for axes in (wc, kept[0], wb))
        a = jnp.transpose(a, (*ab, *kept[1], *ac))
        batch, free = a.shape[: len(ab)], a.shape[len(ab) : len(ab) + len(kept[1])]
        a = a.reshape(math.prod(batch), *free, *(w.wide.shape[i] for i in gone))
        out = jnp.stack([
            self._met(dataclasses.replace(w, at=(*w.at, *zip(beside, at, strict=True))), rows, gone, left_over)
            for rows, at in zip(a, itertools.product(*(range(w.wide.shape[i]) for i in beside)), strict=True)
        ])  # fmt: skip
        out = out.reshape(*batch, *free, *(w.shape[i] for i in kept[0]))
        if swapped:
            out = jnp.moveaxis(out, range(len(batch), len(batch) + len(free)), range(-len(free), 0))
        return out.astype(eqn.outvars[0].aval.dtype)

    def _convolution(self, eqn: Any, signal: jax.Array, w: Unseen) -> jax.Array:
        params, spec = eqn.params, eqn.params["dimension_numbers"]
        if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
            raise ValueError(_UNUSUAL.format(name=_name(w), what="a grouped convolution"))
        a = jnp.transpose(signal, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
        between = [(0, 0, 0), *((0, 0, step - 1) for step in params["lhs_dilation"]), (0, 0, 0)]
        a = jax.lax.pad(a, jnp.zeros((), a.dtype), between)  # zeros, which a transposed convolution slides over
        window = [w.shape[k] for k in spec.rhs_spec[2:]]
        a = patches(a, window, params["window_strides"], params["padding"], params["rhs_dilation"])
        seen = [k for k, n in zip(spec.rhs_spec[2:], window, strict=True) if n > 1]
        gone, kept = _joined(w, [*seen, spec.rhs_spec[1]]), _joined(w, [spec.rhs_spec[0]])
        free = a.shape[: len(window) + 1]
        out = self._met(w, a.reshape(*free, *(w.wide.shape[i] for i in gone)), gone, kept)
        out = out.reshape(*free, -1)
        order = (spec.out_spec[0], *spec.out_spec[2:], spec.out_spec[1])
        return jnp.transpose(out, [order.index(i) for i in range(len(order))]).astype(eqn.outvars[0].aval.dtype)

    def _met(self, w: Unseen, a: jax.Array, gone: list[int], kept: list[int]) -> jax.Array:
        """Rows a [*free, *sizes of gone] with one matrix: [*free, *sizes of kept]."""
        path, shape = _copy(w), w.wide.shape
        sides = [sorted(i for i in side if shape[i] > 1) for side in (w.wide.inputs, w.wide.outputs)]
        if [sorted(gone), sorted(kept)] not in (sides, sides[::-1]):
            raise ValueError(
                _UNUSUAL.format(name=_name(w), what="a sum over other axes than all of its inputs or outputs")
            )
        forwards = [sorted(gone), sorted(kept)] == sides
        self.sides.setdefault(path, set()).add(forwards)
        if len(self.sides[path]) > 1 and "orthogonal" in w.wide.law.kind:
            raise ValueError(_ORTHOGONAL.format(name=_name(w), what="networks that use it from both sides are"))
        free = a.shape[: a.ndim - len(gone)]
        a = jnp.flip(a, [len(free) + k for k, i in enumerate(gone) if i in w.turned])
        a = jnp.transpose(
            a, (*range(len(free)), *(len(free) + i for i in sorted(range(len(gone)), key=gone.__getitem__)))
        )
        rows = a.reshape(math.prod(free), -1)
        out = w.factor * self._answer(path, rows, forwards).reshape(*free, *(shape[i] for i in sorted(kept)))
        back = [sorted(kept).index(i) for i in kept]
        out = jnp.transpose(out, (*range(len(free)), *(len(free) + i for i in back)))
        return jnp.flip(out, [len(free) + k for k, i in enumerate(kept) if i in w.turned])

    def _answer(self, path: Path, rows: jax.Array, forwards: bool) -> jax.Array:
        """Rows times a matrix or, backwards, its transpose; where rows are counted, nothing is computed."""
        matrix = self.revealed[path]
        if self.rows is not None:
            self.rows[path] = self.rows.get(path, 0) + len(rows)
            return jnp.zeros((len(rows), (matrix.u if forwards else matrix.v).shape[-1]), rows.dtype)
        key, dtype = jax.random.key_data(jax.random.fold_in(self.key, next(self.uses))), matrix.v.dtype
        met = matrix if forwards else matrix.transposed
        out, after = multiply(rows.astype(dtype), met, key, TOLERANCE[str(dtype)])
        self.revealed[path] = after if forwards else after.transposed
        return out


def _name(w: Unseen) -> str:
    return ".".join(map(str, w.wide.path))


def _names(values: Sequence[Any]) -> str:
    parts = [part for value in values if isinstance(value, Joined) for part in value.parts if isinstance(part, Unseen)]
    return ", ".join(map(_name, parts))


def _copy(w: Unseen) -> Path:
    """Where the matrix that is meant is kept."""
    at = dict(w.at)
    missing = [i for i in w.wide.beside if i not in at and w.wide.shape[i] > 1]
    if missing:
        raise ValueError(_UNUSUAL.format(name=_name(w), what="all of several matrices side by side at once"))
    return (*w.wide.path, _number([at.get(i, 0) for i in w.wide.beside])) if w.wide.beside else w.wide.path


def _joined(w: Unseen, axes: Sequence[int]) -> list[int]:
    """The axes of the parameter that these are made of."""
    return [i for axis in axes for i in w.axes[axis]]


def _moved(eqn: Any, w: Unseen, values: list[Any]) -> Unseen:
    """The same weights with their axes at other places, or times a number."""
    name, params, shape = eqn.primitive.name, eqn.params, eqn.outvars[0].aval.shape
    others = [value for value in values if value is not w]
    if name in _AS_IT_IS:
        return w
    if name == "transpose":
        return dataclasses.replace(w, axes=tuple(w.axes[i] for i in params["permutation"]))
    if name in ("reshape", "squeeze", "expand_dims"):
        return dataclasses.replace(w, axes=_reshaped(w, shape))
    if name == "broadcast_in_dim" and math.prod(shape) == math.prod(w.shape):
        return dataclasses.replace(w, axes=_reshaped(w, shape))
    if name == "neg":
        return dataclasses.replace(w, factor=-w.factor)
    if (
        name in ("mul", "div")
        and len(others) == 1
        and jnp.size(others[0]) == 1
        and values[1 - (name == "mul" and values[1] is w)] is others[0]
    ):
        number = jnp.reshape(others[0], ())
        return dataclasses.replace(w, factor=w.factor * number if name == "mul" else w.factor / number)
    if name == "slice":
        return _sliced(w, params["start_indices"], shape)
    if name == "rev" and not any(i in w.wide.beside for k in params["dimensions"] for i in w.axes[k]):
        return dataclasses.replace(w, turned=_turned(w, params["dimensions"]))
    raise ValueError(_UNUSUAL.format(name=_name(w), what=f'"{name}" of its entries'))


def _turned(w: Unseen, dimensions: Sequence[int]) -> tuple[int, ...]:
    """The axes in reversed order after these are turned; of joined ones, all."""
    return tuple({*w.turned} ^ {i for k in dimensions for i in w.axes[k]})


def _reshaped(w: Unseen, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Axes that are joined, or put apart again."""
    left, axes = [i for axis in w.axes for i in axis], []
    for n in shape:
        group, size = [], 1
        while size < n and left:
            group.append(left.pop(0))
            size *= w.wide.shape[group[-1]]
        if size != n:
            raise ValueError(_UNUSUAL.format(name=_name(w), what="a reshape that takes its axes apart"))
        axes.append(tuple(group))
    return tuple(axes)


def _sliced(w: Unseen, begin: Sequence[int], shape: Sequence[int]) -> Unseen:
    """One of several matrices side by side."""
    axes, at = list(w.axes), list(w.at)
    for k, (first, now, before) in enumerate(zip(begin, shape, w.shape, strict=True)):
        if now == before:
            continue
        if now != 1 or len(w.axes[k]) != 1 or w.axes[k][0] not in w.wide.beside:
            raise ValueError(_UNUSUAL.format(name=_name(w), what="a slice of its inputs or outputs"))
        axes[k] = ()
        at.append((w.axes[k][0], int(first)))
    return dataclasses.replace(w, axes=tuple(axes), at=tuple(at))
