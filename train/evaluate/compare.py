"""Ensembles over widths and depths against their twins: bias, variance, power laws, and a verdict for each observable."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from limits import AbsentError, Convergence, Task, Trajectory, twin
from train.evaluate.finding import Finding
from train.evaluate.finite_width import FiniteWidth
from train.evaluate.grid import Cell, Limit, learns, run_grid
from train.evaluate.statistics import PowerLaw, power_law, relative_variance
from train.evaluate.verdict import FAMILYWISE, Observed, Verdict, judge, slow_sizes
from train.progress import parts_bar
from zoo import checks
from zoo.definition import check_definition, in_form


@dataclasses.dataclass(frozen=True)
class Curves:
    """Means over members along training, at one (label, depth, width)."""

    label: str
    depth: int
    width: int
    loss: np.ndarray
    loss_sem: np.ndarray
    f: np.ndarray
    f_sem: np.ndarray

    @classmethod
    def of(cls, cell: Cell, seen: dict[str, np.ndarray]) -> "Curves":
        """From what was measured in a cell."""
        names = ("loss", "loss_sem", "f_mean", "f_sem")
        return cls(cell.label, cell.depth, cell.net.width, *(seen[name] for name in names))


@dataclasses.dataclass(frozen=True)
class Diverged:
    """What has no numbers: an ensemble, or (width None) the limit of a family at one depth; `why` in a sentence."""

    label: str
    depth: int
    width: int | None
    why: str

    @property
    def finding(self) -> Finding:
        """Nothing that diverges agrees with anything."""
        where = f" at width {self.width}" if self.width else ""
        return Finding(f"{self.label}, depth {self.depth}: training is finite", False, f"diverged{where}")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything a report needs."""

    verdicts: list[Verdict]
    curves: list[Curves]
    limits: dict[tuple[str, int], Trajectory]
    learned: dict[tuple[str, int], dict[str, np.ndarray]]  # sweeps of the limit with feature learning
    products: dict[tuple[str, int], list[float]]  # N·E|f_N − f|² / |f|² by width, where the limit learns features
    predicted: dict[tuple[str, int], list[tuple[float, float]]]  # the same to first order in 1/N, with standard errors
    finite: list[FiniteWidth]
    depth_laws: dict[str, PowerLaw]
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    times: np.ndarray  # the recorded ones
    task: Task
    to_infinite_depth: dict[str, Convergence]  # of the twins, by kernel and family
    diverged: tuple[Diverged, ...]  # what is left out of all others

    def find(self, observable: str, label: str, depth: int) -> Verdict:
        """The verdict on one observable."""
        return next(v for v in self.verdicts if (v.observable, v.label, v.depth) == (observable, label, depth))


@dataclasses.dataclass(frozen=True)
class Design:
    """What is compared: the arguments of `compare`, sizes in order.

    >>> Design({}, (8, 4), (4, 2, 1), None, 1, 0.1, 8, 8, rich={"samples": 64, "depths": (2,)}).rich_by_depth
    {2: {'samples': 64}}
    """

    families: dict[str, Callable[[int, int], Any]]
    widths: Sequence[int]
    depths: Sequence[int]
    task: Any
    steps: int
    learning_rate: float
    members: int
    init_members: int
    seed: int = 0
    centred: bool = True
    rich: dict[str, Any] | None = None
    optimizer: Any = None

    def __post_init__(self) -> None:
        for name in ("widths", "depths"):
            object.__setattr__(self, name, tuple(sorted(getattr(self, name))))

    @property
    def rich_by_depth(self) -> dict[int, dict[str, Any]]:
        """The settings of the limit with feature learning at the depths at which it is asked for."""
        if not self.rich:
            return {}
        at = self.rich.get("depths", self.depths)
        checks.several(checks.count(), distinct=True)("rich: depths", at)
        if not {*at} <= {*self.depths}:
            raise ValueError(
                f"rich: its depths must be some of those that are compared, {list(self.depths)}; got {list(at)}."
            )
        return {depth: {name: value for name, value in self.rich.items() if name != "depths"} for depth in at}


