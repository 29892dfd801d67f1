"""What a model and its optimiser are found to do at the first step, where that is other than one thinks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from optax import MultiStepsState
from optax.contrib import ScheduleFreeState

from train.variables import update

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
        if first and _states(found[0].memory, ScheduleFreeState):
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
    """The parts of an optimiser's memory that are of this kind, and those within them."""
    parts = jax.tree.leaves(memory, is_leaf=lambda part: isinstance(part, kind))
    found = [part for part in parts if isinstance(part, kind)]
    return [each for part in found for each in (part, *_states(tuple(part), kind))]


def _at_step(memory: Any, step: Any) -> Any:
    """An optimiser's memory, of which each MultiSteps, those within others too, has done so many steps."""
    if isinstance(memory, MultiStepsState):
        return MultiStepsState(*_at_step(tuple(memory), step))._replace(gradient_step=step)
    parts, form = jax.tree.flatten(memory, is_leaf=lambda part: isinstance(part, MultiStepsState))
    return form.unflatten([_at_step(part, step) if isinstance(part, MultiStepsState) else part for part in parts])


def waits(tx: Any, trained: Any, steps: int) -> bool:
    """Whether within so many steps this optimiser takes several batches for one of its own (optax.MultiSteps).

    trained: shapes of parameters. How many batches a step takes is told by trying it, of gradients of zero.

    >>> import optax
    >>> one = jax.ShapeDtypeStruct((2,), "float32")
    >>> [waits(optax.MultiSteps(optax.sgd(0.1), k).gradient_transformation(), one, steps=3) for k in (1, 2)]
    [False, True]
    >>> waits(optax.MultiSteps(optax.MultiSteps(optax.sgd(0.1), 2), 1).gradient_transformation(), one, steps=3)
    True
    """
    if not _states(jax.eval_shape(tx.init, trained), MultiStepsState):
        return False

    def left(step: Any) -> list[Any]:
        """Batches that lie there after one more, where so many steps of its own are done."""
        zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), trained)
        at = _at_step(tx.init(zeros), step)
        zero = jnp.zeros(())
        after = update(tx, zeros, at, zeros, value=zero, value_fn=lambda trained: zero)[1]
        return [part.mini_step for part in _states(after, MultiStepsState)]

    # Nothing else than these numbers is worked out: what they do not depend on is left out as the program is compiled.
    counts = jax.jit(jax.vmap(left))(jnp.arange(steps, dtype="int32"))
    return any(np.asarray(each).any() for each in counts)
