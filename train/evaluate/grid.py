"""The cells of a comparison: one ensemble each, kept on disk as soon as it is finished."""

import dataclasses
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from limits import AbsentError, Store, Task, Trajectory, identity, numerics, twin
from train.ensemble import ensemble
from train.evaluate.projections import Projections, of_kernel, of_path, of_predictions
from train.progress import add_parts
from zoo import parameterization

RECORDED = 6  # times along training


def recorded(steps: int) -> np.ndarray:
    """The steps at which outputs are looked at."""
    return np.unique(np.linspace(0, steps, RECORDED).round().astype(int))


@dataclasses.dataclass(frozen=True)
class Cell:
    """One ensemble of the grid. kind "init": kernels of untrained networks; "train": predictions and kernel at the end."""

    kind: str
    label: str
    net: Any
    depth: int
    members: int
    steps: int
    learning_rate: float
    seed: int
    centred: bool
    against: str = ""  # settings of its limit, which fixes the projections
    optimizer: Any = None  # see `steps_of`

    @property
    def waits(self) -> bool:
        """Whether its limit is one with feature learning, which takes long."""
        return self.kind == "train" and bool(self.against) and learns(self.net)

    def key(self, task: Task) -> str:
        """A word for everything the numbers depend on."""
        return identity(self, dataclasses.replace(task, name=""), numerics())


def known(limit: "Limit | Future[Limit]") -> "Limit":
    """The limit, as soon as it is computed."""
    return limit.result() if isinstance(limit, Future) else limit


def learns(net: Any) -> bool:
    """Whether features move at any width, so that training does not follow the lazy limit."""
    return float(parameterization(net.parameterization).d) == 0.5


def steps_of(net: Any, learning_rate: float, optimizer: Any) -> dict[str, Any]:
    """How a definition is trained, as `lazy`, `rich` and `ensemble` are told it.

    optimizer: None (gradient descent), a name that `zoo.scaled` knows, or a function (definition, learning rate) → Optax.
    """
    if optimizer is None or isinstance(optimizer, str):
        return {"learning_rate": learning_rate, **({"optimizer": optimizer} if optimizer else {})}
    return {"optimizer": optimizer(net, learning_rate)}


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the limit says of networks of one width, to first order in 1/N.

    Of every sweep: path [sweep, time, n, outputs], and f, ntk at the end. variance [time]: of the outputs over
    initialisations, summed over points and outputs; its error is a bound, as if those of all points were the same.
    """

    seen: dict[str, np.ndarray]
    variance: np.ndarray
    variance_sem: np.ndarray

    @classmethod
    def of(cls, run: Trajectory) -> "Predicted":
        """From `rich(width=N)`."""

        def total(*parts: np.ndarray) -> np.ndarray:
            return run.f.shape[-1] * sum(np.trace(part, axis1=1, axis2=2) for part in parts)

        return cls(
            run.reduced,
            total(run.f_train_cov, run.f_test_cov),
            total(run.f_train_cov_sem, run.f_test_cov_sem),
        )

    def squared_error(self, limit: np.ndarray) -> tuple[float, float]:
        """E|f_N − f|² over points and recorded times but the first, and its standard error, from the limit's own sweeps."""
        away = (self.seen["path"] - limit)[:, 1:]
        shift, noise = away.mean(0), away.var(0, ddof=1) / len(away)
        error = 2 * np.sqrt((shift**2 * noise).sum((1, 2))) + noise.sum((1, 2)) + self.variance_sem[1:]
        return float((shift**2 - noise).sum() + self.variance[1:].sum()), float(error.sum())


