"""Training in the limit: one causal sweep over the steps."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from limits.fields.coupled import half_of, marked, with_own
from limits.fields.exact import Coordinates
from limits.fields.fourth import PAIR, with_fourth
from limits.fields.measure import BACKWARD, measure, observed
from limits.fields.network import REVEALED, forward, on_points, start, vectors_met
from limits.fields.rules import Descent, Optimised, is_matrix, of_matrices
from limits.finite.forward import check_train, mixes_inputs
from limits.kept.quickly import quickly
from limits.losses import point_loss
from limits.training import Training
from zoo.abstract import variables_of
from zoo.definition import definition_of, name_of

OVERFLOWS = "before any training the signal overflows; lower w_std, or scale residual branches down."
_FIRST_STEPS = 4  # as many steps of full new directions fit before the bases grow
_APART = 0.05  # of the outputs: far more than rounding, also that of a deep network
_LITTLE = 2**27  # bytes of a state that may lie in memory twice
_SMALL = 4e9  # operations: a run that takes fewer in all does not grow, which would compile again


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NetworkState:
    """The network at one time; `kept` is what the rule of training remembers of the steps before."""

    variables: dict[str, Any]
    kept: Any
    offset: Any  # outputs of all points at the start


class FullError(ValueError):
    """An exact sweep met more directions than it has coordinates for."""


class CausalSweep:
    """The programs of one network and one way to train it, compiled once for every capacity of the bases.

    shape: of all inputs, the first `n_train` of which are the training points; `batch` of them (default: all) a step.
    `exact` (linear networks): the room for directions is fixed to this many, and coordinates stand for what is drawn.
    `steps` and `looks` (that are kept, or 1): how long the run will be, if it is known. `coupled`: 1 for a population that
    shares its draws with its halves, 2 for these (`coupled.py`), 3 for a pair of which one knows
    the fourth cumulant of weights (`fourth.py`). `dense`: the matrices that an optimiser moves entry by entry, if they are known.
    """

    def __init__(
        self,
        net: Any,
        training: Training,
        shape: tuple[int, ...],
        n_train: int,
        dtype: str,
        batch: int | None = None,
        exact: int | None = None,
        observe: Any = None,
        steps: int | None = None,
        looks: int = 1,
        coupled: int = 0,
        dense: frozenset[tuple[str, ...]] | None = None,
    ) -> None:
        self.net, self.training, self.exact, self.n_train, self.user = net, training.step, exact, n_train, observe
        points, rows = (jax.ShapeDtypeStruct((n, *shape[1:]), dtype) for n in (shape[0], batch or n_train))
        self.coupled = coupled
        self.mixes = mixes_inputs(variables_of(net, points))
        if self.mixes:
            check_train(net)
        self.per_pass = max(vectors_met(net, rows).values(), default=0)
        self.at_start = max(vectors_met(net, points).values(), default=0)
        # A look with gradients takes every input by itself: also what is common to all is met once for each.
        one = jax.ShapeDtypeStruct((1, *shape[1:]), dtype)
        self.at_look = max(self.at_start, shape[0] * max(vectors_met(net, one).values(), default=0))
        self.first_room = self._first_room(steps, looks)
        self.rule = (Descent if training.optimizer is None else Optimised)(net, training, points, steps, dense)
        self.rule.check_memory(net.width)
        self.factors = self.rule.factors
        self._spread = over_devices(net.width) if exact is None else lambda tree: tree
        self._advance = quickly(self._step, donate_argnums=0)
        self._begin = quickly(self._start)
        self._look = quickly(self._measure, static_argnums=3)
        self.begun = False  # the compilation of its step, ahead

    def _first_room(self, steps: int | None, looks: int) -> int:
        """The capacity to begin with: for all directions of a small run, for those of a few steps of a large one."""
        if self.exact is not None:
            return self.exact
        few = self.at_start + _FIRST_STEPS * self.per_pass
        if steps is None:
            return few
        outputs = definition_of(self.net).outputs + (self.user is not None)
        most = self.at_start + looks * outputs * self.at_look + steps * self.per_pass
        return most if 16.0 * most**2 * self.net.width < _SMALL else few

    def begin(self, key: Any, x: Any, part: int = 0) -> NetworkState:
        """The network at initialisation, having met all points (training points first); of halves, this one."""
        state = self._begin(key, x, part)
        check_room(state)
        return state

    def shapes_at_start(self, key: Any, x: Any, part: int = 0) -> NetworkState:
        """What `begin` makes, as shapes."""
        return jax.eval_shape(self._begin, key, x, part)

    def _start(self, key: Any, x: Any, part: Any = 0) -> NetworkState:
        first, second = (jax.random.fold_in(key, i) for i in range(2))
        variables = start(self.net, x, first, self.first_room, None if self.exact is None else Coordinates())
        if self.rule.dense:
            revealed: Any = flax.traverse_util.flatten_dict(variables[REVEALED])
            dense = {p: m.made_dense if {p, p[:-1]} & self.rule.dense else m for p, m in revealed.items()}
            variables[REVEALED] = flax.traverse_util.unflatten_dict(dense)
        if self.coupled == PAIR:
            variables[REVEALED] = with_fourth(self.net, x, variables[REVEALED], part)
        elif self.coupled:
            halves, third = self.coupled == 2, jax.random.fold_in(key, 2)
            wide = self.net.clone(width=2 * self.net.width) if halves else self.net
            population = start(wide, x, first, self.first_room)["params"] if halves else variables["params"]
            again = lambda: start(wide, x, third, self.first_room)["params"]  # noqa: E731
            population = with_own(population, again, wide, x[:1], part if halves else None)
            if halves:
                population = half_of(variables["params"], population, self.net, wide, x[:1], part)
            variables["params"] = population
            if REVEALED in variables:
                variables[REVEALED] = marked(variables[REVEALED], self.coupled, part if halves else None)
        f, revealed = on_points(self.net, variables, x, self.n_train, second)
        variables = variables | ({REVEALED: revealed} if revealed else {})
        return self._spread(NetworkState(variables, self.rule.start(variables), f))

    def measure(self, state: NetworkState, x: Any, key: Any, kernels: tuple[str, ...]) -> dict[str, Any]:
        """f, features and what else is asked for (`limits.fields.measure`) at this time; the state stays as it is."""
        return self._look(self._with_room(state, kernels).variables, x, key, tuple(kernels))[0]

    def shapes(self, state: NetworkState, x: Any, key: Any, kernels: tuple[str, ...]) -> dict[str, Any]:
        """What `measure` finds, as shapes."""
        return jax.eval_shape(self._look, state.variables, x, key, tuple(kernels))[0]

    def measure_and_keep(
        self, state: NetworkState, x: Any, key: Any, kernels: tuple[str, ...]
    ) -> tuple[dict[str, Any], NetworkState]:
        """The same, and the state that remembers what was revealed: what is seen at several times is of one network."""
        state = self._with_room(state, kernels)
        found, revealed = self._look(state.variables, x, key, tuple(kernels))
        # A look differentiates outputs, not the loss: its share of the gradient is not kept.
        revealed = of_matrices(revealed, lambda m: dataclasses.replace(m, gradient=jnp.zeros_like(m.gradient)))
        return found, dataclasses.replace(state, variables=state.variables | ({REVEALED: revealed} if revealed else {}))

    def _with_room(self, state: NetworkState, kernels: tuple[str, ...]) -> NetworkState:
        rows = state.offset.shape[-1] * self.at_look if BACKWARD & set(kernels) else self.at_start
        return self.grown(state, rows + (self.user is not None) * self.at_start)

    def _measure(self, variables: Any, x: Any, key: Any, kernels: tuple[str, ...]) -> Any:
        first, second = (jax.random.fold_in(key, i) for i in range(2))
        found, revealed = measure(self.net, self.factors, kernels, variables, x, self.n_train, first)
        if self.user is not None:
            found["observed"] = observed(self.user, self.net, variables, x, second)
        return found, revealed

    def grown(self, state: NetworkState, rows: int) -> NetworkState:
        """The same state, with room for so many new directions; sizes grow by half, so that few are compiled."""
        held = jax.tree.leaves(state.variables.get(REVEALED, {}), is_leaf=is_matrix)
        if not held:
            return state
        known = max(float(np.max(count)) for count in jax.device_get([(m.known_in, m.known_out) for m in held]))
        capacity = larger = held[0].v.shape[-2]
        while known + rows > larger:
            larger += max(rows, larger // 2)
        if larger == capacity:
            return state
        if self.exact is not None:  # more rows would draw coordinates that stand for others
            raise FullError(f"{known:.0f} directions and {rows} new ones do not fit into the room for {capacity}.")
        revealed = of_matrices(state.variables[REVEALED], lambda m: m.resized(larger))
        variables = state.variables | {REVEALED: revealed}
        return dataclasses.replace(
            state, variables=variables, kept=self.rule.resized(state.kept, state.variables, variables)
        )

    def step(self, state: NetworkState, x: Any, y: Any, rows: Any, key: Any, rate: float) -> tuple[NetworkState, Any]:
        """(the state after one step on these rows of the training points, the loss of them before it).

        y: their targets; or (targets, mask), where not all positions count.
        """
        return self._advance(self.grown(state, self.per_pass), x, y, rows, key, rate)

    def step_ahead(self, state: Any, *given: Any) -> None:
        """Compiles `step` for such states by a step of one that is zero; in a thread, beside whatever else is done."""
        leaves = jax.tree.leaves(state)
        if sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) < _LITTLE and jax.device_count() == 1:
            zeros = jax.device_put(
                jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), state)
            )  # no program, unlike jnp's
            jax.block_until_ready(self._advance(zeros, *given))

    def _step(self, state: NetworkState, x: Any, y: Any, rows: Any, key: Any, rate: Any) -> tuple[NetworkState, Any]:
        targets = [part[rows] for part in (y if isinstance(y, tuple) else (y,))]
        training, fixed = self.training, {k: v for k, v in state.variables.items() if k not in ("params", REVEALED)}

        def objective(params: Any, revealed: Any) -> Any:
            held = {"params": params, **fixed} | ({REVEALED: revealed} if revealed else {})
            f, after = forward(self.net, held, x[rows], key, **({"train": True} if self.mixes else {}))
            centre = state.offset[rows] if training.centred else 0.0
            return (point_loss(training.loss)(f - centre, *targets), after.pop(REVEALED, {})), after

        revealed = state.variables.get(REVEALED, {})
        passed: Any = jax.vjp(objective, state.variables["params"], revealed, has_aux=True)
        (loss, met), pull, fixed = passed
        gradient, met = pull((jnp.ones_like(loss), met))
        params, met, kept = self.rule.step(state.kept, state.variables["params"], gradient, met, rate)
        variables = {"params": params, **fixed} | ({REVEALED: met} if met else {})
        return self._spread(dataclasses.replace(state, variables=variables, kept=kept)), loss


def over_devices(samples: int) -> Callable:
    """A function for use under jit that spreads the samples of a tree over all devices, where they can be dealt out evenly.

    A sum over samples is then one over each device and one between devices; the little rest of a state is on every one.
    """
    devices = jax.device_count()
    if devices == 1 or samples % devices:
        return lambda tree: tree
    mesh = jax.make_mesh((devices,), ("samples",), axis_types=(AxisType.Auto,))

    def place(leaf: Any) -> Any:
        axes = [axis for axis, size in enumerate(leaf.shape) if size >= samples and size % samples == 0]
        spec = [None] * leaf.ndim
        if axes:
            spec[axes[-1]] = "samples"
        return jax.lax.with_sharding_constraint(leaf, NamedSharding(mesh, PartitionSpec(*spec)))

    return lambda tree: jax.tree.map(place, tree)


def check_finite(f: Any, step: int, rate: float | None) -> None:
    """Says at which step training diverged; rate: None where it is an optimiser's own."""
    broken = int(np.size(f) - np.isfinite(f).sum())
    if broken:
        what = "the learning rate" if rate is None else f"the learning rate {rate:g}"
        why = f"{what} is too large, or the signal overflows; lower learning_rate or w_std." if step else OVERFLOWS
        raise FloatingPointError(f"{broken} of {np.size(f)} outputs were infinite or NaN at step {step}: {why}")


