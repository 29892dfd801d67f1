"""How parameters and revealed matrices move: by gradient descent, or by any Optax optimiser.

A matrix s W⁰ + Vᵀ M U is one leaf of the optimiser's tree, under the path of its parameter: the block diag(s, M), whose
gradient is diag(0, G). The singular values of G are those of ∂L/∂W, so that a rule that is linear, or that commutes with
rotations of either side as Muon's does, acts on the block as on the matrix; decay shrinks s and M alike. A rule that acts entry
by entry (Adam, Lion), or asks for a mean over entries, has no such form: there W = s W⁰ + D, with D an ordinary array, s above
it in a row of its own.

Reference: theory notes, "Any optimiser in the causal engine".
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from limits.fields.blocks import block, fitted, from_block, gradient_block, moved_to
from limits.fields.matrix import REVEALED, Matrix
from limits.fields.measure import at
from limits.fields.tried import SMALL, Path, Trial, steps_at_most, steps_tried
from limits.kept.memory import memory_left
from limits.kept.remembered import remembered
from limits.training import Training
from zoo.abstract import abstract, variables_of
from zoo.roles import Factors, factors, is_factors
from zoo.scaled import at_size

_LARGE = 64  # directions, from which on a step on fewer of them is worth its compilation
_RATE = 0.1  # with which a function of the learning rate is tried out
_OF_SIZES = (
    "rich: the steps of this optimiser depend on the size of the weights themselves (as those of LAMB, LARS, adaptive clipping "
    "and of decay by signs do) otherwise than in proportion, which contains that of the N × N numbers at the start. At {samples} "
    "samples that is not known, and the law would not be a network's. Use another optimiser, or an ensemble."
)
_MEANS = (
    "rich: this optimiser takes means over all entries of {names}. Sweeps know those to 1/samples only, so that with width= the "
    "term of order 1/width would not be a network's. Leave width out, or ask `ensemble`."
)
_UNDEFINED = (
    "rich: where a gradient is 0 (of what a matrix has not met, and of neurons that are off), a step of this optimiser is no "
    "number, as 0/0 of Adam with eps=0. Give it an ε: inside `scaled` gradients are of order 1, and 1e-8 is as good as none."
)
_TOO_LARGE = (
    "rich: this optimiser moves {count} matrices entry by entry, so that their trained parts are arrays: with {samples} samples "
    "they take {need:.1f} GiB with its moments, and {have:.1f} GiB are free. A few hundred samples are enough, with order=2."
)


class Descent:
    """v ← momentum v + factor ∂L/∂w,   w ← (1 − rate decay) w − rate v, also for M of every matrix."""

    dense: frozenset[Path] = frozenset()

    def check_memory(self, samples: int) -> None:
        """Matrices are never arrays here."""

    def __init__(self, net: Any, training: Training, points: Any, *_: Any) -> None:
        factors: Any = flax.traverse_util.flatten_dict(training.factors(net, points))
        moves: Any = flax.traverse_util.flatten_dict(training.moves(net, points))
        self.momentum = training.momentum
        self.factors = {path: float(factor) for path, factor in factors.items()}
        self.decays = {path: training.weight_decay * move for path, move in moves.items()}

    def start(self, variables: dict[str, Any]) -> Any:
        """What is kept from step to step: velocities, like the parameters and like the matrices' M."""
        return jax.tree.map(jnp.zeros_like, variables["params"]), of_matrices(variables.get(REVEALED, {}), _trained)

    def resized(self, kept: Any, before: dict[str, Any], after: dict[str, Any]) -> Any:
        """With room for as many directions as the matrices have now."""
        old, new = (_capacity(each.get(REVEALED, {})) for each in (before, after))
        more = [(0, new - old)] * 2
        return kept[0], jax.tree.map(lambda a: jnp.pad(a, [(0, 0)] * (a.ndim - 2) + more), kept[1])

    def step(self, kept: Any, params: Any, slopes: Any, met: Any, rate: Any) -> tuple[Any, Any, Any]:
        """(parameters, matrices, what is kept) after a step down `slopes` and the gradients that the matrices hold."""
        velocity = self._moved(kept[0], slopes)
        velocities = self._moved(kept[1], of_matrices(met, lambda m: m.gradient))

        def moved(path: Any, p: Any, v: Any) -> Any:
            shrink = 1 - rate * at(self.decays, _names(path))
            if not isinstance(p, Matrix):
                return shrink * p - rate * v
            return moved_to(p, shrink * p.start, shrink * p.trained - rate * v)

        params = jax.tree_util.tree_map_with_path(moved, params, velocity)
        met = jax.tree_util.tree_map_with_path(moved, met, velocities, is_leaf=is_matrix)
        return params, met, (velocity, velocities)

    def _moved(self, velocity: Any, gradient: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, v, g: self.momentum * v + at(self.factors, _names(path)) * g, velocity, gradient
        )


