"""Runs Markov chains side by side: warm-up, then stretches of equal length whose means are kept."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import Progress, TimeElapsedColumn

STRETCHES = 50  # that the part after warm-up is divided into: as many means a chain are kept of every quantity


@dataclasses.dataclass(frozen=True)
class ChainSettings:
    """How many chains, and how long: `steps` each, the first `warmup` of them left out, one look in `thin`.

    leaps: gradients a step; 0 for moves that need none.
    """

    chains: int
    steps: int
    warmup: int
    thin: int
    leaps: int
    key: Any
    progress: bool


@dataclasses.dataclass(frozen=True)
class Chains:
    """What chains have seen. means: of every stretch, [chains, stretches, …]; traces: numbers at every observation,
    [chains, observations]; steps and warmup, in steps of a chain; notes: means of what the steps say of themselves."""

    means: dict[str, Any]
    traces: dict[str, np.ndarray]
    steps: int
    warmup: int
    notes: dict[str, float]


def run_chains(step: Callable, observe: Callable, states: Any, key: Any, plan: ChainSettings, words: str) -> Chains:
    """Moves states [chains, …] and looks at them after the warm-up.

    step(state, key, warming) → (state, notes), observe(state, key) → (quantities, numbers), both of one chain: a dict of
    arrays (or tuples of them), and a dict of numbers. Steps are rounded to whole stretches.
    """
    steps, warmup, thin = plan.steps, plan.warmup, plan.thin
    kept = (steps - warmup) // thin
    if kept < 16:
        raise ValueError(
            f"sample_posterior: {steps} steps with a warm-up of {warmup} and an observation every {thin} leave "
            f"{max(kept, 0)} observations; at least 16 are needed: take more steps, a shorter warm-up or a smaller thin."
        )
    looks = max(kept // STRETCHES, 1)
    stretch = looks * thin
    after, before = kept // looks, -(-warmup // stretch)

    def one(state: Any, key: jax.Array, warming: jax.Array) -> Any:
        def move(state: Any, key: jax.Array) -> Any:
            return step(state, key, warming)

        def look(state: Any, key: jax.Array) -> Any:
            state, notes = jax.lax.scan(move, state, jax.random.split(key, thin))
            return state, (*observe(state, jax.random.fold_in(key, 1)), notes)

        state, (quantities, numbers, notes) = jax.lax.scan(look, state, jax.random.split(key, looks))
        means = jax.tree.map(lambda each: each.mean(0), quantities)
        return state, means, numbers, jax.tree.map(lambda n: n.mean(), notes)

    @jax.jit
    def advance(states: Any, keys: Any, warming: Any) -> Any:
        # Steps of different length wait for each other under vmap; a CPU is faster with one chain after the other.
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda chain: one(chain[0], chain[1], warming), (states, keys))
        return jax.vmap(one, in_axes=(0, 0, None))(states, keys, warming)

    # As strong types as `advance` returns, which would otherwise be compiled twice.
    states, keys, seen = jax.tree.map(lambda a: jnp.asarray(a, a.dtype), states), jax.random.split(key, plan.chains), []
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), disable=not plan.progress) as bar:
        counter = bar.add_task(f"{words}, {plan.chains} chains", total=before + after)
        for index in range(before + after):
            each = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, index)
            states, *found = advance(states, each, np.bool_(index < before))
            if index >= before:
                seen.append(jax.tree.map(np.asarray, found))
            broken = [name for name, values in found[1].items() if not np.isfinite(values).all()]
            if broken and index >= before:
                raise FloatingPointError(
                    f"The chains left the numbers: {', '.join(broken)} are infinite or NaN. The prior's signals overflow, or the "
                    "noise is too small for float64: lower w_std, or take a larger noise."
                )
            bar.advance(counter)
    means = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *(part[0] for part in seen))
    traces = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *(part[1] for part in seen))
    notes = {name: float(np.mean([part[2][name] for part in seen])) for name in seen[0][2]}
    return Chains(means, traces, (before + after) * stretch, before * stretch, notes)
