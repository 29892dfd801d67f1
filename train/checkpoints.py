"""Checkpoints: what is kept, when, and which of them can be trusted."""

import gc
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint import v1 as ocp

_CHECKED_BYTES = 2**31  # of a checkpoint, up to which contents are summed; above it only sizes are compared


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

    Every one holds {"model": parameters and batch statistics, "training": the rest of the state} and `info`, which says
    what the model is; so that it can be analysed with nothing but its folder. Beside it lies a list of its files, with
    sizes and check sums: a checkpoint that differs from its list is not used.
    """

    def __init__(
        self, folder: Any, keep: int = 3, always: Iterable[int] = (), info: dict[str, Any] | None = None
    ) -> None:
        self.folder, self.info, self._unlisted = _whole_path(folder), info or {}, set()
        if jax.process_index() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.always = frozenset(always)
        policies = ocp.training.preservation_policies
        kept: list[Any] = [policies.LatestN(keep)]
        if self.always:
            kept.append(policies.CustomSteps(sorted(self.always)))
        either: Any = policies.AnyPreservationPolicy(kept)
        self._checkpointer = ocp.training.Checkpointer(
            self.folder, preservation_policy=either, cleanup_tmp_directories=True
        )

    def save(self, step: int, model: Any, training: Any) -> None:
        """Begins to write; arrays may be changed as soon as this returns."""
        if step in [each.step for each in self._checkpointer.checkpoints]:
            return
        self._list_finished()
        parts = {"model": model, "training": training}
        self._said(
            lambda: self._checkpointer.save_checkpointables_async(
                step, parts, force=True, custom_metadata={**self.info, "step": step}
            )
        )
        self._unlisted.add(step)

    def wait(self) -> None:
        """Until everything is on disk."""
        self._said(self._checkpointer.wait)
        self._list_finished()

    def close(self) -> None:
        """Waits, and lets go of the folder."""
        self.wait()
        self._checkpointer.close()

    def latest(self, model: Any, training: Any) -> tuple[int, Any, Any] | None:
        """(step, model, training) of the latest checkpoint that is whole, placed as the given abstract arrays; or None."""
        for step in sorted((each.step for each in self._checkpointer.checkpoints), reverse=True):
            flaw, unreadable = _from_first(lambda step=step: find_flaw(self.folder, step)), ""
            if not flaw:
                try:
                    found = self._checkpointer.load_checkpointables(step, {"model": model, "training": training})
                    return step, found["model"], found["training"]
                except Exception as error:  # Orbax has one for every kind of damage
                    flaw = unreadable = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
                _collect_coroutines()
            if unreadable and _from_first(lambda step=step: "listed" if _list_of(self.folder, step).exists() else ""):
                raise ValueError(
                    f"The checkpoint of step {step} in {self.folder} is whole, but of another network or optimiser "
                    f"({unreadable}). Choose another folder, with --workdir."
                )
            warnings.warn(
                f"The checkpoint of step {step} in {self.folder} is damaged and not used ({flaw}).", stacklevel=2
            )
            self._checkpointer.delete(step)
        return None

    def _list_finished(self) -> None:
        """Writes the lists of files of checkpoints that are finished by now, and takes away those of deleted ones."""
        if self._checkpointer.is_saving_in_progress():
            return
        if jax.process_index() == 0:
            there = {each.step for each in self._checkpointer.checkpoints}
            for step in self._unlisted & there:
                write_list(self.folder, step)
            for file in (self.folder / "lists").glob("*.json") if (self.folder / "lists").exists() else []:
                if int(file.stem) not in there:
                    file.unlink(missing_ok=True)
        self._unlisted.clear()

    def _said(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except Exception as error:
            words = str(error)
            if not any(
                sign in words for sign in ("No space left", "ENOSPC", "RESOURCE_EXHAUSTED", "File too large", "quota")
            ):
                raise
            there = sorted(step for step in steps_in(self.folder) if not find_flaw(self.folder, step))
            raise OSError(
                f"There is no room for a checkpoint in {self.folder}. The last good one is of step {there[-1]}: make room, and "
                "the same command continues from it."
                if there
                else f"There is no room for a checkpoint in {self.folder}, and there is none before it: make room."
            ) from error


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


def write_list(folder: Any, step: int) -> None:
    """Writes down the files of a checkpoint."""
    place = epath.Path(folder) / "lists"
    place.mkdir(parents=True, exist_ok=True)
    part = place / f".{step}"
    part.write_text(json.dumps(_files(epath.Path(folder) / str(step))))
    part.replace(place / f"{step}.json")


def _list_of(folder: Any, step: int) -> Any:
    return epath.Path(folder) / "lists" / f"{step}.json"


def find_flaw(folder: Any, step: int) -> str:
    """What is wrong with a checkpoint, or an empty string. One without a list is taken as it is."""
    file = _list_of(folder, step)
    if not file.exists():
        return ""
    try:
        listed = dict(json.loads(file.read_text()))
    except ValueError:
        return f"its list of files, lists/{step}.json, is broken"
    found = _files(epath.Path(folder) / str(step))
    for name in listed:
        if name not in found:
            return f"the file {name} is missing"
        if found[name] != listed[name]:
            return f"the file {name} has changed"
    return ""


def _files(folder: Any) -> dict[str, list[int]]:
    """{name: [size, check sum]} of all files below a folder; without sums where it is large."""
    files = sorted(_below(folder))
    sizes = [file.stat().length for file in files]
    summed = sum(sizes) <= _CHECKED_BYTES
    return {
        str(file.relative_to(folder)): [size, zlib.crc32(file.read_bytes())] if summed else [size]
        for file, size in zip(files, sizes, strict=True)
    }


def _below(folder: Any) -> list[Any]:
    found = []
    for each in folder.iterdir():
        found += _below(each) if each.is_dir() else [each]
    return found


def _from_first(act: Callable[[], str]) -> str:
    """What the first process found, on every process."""
    if jax.process_count() == 1:
        return act()
    words = (act() if jax.process_index() == 0 else "").encode()[:500]
    padded = np.frombuffer(words.ljust(500), np.uint8)
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(padded))).decode(errors="replace").strip()


def info_of(folder: Any) -> dict[str, Any] | None:
    """What lies beside the weights of the latest whole checkpoint, with its `step`; None where there is none."""
    folder = _whole_path(folder)
    for step in reversed(steps_in(folder)):
        if not find_flaw(folder, step):
            try:
                described: Any = ocp.checkpointables_metadata(folder / str(step))
            except Exception:  # a damaged one without a list: `latest` says so
                continue
            if described.custom_metadata:
                return {**described.custom_metadata, "step": step}
    return None


def load_model(folder: Any, step: int | None = None) -> tuple[int, Any, dict[str, Any]]:
    """(step, variables, info) of a checkpoint, by default the latest, on this machine's first device, however it was sharded."""
    folder = _whole_path(folder)
    steps = [each for each in steps_in(folder) if not find_flaw(folder, each)]
    if not steps or (step is not None and step not in steps):
        raise FileNotFoundError(
            f"There is no whole checkpoint{f' of step {step}' if step is not None else ''} in {folder}."
        )
    step = steps[-1] if step is None else step
    described: Any = ocp.checkpointables_metadata(folder / str(step))
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here), described.metadata["model"]
    )
    found = ocp.load_checkpointables(folder / str(step), {"model": abstract})
    return step, found["model"], dict(described.custom_metadata or {})
