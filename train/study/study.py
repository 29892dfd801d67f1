"""A config of launch.transfer, read: its settings and sizes, and what trains each."""

import dataclasses
import itertools
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from limits import AbsentError
from limits.kept.identity import identity, numerics
from limits.kept.store import Store
from train.records import ALSO
from train.study.asked import check_asked, check_limit
from train.study.experiment import NEEDED, Experiment, overrides, plain_fields
from train.study.outcomes import outcome_of
from train.study.size import Size, labelled, products
from train.study.sized import check_scored, limit_sweeps, train_size
from train.transfer import Outcome, Sweep
from train.transfer.cells import read, write
from train.transfer.kept import KeptRuns, Tried, complete, held, missing
from train.transfer.outcome import Target, target
from train.transfer.runs import check_has_limit
from zoo import checks

_SWEPT = {"widths", "depths", "values", "seeds", "axes", "variants", "grid"}
_NOT_IN_CELLS = (
    "name", "widths", "depths", "grid", "variants", "axes", "target", "limit", "together", "precision", "also"
)  # fmt: skip
_OF_RUNS = ("values", "seeds", "dial")  # of which each run has its own
_SCORING = ("validation", "score")
_OF_LIMITS = ("task", "rows")


@dataclasses.dataclass(frozen=True)
class Study:
    """A config, read: its cells, and the hyperparameters that are traced in each."""

    experiment: Experiment
    folder: Path
    only: str = ""  # one of the variants

    @property
    def config(self) -> Any:
        """Its fields."""
        return self.experiment.config

    @property
    def dial(self) -> str:
        """What is swept."""
        return self.config.get("dial", "learning_rate")

    @property
    def values(self) -> np.ndarray:
        """The values of the dial, ascending."""
        return np.sort(np.asarray(self.config["values"], float))

    @property
    def first(self) -> int:
        """The first of the seeds."""
        return self.config.get("seed", 0) * 1000

    @property
    def seeds(self) -> np.ndarray:
        """The seeds of the grid."""
        return self.first + np.arange(self.config.seeds)

    @property
    def scored(self) -> str:
        """What is small at the optimum, a word of `SCORED`."""
        return self.config.get("scored", "training")

    @property
    def axes(self) -> dict[str, tuple]:
        """More hyperparameters and their values."""
        return {name: tuple(values) for name, values in self.config.get("axes", {}).items()}

    @property
    def traced(self) -> dict[str, tuple]:
        """Axes of numbers, which a compiled program takes as arguments (whole numbers that `make` asks for may be shapes)."""
        return {name: values for name, values in self.axes.items() if self._traceable(name, values)}

    def _traceable(self, name: str, values: tuple) -> bool:
        numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
        shapes = all(isinstance(each, int) for each in values) and self.experiment.asks_for(name, ("make",))
        alone = not self.experiment.asks_for(name, ("loss", "batches", *_SCORING, *_OF_LIMITS))
        return numbers and not shapes and alone and self.experiment.asks_for(name, ("make", "optimizer"))

    def variants(self) -> list[tuple[str, str, dict[str, Any]]]:
        """(variant, label, fields) of everything with a compilation of its own: `variants` times the axes that are not traced."""
        variants = plain_fields(self.config.get("variants", {})) or {"": {}}
        if self.only and self.only not in variants:
            there = (
                f"is none of the variants: {', '.join(variants)}" if any(variants) else "and the config has no variants"
            )
            raise ValueError(f'--only="{self.only}" {there}.')
        kept = {self.only: variants[self.only]} if self.only else variants
        compiled = {name: values for name, values in self.axes.items() if name not in self.traced}
        return [
            (variant, labelled(variant, chosen), {**fields, **chosen})
            for variant, fields in kept.items()
            for chosen in products(compiled)
        ]

    def cells(self) -> list[Size]:
        """All of them, in the order of the report."""
        widths, depths = sorted(self.config.widths), sorted(self.config.depths)
        grid = self.config.get("grid", "product")
        if grid not in ("product", "cross"):
            raise ValueError(f'config.grid must be "product" or "cross", got "{grid}".')
        sizes = list(itertools.product(widths, depths))
        if grid == "cross":
            sizes = [(w, d) for w, d in sizes if w == self.config.widths[0] or d == self.config.depths[0]]
        if self.config.get("limit") is not None:
            sizes += [(math.inf, depth) for depth in depths]
        return [Size(variant, label, fields, *size) for variant, label, fields in self.variants() for size in sizes]

    def file(self, cell: Size) -> Path:
        """Where its runs are kept: a name that changes with everything a run depends on besides its own value and seed."""
        fields, infinite = plain_fields(self.config), math.isinf(cell.width)
        asked = self.experiment.asked_for((*NEEDED, *_SCORING))
        left_out = [name for name in (*_NOT_IN_CELLS, *(() if infinite else _OF_RUNS)) if name not in asked]
        common_fields = {name: value for name, value in fields.items() if name not in left_out}
        if infinite:
            how: Any = self.traced, {"samples": None, "order": None, **plain_fields(self.config.get("limit") or {})}
        else:
            scoring = [getattr(self.experiment.module, name, None) for name in _SCORING]
            how = "runs", self.dial, sorted(self.traced), scoring if self.scored != "training" else None
        code = identity(self.experiment.code, common_fields, cell.fields, *how, numerics())
        return self.folder / "cells" / f"{cell.name}_{code}.npz"

    @property
    def rounds(self) -> Path:
        """Where it is written down which runs were chosen, round by round."""
        cells = [(v, label, fields) for v, label, fields in self.variants()]
        target = self.config.get("target", {})
        kept = [self.file(Size(*each, 1, 1)).name for each in cells]
        code = identity(kept, self.values, self.axes, plain_fields(target))
        return self.folder / "cells" / f"rounds_{code}.npz"

    def label(self, label: str, setting: Mapping[str, Any]) -> str:
        """What a setting is called."""
        return labelled(label, setting) or self.config.name

    def settings(self) -> list[dict[str, float]]:
        """The combinations of traced axes."""
        return products(self.traced)

    def call(self, function: str, *positional: Any, **given: Any) -> Any:
        """A function of the config's file."""
        return self.experiment.call(function, *positional, **given)

    def wanted(self, cell: Size) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """(hyperparameters {name: [run]}, seeds [run]) of the whole grid of a cell."""
        settings, values, seeds = self.settings(), self.values, self.seeds
        jobs = {name: np.repeat([each[name] for each in settings], len(values) * len(seeds)) for name in self.traced}
        jobs[self.dial] = np.tile(np.repeat(values, len(seeds)), len(settings))
        return jobs, np.tile(seeds, len(settings) * len(values))

    def missing(self, cell: Size) -> int:
        """How many runs of a cell's grid are not there."""
        if math.isinf(cell.width):
            return 0 if read(self.file(cell)) is not None else len(self.wanted(cell)[1])
        return len(missing(held(self.file(cell)), *self.wanted(cell))[1])

    def complete(self, cell: Size, advance: Any = lambda _: None) -> KeptRuns | None:
        """Trains what is missing of a cell's grid, and keeps it: these runs; of a limit nothing, nor where another process
        in this folder was faster."""
        file = self.file(cell)
        if math.isfinite(cell.width):
            return complete(file, *self.wanted(cell), lambda jobs, seeds: train_size(self, cell, jobs, seeds, advance))
        with Store(file.parent).lock(file.stem):
            if self.missing(cell):
                write(file, limit_sweeps(self, cell, advance))
        return None

    def sweeps(self, cell: Size) -> list[Sweep] | None:
        """Of a cell that is whole, one for each of `settings`; None where a run is missing."""
        if math.isinf(cell.width):
            return read(self.file(cell))
        grid = cell.width, cell.depth, self.values.tolist(), self.seeds.tolist()
        return self._of_each(cell, lambda tried: tried.grid(*grid))

    def _of_each(self, cell: Size, sweep: Callable[[Tried], Sweep | None]) -> list[Sweep] | None:
        """One for each of `settings` of what is there; None where one has none."""
        if (there := held(self.file(cell))) is None:
            return None
        found = [sweep(there.table(self.dial, setting)) for setting in self.settings()]
        whole = [each for each in found if each is not None]
        return whole if len(whole) == len(found) else None

    def no_limit(self, fields: dict[str, Any]) -> str:
        """Why a setting has no limit with feature learning, or an empty string."""
        net = self.call("make", self.config.widths[0], self.config.depths[0], **fields, **self.job_example())
        try:
            check_has_limit(net)
        except (AbsentError, ValueError, TypeError) as error:
            return str(error)
        return ""

    def job_example(self) -> dict[str, Any]:
        """The first value of every traced hyperparameter."""
        return {**self.settings()[0], self.dial: float(self.values[0])}

    def target(self, outcome: Outcome, size: tuple[float, int] | None = None) -> Target:
        """The size that the config asks for (by default the largest one), or this one, and the value to train it with."""
        wanted = self.config.get("target", {})
        width, depth = size or (wanted.get("width"), wanted.get("depth"))
        return target(outcome, width, depth, self.values)

    def with_sizes(self, widths: Iterable[int] = (), depths: Iterable[int] = ()) -> "Study":
        """The same with all sizes that can be made of the config's numbers and these."""
        more: dict[str, Any] = {"widths": {*self.config.widths, *widths}, "depths": {*self.config.depths, *depths}}
        more = {name: tuple(sorted(sizes)) for name, sizes in more.items()}
        config = ConfigDict({**self.config.to_dict(), **more, "grid": "product"})
        return dataclasses.replace(self, experiment=Experiment(self.experiment.given, config))

    def with_target(self) -> "Study":
        """The same `with_sizes` of the target."""
        wanted = self.config.get("target", {})
        return self.with_sizes(*([wanted[name]] if name in wanted else [] for name in ("width", "depth")))

    def cores(self, cell: Size) -> list[Sweep] | None:
        """Of a cell what there is, one for each of `settings`: the values that have all seeds; None where a setting has none."""
        return None if math.isinf(cell.width) else self._of_each(cell, lambda tried: tried.core(cell.width, cell.depth))

    def kept(self) -> Outcome:
        """The sizes that `launch.transfer` has kept in the folder, as many as there are; of rounds what they have trained."""
        found, searched = {}, self.rounds.exists()
        for cell in self.cells():
            sweeps = self.sweeps(cell) or (self.cores(cell) if searched else None)
            if sweeps is not None:
                found[cell.key] = sweeps
        return outcome_of(self, found, {})

    def command(self, outcome: Outcome, given: Sequence[str] = (), chosen: Target | None = None) -> str:
        """What trains the target size with the value that the sweep found for it, or what was chosen.

        `given`: the user's own overrides, which it keeps.
        """
        chosen = chosen or self.target(outcome)
        setting = dict(outcome.settings[chosen.label])
        variant = plain_fields(self.config.get("variants", {})).get(setting.pop("setting"), {})
        fields = {"width": chosen.width, "depth": chosen.depth, **variant, **setting}
        fields[self.dial] = float(f"{chosen.value:.6g}")
        words = ["python3", "-m", "launch.train", f"--config={self.experiment.given}", *overrides(given, _SWEPT)]
        words += [f"--set={name}={value}" for name, value in fields.items()]
        return shlex.join([*words, f"--workdir={self.folder / 'target'}"])


