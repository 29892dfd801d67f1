"""Checkpoints: what is kept, when, and which of them can be trusted."""

import contextlib
import gc
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from limits.kept.store import DamagedError
from train.about import About, difference, first_line, mismatch, read
from train.records import set_aside

# Signs of an error that says nothing about the files.
_NOT_DAMAGE = (
    "RESOURCE_EXHAUSTED", "MemoryError", "out of memory", "UNAVAILABLE", "DEADLINE_EXCEEDED", "PERMISSION_DENIED",
    "UNAUTHENTICATED", "PermissionError", "TimeoutError", "ConnectionError", "Too many open files",
)  # fmt: skip

# Signs of an error about what was there and is not.
_GONE = (
    "FileNotFoundError", "NotADirectoryError", "directory does not exist", "No such file or directory", "No ArrayMetadata found"
)  # fmt: skip

# Orbax looks by glob for what it has just written, and skips what it does not find.
_PATTERN = re.compile(r"\[[^/]+\]|[*?\\]")


def log_spaced(steps: int, count: int) -> tuple[int, ...]:
    """About `count` steps from 0 to `steps`, a constant factor apart: 0, 1, …, steps.

    >>> log_spaced(100, 5)
    (0, 1, 5, 22, 100)
    """
    if count < 2:
        return (0, steps)[:count]
    return tuple(sorted({0, *np.rint(np.geomspace(1, max(steps, 1), count - 1)).astype(int).tolist()}))


