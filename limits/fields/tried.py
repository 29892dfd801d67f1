"""What an optimiser does to matrices, found by trying it on small ones for as many steps as a run has.

All that is tried is tried at once, row by row of a batch. A rule may begin late (warm-up, sums of several gradients) or change
later: every step is looked at, and one whose updates are zero says nothing.
"""

import functools
from collections.abc import Callable
from typing import Any

import flax.traverse_util
import jax
import numpy as np
import optax

from limits.predict.steps import FURTHEST, MOST
from limits.program import in_numpy

Path = tuple[str, ...]
SMALL, _LARGER = 3, 2  # directions of a block, and how many more it has where its size is tried
_SIZES = (1.0, 1e3, 1e-3)  # of gradients, step by step
_LITTLE = 1e-2  # of gradients beside which weights count, in the units in which they are O(1)
_LEAST = 3  # steps that are tried
_SAME = 1e-3  # relative: states may be in few digits, and what is not the same differs by O(1)
_COUNTING = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_ROUNDING = 1e-14  # of weights: what is left of a step that adds nothing to a mean of them, as in `schedule_free`
_FAR = 0.25  # beyond what few digits of a state become in many steps


def steps_tried(steps: int | None) -> int:
    """Of a run of so many steps (None: not known).

    >>> steps_tried(1), steps_tried(50), steps_tried(10**6), steps_tried(None)
    (3, 50, 500, 500)
    """
    return MOST if steps is None else min(max(steps, _LEAST), MOST)


def steps_at_most(steps: int | None) -> int:
    """The same, for a rule that moved nothing in those; few numbers, as trials are remembered.

    >>> steps_at_most(50), steps_at_most(600), steps_at_most(10**6)
    (50, 1000, 8000)
    """
    reach = steps_tried(steps)
    while reach >= MOST and steps is not None and reach < min(steps, FURTHEST):
        reach = min(2 * reach, FURTHEST)
    return reach


