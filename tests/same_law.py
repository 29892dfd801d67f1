"""An engine of S samples and networks of width S, of which loss and feature kernel must be of one law: means and spreads."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from limits import Task
from limits.fields.measure import measure
from limits.fields.sweep import CausalSweep
from limits.fields.sweeps import Plan
from limits.losses import losses, point_loss
from limits.training import Training
from train.ensemble import run_members

SEEDS, STEPS = 2000, 3


def values(
    net: Any, task: Task, rate: float | None, kernel: str, seeds: int = SEEDS, optimizer: Any = None, steps: int = STEPS
) -> tuple[Any, Any]:
    """(loss, trace of the last kernel after these steps) of the engine and of networks: each [seeds]."""
    return drawn(net, task, rate, kernel, seeds, optimizer, steps)(0)


def drawn(
    net: Any, task: Task, rate: float | None, kernel: str, seeds: int, optimizer: Any = None, steps: int = STEPS
) -> Callable[[int], tuple[Any, Any]]:
    """i ↦ `values` of other seeds for every i, without compiling anything again."""
    training = Training.of(task, steps, rate, centred=True, optimizer=optimizer, net=net)
    n, rows = len(task.x), np.arange(len(task.x))
    x, y = Plan(net, task, training, np.arange(steps)).points("float32")
    sweep = CausalSweep(net, training, x.shape, n, str(x.dtype), steps=steps)
    loss = point_loss(task.loss)

    def last(kernels: Any) -> Any:
        return kernels[-1] if isinstance(kernels, tuple) else kernels

    def one(key: Any) -> Any:
        state = sweep._start(key, x)

        def step(t: Any, state: Any) -> Any:
            return sweep._step(state, x, y, rows, jax.random.fold_in(key, 10 + t), rate or 0.0)[0]

        state = jax.lax.fori_loop(0, steps, step, state)
        found, _ = measure(net, sweep.factors, (kernel,), state.variables, x, n, jax.random.fold_in(key, 99))
        targets = y if isinstance(y, tuple) else (y,)
        return loss(found["f"] - state.offset, *targets), jnp.trace(last(found[kernel])) / n

    # One after the other: jaxlib 0.10 on two cores was seen to stop for ever in batches of eigendecompositions.
    engines = jax.jit(lambda keys: jax.lax.map(one, keys))

    def both(i: int) -> tuple[Any, Any]:
        keys = jax.vmap(lambda m: jax.random.fold_in(jax.random.key(11), m))(jnp.arange(seeds) + i * seeds)
        engine = jax.block_until_ready(engines(keys))
        chunks = list(run_members(net, task, training, seeds, [steps], seed=12 + 1000 * i, kernels=(kernel,)))
        f = np.concatenate([chunk["f"][:, 0] for chunk in chunks])
        found = np.concatenate([last(chunk[kernel])[:, 0] for chunk in chunks])
        return engine, (losses(task, task.at_points(f, 1), task.targets), np.einsum("mii->m", found) / n)

    return both


def paths(net: Any, task: Task, optimizer: Any, seeds: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the engine and of networks, [seeds, step, 3]: the loss, the outputs at the first and the last point, after each step."""
    training = Training.of(task, steps, None, centred=True, optimizer=optimizer, net=net)
    n = len(task.x_train)
    x, y, rows = jnp.asarray(task.x, "float32"), jnp.asarray(task.y_train, "float32"), np.arange(n)
    sweep = CausalSweep(net, training, x.shape, n, "float32", steps=steps)

    def one(key: Any) -> Any:
        def step(state: Any, t: Any) -> Any:
            state = sweep._step(state, x, y, rows, jax.random.fold_in(key, 10 + t), 1.0)[0]
            seen, _ = measure(net, sweep.factors, (), state.variables, x, n, jax.random.fold_in(key, 1000 + t))
            return state, seen["f"] - state.offset

        return jax.lax.scan(step, sweep._start(key, x), jnp.arange(steps))[1]

    keys = jax.vmap(lambda m: jax.random.fold_in(jax.random.key(13), m))(jnp.arange(seeds))
    mine = np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))
    chunks = run_members(net, task, training, seeds, range(1, steps + 1), seed=14, kernels=())
    both = (mine, np.concatenate([chunk["f"] for chunk in chunks]))
    return tuple(  # pyright: ignore[reportReturnType]
        np.stack(
            [0.5 * np.mean((f[:, :, :n] - task.y_train) ** 2, axis=(2, 3)), f[:, :, 0, 0], f[:, :, -1, 0]], axis=-1
        )
        for f in both
    )


def deviations(engine: Any, networks: Any) -> list[float]:
    """By how many standard errors means and (logarithms of) spreads differ: four numbers."""
    found = []
    for mine, theirs in zip(map(np.asarray, engine), networks, strict=True):
        error = np.hypot(mine.std(), theirs.std()) / len(mine) ** 0.5
        # A spread's own standard error: by its fourth moment, about 2 % for SEEDS = 2000.
        spreads = [a.std() for a in (mine, theirs)]
        own = [np.std((a - a.mean()) ** 2) / (2 * a.var() * len(a) ** 0.5) for a in (mine, theirs)]
        assert np.hypot(*own) < 0.06 * (SEEDS / len(mine)) ** 0.5
        found += [(mine.mean() - theirs.mean()) / error, np.log(spreads[0] / spreads[1]) / np.hypot(*own)]
    return found
