"""Several steps in one dispatch, on batches of samples that lie on the devices."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from train.data.resident import Resident
from train.step import Numbers
from train.trainer import Trainer

SECONDS = 0.25  # of a dispatch, for which a signal or a line of the log may wait


class Several:
    """(state, step, most) → (the state after at least one and at most so many steps, their numbers [steps, …], how many).

    As many as take at most about `SECONDS`, found by doubling, equally many in all processes. The state after a step does not
    depend on how many, since one program does any number of steps.
    """

    def __init__(self, trainer: Trainer, resident: Resident, now: Callable[[], float] = time.monotonic) -> None:
        self.trainer, self.resident, self._now = trainer, resident, now
        self._chunk: tuple[int, Any] = (-1, None)
        self._count, self._compiled, self._growing = 1, False, True

    def __call__(self, state: Any, k: int, most: int) -> tuple[Any, Numbers, int]:
        """Begins the steps from k on."""
        number, begin = divmod(k, self.resident.size)
        if self._chunk[0] != number:
            self._chunk = number, self.resident.chunk(number)
        count, before = min(most, self.resident.size - begin, self._count), self._now()
        state, numbers = self.trainer.several(state, self._chunk[1], begin, count)
        if self._growing and count == self._count:
            jax.block_until_ready(numbers.values)
            self._grow(self._now() - before)
        return state, numbers, count

    def _grow(self, seconds: float) -> None:
        """Twice as many from now on, if that is soon enough done; the first dispatch tells nothing, as it was compiled."""
        if self._compiled:
            self._growing = _agreed(2 * seconds <= SECONDS and 2 * self._count <= self.resident.size)
            self._count *= 1 + self._growing
        self._compiled = True


def _agreed(each: bool) -> bool:
    """What the first process says."""
    if jax.process_count() == 1:
        return each
    with jax.transfer_guard("allow"):
        return bool(multihost_utils.broadcast_one_to_all(np.bool_(each)))