def check_apart(net: Any, f: Any, together: Any) -> None:
    """Says where the outputs f of each input by itself are not those of all inputs together."""
    away, size = (float(np.max(np.abs(a), initial=0.0)) for a in (np.asarray(f) - np.asarray(together), together))
    if away > _APART * size:
        raise ValueError(
            f"{name_of(net)}: the outputs of one input depend on the other inputs of the call (they move by {away:.2g} of "
            f'{size:.2g}), so that no tangent kernel of a pair of inputs exists. Keep inputs apart, use Norm("batch"), or, '
            "in rich, leave kernels of gradients out: kernels=()."
        )


def _layer_of(path: Sequence[Any]) -> str:
    """The layer of a matrix, or itself where it is the network's own."""
    return ".".join(str(entry.key) for entry in path[:-1] or path)


def check_room(state: NetworkState) -> None:
    """Says where a matrix met more vectors in one pass than there is room for: more than its calls were counted to bring."""
    for path, m in jax.tree_util.tree_leaves_with_path(state.variables.get(REVEALED, {}), is_leaf=is_matrix):
        room = m.v.shape[-2]
        if not isinstance(m.known_in, Tracer) and float(np.max(jax.device_get(m.known_in))) > room:
            name = _layer_of(path)
            raise ValueError(
                f"{name} met more vectors in one pass than the {room} that were counted: one matrix that is met many times "
                "inside nn.scan cannot be revealed; call the layer in a Python loop."
            )


def check_rank(state: NetworkState, step: int, at_most: int) -> None:
    """Says where a matrix has been revealed whole, so that the sweep is a finite network at a higher price."""
    for path, m in jax.tree_util.tree_leaves_with_path(state.variables.get(REVEALED, {}), is_leaf=is_matrix):
        for known, size in () if m.dense else ((m.known_in, m.v.shape[-1]), (m.known_out, m.u.shape[-1])):
            if float(jnp.max(known)) >= size:
                name = _layer_of(path)
                raise ValueError(
                    f"{name} has met as many independent vectors as it has samples, {size}, by step {step}: from here on the "
                    f"sweep is no limit but a finite network. Use more samples ({at_most} are enough for any run of "
                    "this length), fewer points, or fewer steps."
                )