_DIFFERENT = checks.Check(
    "a sequence of values, one or more of them, each once",
    lambda values: not isinstance(values, str) and len(values) == len(set(map(repr, values))) > 0,
)
_NEEDED = ("name", "widths", "depths", "values", "seeds", "steps")
CHECKS = (
    dict.fromkeys(("name", "dial"), checks.word)
    | dict.fromkeys(("variants", "axes", "target"), checks.table)
    | dict.fromkeys(("widths", "depths"), checks.several(checks.count(1), distinct=True))
    | dict.fromkeys(("seeds", "steps"), checks.count(1))
    | dict.fromkeys(("seed", "together"), checks.count(0))
    | {"scored": checks.word, "precision": checks.number(positive=True), "also": ALSO}
    | {"values": checks.several(checks.number(positive=True), distinct=True)}
)


def study_of(path: str, config: Any, folder: Path, only: str = "") -> Study:
    """The study of a config file."""
    study = Study(Experiment(path, config), folder, only)
    missing = [name for name in _NEEDED if name not in config]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}: it is no config for launch.transfer.")
    for name in (name for name in CHECKS if name in config):
        CHECKS[name](f"config.{name}", config[name])
    if study.first + config.seeds > 2**32:
        raise ValueError(
            f"config.seed={config.seed}: its {config.seeds} seeds are numbered from seed · 1000 on, and must be below 2**32: "
            f"give a seed up to {(2**32 - config.seeds) // 1000}."
        )
    for name, values in config.get("axes", {}).items():
        _DIFFERENT(f"config.axes.{name}", values)
        if name == study.dial:
            raise ValueError(f"config.axes.{name}: {name} is the dial, which config.values has; leave the axis out.")
    if config.get("limit") is not None:
        check_limit(config.limit)
    for name, value in config.get("target", {}).items():
        if name not in ("width", "depth"):
            raise ValueError(f"config.target has a width and a depth, and no {name}.")
        checks.count(1)(f"config.target.{name}", value)
    if not study.experiment.asks_for(study.dial, ("make", "optimizer")):
        raise ValueError(
            f'{path}: "{study.dial}" is swept, but neither make nor optimizer has an argument of that name.'
        )
    check_scored(study)
    check_asked(study)
    labels = [study.label(label, setting) for _, label, _ in study.variants() for setting in study.settings()]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise ValueError(
            f'{labels.count(twice[0])} settings would be called "{twice[0]}", and one be taken for the other: of config.axes, '
            "values are told apart by six digits; give each as one of the config's `variants`, with a label of its own."
        )
    return study