class Trial:
    """A rule on parameters of these shapes, those at `wide` paths matrices diag(s, M); `sizes`: of the gradients' entries."""

    def __init__(
        self,
        rule: optax.GradientTransformation,
        shapes: dict[Path, Any],
        wide: set[Path],
        sizes: dict,
        steps: int,
    ) -> None:
        draw, self.wide, self.steps = np.random.default_rng(0), wide, steps
        small = {
            path: [SMALL] * 2 if path in wide else [min(n, SMALL) for n in shape] for path, shape in shapes.items()
        }

        def weights(corner: float) -> dict[Path, np.ndarray]:
            return {path: _framed(draw.normal(size=n), corner if path in wide else None) for path, n in small.items()}

        gradients = {
            path: _framed(draw.normal(size=(self.steps, *n)), 0.0 if path in wide else None)
            for path, n in small.items()
        }
        w, other = weights(0.7), weights(-0.4)
        turn = [_framed(np.linalg.qr(draw.normal(size=(SMALL, SMALL)))[0], 1.0) for _ in range(2)]
        scale = np.resize(_SIZES, self.steps)
        strong = {path: g * scale.reshape(-1, *[1] * (g.ndim - 1)) for path, g in gradients.items()}
        weak = {path: _LITTLE * float(sizes[path]) * g for path, g in gradients.items()}
        turned = [
            {path: turn[0].T @ a @ turn[1] if path in wide else a for path, a in tree.items()} for tree in (w, strong)
        ]
        rows = [tuple(turned)]
        for g in (strong, weak):
            for a, b in ((1, 0), (0, 0), (-1, 0), (0, 1), (1, 1)):
                rows.append(({path: a * w[path] + b * other[path] for path in w}, g))
        found = _updates(rule, rows)
        self._turned = {path: turn[0] @ a[0] @ turn[1].T if path in wide else a[0] for path, a in found.items()}
        self._plain = {path: a[1] for path, a in found.items()}
        self._least = _ROUNDING * max(np.abs(each).max(initial=0) for each in w.values())
        self._by_weights = [
            {path: _without_still(a[i : i + 5], self._least) for path, a in found.items()} for i in (1, 6)
        ]
        pad = {path: [(0, _LARGER)] * 2 if path in wide else [(0, 0)] * len(n) for path, n in small.items()}
        self._rule, self._larger = (
            rule,
            tuple(
                {path: np.pad(a, [*first, *pad[path]]) for path, a in tree.items()}
                for tree, first in ((w, []), (strong, [(0, 0)]))
            ),
        )

    @property
    def still(self) -> bool:
        """Whether a matrix has not moved at all."""
        return not all(np.any(_largest(self._plain[path]) > self._least) for path in self.wide)

    @property
    def undefined(self) -> bool:
        """Whether a step is no number where the gradient is 0, as it is beside a block's corner."""
        return any(np.isnan(self._plain[path][..., 0, 1:]).any() for path in self.wide)

    @property
    def of_sizes(self) -> bool:
        """Whether updates depend on weights otherwise than linearly: those of matrices at any step."""
        strong, weak = self._by_weights
        for up, none, down, _, _ in strong.values():
            away, size = up - 2 * none + down, np.max([_largest(a) for a in (up, none, down)], axis=0)
            if np.any((_largest(away) > _SAME * size)[np.flatnonzero(size)[:1]]):  # no state yet, of few digits
                return True
        for path in self.wide:
            for (up, none, down, more, both), over in ((strong[path], ()), (weak[path], 0)):
                size = np.max([_largest(a) for a in (up, none, more)], axis=0).max(over, keepdims=True)
                for away in (up - 2 * none + down, both - up - more + none):
                    if np.any(_largest(away) > _FAR * size):
                        return True
        return False

    @functools.cached_property
    def by_entry(self) -> frozenset[Path]:
        """The matrices that are not moved as rotations are, or otherwise in a larger block."""
        found = {path for path in self.wide if self._differ(self._plain[path], self._turned[path])}
        return frozenset(found if found == self.wide else found | self.by_means)

    @functools.cached_property
    def by_means(self) -> frozenset[Path]:
        """The matrices that are moved otherwise in a larger block, as by a mean over entries."""
        larger, pad = _updates(self._rule, [self._larger]), [(0, 0), *[(0, _LARGER)] * 2]
        return frozenset(path for path in self.wide if self._differ(np.pad(self._plain[path], pad), larger[path][0]))

    def _differ(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Whether updates [step, …] do at any step that is one."""
        moves = np.maximum(_largest(a), _largest(b)) > self._least
        return bool(np.any(moves & (_largest(a - b) > _SAME * _largest(a))))


def _framed(inner: np.ndarray, corner: float | None) -> np.ndarray:
    """diag(corner, inner); the inner array itself for None."""
    if corner is None:
        return inner
    out = np.pad(inner, [(0, 0)] * (inner.ndim - 2) + [(1, 0)] * 2)
    out[..., 0, 0] = corner
    return out


def _updates(rule: optax.GradientTransformation, rows: list[Any]) -> dict[Path, np.ndarray]:
    """Of every row, (weights, gradients [step, …]), the updates: [row, step, …]."""
    params, slopes = ({path: np.stack([each[i][path] for each in rows]) for path in rows[0][i]} for i in (0, 1))

    def step(params: Any, state: Any, slope: Any) -> Any:
        updates, state = rule.update(slope, state, params)
        return optax.apply_updates(params, updates), state, updates

    advance, found = _quickly(jax.vmap(step)), []
    params = flax.traverse_util.unflatten_dict(params)
    state = _quickly(jax.vmap(rule.init))(params)
    for t in range(next(iter(slopes.values())).shape[1]):
        slope = flax.traverse_util.unflatten_dict({path: each[:, t] for path, each in slopes.items()})
        params, state, updates = advance(params, state, slope)
        found.append(updates)
    each: list[Any] = [flax.traverse_util.flatten_dict(jax.device_get(tree)) for tree in found]
    return {path: np.stack([tree[path] for tree in each], 1) for path in slopes}


def _without_still(moved: np.ndarray, least: float) -> np.ndarray:
    """Updates [trial, step, …] without the steps that in no trial reach `least`: zeroed by entry, others would differ."""
    largest = np.abs(moved).max(axis=(0, *range(2, moved.ndim)), initial=0, keepdims=True)
    return np.where(largest < least, 0, moved)


def _quickly(function: Callable) -> Callable:
    """By NumPy, which on a few numbers is done before a compilation; compiled where that does not know its equations."""
    programs = dict[Any, Any]()

    def run(*given: Any) -> Any:
        leaves, tree = jax.tree.flatten(given)
        key = tree, tuple((a.shape, a.dtype) for a in leaves)
        if key not in programs:
            by_numpy = all(isinstance(a.dtype, np.dtype) for a in leaves)  # and no random key
            program = jax.make_jaxpr(function, return_shape=True)(*given) if by_numpy else None
            programs[key] = program, jax.jit(function)
        program, compiled = programs[key]
        if program is None:
            return compiled(*given)
        made, shapes = program
        found = in_numpy.run(made.jaxpr, made.consts, leaves, _evaluated)
        if found is None:
            programs[key] = None, compiled
            return compiled(*given)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return run


def _evaluated(name: str, params: dict[str, Any], given: list[Any]) -> Any:
    """Also of the whole numbers by which steps are counted."""
    kinds = {a.dtype.kind for a in given}
    if name in _COUNTING and kinds <= {"i", "u"}:
        return _COUNTING[name](*given)
    if name == "convert_element_type" and kinds <= {"i", "u", "b"} and np.dtype(params["new_dtype"]).kind in "iu":
        return given[0].astype(params["new_dtype"])
    if name == "pow" and given[0].dtype.kind == "f":
        with np.errstate(all="ignore"):
            return np.power(*given).astype(given[0].dtype)
    return in_numpy.evaluated(name, params, given)


def _largest(a: np.ndarray) -> np.ndarray:
    """Of the entries of every step."""
    return np.abs(a).reshape(len(a), -1).max(1, initial=0.0)
