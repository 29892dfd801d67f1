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

_SLOPES = np.geomspace(1e-6, 1e6, 25)  # sizes of the slopes that a rule is tried with
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

    Found by trying it on small gradients in the form of the parameters (`shapes`: arrays or their shapes by path; those in
    `moving` are asked to move alike).

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

    def _check(self) -> None:
        draw = np.random.default_rng(0)
        sizes = {path: int(np.prod(shape)) for path, shape in self.shapes.items()}
        most = max(sizes.values())
        slopes = draw.normal(size=(len(_SLOPES), most)) * _SLOPES[:, None]  # the same for all, as far as they go
        mixes = {path: draw.normal(size=(size, size)) / size**0.5 for path, size in sizes.items()}
        plain = self._tried({path: slopes[:, :size] for path, size in sizes.items()}, 1.0)
        elsewhere = self._tried({path: slopes[:, :size] for path, size in sizes.items()}, 3.0)
        mixed = self._tried({path: slopes[:, :size] @ mixes[path] for path, size in sizes.items()}, 1.0)
        for path in self.shapes:
            if not _same(elsewhere[path], plain[path]):
                raise AbsentError(_DECAY)
            if not _same(mixed[path], plain[path] @ mixes[path]):
                raise AbsentError(_NOT_LINEAR)
            if not _same(plain[path][:, 0], plain[self.path][:, 0]):
                names = {"first": ".".join(path), "other": ".".join(self.path)}
                raise AbsentError(_APART.format(**names))

    def _tried(self, slopes: dict[Any, np.ndarray], size: float) -> dict[Any, np.ndarray]:
        """The updates [step, entry] of every parameter, all of whose entries have this size at first."""

        def tree(value: Callable) -> Any:
            leaves = {path: jnp.asarray(value(path)).reshape(shape) for path, shape in self.shapes.items()}
            return flax.traverse_util.unflatten_dict(leaves)

        params = tree(lambda path: np.full(self.shapes[path], size))
        optimizer = self.make(1.0)
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        found: dict[Any, list[np.ndarray]] = {path: [] for path in self.shapes}
        for t in range(len(_SLOPES)):
            updates, state = update(tree(lambda path, t=t: slopes[path][t]), state, params)
            params = optax.apply_updates(params, updates)
            for path, each in flax.traverse_util.flatten_dict(updates).items():
                found[path].append(np.asarray(each).ravel())
        return {path: np.stack(each) for path, each in found.items()}


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
