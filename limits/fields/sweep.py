"""Training in the limit: one causal sweep over the steps."""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.exact import Coordinates
from limits.fields.matrix import Matrix
from limits.fields.measure import measure
from limits.fields.network import REVEALED, forward, start, vectors_met
from limits.losses import point_loss
from limits.rule import Rule

_FIRST_STEPS = 4  # as many steps of full new directions fit before the bases grow


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The network at one time. `velocity` is like the parameters, `velocities` like the matrices' M."""

    variables: dict[str, Any]
    velocity: Any
    velocities: Any
    offset: Any  # outputs of the training points at the start


def _is_matrix(leaf: Any) -> bool:
    return isinstance(leaf, Matrix)


def matrices(tree: Any, function: Callable) -> Any:
    """`function` of every matrix of a tree."""
    return jax.tree.map(function, tree, is_leaf=_is_matrix)


class Sweep:
    """The programs of one network and one rule, compiled once for every capacity of the bases.

    `exact` (linear networks): the room for directions is fixed to this many, and coordinates stand for what is drawn.
    """

    def __init__(
        self, net: Any, rule: Rule, shape: tuple[int, ...], n_train: int, dtype: str, exact: int | None = None
    ) -> None:
        self.net, self.rule, self.exact = net, rule, exact
        points, batch = (jax.ShapeDtypeStruct((n, *shape[1:]), dtype) for n in (shape[0], n_train))
        self.per_pass = max(vectors_met(net, batch).values(), default=0)
        self.at_start = max(vectors_met(net, points).values(), default=0)
        factors: Any = flax.traverse_util.flatten_dict(rule.factors(net, points))
        moves: Any = flax.traverse_util.flatten_dict(rule.moves(net, points))
        self.factors = {path: float(factor) for path, factor in factors.items()}
        self.decays = {path: rule.weight_decay * move for path, move in moves.items()}
        self._advance = jax.jit(self._step, donate_argnums=0)
        self._begin = jax.jit(self._start)
        self._look = jax.jit(self._measure, static_argnums=3)

    def begin(self, key: Any, x: Any) -> State:
        """The network at initialisation, having met all points (training points first)."""
        return self._begin(key, x)

    def _start(self, key: Any, x: Any) -> State:
        first, second = (jax.random.fold_in(key, i) for i in range(2))
        capacity = self.at_start + _FIRST_STEPS * self.per_pass if self.exact is None else self.exact
        variables = start(self.net, x, first, capacity, None if self.exact is None else Coordinates())
        f, after = forward(self.net, variables, x, second)
        variables = variables | after
        velocity = jax.tree.map(jnp.zeros_like, variables["params"])
        velocities = matrices(variables.get(REVEALED, {}), lambda m: m.trained)
        return State(variables, velocity, velocities, f)

    def measure(self, state: State, x: Any, key: Any, kernels: tuple[str, ...]) -> dict[str, Any]:
        """f, features and the kernels asked for, at this time; the state stays as it is."""
        outputs = state.offset.shape[-1] if {"g", "ntk"} & set(kernels) else 1
        return self._look(self.grown(state, outputs * self.at_start).variables, x, key, tuple(kernels))

    def _measure(self, variables: Any, x: Any, key: Any, kernels: tuple[str, ...]) -> dict[str, Any]:
        return measure(self.net, self.factors, kernels, variables, x, key)[0]

    def grown(self, state: State, rows: int) -> State:
        """The same state, with room for so many new directions; sizes grow by half, so that few are compiled."""
        held = jax.tree.leaves(state.variables.get(REVEALED, {}), is_leaf=_is_matrix)
        if not held:
            return state
        known = max(float(np.max(count)) for count in jax.device_get([(m.known_in, m.known_out) for m in held]))
        capacity = larger = held[0].v.shape[-2]
        while known + rows > larger:
            larger += max(rows, larger // 2)
        if larger == capacity:
            return state
        revealed = matrices(state.variables[REVEALED], lambda m: m.resized(larger))
        velocities = jax.tree.map(
            lambda a: jnp.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, larger - capacity)] * 2), state.velocities
        )
        return dataclasses.replace(state, variables=state.variables | {REVEALED: revealed}, velocities=velocities)

    def step(self, state: State, x: Any, y: Any, key: Any, rate: float) -> tuple[State, Any]:
        """(the state after one step on these training points, the loss before it)."""
        return self._advance(self.grown(state, self.per_pass), x, y, key, rate)

    def _step(self, state: State, x: Any, y: Any, key: Any, rate: Any) -> tuple[State, Any]:
        rule, fixed = self.rule, {k: v for k, v in state.variables.items() if k not in ("params", REVEALED)}

        def objective(params: Any, revealed: Any) -> Any:
            held = {"params": params, **fixed} | ({REVEALED: revealed} if revealed else {})
            f, after = forward(self.net, held, x, key)
            centre = state.offset[: len(x)] if rule.centred else 0.0
            return (point_loss(rule.loss)(f - centre, y), after.pop(REVEALED, {})), after

        revealed = state.variables.get(REVEALED, {})
        passed: Any = jax.vjp(objective, state.variables["params"], revealed, has_aux=True)
        (loss, met), pull, fixed = passed
        gradient, met = pull((jnp.ones_like(loss), met))
        velocity = self._moved(state.velocity, gradient)
        velocities = self._moved(state.velocities, matrices(met, lambda m: m.gradient))

        def moved(path: Any, p: Any, v: Any) -> Any:
            shrink = 1 - rate * self.decays[_names(path)]
            if not isinstance(p, Matrix):
                return shrink * p - rate * v
            nothing = jnp.zeros_like(p.gradient)
            return dataclasses.replace(
                p, start=shrink * p.start, trained=shrink * p.trained - rate * v, gradient=nothing
            )

        params = jax.tree_util.tree_map_with_path(moved, state.variables["params"], velocity)
        met = jax.tree_util.tree_map_with_path(moved, met, velocities, is_leaf=_is_matrix)
        variables = {"params": params, **fixed} | ({REVEALED: met} if met else {})
        return dataclasses.replace(state, variables=variables, velocity=velocity, velocities=velocities), loss

    def _moved(self, velocity: Any, gradient: Any) -> Any:
        """momentum v + factor ∂loss/∂w."""
        return jax.tree_util.tree_map_with_path(
            lambda path, v, g: self.rule.momentum * v + self.factors[_names(path)] * g, velocity, gradient
        )


