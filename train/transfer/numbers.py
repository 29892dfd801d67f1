"""The numbers of a transfer study, for its report.json; and a study's outcome from report.json and arrays.npz alone."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from limits.kept.store import DamagedError, has_checksum, read_npz
from train.transfer.outcome import Outcome, place_of
from train.transfer.shift import Transfer
from train.transfer.sweep import Sweep
from train.transfer.tuning import Tuning


def numbers(outcome: Outcome, target: Mapping[str, int]) -> dict[str, Any]:
    """Optima, shifts, regrets with their intervals (none of one seed), the losses [value, seed], and what `Saved.read` needs."""

    def bounded(s: Transfer, name: str) -> dict[str, float | None]:
        value, *ends = getattr(s, name)()
        return dict(zip(("value", "low", "high"), (value, *([None, None] if s.one_seed else ends)), strict=True))

    series = [
        {
            "setting": label, "over": s.over, "fixed": s.fixed, "sizes": s.sizes,
            **{name: bounded(s, name) for name in ("slope", "shift", "regret")},
        }
        for label in outcome.labels for s in outcome.series(label)
    ]  # fmt: skip
    sweeps = [
        {
            "setting": label, "width": sweep.width, "depth": sweep.depth, outcome.dial: sweep.rates, "losses": sweep.losses,
            "diverged": sweep.diverged, "optimum": sweep.optimum().rate, "interval": None if sweep.one_seed else sweep.interval(),
            "loss": sweep.optimum().loss, "edge": sweep.optimum().edge, "settled": sweep.settled(),
            "steps": sweep.curves.shape[-1], "tuning": took and dataclasses.asdict(took),
        }
        for label, sweep in outcome.each()
        for took in (outcome.tuning.get(label, {}).get((sweep.width, sweep.depth)),)
    ]  # fmt: skip
    return {
        "series": series, "sweeps": sweeps, "best": outcome.best_values(), "absent": outcome.absent, "dial": outcome.dial,
        "settings": outcome.settings, "scored": outcome.scored, "unbounded": outcome.unbounded, "target": dict(target),
        "tasks": outcome.tasks,
    }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Saved:
    """A study as its folder has it: the outcome, the `target` that its config asked for, and `run`: what was run."""

    outcome: Outcome
    target: dict[str, int]
    run: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Saved":
        """From the numbers alone: no config is looked at, and nothing is executed."""
        try:
            document, data = json.loads((folder / "report.json").read_bytes()), (folder / "arrays.npz").read_bytes()
        except FileNotFoundError as error:
            raise ValueError(
                f"{folder} has no {Path(error.filename).name}: it is no folder of a finished launch.transfer."
            ) from None
        except ValueError as error:
            raise DamagedError(f"{folder / 'report.json'} cannot be read ({error}).") from None
        if not isinstance(document, dict) or not document.get("sweeps"):
            raise ValueError(f"{folder / 'report.json'} holds no sweeps: it is not of launch.transfer.")
        if not has_checksum(data):
            raise DamagedError(
                f"{folder / 'arrays.npz'} has no checksum at its end: it is cut off, or of something else."
            )
        try:
            with read_npz(data) as arrays:
                outcome = _outcome(document, arrays)
            target = {
                name: _count(document["target"][name]) for name in ("width", "depth") if name in document["target"]
            }
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DamagedError(
                f"The numbers in {folder} do not belong together, or an earlier version wrote them ({error!r}): let "
                "launch.transfer write them again."
            ) from error
        return cls(outcome, target, document.get("run", {}))


def _count(value: Any) -> int:
    """A width or a depth: a whole number from 1 on."""
    if not (number := float(value)) >= 1 or number != int(number):
        raise ValueError(f"{value} is no width or depth")
    return int(number)


def _outcome(document: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Outcome:
    dial = document["dial"]
    sweeps: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    tuning: dict[str, Any] = {}
    seen: dict[str, set[tuple[float, int]]] = {}
    for each in document["sweeps"]:
        label, width, depth = str(each["setting"]), float(each["width"]), _count(each["depth"])
        width = width if width == math.inf else _count(width)
        rates = np.array([float(value) for value in each[dial]])
        at = place_of(label, width, depth)
        key = f"{at}curves"
        curves = np.asarray(arrays[key], float)
        if (
            not curves.size
            or curves.ndim != 3
            or len(curves) != len(rates)
            or not (np.diff(rates) > 0).all()
            or not (rates > 0).all()
        ):
            raise ValueError(f"{key} has shape {curves.shape} at {len(rates)} values")
        values = arrays.get(at + dial, rates)  # of the limit the report alone has them
        if values.shape != rates.shape or not np.allclose(values, rates, rtol=1e-9, atol=0):
            raise ValueError(f"{key} is at values of {dial} that are not those in report.json")
        if (width, depth) in seen.setdefault(label, set()):
            raise ValueError(f"{key} is there twice")
        seen[label].add((width, depth))
        if math.isinf(width):
            limits.setdefault(label, {})[depth] = Sweep(width, depth, rates, curves)
        else:
            scores = arrays.get(f"{at}scores")
            if scores is not None and scores.shape != curves.shape[:2]:
                raise ValueError(f"{key} has shape {curves.shape}, and there are scores of shape {scores.shape}")
            sweeps.setdefault(label, {})[int(width), depth] = Sweep(int(width), depth, rates, curves, scores)
            if took := each.get("tuning"):  # earlier versions do not say
                tuning.setdefault(label, {})[int(width), depth] = Tuning(
                    int(took["runs"]), *(math.nan if took[k] is None else float(took[k]) for k in ("work", "seconds"))
                )
    settings, absent, unbounded = (
        {str(k): v for k, v in document[name].items()} for name in ("settings", "absent", "unbounded")
    )
    if odd := [label for label, setting in settings.items() if not isinstance(setting, dict)]:
        raise ValueError(f"the setting {odd[0]} is no table of fields")
    found = Outcome(dial, sweeps, limits, settings, absent, unbounded, tuning=tuning)
    # Earlier versions do not say these two.
    tasks = {str(label): str(task) for label, task in document.get("tasks", {}).items()}
    return dataclasses.replace(found, scored=str(document.get("scored", found.scored)), tasks=tasks)