class Checkpoints:
    """The checkpoints of a run, written in the background: the `keep` latest, and those of the steps `always`.

    Every one holds {"model": parameters and batch statistics, "training": the rest of the state}, `info`, which says what
    the model is, so that it can be analysed with nothing but its folder, and a sum of every array. It is not finished before
    these are written too, and none is used whose arrays do not have their sums.
    """

    def __init__(
        self, folder: Any, keep: int = 3, always: Iterable[int] = (), info: dict[str, Any] | None = None
    ) -> None:
        self.folder, self.info, self.damaged = _whole_path(folder), info or {}, list[str]()
        if _PATTERN.search(str(self.folder)):
            raise ValueError(
                f"The folder {self.folder} has [ ], *, ? or \\ in its path, which Orbax reads as a pattern: its checkpoints "
                "would be empty. Choose another folder with --workdir, or give a symbolic link to this one."
            )
        if jax.process_index() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.always = frozenset(always)
        from orbax.checkpoint import v1 as ocp  # slow to import

        policies = ocp.training.preservation_policies
        kept: list[Any] = [policies.LatestN(keep)]
        if self.always:
            kept.append(policies.CustomSteps(sorted(self.always)))
        either: Any = policies.AnyPreservationPolicy(kept)
        self._checkpointer = ocp.training.Checkpointer(
            self.folder, preservation_policy=either, cleanup_tmp_directories=True
        )

    def save(self, step: int, model: Any, training: Any, **more: Any) -> None:
        """Begins to write; arrays may be changed as soon as this returns. `more` is added to `info`."""
        if step in self._steps():
            return
        parts = {"model": model, "training": training}
        about = About({**self.info, **more, "step": step}, parts)

        def begin() -> None:
            if jax.process_index() == 0 and not self.folder.is_dir():  # else Orbax makes another one there
                raise FileNotFoundError("it is not there")
            self._checkpointer.save_checkpointables_async(step, {**parts, "about": about}, force=True)

        self._said(begin)

    def wait(self) -> None:
        """Until everything is on disk."""
        self._said(self._checkpointer.wait)

    def close(self) -> None:
        """Waits, and lets go of the folder."""
        self.wait()
        self._checkpointer.close()

    def forget(self, step: int) -> None:
        """Deletes a checkpoint that was written here; after `close`."""
        place = self.folder / str(step)
        if jax.process_index() == 0 and place.exists():
            place.rmtree()

    def latest(self, model: Any, training: Any) -> tuple[int, Any, Any] | None:
        """(step, model, training) of the latest checkpoint that is whole, placed as the given abstract arrays; or None.

        What is damaged is renamed and said. What cannot be read for another reason is left alone, and the run stops.
        """
        wanted = {"model": model, "training": training}
        for step in sorted(self._steps(), reverse=True):
            place = self.folder / str(step)
            flaw = _from_first(lambda place=place, step=step: flaw_of(place, step))
            if not flaw:
                arrays = read(place)[1]
                if arrays and (other := mismatch(arrays, wanted)):
                    raise ValueError(
                        f"The checkpoint of step {step} in {self.folder} is whole, but of another network or optimiser "
                        f"({other}). Undo that change, or choose another folder with --workdir."
                    )
                found, flaw = _loaded(place, wanted)
                flaw = flaw or (difference(arrays, found) if arrays else "")
                if not flaw:
                    return step, found["model"], found["training"]
                if not arrays:  # of an earlier version: damaged or of another network, who knows
                    raise ValueError(f"The checkpoint of step {step} in {self.folder} cannot be loaded ({flaw}).")
            self._set_aside(step, flaw)
        return None

    def info_at(self, step: int) -> dict[str, Any]:
        """What lies beside the arrays of this checkpoint."""
        return read(self.folder / str(step))[0]

    def _steps(self) -> list[int]:
        return [each.step for each in self._checkpointer.checkpoints]

    def _set_aside(self, step: int, flaw: str) -> None:
        name = _from_first(lambda: set_aside(self.folder / str(step)))
        self.damaged.append(name)
        self._checkpointer.reload()
        warnings.warn(
            f"The checkpoint of step {step} in {self.folder} is damaged and not used ({flaw}); it was renamed to {name}.",
            stacklevel=3,
        )

    def _said(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:
            words = str(error)
            if any(sign in f"{type(error).__name__} {words}" for sign in _GONE):
                raise OSError(
                    f"{self.folder} was moved, removed or replaced while the run was writing to it ({first_line(error)}): put it "
                    "back, and the same command continues from the latest checkpoint in it that is whole."
                ) from error
            if not any(
                sign in words for sign in ("No space left", "ENOSPC", "RESOURCE_EXHAUSTED", "File too large", "quota")
            ):
                raise
            there = [step for step in steps_in(self.folder) if not flaw_of(self.folder / str(step), step)]
            raise OSError(
                f"There is no room for a checkpoint in {self.folder}. The last good one is of step {there[-1]}: make room, and "
                "the same command continues from it."
                if there
                else f"There is no room for a checkpoint in {self.folder}, and there is none before it: make room."
            ) from error


def _loaded(place: Any, wanted: dict[str, Any]) -> tuple[Any, str]:
    """(the arrays, what is wrong with their files), on every process the same flaw.

    Each process reads for itself: where only one finds damage, the others would wait for it.
    """
    from orbax.checkpoint import v1 as ocp  # slow to import

    me, found, flaw = jax.process_index(), None, ""
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    try:
        with ocp.Context(multiprocessing_options=alone) if jax.process_count() > 1 else contextlib.nullcontext():
            found = ocp.load_checkpointables(place, wanted)
    except Exception as error:  # Orbax has one for every kind of damage
        flaw = first_line(error)
        words = f"{type(error).__name__} {error}"
        if any(sign in words for sign in _NOT_DAMAGE):
            flaw = f"not now: {flaw}"
    if flaw:
        _collect_coroutines()
    flaw = _from_any(flaw)
    if flaw.startswith("not now: "):
        raise OSError(
            f"The checkpoint {place} cannot be read ({flaw[9:]}). It is left as it is: mend that, and the same command goes on."
        )
    return found, flaw


def flaw_of(place: Any, step: int) -> str:
    """What is wrong with what lies beside the arrays of a checkpoint, in words, or an empty string."""
    try:
        info, _ = read(place)
    except DamagedError as error:
        return str(error)
    return "" if info["step"] == step else f"it is the one of step {info['step']}"


def _collect_coroutines() -> None:
    """Where Orbax cannot read, it leaves coroutines behind that complain, with tracebacks, when they are collected."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _whole_path(folder: Any) -> Any:
    """Orbax takes no relative paths."""
    return epath.Path(folder) if "://" in str(folder) else epath.Path(Path(folder).absolute())


def steps_in(folder: Any) -> list[int]:
    """The steps of finished checkpoints, ascending."""
    folder = _whole_path(folder)
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit()) if folder.exists() else []


def _from_first(act: Callable[[], str]) -> str:
    """What the first process found, on every process."""
    return _shared(act() if jax.process_index() == 0 else "")[0]


def _from_any(words: str) -> str:
    """What the first process said that said anything, on every process."""
    return next(filter(None, _shared(words)), "")


def _shared(words: str) -> list[str]:
    """What every process says, on every process."""
    if jax.process_count() == 1:
        return [words]
    padded = np.frombuffer(words.encode()[:500].ljust(500), np.uint8)
    return [bytes(each).decode(errors="replace").strip() for each in multihost_utils.process_allgather(padded)]


def info_of(folder: Any) -> dict[str, Any] | None:
    """What lies beside the weights of the latest checkpoint that says it, with its `step`; None where there is none."""
    folder = _whole_path(folder)
    for step in reversed(steps_in(folder)):
        if not flaw_of(folder / str(step), step):  # `latest` says what is wrong
            return read(folder / str(step))[0]
    return None


def load_model(folder: Any, step: int | None = None, averaged: bool = True) -> tuple[int, Any, dict[str, Any]]:
    """(step, variables, info) of a checkpoint in a run's folder (or in its `checkpoints`), by default the latest whole one, on
    this machine's first device, however it was sharded. One that is damaged is refused with a DamagedError, where it was asked
    for by its step.

    averaged: the parameters that evaluation takes, which are averaged where the run has the field `average`; False: those that
    training goes on from.
    """
    folder = _whole_path(folder)
    folder = folder if steps_in(folder) or not steps_in(folder / "checkpoints") else folder / "checkpoints"
    for each in reversed(steps_in(folder)) if step is None else {step} & {*steps_in(folder)}:
        try:
            return each, *_model_of(folder, each, averaged)
        except DamagedError as error:
            if step is not None:
                raise
            warnings.warn(str(error), stacklevel=2)
    there = "" if step is None else ", ".join(map(str, steps_in(folder)))
    raise FileNotFoundError(
        f"There is no whole checkpoint{'' if step is None else f' of step {step}'} in {folder}."
        + (f" There are those of step {there}." if there else "")
    )


def _model_of(folder: Any, step: int, averaged: bool) -> tuple[Any, dict[str, Any]]:
    from orbax.checkpoint import v1 as ocp  # slow to import

    place = folder / str(step)
    flaw = flaw_of(place, step)
    if not flaw:
        info, arrays = read(place)
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        some = ocp.Context()
        some.pytree.loading.partial_load = True
        try:
            with _without_pattern(place) as path:
                described: dict[str, Any] = {"model": ocp.metadata(path, "model").metadata}
                training: Any = ocp.metadata(path, "training").metadata if averaged else {}
                if training.get("average") is not None:
                    described["training"] = {"average": training["average"]}
                wanted = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=here), described)
                with some:
                    found: Any = ocp.load_checkpointables(path, wanted)
            found = {name: found[name] for name in wanted}
            flaw = difference(arrays, found) if arrays else ""
        except Exception as error:  # Orbax has one for every kind of damage
            flaw = first_line(error)
            _collect_coroutines()
        if not flaw:
            model = found["model"]
            return (_evaluated(model, found["training"]["average"]) if "training" in found else model), info
    raise DamagedError(f"The checkpoint of step {step} in {folder} cannot be used ({flaw}).")


@contextlib.contextmanager
def _without_pattern(place: Any) -> Iterator[Any]:
    """The same folder by a path that Orbax does not take for a pattern: it may have been moved below one since it was written."""
    if "://" in str(place) or not _PATTERN.search(str(place)):
        yield place
        return
    with tempfile.TemporaryDirectory() as folder:
        link = epath.Path(folder) / place.name
        os.symlink(place, link)
        yield link


def _evaluated(model: Any, average: Any) -> Any:
    """The model with averaged parameters, in their own types (`TrainingState.variables`)."""
    if isinstance(model, dict):  # what the forward pass changes is beside them
        return {name: _evaluated(part, average[name]) if name in average else part for name, part in model.items()}
    return jax.tree.map(lambda old, new: new.astype(old.dtype), model, average)
