"""Steps of an optimiser on the coefficients of tangent features, where the kernel stays what it is.

With a constant kernel the parameters stay sums of their gradients, θ_t = θ_0 + Σ_i w_i ∂f(x_i)/∂θ, and ∂loss/∂θ is such a sum
with coefficients −slope_i / n. A rule that is linear in the gradients and the same for all parameters then acts on w as on θ.
"""

from collections.abc import Callable, Sequence
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from limits.types import AbsentError

_SLOPES = np.geomspace(
    1e-6, 1e6, 25
)  # sizes of the slopes that a rule is tried with, the last one from then on; or 1 in all steps
MOST = 500  # steps that are tried
FURTHEST = 8000  # of a rule that moves nothing before
_SAME = 1e-3  # relative: states may be in few digits, and what is not the same differs by O(1)
_ENTRIES = 3  # of every axis of a parameter, where a rule is tried out
_NOT_LINEAR = (
    "lazy: the steps of this optimiser are not linear in the gradients, entry by entry, so that the outputs do not follow the "
    "tangent kernel. Give one whose steps are (SGD, momentum, Nesterov, averages of gradients, schedules), or use `rich` in the "
    "mup parameterization."
)
_DECAY = (
    "lazy: this optimiser's steps depend on the parameters themselves (weight decay): it moves all weights by O(1), so that no "
    "kernel stays constant; use `rich` in the mup parameterization, or leave decay out."
)
_APART = (
    "lazy: this optimiser moves {first} otherwise than {other}: the outputs then follow a sum of kernels with a rate each. To "
    "leave parameters where they are, say `trained`."
)


class Momentum:
    """v ← momentum v + slope,  Δw = rate_t v."""

    def __init__(self, rates: np.ndarray, momentum: float) -> None:
        self.rates, self.momentum = rates, momentum

    def start(self, shape: tuple[int, ...]) -> Any:
        """What is kept from step to step, before the first."""
        return np.zeros(shape)

    def step(self, t: int, slope: np.ndarray, kept: Any) -> tuple[np.ndarray, Any]:
        """(Δw, what is kept)."""
        v = self.momentum * kept + slope
        return self.rates[t] * v, v