@dataclasses.dataclass(frozen=True)
class Limit:
    """What the twin says of one (label, depth): the limits of all observables, and the projections they fix.

    `run` is training in the kernel regime (None: the optimiser has none). In `mup` the limit of
    training is the one with feature learning: `rich` has its sweeps, if they were asked for: path [sweep, time, n, outputs],
    loss [sweep, time], and f, ntk at the end. `predicted`: the same of networks of finite widths, to first order in 1/N.
    """

    nngp: np.ndarray  # of outputs at positions: between samples, a mean over positions
    ntk: np.ndarray | None  # None: such outputs, of which networks record none
    times: np.ndarray
    run: Trajectory | None
    rich: dict[str, np.ndarray] | None
    predicted: dict[int, Predicted]
    learns: bool  # features move at any width, so that training does not follow the lazy limit
    projections: dict[str, Projections]  # by observable
    readout: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(
        cls,
        net: Any,
        task: Task,
        widths: Sequence[int],
        steps: int,
        learning_rate: float,
        optimizer: Any,
        centred: bool,
        rich: Any = None,
        progress: bool | Progress = False,
    ) -> "Limit":
        """Computes them; the width of the definition plays no part. `rich`: samples, replicas and order of the sweeps."""
        limit = twin(net)
        task = limit.fed(task)
        initial, times = limit.initial(task.x), recorded(steps)
        how: dict[str, Any] = {"times": times, "centred": centred, "steps": steps}
        how |= steps_of(net, learning_rate, optimizer)
        try:
            run = limit.lazy(task, kernels=(), initial=initial, **how)
        except AbsentError:
            if optimizer is None or not (rich and learns(net)):
                raise
            run = None
        learned, predicted = None, {}
        if rich and learns(net):

            def of_each(runs: Trajectory) -> dict[str, np.ndarray]:
                kernel = {"ntk": runs.ntk[:, -1]} if runs.has("ntk") else {}
                return {"path": runs.f, "f": runs.f[:, -1], "loss": runs.loss} | kernel

            how |= {"kernels": ("ntk",), "kernel_times": [steps], "reduce": of_each, "progress": progress}
            if rich.get("order") == 2:
                others = {name: value for name, value in rich.items() if name != "order"}
                found, *finite = limit.rich(task, width=(math.inf, *widths), **how, **others)
                predicted = {n: Predicted.of(each) for n, each in zip(widths, finite, strict=True)}
            else:
                found = limit.rich(task, **how, **rich)
            learned = found.reduced
        path = learned["path"].mean(0) if learned else run.f  # pyright: ignore[reportOptionalMemberAccess]
        ntk = task.between_points(initial.ntk)
        nngp = initial.readout(initial.features) if task.positions else initial.kernels.nngp
        projections = {"nngp": of_kernel(nngp, task)} if _is_carried(initial) else {}
        projections |= {"f": of_predictions(path[-1], ntk, task), "path": of_path(path, times.tolist())}
        if not task.positions:
            projections["ntk"] = projections["ntk_end"] = of_kernel(ntk, task)
        return cls(
            nngp,
            None if task.positions else ntk,
            times,
            run,
            learned,
            predicted,
            learns(net),
            projections,
            initial.readout,
        )

    def at_width(self, observable: str, width: int) -> np.ndarray | None:
        """What 1/N predicts of an observable of training, one for every sweep; None: nothing."""
        if width not in self.predicted or observable in ("nngp", "ntk"):
            return None
        return self.predicted[width].seen["ntk" if observable == "ntk_end" else observable]

    def predicted_errors(self, widths: Sequence[int]) -> list[tuple[float, float]]:
        """N·E|f_N − f|² / |f|² to first order in 1/N, with a standard error, by width."""
        assert self.rich is not None
        limit = self.rich["path"]
        size = float((limit.mean(0)[1:] ** 2).sum())
        found = [self.predicted[width].squared_error(limit) for width in widths]
        return [(n * value / size, n * error / size) for n, (value, error) in zip(widths, found, strict=True)]

    def estimates(self, observable: str) -> np.ndarray:
        """The limit of an observable, [1, n, …], or one for every sweep where it is an average over sweeps."""
        if observable in ("nngp", "ntk"):
            return getattr(self, observable)[None]
        if self.rich is not None:
            return self.rich["ntk" if observable == "ntk_end" else observable]
        assert self.run is not None  # or there are sweeps
        if observable == "ntk_end":
            assert self.ntk is not None  # or it is not observed
            return self.ntk[None]
        path = self.run.f[None]
        return {"path": path, "f": path[:, -1]}[observable]


def _is_carried(initial: Any) -> bool:
    """Whether kernels of features become those of outputs: else networks have no such NNGP to hold against the limit's."""
    try:
        initial.readout(0.0)
    except AbsentError:
        return False
    return True


