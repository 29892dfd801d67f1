"""What a model and its optimiser are found to do at the first step, where that is other than one thinks."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from optax import MultiStepsState
from optax.contrib import ScheduleFreeState

STILL = (
    "batch statistics (batch_stats) stayed as they were in the first step, as in evaluation: unless they are meant to be fixed, "
    "give the model an argument `train` (training, is_training, deterministic, …) by which its normalisation updates them"
)

FREE = (
    "optax.contrib.schedule_free trains at a point beside its own average: evaluation, checkpoints and analyses are of the point "
    "that is trained, not of schedule_free_eval_params. The field `average` has them at an exponential average of it"
)

WAITING = (
    "the optimiser (optax.MultiSteps) takes one step for several batches: its schedule goes on by these, not to its end within "
    "config.steps; the log has no learning rate. The field `accumulate` divides each batch, and leaves the schedule as it is."
)


def watched(advance: Callable[..., Any], say: Callable[[str], object]) -> Callable[..., Any]:
    """`Loop.advance`, of which the first call says where no batch statistics changed, or the optimiser has an average of its own.

    >>> from train.step import TrainingState
    >>> still = TrainingState(0, {}, {"batch_stats": {"mean": np.zeros(2)}}, (), None, None)
    >>> watched(lambda state, k, most: (state, {}, None), lambda text: print(text[:40]))(still, 0, 1)[2]
    batch statistics (batch_stats) stayed as
    """
    first = True

    def advanced(state: Any, k: int, most: int) -> Any:
        nonlocal first
        before = _here(state) if first else []
        found = advance(state, k, most)
        if before and all(map(np.array_equal, before, _here(found[0]))):
            say(STILL)
        if first and any(isinstance(part, ScheduleFreeState) for part in _states(found[0].memory, ScheduleFreeState)):
            say(FREE)
        first = False
        return found

    return advanced


def _here(state: Any) -> list[np.ndarray]:
    """A copy of what this process's first device has of every batch statistic."""
    leaves = jax.tree.leaves(state.collections.get("batch_stats", {}))
    with jax.transfer_guard_device_to_host("allow"):
        return [np.array(a.addressable_data(0) if isinstance(a, jax.Array) else a) for a in leaves]


def _states(memory: Any, kind: type) -> list[Any]:
    """The parts of an optimiser's memory, those of this kind whole."""
    return jax.tree.leaves(memory, is_leaf=lambda part: isinstance(part, kind))


def waits(memory: Any) -> bool:
    """Whether an optimiser with this memory takes several batches for a step of its own (optax.MultiSteps)."""
    return any(isinstance(part, MultiStepsState) for part in _states(memory, MultiStepsState))
