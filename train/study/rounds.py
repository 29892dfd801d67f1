"""A study in rounds instead of on a grid: what is trained next is chosen by what is there, until a budget is spent or an interval
is as short as asked.

What a run costs is its parameters times its steps: the same on every machine, so that a study that is continued, or shared by
several processes, makes the same choices. Every round is written down before it is trained.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape

from limits.kept.store import Store
from train.evaluate.interval import Interval
from train.progress import add_parts, parts_bar
from train.study.cell_records import CellRecords
from train.study.grid import absent_limits
from train.study.size import Size
from train.study.sized import parameters, train_size
from train.study.study import Study
from train.transfer import Outcome
from train.transfer.cells import save_arrays
from train.transfer.expansion import Size as Place
from train.transfer.hopeless import hopeless
from train.transfer.kept import KeptRuns, Tried, are, held, keep, missing
from train.transfer.outcome import Target
from train.transfer.search import Round, Space, next_round
from train.transfer.searched import Searched
from train.transfer.valley import BESIDE


@dataclasses.dataclass(frozen=True)
class Budget:
    """So many times what the whole grid costs, or so many seconds of training; the octaves at which it is enough (0: never)."""

    share: float = math.inf
    seconds: float = math.inf
    precision: float = 0.0

    @classmethod
    def read(cls, text: str, precision: float = 0.0) -> "Budget":
        """Of words.

        >>> Budget.read("40%").share, Budget.read("0.4").share, Budget.read("600s").seconds
        (0.4, 0.4, 600.0)
        """
        number, unit = (text[:-1], text[-1]) if text[-1:] in ("%", "s") else (text, "")
        try:
            amount = float(number)
        except ValueError:
            amount = math.nan
        if unit == "" and amount > 1:
            raise ValueError(
                f"--budget={text} could be {text}% of what the grid costs, or {text}s of training: say which."
            )
        if not 0 < amount < math.inf:
            raise ValueError(
                f'--budget must be a share of what the grid costs, such as 0.4 or 40%, or seconds, such as 600s; got "{text}".'
            )
        share = amount / 100 if unit == "%" else amount
        return cls(seconds=amount, precision=precision) if unit == "s" else cls(share, precision=precision)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One of the settings, searched alone: its cells by size, and the values of what is traced."""

    label: str
    cells: Mapping[Place, Size]
    traced: Mapping[str, float]
    space: Space
    grid: float  # the cost of the whole grid


def spent(setting: Setting, log: Sequence[Mapping[str, Round]]) -> float:
    """What the rounds of a setting cost."""
    return sum(each[setting.label].cost(setting.space) for each in log if setting.label in each)


def settings_of(study: Study) -> list[Setting]:
    """All of them, with what their runs cost."""
    wanted = study.config.get("target", {})
    finite = [cell for cell in study.cells() if math.isfinite(cell.width)]
    target = wanted.get("width", max(c.width for c in finite)), wanted.get("depth", max(c.depth for c in finite))
    for i, name in enumerate(("width", "depth")):
        sizes = {(c.width, c.depth)[i] for c in finite}
        if len(sizes) == 1 and target[i] not in sizes:
            raise ValueError(
                f"The target's {name} is {target[i]}, and config.{name}s has {min(sizes)} alone: give two or more."
            )
    if len(study.values) < 3:
        raise ValueError(
            f"--budget chooses among values: config.values must have three or more; got {len(study.values)}."
        )
    found = []
    for variant, label, _ in study.variants():
        cells = {(c.width, c.depth): c for c in finite if (c.variant, c.label) == (variant, label)}
        costs = {size: float(parameters(study, cell)) * study.config.steps for size, cell in cells.items()}
        space, grid = Space(study.values, costs, target), len(study.values) * len(study.seeds) * sum(costs.values())
        found += [Setting(study.label(label, traced), cells, traced, space, grid) for traced in study.settings()]
    return found