def measure(cell: Cell, task: Task, limit: Limit) -> dict[str, np.ndarray]:
    """Runs one ensemble. Projections are [members, projection]; curves are means over members, with errors."""

    def projected(ntk: str, runs: Trajectory, at: int, **seen: np.ndarray) -> dict[str, np.ndarray]:
        kernel = {ntk: runs.ntk[:, at]} if ntk in limit.projections else {}
        return {name: limit.projections[name](value) for name, value in (seen | kernel).items()}

    if cell.kind == "init":

        def at_start(runs: Trajectory) -> dict[str, np.ndarray]:
            carried = {"nngp": limit.readout(runs.features[:, 0])} if "nngp" in limit.projections else {}
            return projected("ntk", runs, 0, **carried)

        how: dict[str, Any] = {"kernels": ("features", "ntk"), "reduce": at_start}
        return ensemble(cell.net, task, cell.members, 0, 1.0, seed=cell.seed, centred=cell.centred, **how).reduced

    def along(runs: Trajectory) -> dict[str, np.ndarray]:
        return projected("ntk_end", runs, -1, f=runs.f[:, -1], path=runs.f)

    how = {
        "seed": cell.seed,
        "centred": cell.centred,
        "kernels": ("features", "ntk"),  # one program with the kernels at the start: its compilation is what they cost
        "kernel_times": [cell.steps],
        "reduce": along,
    }
    how |= steps_of(cell.net, cell.learning_rate, cell.optimizer)
    seen = ensemble(cell.net, task, cell.members, cell.steps, times=limit.times, **how)
    f_sem = np.concatenate([seen.f_train_sem, seen.f_test_sem], axis=1)
    return {**seen.reduced, "loss": seen.loss, "loss_sem": seen.loss_sem, "f_mean": seen.f, "f_sem": f_sem}


def run_grid(
    cells: list[Cell],
    task: Task,
    limits: Mapping[tuple[str, int], "Limit | Future[Limit]"],
    folder: Path | None,
    console: Console,
    bar: Progress,
) -> tuple[dict[Cell, dict[str, np.ndarray]], dict[Cell, str]]:
    """(results of all cells, why some of them have none: their training diverged, or that of their limit).

    Those that an earlier run left in `folder` are read back. Two shapes at a time, so that one compiles while the other
    computes; last those whose limits take long.
    """
    results: dict[Cell, dict[str, np.ndarray]] = {}
    diverged: dict[Cell, str] = {}
    store = None if folder is None else Store(folder, console.print)
    todo: dict[Any, list[Cell]] = {}  # by shape: cells of one shape share their compilation
    # The long ones first: the last to finish are short.
    for cell in sorted(cells, key=lambda cell: (cell.waits, -cell.net.width)):
        kept = None if store is None else store.get(cell.key(task))
        if kept is None:
            todo.setdefault((cell.net.width, cell.depth, cell.waits), []).append(cell)
        else:
            results[cell] = kept
    if results:
        console.print(f"{len(results)} of {len(cells)} cells were already there: continuing from them.")

    count = add_parts(bar, "ensembles", sum(map(_work, cells)), sum(map(_work, results)))

    stop = threading.Event()

    def work(group: list[Cell]) -> None:
        for cell in group:
            if stop.is_set():
                return
            try:
                results[cell] = measure(cell, task, known(limits[cell.label, cell.depth]))
            except FloatingPointError as error:
                diverged[cell] = str(error)
                console.print(f"{cell.label}, depth {cell.depth}, width {cell.net.width}: diverged; the others go on.")
            if store and cell in results:
                store.put(cell.key(task), results[cell])
            bar.advance(count, _work(cell))

    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = [pool.submit(work, group) for group in todo.values()]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException as error:  # an interrupt too: let the cells in progress finish, start no others
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                console.print("Interrupted: finishing the ensembles in progress, which will be kept.")
            raise
    return results, diverged


def _work(cell: Cell) -> float:
    """Rough cost: compilation counts as much as a good deal of arithmetic."""
    flops = cell.members * (1 + cell.steps) * cell.depth * cell.net.width**2
    return 1e9 + flops
