"""The loop: evaluate, save, take a batch, step; and read the numbers of a dispatch while the next one runs."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.step import Numbers


@dataclasses.dataclass
class Loop:
    """Steps from `start` to `steps`, with what happens between them.

    At every step k, in this order: `evaluate(k, state)` where due; `save(k, state)` where due, or where `stopped(k)` (a
    preemption, on all processes at the same step), after which the loop ends; then `advance(state, k, most)`, which begins at
    least one step and at most so many, up to the next at which something is due, and returns the state, numbers about each
    [steps, …], and how many they are (None: one, without that axis). Numbers are read after the next steps are on their way;
    before a checkpoint is written, all of them. `write(k, numbers)` hears of each step; a number that is not finite ends the
    run with its name. profile: (first, count) of the steps that are traced into the folder.
    """

    advance: Callable[[Any, int, int], tuple[Any, Numbers, int | None]]
    start: int
    steps: int
    write: Callable[[int, dict[str, Any]], None]
    evaluate: Callable[[int, Any], None] = lambda k, state: None
    evaluate_every: int = 0
    save: Callable[[int, Any], None] = lambda k, state: None
    saves_at: Callable[[int], bool] = lambda k: False
    stopped: Callable[[int], bool] = lambda k: False
    at_once: int = 1  # the most steps that `advance` takes
    rates: np.ndarray | None = None  # the learning rate of every step
    profile: tuple[int, int] = (0, 0)
    profile_folder: Path | None = None

    def run(self, state: Any) -> tuple[Any, bool]:
        """(the last state, whether the run is finished)."""
        pending: tuple[int, Any, int | None] | None = None
        clock = Clock(self.start, self.steps)
        with contextlib.ExitStack() as tracing, jax.transfer_guard("disallow"):
            k = self.start
            while k < self.steps:
                if self.evaluate_every and k > self.start and k % self.evaluate_every == 0:
                    with clock.paused(), jax.transfer_guard("allow"):
                        self.evaluate(k, state)
                stop = self.stopped(k)
                if stop or self.saves_at(k):
                    self._read(pending, clock)
                    pending = None
                    with clock.paused(), jax.transfer_guard("allow"):
                        self.save(k, state)
                if stop:
                    return state, False
                self._trace(k, tracing)
                with jax.profiler.StepTraceAnnotation("train", step_num=k):
                    state, numbers, count = self.advance(state, k, self._most(k))
                self._read(pending, clock)
                pending = k, numbers, count
                k += 1 if count is None else count
            self._read(pending, clock)
        if self.evaluate_every:
            self.evaluate(self.steps, state)
        self.save(self.steps, state)
        return state, True

    def _most(self, k: int) -> int:
        """Steps from k on until something is due between two of them."""
        last, (first, count) = min(k + self.at_once, self.steps), self.profile
        traced = {self.start + first, self.start + first + count} if count else set()
        for due in range(k + 1, last):
            if (self.evaluate_every and due % self.evaluate_every == 0) or self.saves_at(due) or due in traced:
                return due - k
        return last - k

    def _read(self, pending: tuple[int, Any, int | None] | None, clock: "Clock") -> None:
        if pending is None:
            return
        first, numbers, count = pending
        values = np.asarray(jax.device_get(numbers.values), np.float64)
        several = values[None] if count is None else values[:count]
        clock.step(first + len(several) - 1)
        for k, values in enumerate(several, first):
            found = numbers.replace(values=values)
            check_finite(k, found)
            means = values.reshape(-1, len(found.names)).mean(0).tolist()
            members = {"loss_members": found["loss"].tolist()} if values.ndim > 1 else {}
            rate = {} if self.rates is None else {"learning_rate": float(self.rates[k])}
            self.write(k, {**dict(zip(found.names, means, strict=True)), **members, **rate, **clock.numbers()})

    def _trace(self, k: int, tracing: contextlib.ExitStack) -> None:
        first, count = self.profile
        if not count or self.profile_folder is None:
            return
        if k == self.start + first:
            tracing.enter_context(jax.profiler.trace(str(self.profile_folder)))
        elif k == self.start + first + count:
            tracing.close()


def one_by_one(step: Callable[[Any, Any], tuple[Any, Numbers]], batches: Iterator[Any]) -> Callable[..., Any]:
    """`Loop.advance` of steps on batches that come from elsewhere."""

    def advance(state: Any, k: int, most: int) -> tuple[Any, Numbers, None]:
        del k, most
        return *step(state, next(batches)), None

    return advance


def check_finite(k: int, numbers: Numbers) -> None:
    """Raises where a number is not finite, with its name and step."""
    for name in numbers.names:
        _check(name.replace("_", " "), k, numbers[name], "data that are not finite, float16 overflow")


def check_evaluated(k: int, found: Mapping[str, Any]) -> None:
    """Raises where a number of the test set is not finite, with its name and step."""
    for name, values in found.items():
        _check(f"test {name}", k, values, "test data that are not finite, float16 overflow")


def _check(name: str, k: int, values: Any, causes: str) -> None:
    broken = np.flatnonzero(~np.isfinite(np.atleast_1d(values)))
    if len(broken):
        count = np.size(values)
        who = f" of {len(broken)} of {count} members (the first: {broken[0]})" if np.ndim(values) else ""
        raise FloatingPointError(
            f"The {name}{who} is not finite at step {k}. Usual causes: a learning rate that is too large (lower it, or warm up "
            f"longer, in another folder), {causes}."
        )


class Clock:
    """Time a step and time left, without the first step (compilation) and without pauses (evaluation, saving)."""

    def __init__(self, start: int, steps: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._steps, self._done = now, steps, start
        self._begun: float | None = None
        self._first = start
        self._idle = 0.0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here does not count."""
        before = self._now()
        try:
            yield
        finally:
            self._idle += self._now() - before if self._begun is not None else 0.0

    def step(self, k: int) -> None:
        """Step k is finished."""
        self._done = k + 1
        if self._begun is None:
            self._begun, self._first = self._now(), k + 1

    def numbers(self) -> dict[str, float]:
        """Seconds a step so far, and seconds left; nothing after the first step."""
        count = self._done - self._first
        if self._begun is None or not count:
            return {}
        each = (self._now() - self._begun - self._idle) / count
        return {"seconds_a_step": each, "seconds_left": each * (self._steps - self._done)}