@checks.arguments(
    families=checks.Check(
        "a dictionary of functions (width, depth) → definition", lambda v: v and all(map(callable, v.values()))
    ),
    widths=checks.several(checks.count(), least=2, distinct=True),
    depths=checks.several(checks.count(), distinct=True),
    task=checks.a(Task, "a limits.Task"),
    steps=checks.count(),
    learning_rate=checks.number(positive=True),
    members=checks.count(most=10**7),
    init_members=checks.count(most=10**7),
    seed=checks.seed,
    centred=checks.flag,
    rich=checks.table,
    optimizer=checks.word | checks.function,
    folder=checks.path,
    console=checks.a(Console, "a rich.console.Console"),
)
def compare(
    families: dict[str, Callable[[int, int], Any]],
    widths: Sequence[int],
    depths: Sequence[int],
    task: Task,
    steps: int,
    learning_rate: float,
    members: int,
    init_members: int,
    seed: int = 0,
    centred: bool = True,
    folder: Path | None = None,
    console: Console | None = None,
    rich: dict[str, Any] | None = None,
    optimizer: Any = None,
) -> Comparison:
    """Runs the grid and judges it.

    families: name → (width, depth) → definition. Definitions that differ only in parameterization share their kernels at
    initialisation, which are measured once, on `init_members` networks. With `folder`, finished cells are kept there and
    a rerun continues from them. `rich` (samples and replicas): families in `mup` are held against the limit with feature
    learning, `limits.feature_learning`, if it has `depths`, then at these alone; without it against the lazy limit, which
    they do not follow. With order=2 in `rich`, the limit is also asked what networks of every width do to first order in 1/N.

    optimizer: a name that `zoo.scaled` takes with the learning rate, or a function (definition, learning rate) → Optax
    transformation; by default gradient descent.
    """
    if members < 8 or init_members < 8:
        raise ValueError(f"compare needs at least 8 members for its tests, got {members} and {init_members}.")
    design = Design(
        families, widths, depths, task, steps, learning_rate, members, init_members, seed, centred, rich, optimizer
    )
    widths, depths = tuple(design.widths), tuple(design.depths)
    groups, sharing = cells_of(design)
    cells, screen = [cell for group in groups.values() for cell in group], console or Console(quiet=True)
    beside = ThreadPoolExecutor(1)
    try:
        with parts_bar(screen) as bar:
            pending = _limits(design, bar, beside)
            results, blown = run_grid(cells, task, pending, folder, screen, bar)
        limits, lost = _known(pending)
    finally:
        beside.shutdown(wait=False, cancel_futures=True)
    for label in dict.fromkeys(label for (label, _), limit in limits.items() if "nngp" not in limit.projections):
        screen.print(
            f"{label}: its NNGP is not compared, as its outputs are no multiple of its readout.", highlight=False
        )
    groups = {key: group for key, group in groups.items() if key[1:] in limits}
    cells = [cell for group in groups.values() for cell in group]
    lost += [Diverged(cell.label, cell.depth, cell.net.width, blown[cell]) for cell in cells if cell in blown]
    whole = {key: group for key, group in groups.items() if not any(cell in blown for cell in group)}
    if not whole:
        raise FloatingPointError(f"compare: nothing is left to judge, everything diverged. {lost[0].why}")
    rows = [
        Observed(observable, label if kind == "train" else ", ".join(sharing[label]), depth, limits[label, depth],
            [results[cell][observable] for cell in group], slow_sizes([cell.net for cell in group]))
        for (kind, label, depth), group in whole.items()
        for observable in _observables(kind, limits[label, depth])
    ]  # fmt: skip
    verdicts = [judge(row, widths, FAMILYWISE / len(rows)) for row in rows]
    curves = [Curves.of(cell, results[cell]) for cell in cells if cell.kind == "train" and cell in results]
    products = {
        (label, depth): [_squared_error(cell, results[cell], limits[label, depth]) for cell in group]
        for (kind, label, depth), group in whole.items()
        if kind == "train" and limits[label, depth].rich is not None
    }
    runs = {key: limit.run for key, limit in limits.items() if limit.run is not None and ("train", *key) in groups}
    predicted = {key: limits[key].predicted_errors(widths) for key in products if limits[key].predicted}
    foreseen = [row for row in rows if row.limit.at_width(row.observable, widths[0]) is not None]
    finite = [FiniteWidth.of(row, widths, FAMILYWISE / (len(foreseen) * len(widths))) for row in foreseen]
    learned = {key: limit.rich for key, limit in limits.items() if limit.rich is not None}
    laws, rates = _depth_laws(rows, depths), to_infinite_depth(families, widths[-1], depths, limits, task)
    found = (verdicts, curves, runs, learned, products, predicted, finite, laws)
    times = next(iter(limits.values())).times
    return Comparison(*found, widths, depths, times, task, rates, tuple(lost))


def _limits(design: Design, bar: Progress, beside: Executor) -> dict[tuple[str, int], Future[Limit]]:
    """What the twins say by family and depth, computed beside the ensembles, what takes long last."""
    rich, how = design.rich_by_depth, (design.steps, design.learning_rate, design.optimizer, design.centred)
    found = {}
    for label, depth in sorted(itertools.product(design.families, design.depths), key=lambda key: key[1] in rich):
        given = design.families[label](design.widths[-1], depth), design.task, design.widths, *how
        found[label, depth] = beside.submit(Limit.of, *given, rich=rich.get(depth), progress=bar)
    return found


