"""Training in the limit: one causal sweep over the steps."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from limits.fields.matrix import Matrix
from limits.fields.network import REVEALED, forward, start, vectors_met
from limits.losses import point_loss
from zoo import learning_rate_factors

_FIRST_STEPS = 4  # as many steps of full new directions fit before the bases grow


@dataclasses.dataclass(frozen=True)
class Rule:
    """How parameters move: v ← momentum v + rate ∂loss/∂w, w ← (1 − η₀ decay) w − η₀ v; those of `trained` roles."""

    loss: str
    momentum: float = 0.0
    decay: float = 0.0
    centred: bool = True


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """The network at one time. `velocity` is like the parameters, `velocities` like the matrices' M."""

    variables: dict[str, Any]
    velocity: Any
    velocities: Any
    offset: Any  # outputs of the training points at the start


def matrices(tree: Any, function: Callable) -> Any:
    """`function` of every matrix of a tree."""
    return jax.tree.map(function, tree, is_leaf=lambda leaf: isinstance(leaf, Matrix))


class Sweep:
    """The programs of one network and one rule, compiled once for every capacity of the bases."""

    def __init__(self, net: Any, rule: Rule, x: Any, x_train: Any) -> None:
        self.net, self.rule = net, rule
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        self.per_pass = max(vectors_met(net, jax.ShapeDtypeStruct(x_train.shape, x.dtype)).values(), default=0)
        self.at_start = max(vectors_met(net, shape).values(), default=0)
        factors = flax.traverse_util.flatten_dict(learning_rate_factors(net, shape))
        self.factors = {path: float(factor) for path, factor in factors.items()}
        self._advance = jax.jit(self._step, donate_argnums=0)
        self._begin = jax.jit(self._start, static_argnums=2)

    def begin(self, key: Any, x: Any, n_train: int) -> State:
        """The network at initialisation, having met all points."""
        return self._begin(key, x, n_train)

    def _start(self, key: Any, x: Any, n_train: int) -> State:
        first, second = jax.random.split(key)
        variables = start(self.net, x, first, self.at_start + _FIRST_STEPS * self.per_pass)
        f, after = forward(self.net, variables, x, second)
        variables = variables | after
        velocity = jax.tree.map(jnp.zeros_like, variables["params"])
        velocities = matrices(variables.get(REVEALED, {}), lambda m: m.trained)
        return State(variables, velocity, velocities, f)

    def grown(self, state: State) -> State:
        """The same state, with room for one more step."""
        held = jax.tree.leaves(state.variables.get(REVEALED, {}), is_leaf=lambda leaf: isinstance(leaf, Matrix))
        known = max((float(jnp.max(jnp.maximum(m.known_in, m.known_out))) for m in held), default=0.0)
        capacity = max((m.v.shape[-2] for m in held), default=0)
        if known + self.per_pass <= capacity:
            return state
        larger = capacity + max(2 * self.per_pass, capacity // 2)
        revealed = matrices(state.variables[REVEALED], lambda m: m.resized(larger))
        velocities = jax.tree.map(
            lambda a: jnp.pad(a, [(0, 0)] * (a.ndim - 2) + [(0, larger - capacity)] * 2), state.velocities
        )
        return dataclasses.replace(state, variables=state.variables | {REVEALED: revealed}, velocities=velocities)

    def step(self, state: State, x: Any, y: Any, key: Any, rate: float) -> tuple[State, Any]:
        """(the state after one step on these training points, the loss before it)."""
        return self._advance(self.grown(state), x, y, key, rate)

    def _step(self, state: State, x: Any, y: Any, key: Any, rate: Any) -> tuple[State, Any]:
        rule, fixed = self.rule, {k: v for k, v in state.variables.items() if k not in ("params", REVEALED)}

        def objective(params: Any, revealed: Any) -> Any:
            held = {"params": params, **fixed} | ({REVEALED: revealed} if revealed else {})
            f, after = forward(self.net, held, x, key, **self._training)
            centre = state.offset[: len(x)] if rule.centred else 0.0
            return (point_loss(rule.loss)(f - centre, y), after.pop(REVEALED, {})), after

        revealed = state.variables.get(REVEALED, {})
        (loss, met), pull, fixed = jax.vjp(objective, state.variables["params"], revealed, has_aux=True)
        gradient, met = pull((jnp.ones_like(loss), met))
        velocity = self._moved(state.velocity, gradient)
        shrink = 1 - rate * rule.decay
        params = jax.tree.map(lambda p, v: shrink * p - rate * v, state.variables["params"], velocity)
        velocities = self._moved(state.velocities, matrices(met, lambda m: m.gradient), "kernel")

        def moved(m: Matrix, v: Any) -> Matrix:
            nothing = jnp.zeros_like(m.gradient)
            return dataclasses.replace(
                m, start=shrink * m.start, trained=shrink * m.trained - rate * v, gradient=nothing
            )

        met = jax.tree.map(moved, met, velocities, is_leaf=lambda m: isinstance(m, Matrix))
        variables = {"params": params, **fixed} | ({REVEALED: met} if met else {})
        return dataclasses.replace(state, variables=variables, velocity=velocity, velocities=velocities), loss

    @functools.cached_property
    def _training(self) -> dict[str, Any]:
        """What the forward pass of training is told, where it differs from that of prediction."""
        return {"train": True} if getattr(self.net, "norm", None) == "batch" else {}

    def _moved(self, velocity: Any, gradient: Any, name: str | None = None) -> Any:
        """momentum v + factor ∂loss/∂w; `name` stands in for the last part of a path."""

        def one(path: Any, v: Any, g: Any) -> Any:
            keys = tuple(entry.key for entry in path)
            factor = self.factors[keys if name is None else (*keys[:-1], name)]
            return self.rule.momentum * v + factor * g

        return jax.tree_util.tree_map_with_path(one, velocity, gradient)


def check_finite(loss: float, step: int, rate: float) -> None:
    """Says at which step training diverged."""
    if not np.isfinite(loss):
        raise FloatingPointError(
            f"The loss was {loss} at step {step}: the learning rate {rate:g} is too large; lower learning_rate or w_std."
        )