class Searching:
    """The rounds of a study, on disk."""

    def __init__(self, study: Study, budget: Budget) -> None:
        self.study, self.budget, self.settings = study, budget, settings_of(study)
        self.compiled: dict[tuple, dict[Any, Any]] = {}  # programs of each cell, which all rounds take on a CPU
        self.store, self.name = Store(study.rounds.parent), study.rounds.stem
        self.records = CellRecords(study)

    def log(self) -> list[dict[str, Round]]:
        """The rounds that were begun."""
        return [{label: _round(each) for label, each in done.items()} for done in self.store.get(self.name) or []]

    def tried(self, setting: Setting) -> dict[Place, Tried]:
        """What is there of a setting."""
        there = {size: held(self.study.file(cell)) for size, cell in setting.cells.items()}
        return {
            size: table
            for size, runs in there.items()
            if runs is not None and len((table := runs.table(self.study.dial, setting.traced)).values)
        }

    def next(self, log: list[dict[str, Round]]) -> dict[str, Round]:
        """What comes after these rounds, {label: round}; rounds without runs end a setting."""
        found, costs = {}, [spent(each, log) for each in self.settings]
        whole, seconds = (
            sum(each.grid for each in self.settings),
            sum(self.seconds(each, log) for each in self.settings),
        )
        for setting, cost in zip(self.settings, costs, strict=True):
            left, unit = self.budget.share * setting.grid - cost, (setting.grid / 100, "%")
            if math.isfinite(self.budget.seconds) and seconds:
                second = sum(costs) / seconds * setting.grid / whole  # of all settings, in what it buys this one
                if self.budget.seconds * second - cost < left:
                    left, unit = self.budget.seconds * second - cost, (second, "s")
            found[setting.label] = next_round(
                setting.space, self.tried(setting), left, cost, self.budget.precision, len(log), unit
            )
        return found

    def wanted(self, cell: Size, round: Mapping[str, Round]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """(hyperparameters {name: [run]}, seeds [run]) of a cell in a round, of all settings that are traced."""
        rows = [
            (*(setting.traced[name] for name in self.study.traced), value, self.study.first + seed)
            for setting in self.settings
            if setting.label in round and setting.cells.get((cell.width, cell.depth)) == cell
            for value, seed in round[setting.label].runs.get((cell.width, cell.depth), ())
        ]
        *columns, seeds = np.array(rows, float).reshape(len(rows), len(self.study.traced) + 2).T
        return dict(zip((*self.study.traced, self.study.dial), columns, strict=True)), seeds.astype(int)

    def train(self, round: Mapping[str, Round], part: tuple[int, int], bar: Any, task: Any) -> None:
        """What is missing of a round, a program a size. Several processes begin with different sizes and take what is left."""
        cells = [c for c in self.study.cells() if math.isfinite(c.width) and len(self.wanted(c, round)[1])]
        start = len(cells) * part[0] // part[1]
        for cell in (*cells[start:], *cells[:start]):
            file, costs = self.study.file(cell), self._cost(cell)
            with Store(file.parent).lock(file.stem):
                there = held(file)
                opening = any(each.opening for each in round.values())
                jobs, seeds = missing(there, *self.wanted(cell, round), given_up=not opening)
                bar.update(task, description=escape(f"{cell.label} {cell.width:g} × {cell.depth}".strip()))
                if len(seeds):
                    judge = self._judge(there, jobs) if opening else _none
                    runs = train_size(
                        self.study, cell, jobs, seeds, hopeless=judge, compiled=self.compiled.setdefault(cell.key, {})
                    )
                    keep(file, runs.joined(there))
                    self.records.write(cell, runs)
                bar.advance(task, costs * len(self.wanted(cell, round)[1]))

    def _judge(self, there: KeptRuns | None, jobs: Mapping[str, np.ndarray]) -> Any:
        """Which runs are given up by their curves, among those of their own setting."""
        if self.study.scored != "training":
            return _none

        dial, steps = self.study.dial, self.study.config.steps
        kept = there or KeptRuns.of(dict.fromkeys(jobs, np.zeros(0)), np.zeros(0), np.zeros((0, steps)))
        reach = BESIDE * self.settings[0].space.spacing

        def judge(curves: np.ndarray) -> np.ndarray:
            found = np.full(len(curves), False)
            for traced in self.study.settings():
                mine, theirs = are(jobs, traced), are(kept.jobs, traced)
                places = np.log2(kept.jobs[dial][theirs])
                found[mine] = hopeless(
                    curves[mine], np.log2(jobs[dial][mine]), kept.curves[theirs], places, steps, reach
                )
            return found

        return judge

    def _cost(self, cell: Size) -> float:
        size = cell.width, cell.depth
        return next(each.space.costs[size] for each in self.settings if each.cells.get(size) == cell)

    def seconds(self, setting: Setting, log: Sequence[Mapping[str, Round]]) -> float:
        """That a setting's runs in these rounds took."""
        found = 0.0
        for size, tried in self.tried(setting).items():
            wanted = {run for each in log if setting.label in each for run in each[setting.label].runs.get(size, ())}
            places = {(float(tried.values[i]), int(j)): tried.run[i, j] for i, j in np.argwhere(tried.run >= 0)}
            found += sum(float(tried.runs.seconds[places[run]]) for run in wanted if run in places)
        return found


def conduct_rounds(
    study: Study, budget: Budget, part: tuple[int, int], screen: Any
) -> tuple[Outcome, dict[str, Searched]]:
    """Round after round, with what is kept; the outcome of what was trained."""
    absent, search = absent_limits(study), Searching(study, budget)
    with parts_bar(screen) as bar:
        bound = sum(min(budget.share, 1.0) * each.grid for each in search.settings)
        task = add_parts(bar, "rounds", bound)
        trained = 0
        while True:
            log = search.log()
            for each in log[trained:]:
                search.train(each, part, bar, task)
            trained = len(log)
            with search.store.lock(search.name):
                if len(search.log()) > len(log):
                    continue  # another process was faster
                found = search.next(log)
                if not any(each.runs for each in found.values()):
                    break
                going = {label: each for label, each in found.items() if each.runs}
                search.store.put(search.name, [*map(_plain, log), _plain(going)])
            for label, each in going.items():
                screen.print(f"Round {len(log) + 1}{f', {label}' if len(found) > 1 else ''}: {each.words}")
    for cell in (c for c in study.cells() if math.isinf(c.width) and c.label not in absent):
        if study.missing(cell):
            study.complete(cell)
    outcome = dataclasses.replace(study.kept(), absent=absent)
    save_arrays(study.folder / "arrays.npz", outcome.arrays())
    ended = {
        each.label: Searched(
            each.space,
            [(i, done[each.label]) for i, done in enumerate(log) if each.label in done],
            found[each.label],
            each.grid,
            search.seconds(each, log),
        )
        for each in search.settings
    }
    return outcome, ended


def best_of(study: Study, outcome: Outcome, searched: Mapping[str, Searched]) -> Target:
    """The best setting, and the value of the target's optimum by all of its rounds."""
    label = outcome.best_label()
    found = searched[label]
    if found.end.before is None:
        return study.target(outcome, found.space.target)
    width, depth = found.space.target
    return Target(
        label, width, depth, 2.0 ** float(found.end.before.value), found.sentence(label, study.dial.replace("_", " "))
    )


def _none(curves: np.ndarray) -> np.ndarray:
    """Gives no run up; training in quarters as where some are, so that programs are the same."""
    return np.full(len(curves), False)


def _plain(round: Mapping[str, Round]) -> dict[str, Any]:
    """For the store."""
    return {
        label: {
            "runs": [(size, [v for v, _ in runs], [s for _, s in runs]) for size, runs in each.runs.items()],
            "why": each.why, "before": None if each.before is None else [float(end) for end in each.before.ends],
            "opening": each.opening,
        }
        for label, each in round.items()
    }  # fmt: skip


def _round(kept: Mapping[str, Any]) -> Round:
    runs = {tuple(size): list(zip(values, seeds, strict=True)) for size, values, seeds in kept["runs"]}
    before = None if kept["before"] is None else Interval(*kept["before"])
    return Round(runs, kept["why"], before, kept["opening"])