def _known(pending: dict[tuple[str, int], Future[Limit]]) -> tuple[dict[tuple[str, int], Limit], list[Diverged]]:
    """(the limits by family and depth, those that diverge)."""
    limits: dict[tuple[str, int], Limit] = {}
    lost: list[Diverged] = []
    for (label, depth), each in pending.items():
        try:
            limits[label, depth] = each.result()
        except FloatingPointError as error:
            lost.append(Diverged(label, depth, None, str(error)))
    return limits, lost


def _observables(kind: str, limit: Limit) -> tuple[str, ...]:
    """What is judged of untrained and of trained ensembles."""
    trained = ("f", "ntk_end") if limit.rich is None else ("f", "path", "ntk_end")
    return tuple(name for name in (("nngp", "ntk") if kind == "init" else trained) if name in limit.projections)


def cells_of(design: Design) -> tuple[dict[tuple[str, str, int], list[Cell]], dict[str, list[str]]]:
    """Cells over widths by (kind, family, depth); and which families share the kernels at initialisation of one.

    Families that learn features are trained at the depths of `rich`.
    """
    # Members, steps and rate. Kernels at initialisation do not depend on how one trains: a rerun with another rate keeps them.
    numbers = {"init": (design.init_members, 0, 0.0), "train": (design.members, design.steps, design.learning_rate)}
    smallest, settings = design.widths[0], design.rich_by_depth
    against = repr(next(iter(settings.values()), ""))
    groups: dict[tuple[str, str, int], list[Cell]] = {}
    first: dict[Any, str] = {}
    sharing: dict[str, list[str]] = {}
    for label, make in design.families.items():
        net = make(smallest, design.depths[0])
        checks.module(f"compare: the network of {label}", net)
        check_definition(f"compare, {label}", net)
        original = first.setdefault(in_form(net, "ntk", 1.0), label)
        sharing.setdefault(original, []).append(label)
        for depth in design.depths:
            trains = not design.rich or depth in settings or not learns(make(smallest, depth))
            for kind in ["init"] * (original == label) + ["train"] * trains:
                limit, rule = (against, design.optimizer) if kind == "train" else ("", None)
                how = design.centred, limit, rule
                groups[kind, label, depth] = [
                    Cell(kind, label, make(width, depth), depth, *numbers[kind], design.seed + i, *how)
                    for i, width in enumerate(design.widths)
                ]
    return groups, sharing


def _squared_error(cell: Cell, seen: dict[str, np.ndarray], limit: Limit) -> float:
    """N·E|f_N − f|² / |f|², over members, points and recorded times: level in N where the limit is right."""
    assert limit.rich is not None
    path = limit.rich["path"]
    f, noise = path.mean(0), path.var(0, ddof=1) / len(path) if len(path) > 1 else 0.0
    # (mean − f)² has the noise of both in it, which N would multiply.
    away = (seen["f_mean"] - f) ** 2 - noise + (cell.members - 1) * seen["f_sem"] ** 2
    return float(cell.net.width * away[1:].sum() / (f[1:] ** 2).sum())


def to_infinite_depth(
    families: dict[str, Callable[[int, int], Any]], width: int, depths: Sequence[int], limits: Any, task: Task
) -> dict[str, Convergence]:
    """How the twins' kernels (`limits` by family and depth) come to those of infinite depth, for families that have them."""
    rates: dict[str, Convergence] = {}
    for label, make in families.items() if len(depths) > 2 else ():
        if any((label, depth) not in limits for depth in depths):  # diverged
            continue
        try:
            limit = twin(make(width, depths[-1]), depth=math.inf).kernels(task.x)
        except AbsentError:  # not residual, or branches that are not scaled down
            continue
        for name in ("nngp", "ntk"):
            each = [getattr(limits[label, depth], name) for depth in depths]
            if any(np.array_equal(kernel, getattr(limit, name)) for kernel in each):  # branches that start at zero
                continue
            rates[f"{name}, {label}"] = Convergence.of(f"{name}, {label},", depths, each, getattr(limit, name))
    return rates


def _depth_laws(rows: list[Observed], depths: Sequence[int]) -> dict[str, PowerLaw]:
    """Relative variance at the largest width as a power of depth, for each observable and family."""
    laws: dict[str, PowerLaw] = {}
    for observable, label in dict.fromkeys((row.observable, row.label) for row in rows):
        mine = [row for row in rows if (row.observable, row.label) == (observable, label)]
        if len(mine) == len(depths) > 2:
            samples = [
                row.samples[-1] / np.linalg.norm(row.expected) for row in sorted(mine, key=lambda row: row.depth)
            ]
            laws[f"{observable}, {label}"] = power_law(depths, samples, relative_variance(1.0))
    return laws