class LinearRule:
    """An Optax transformation that is linear in the gradients and moves all parameters alike; refused if it is not.

    optimizer: the transformation, or a function from a learning rate to one, with the `rates` of every step.

    Found by trying it on small gradients in the form of the parameters (`shapes`: arrays or their shapes by path), for as many
    steps as there are rates, for 500 where there are more or none: a rule may change on its way.

    >>> rule = LinearRule(optax.sgd(0.5), {("w",): (3, 2)}, n=1)
    >>> float(rule.step(0, np.ones(1), rule.start((1,)))[0][0])
    0.5

    Its rate is the optimiser's own: the slopes are divided by n, as the gradients of a mean over n points are.
    """

    def __init__(
        self, optimizer: Any, shapes: dict[tuple[str, ...], tuple[int, ...]], n: int, rates: np.ndarray | None = None
    ) -> None:
        self.make = (lambda _: optimizer) if rates is None else optimizer
        self.rates, self.n = rates, n
        self.shapes = {path: tuple(min(k, _ENTRIES) for k in shape) for path, shape in shapes.items()}
        self.path = max(self.shapes, key=lambda path: len(self.shapes[path]))  # whose place the coefficients take
        with jax.enable_x64(True):
            self._check()
            self._update = jax.jit(lambda rate, *arguments: self.make(rate).update(*arguments))

    def start(self, shape: tuple[int, ...]) -> Any:  # noqa: D102
        with jax.enable_x64(True):
            tree = self._tree(np.zeros(shape))
            return self.make(1.0).init(tree), tree

    def step(self, t: int, slope: np.ndarray, kept: Any) -> tuple[np.ndarray, Any]:  # noqa: D102
        state, still = kept
        with jax.enable_x64(True):
            updates, state = self._update(
                1.0 if self.rates is None else self.rates[t], self._tree(-slope / self.n), state, still
            )
            found = np.asarray(flax.traverse_util.flatten_dict(updates)[self.path])
        return found.reshape(slope.shape), (state, still)

    def _tree(self, coefficients: np.ndarray) -> Any:
        """The coefficients in place of a parameter, of as many axes as it has; nothing in that of all others."""
        flat = {path: jnp.zeros((1,) * len(shape)) for path, shape in self.shapes.items()}
        axes = max(len(self.shapes[self.path]), 1)
        flat[self.path] = jnp.asarray(coefficients).reshape(-1, *(1,) * (axes - 1))
        return flax.traverse_util.unflatten_dict(flat)

    def _check(self, most: int = MOST) -> None:
        draw, known = np.random.default_rng(0), most if self.rates is None else len(self.rates)
        steps = min(known, most)
        sizes = {path: int(np.prod(shape)) for path, shape in self.shapes.items()}
        steps, most = max(steps, len(_SLOPES)), max(sizes.values())
        mixes = {path: draw.normal(size=(size, size)) / size**0.5 for path, size in sizes.items()}
        slopes = draw.normal(size=(steps, most))  # the same for all, as far as they go
        rows = []
        for scale in (np.pad(_SLOPES, (0, steps - len(_SLOPES)), "edge"), np.ones(steps)):
            own = {path: slopes[:, :size] * scale[:, None] for path, size in sizes.items()}
            rows += [(own, 1.0), (own, 3.0), ({path: own[path] @ mixes[path] for path in sizes}, 1.0)]
        found = self._tried(rows)
        if known > steps and most < FURTHEST and not all(map(np.any, found.values())):
            return self._check(FURTHEST)  # it may begin late
        for i in (0, 3):
            for path in self.shapes:
                plain, elsewhere, mixed = found[path][i : i + 3]
                if not _same(elsewhere, plain):
                    raise AbsentError(_DECAY)
                if not _same(mixed, plain @ mixes[path]):
                    raise AbsentError(_NOT_LINEAR)
                if not _same(plain[:, 0], found[self.path][i, :, 0]):
                    names = {"first": ".".join(path), "other": ".".join(self.path)}
                    raise AbsentError(_APART.format(**names))
        return None

    def _tried(self, rows: list[tuple[dict[Any, np.ndarray], float]]) -> dict[Any, np.ndarray]:
        """Of every row, (slopes [step, entry], the size of all entries at first), the updates: [row, step, entry]."""
        optimizer, found, ends = self.make(1.0), [], np.array([size for _, size in rows])
        full = {path: jnp.asarray(np.multiply.outer(ends, np.ones(shape))) for path, shape in self.shapes.items()}
        params = flax.traverse_util.unflatten_dict(full)

        @jax.jit
        @jax.vmap
        def step(slopes: Any, state: Any, params: Any) -> Any:
            updates, state = optimizer.update(slopes, state, params)
            return updates, state, optax.apply_updates(params, updates)

        state = jax.vmap(optimizer.init)(params)
        stacked = {path: np.stack([row[0][path] for row in rows], 1) for path in self.shapes}
        for t in range(len(next(iter(stacked.values())))):
            slopes = {path: stacked[path][t].reshape(-1, *shape) for path, shape in self.shapes.items()}
            updates, state, params = step(flax.traverse_util.unflatten_dict(slopes), state, params)
            found.append(updates)
        each: list[Any] = [flax.traverse_util.flatten_dict(updates) for updates in jax.device_get(found)]
        return {path: np.stack([one[path].reshape(len(rows), -1) for one in each], 1) for path in self.shapes}


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether updates are the same at every step, up to rounding."""
    size = np.abs(b).reshape(len(b), -1).max(1) + np.abs(a).reshape(len(a), -1).max(1)
    return bool(np.all(np.abs(a - b).reshape(len(a), -1).max(1) <= _SAME * size))


Rule = Momentum | LinearRule


def descended(
    slope: Callable[[np.ndarray], np.ndarray],
    shape: tuple[int, ...],
    rule: Rule,
    times: Sequence[float] | np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """w at the recorded times, from w = 0 by steps of the rule; weights [steps, n]: how much each point counts in them."""
    w, kept, recorded, wanted = np.zeros(shape), rule.start(shape), {}, [int(t) for t in times]
    for step in range(max(wanted) + 1):
        if step in wanted:
            recorded[step] = w
        if step < max(wanted):
            counted = 1 if weights is None else weights[step][:, None]
            change, kept = rule.step(step, counted * slope(w), kept)
            w = w + change
    return np.stack([recorded[t] for t in wanted])