def _names(path: Any) -> tuple[str, ...]:
    """The path of a parameter; a matrix stands for the kernel of its layer."""
    names = tuple(entry.key for entry in path)
    return (*names[:-1], "kernel") if names[-1] == "matrix" else names


def check_finite(f: Any, step: int, rate: float) -> None:
    """Says at which step training diverged."""
    broken = int(np.size(f) - np.isfinite(f).sum())
    if broken:
        raise FloatingPointError(
            f"{broken} of {np.size(f)} outputs were infinite or NaN at step {step}: the learning rate {rate:g} is too large, "
            "or the signal overflows; lower learning_rate or w_std."
        )


def check_rank(state: State, step: int, at_most: int) -> None:
    """Says where a matrix has been revealed whole, so that the sweep is a finite network at a higher price."""
    for path, m in jax.tree_util.tree_leaves_with_path(state.variables.get(REVEALED, {}), is_leaf=_is_matrix):
        for known, size in ((m.known_in, m.v.shape[-1]), (m.known_out, m.u.shape[-1])):
            if float(jnp.max(known)) >= size:
                name = ".".join(str(entry.key) for entry in path[:-1])
                raise ValueError(
                    f"{name} has met as many independent vectors as it has samples, {size}, by step {step}: from here on the "
                    f"sweep is no limit but a finite network. Use more samples ({at_most} are enough for any run of "
                    "this length), fewer points, or fewer steps."
                )
