"""Noticing that this machine is about to be taken away."""

import signal
from typing import Any

import jax
from jax.experimental import multihost_utils


class Preemption:
    """`at(step)`: whether to save and stop now. All processes of a job get the same answer at the same step.

    With `jax.distributed` initialised, JAX agrees on a step after a SIGTERM to any process; without, this process notes
    the signal itself.
    """

    def __init__(self) -> None:
        self._noted, self._asked = False, 0
        self._alone = not jax.distributed.is_initialized()
        if self._alone:
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: Any) -> None:
        del number, frame
        self._noted = True

    def at(self, step: int) -> bool:
        """Asked by all processes at the same steps, not necessarily at every one."""
        del step
        self._asked += 1  # JAX agrees on the next number after those that it has been asked about
        return self._noted if self._alone else multihost_utils.reached_preemption_sync_point(self._asked)