class Optimised:
    """By an Optax optimiser, the same object as a finite network's. `dense`: the matrices that it moves entry by entry."""

    def __init__(
        self, net: Any, training: Training, points: Any, steps: int | None = None, dense: frozenset[Path] | None = None
    ) -> None:
        shapes = variables_of(net, points)["params"]
        self.table: dict[Path, Factors] = _flat(factors(net, shapes, points))
        self.shapes = {path: leaf.shape for path, leaf in _flat(shapes).items()}
        self.moves = {path: bool(moves) for path, moves in _flat(training.moves(net, points)).items()}
        self.factors = {path: float(factor) for path, factor in _flat(training.factors(net, points)).items()}
        self.sides: dict[Path, tuple[int, int]] = {}  # inputs and outputs of the matrices, by the parameter's path
        self.training = training
        self.dense = self._tried(net, steps or len(training.rates) or None) if dense is None else dense

    def check_memory(self, samples: int) -> None:
        """Raises where there is not enough for matrices that move entry by entry."""
        need = _bytes(self.dense, self.shapes, np.dtype(jax.dtypes.canonicalize_dtype(float)).itemsize)
        have = memory_left()
        if need > have:
            raise ValueError(_TOO_LARGE.format(
                count=len(self.dense), samples=samples, need=need / 2**30, have=have / 2**30
            ))  # fmt: skip

    def _optimizer(self, rate: Any) -> optax.GradientTransformation:
        """That of a step with this rate."""
        return at_size(self.training.made(rate), self._sizes)

    def start(self, variables: dict[str, Any]) -> Any:  # noqa: D102
        return self._optimizer(_RATE).init(self._joined(variables["params"], variables.get(REVEALED, {}), block))

    def resized(self, kept: Any, before: dict[str, Any], after: dict[str, Any]) -> Any:  # noqa: D102
        return fitted(kept, *(jax.eval_shape(self.start, each) for each in (before, after)))

    def step(self, kept: Any, params: Any, slopes: Any, met: Any, rate: Any) -> tuple[Any, Any, Any]:  # noqa: D102
        whole = self._joined(params, met, block)
        gradient = self._still(self._joined(slopes, met, gradient_block))
        homes = self._homes(met)
        after, kept = self._moved(gradient, kept, whole, rate, [m for m in _matrices(met) if not m.dense])
        after, flat_met = _flat(after), dict[Path, Any](flax.traverse_util.flatten_dict(met))
        for path, found in homes.items():
            leaf = after.pop(path)
            for i, place in enumerate(found):
                flat_met[place] = from_block(flat_met[place], leaf if found == [path] else leaf[i])
        return _nested(after), _nested(flat_met), kept

    def _moved(self, gradient: Any, kept: Any, whole: Any, rate: Any, blocks: list[Matrix]) -> tuple[Any, Any]:
        """(all parameters after the step, what is kept), where blocks have no more of their empty rows than is quick.

        Newton and Schulz cost the cube of a block's rows, and most of a run knows few of the directions it has room for.
        """
        capacity = blocks[0].v.shape[-2] if blocks else 0
        rooms = sorted({-(-capacity * part // 4) for part in (2, 3)}) if capacity >= _LARGE else []

        def moved(room: int) -> Callable:
            def run(gradient: Any, kept: Any, whole: Any, rate: Any) -> tuple[Any, Any]:
                small = self._cropped(whole, room)
                forms = [jax.eval_shape(self._optimizer(_RATE).init, tree) for tree in (whole, small)]
                optimizer, held = self._optimizer(rate), fitted(kept, *forms)
                updates, held = optimizer.update(self._cropped(gradient, room), held, small)
                after = optax.apply_updates(small, self._still(updates))
                return fitted(after, small, whole), fitted(held, *forms[::-1])

            return run

        if not rooms:
            return moved(capacity)(gradient, kept, whole, rate)
        known = jnp.max(jnp.stack([jnp.max(count) for m in blocks for count in (m.known_in, m.known_out)]))
        which = sum((known > room).astype(jnp.int32) for room in rooms)
        return jax.lax.switch(which, [moved(room) for room in (*rooms, capacity)], gradient, kept, whole, rate)

    def _cropped(self, tree: Any, room: int) -> Any:
        """The tree with blocks for so many directions."""

        def crop(path: Path, leaf: Any) -> Any:
            return leaf[..., : room + 1, : room + 1] if path in self.sides and path not in self.dense else leaf

        return _nested({path: crop(path, leaf) for path, leaf in _flat(tree).items()})

    def _still(self, tree: Any) -> Any:
        """Nothing where nothing is trained."""
        if all(self.moves.values()):
            return tree
        return _nested({path: leaf if self.moves[path] else 0 * leaf for path, leaf in _flat(tree).items()})

    def _homes(self, revealed: Any) -> dict[Path, list[Path]]:
        """The matrices of each parameter: itself, or several side by side, each in a place below."""
        homes = dict[Path, list[Path]]()
        for place in flax.traverse_util.flatten_dict(revealed):
            path = place if place in self.table else place[:-1]
            homes.setdefault(path, []).append(place)
        return {path: sorted(found, key=_numbers) for path, found in homes.items()}

    def _joined(self, params: Any, revealed: Any, block: Callable) -> Any:
        """All parameters as one tree, matrices as blocks."""
        flat = dict(_flat(params))
        matrices: Any = flax.traverse_util.flatten_dict(revealed)
        for path, found in self._homes(revealed).items():
            first = matrices[found[0]]
            self.sides[path] = first.v.shape[-1], first.u.shape[-1]
            blocks = [block(matrices[place]) for place in found]
            flat[path] = blocks[0] if found == [path] else jnp.stack(blocks)
        return _nested(flat)

    def _sizes(self, tree: Any) -> Any:
        """The `Factors` of such a tree: those of the true shapes, of which Muon's contain √max(1, outputs/inputs)."""

        def of(path: Any, leaf: Any) -> Factors:
            names = _names(path)
            factor = self.table[names]
            if names not in self.sides:
                return factor
            lead, (inputs, outputs), (rows, columns) = leaf.ndim - 2, self.sides[names], leaf.shape[-2:]
            shape = (max(1.0, outputs / inputs) / max(1.0, columns / rows)) ** 0.5
            return dataclasses.replace(factor, width=factor.width * shape, sides=((lead,), (lead + 1,)), unsure=False)

        return jax.tree_util.tree_map_with_path(of, tree)

    def _tried(self, net: Any, steps: int | None, means: bool = False) -> frozenset[Path]:
        """The matrices that the optimiser does not move as rotations do (or by means over entries); found by trying it."""
        wide = {path for path, factor in self.table.items() if factor.matrix}
        if not wide:
            return frozenset()
        self.sides = dict.fromkeys(wide, (SMALL, SMALL))
        sizes = {path: factor.size for path, factor in self.table.items()}
        with jax.enable_x64(True):
            few = steps_tried(steps)
            trial = Trial(self._optimizer(_RATE), self.shapes, wide, sizes, few)
            if trial.still and (steps or 0) > few:  # it may begin late
                trial = Trial(self._optimizer(_RATE), self.shapes, wide, sizes, steps_at_most(steps))
            if trial.undefined:
                raise ValueError(_UNDEFINED)
            if trial.of_sizes:
                raise ValueError(_OF_SIZES.format(samples=net.width))
            found = trial.by_means if means else trial.by_entry
        self.sides = {}
        return found


def check_means(net: Any, training: Training, x: Any) -> None:
    """Raises where the optimiser takes means over a matrix's entries: s stands beside them, which 1/width is as large as."""
    points, steps = abstract(x.shape, _kind(x)), steps_at_most(len(training.rates))
    found = Optimised(net, training.step, points, steps, frozenset())._tried(net, steps, means=True)
    if found:
        raise ValueError(_MEANS.format(names=", ".join(sorted(".".join(path) for path in found))))


def moved_by_entry(net: Any, training: Training, x: Any) -> frozenset[Path]:
    """The hidden matrices that the optimiser of this training moves entry by entry."""
    if training.optimizer is None:
        return frozenset()
    return _by_entry(net, training.step, x.shape, _kind(x), steps_at_most(len(training.rates)))


def entry_bytes(net: Any, paths: frozenset[Path], x: Any, itemsize: int) -> int:
    """What these matrices take in this network, with the two moments of an optimiser. Nothing is computed."""
    points = abstract(x.shape, _kind(x))
    params: Any = variables_of(net, points)["params"]
    return _bytes(paths, {path: leaf.shape for path, leaf in _flat(params).items()}, itemsize)


def _bytes(paths: frozenset[Path], shapes: dict[Path, tuple[int, ...]], itemsize: int) -> int:
    return sum(3 * itemsize * math.prod(shapes[path]) for path in paths)


def _kind(x: Any) -> str:
    return str(x.dtype) if x.dtype.kind in "iu" else "float32"


@remembered(maxsize=64)
def _by_entry(net: Any, training: Training, shape: tuple[int, ...], kind: str, steps: int) -> frozenset[Path]:
    return Optimised(net, training, abstract(shape, kind), steps).dense


def of_matrices(tree: Any, function: Callable) -> Any:
    """`function` of every matrix of a tree."""
    return jax.tree.map(function, tree, is_leaf=is_matrix)


def is_matrix(leaf: Any) -> bool:
    """Whether a leaf is a revealed matrix."""
    return isinstance(leaf, Matrix)


def _matrices(tree: Any) -> list[Matrix]:
    return jax.tree.leaves(tree, is_leaf=is_matrix)


def _trained(m: Matrix) -> Any:
    return m.trained


def _capacity(revealed: Any) -> int:
    held = jax.tree.leaves(revealed, is_leaf=is_matrix)
    return held[0].v.shape[-2] if held else 0


def _names(path: Any) -> Path:
    """The path of a parameter, be it drawn or a matrix."""
    return tuple(entry.key for entry in path)


def _numbers(place: Path) -> tuple:
    """In the order of the numbers that a place below a parameter is called by."""
    return tuple(int(n) if n.isdigit() else 0 for n in place[-1].split("_"))


def _flat(tree: Any) -> dict[Path, Any]:
    return {_names(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_factors)}


def _nested(flat: dict[Path, Any]) -> Any:
    return flax.traverse_util.unflatten_dict(flat)
