"""The program of a plain module, run with revealed matrices: weights with the width on both sides are met, not multiplied.

Its forward code is traced with those weights as shapes only, and its equations are run one by one. Where a product or a
convolution meets such a weight, by whichever side, it is the `Matrix` that answers; all other equations are run as they are.
"""

import dataclasses
import itertools
import math
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from limits.fields.added import SUMS, Added, added, through_added
from limits.fields.joined import Joined, through_joined
from limits.fields.matrix import REVEALED, TOLERANCE, Matrix, multiply
from limits.fields.patches import patches
from limits.fields.unseen import UNUSUAL, Path, Unseen, Wide, copy_of, joined_axes, moved, name_of
from limits.program.run import EquationRun, Noted, run_network
from zoo.abstract import abstract, variables_of
from zoo.plain import PlainNetwork
from zoo.starts import starts

_ORTHOGONAL = (
    "The weights {name} start as an orthogonal matrix, which takes back what it gave (Wᵀ W = 1), where independent entries "
    "give something new: {what} of another limit. Initialise with nn.initializers.lecun_normal(), as kernel_init or "
    "recurrent_kernel_init."
)


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

    special = (Noted, Unseen, Joined, Added)

    def __init__(self, revealed: dict[Path, Matrix], key: Any, rows: dict[Path, int] | None) -> None:
        super().__init__()
        self.revealed, self.key, self.rows, self.uses = dict(revealed), key, rows, itertools.count()
        self.sides: dict[Path, set[bool]] = {}

    def rule(self, eqn: Any, values: list[Any]) -> list[Any]:
        parts, name = [value for value in values if isinstance(value, Unseen | Joined | Added)], eqn.primitive.name
        if not parts:
            return super().rule(eqn, values)
        if name in ("concatenate", "stack") and not any(isinstance(value, Noted | Joined) for value in values):
            axis = eqn.params["dimension" if name == "concatenate" else "axis"]
            return [
                Joined(tuple(values if name == "concatenate" else (_beside(value, axis) for value in values)), axis)
            ]
        if name == "reduce_sum" and isinstance(values[0], Unseen):
            return [self._summed(eqn, values[0])]
        each = lambda values: self._outputs(eqn, values)[0]  # noqa: E731
        through = through_added if name in SUMS or any(isinstance(part, Added) for part in parts) else through_joined
        if through is through_added or any(isinstance(part, Joined) for part in parts):
            noted = any(isinstance(value, Noted) for value in values)
            made = None if noted else through(eqn, values, each)
            if made is None:
                raise ValueError(UNUSUAL.format(name=_names(values), what=f'"{name}" of several together'))
            return [made]
        if name == "dot_general":
            return [self._product(eqn, *values)]
        if name == "conv_general_dilated" and isinstance(values[1], Unseen):
            return [self._convolution(eqn, *values)]
        return [moved(eqn, next(value for value in values if isinstance(value, Unseen)), values)]

    def entry(self, value: Any, i: int) -> Any:
        if isinstance(value, Added):
            return Added(tuple(self.entry(part, i) for part in value.parts))
        if not isinstance(value, Unseen):
            return super().entry(value, i)
        if len(value.axes[0]) != 1 or value.axes[0][0] not in value.wide.beside:
            raise ValueError(UNUSUAL.format(name=name_of(value), what="a loop over its inputs or outputs"))
        return dataclasses.replace(value, axes=value.axes[1:], at=(*value.at, (value.axes[0][0], i)))

    def _product(self, eqn: Any, left: Any, right: Any) -> jax.Array:
        (lc, rc), (lb, rb) = eqn.params["dimension_numbers"]
        swapped = isinstance(left, Unseen)
        w, a = (left, right) if swapped else (right, left)
        (wc, ac), (wb, ab) = ((lc, rc), (lb, rb)) if swapped else ((rc, lc), (rb, lb))
        if isinstance(a, Unseen | Noted):
            raise ValueError(UNUSUAL.format(name=name_of(w), what="a product with another parameter"))
        kept = [[i for i in range(n) if i not in used] for n, used in ((len(w.axes), (*wc, *wb)), (a.ndim, (*ac, *ab)))]
        gone, left_over, beside = (joined_axes(w, axes) for axes in (wc, kept[0], wb))
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

    def _summed(self, eqn: Any, w: Unseen) -> Any:
        """Sums over matrices side by side; over inputs, 1ᵀ W, and over outputs, W 1, which meet a vector of ones."""
        axes, shape = eqn.params["axes"], w.wide.shape
        gone, kept = joined_axes(w, axes), [axis for k, axis in enumerate(w.axes) if k not in axes]
        beside = [i for i in gone if i in w.wide.beside]
        places = (zip(beside, at, strict=True) for at in itertools.product(*(range(shape[i]) for i in beside)))
        each = [dataclasses.replace(w, axes=tuple(kept), at=(*w.at, *place)) for place in places]
        first = [i for i in gone if i in w.wide.inputs] or [i for i in gone if i in w.wide.outputs]
        if not first:
            return added(each)
        left = [i for i in (*w.wide.inputs, *w.wide.outputs) if i not in first and shape[i] > 1]
        ones = jnp.ones([shape[i] for i in first], eqn.outvars[0].aval.dtype)
        total = sum(self._met(one, ones, first, left) for one in each)
        rest, order = [k for k, i in enumerate(left) if i in gone], [i for i in left if i not in gone]
        out = jnp.transpose(jnp.sum(total, rest), [order.index(i) for axis in kept for i in axis])
        return out.reshape(eqn.outvars[0].aval.shape)

    def _convolution(self, eqn: Any, signal: jax.Array, w: Unseen) -> jax.Array:
        params, spec = eqn.params, eqn.params["dimension_numbers"]
        if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
            raise ValueError(UNUSUAL.format(name=name_of(w), what="a grouped convolution"))
        a = jnp.transpose(signal, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
        between = [(0, 0, 0), *((0, 0, step - 1) for step in params["lhs_dilation"]), (0, 0, 0)]
        a = jax.lax.pad(a, jnp.zeros((), a.dtype), between)  # zeros, which a transposed convolution slides over
        window = [w.shape[k] for k in spec.rhs_spec[2:]]
        a = patches(a, window, params["window_strides"], params["padding"], params["rhs_dilation"])
        seen = [k for k, n in zip(spec.rhs_spec[2:], window, strict=True) if n > 1]
        gone, kept = joined_axes(w, [*seen, spec.rhs_spec[1]]), joined_axes(w, [spec.rhs_spec[0]])
        free = a.shape[: len(window) + 1]
        out = self._met(w, a.reshape(*free, *(w.wide.shape[i] for i in gone)), gone, kept)
        out = out.reshape(*free, -1)
        order = (spec.out_spec[0], *spec.out_spec[2:], spec.out_spec[1])
        return jnp.transpose(out, [order.index(i) for i in range(len(order))]).astype(eqn.outvars[0].aval.dtype)

    def _met(self, w: Unseen, a: jax.Array, gone: list[int], kept: list[int]) -> jax.Array:
        """Rows a [*free, *sizes of gone] with one matrix: [*free, *sizes of kept]."""
        path, shape = copy_of(w), w.wide.shape
        sides = [sorted(i for i in side if shape[i] > 1) for side in (w.wide.inputs, w.wide.outputs)]
        if [sorted(gone), sorted(kept)] not in (sides, sides[::-1]):
            raise ValueError(
                UNUSUAL.format(name=name_of(w), what="a sum over other axes than all of its inputs or outputs")
            )
        forwards = [sorted(gone), sorted(kept)] == sides
        self.sides.setdefault(path, set()).add(forwards)
        if len(self.sides[path]) > 1 and "orthogonal" in w.wide.law.kind:
            raise ValueError(_ORTHOGONAL.format(name=name_of(w), what="networks that use it from both sides are"))
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


def _beside(value: Any, axis: int) -> Any:
    """The same with one more axis, of length 1."""
    if isinstance(value, Unseen):
        return dataclasses.replace(value, axes=(*value.axes[:axis], (), *value.axes[axis:]))
    if isinstance(value, Added):
        return Added(tuple(_beside(part, axis) for part in value.parts))
    return jnp.expand_dims(value, axis)


def _names(values: Any) -> str:
    """Of all weights in these."""
    return ", ".join(
        name_of(value) if isinstance(value, Unseen) else _names(value.parts)
        for value in values
        if isinstance(value, Unseen | Joined | Added)
    )
