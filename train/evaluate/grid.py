"""The cells of a comparison: one ensemble each, kept on disk as soon as it is finished."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from limits import Task, Trajectory, twin
from limits.fields.sweeps import Plan, sweeps
from limits.identity import identity, numerics
from limits.lazy import losses
from limits.store import Store
from limits.training import Training
from train.ensemble import run_members
from train.evaluate.projections import Projections, of_kernel, of_path, of_predictions
from train.moments import Moments
from train.progress import add_parts, parts_bar
from zoo import parameterization

RECORDED = 6  # times along training


@dataclasses.dataclass(frozen=True)
class Cell:
    """One ensemble of the grid. kind "init": kernels of untrained networks; "train": predictions and kernel at the end."""

    kind: str
    label: str
    net: Any
    members: int
    steps: int
    learning_rate: float
    seed: int
    centred: bool
    against: str = ""  # settings of its limit, which fixes the projections

    def key(self, task: Task) -> str:
        """A word for everything the numbers depend on."""
        return identity(self, dataclasses.replace(task, name=""), numerics())


@dataclasses.dataclass(frozen=True)
class Limit:
    """What the twin says of one (label, depth): the limits of all observables, and the projections they fix.

    `run` is training in the kernel regime. In `mup` the limit of training is the one with feature learning: `rich` has
    its sweeps, if they were asked for: path [sweep, time, n, outputs], loss [sweep, time], and f, ntk at the end.
    """

    nngp: np.ndarray
    ntk: np.ndarray
    run: Trajectory
    rich: dict[str, np.ndarray] | None
    of_nngp: Projections
    of_ntk: Projections
    of_f: Projections
    of_path: Projections
    readout: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(
        cls,
        net: Any,
        task: Task,
        steps: int,
        learning_rate: float,
        centred: bool,
        rich: Any = None,
        progress: bool = False,
    ) -> "Limit":
        """Computes them; the width of the definition plays no part. `rich`: samples and replicas of the sweeps."""
        limit = twin(net)
        kernels = limit.kernels(task.x)
        times = np.unique(np.linspace(0, steps, RECORDED).round().astype(int)).tolist()
        run = limit.lazy(task, steps, learning_rate, times=times, centred=centred, kernels=())
        path, learned = np.concatenate([run.f_train, run.f_test], axis=1), None
        if rich and parameterization(net.parameterization).d == 0.5:
            training = Training.of(task, steps, learning_rate, centred=True)
            plan = Plan(net, task, training, np.array(times), ("ntk",), [steps])
            seen, _ = sweeps(plan, **rich, progress=progress)
            learned = {
                "path": seen["f"],
                "f": seen["f"][:, -1],
                "ntk": seen["ntk"][:, -1],
                "loss": losses(task, seen["f"][:, :, : len(task.x_train)], task.y_train),
            }
            path = seen["f"].mean(0)
        return cls(
            kernels.nngp,
            kernels.ntk,
            run,
            learned,
            of_kernel(kernels.nngp, task),
            of_kernel(kernels.ntk, task),
            of_predictions(path[-1], kernels.ntk, task),
            of_path(path, times),
            limit.readout,
        )

    def estimates(self, observable: str) -> np.ndarray:
        """The limit of an observable, [1, n, …], or one for every sweep where it is an average over sweeps."""
        if observable in ("nngp", "ntk"):
            return getattr(self, observable)[None]
        if self.rich is not None:
            return self.rich["ntk" if observable == "ntk_end" else observable]
        path = np.concatenate([self.run.f_train, self.run.f_test], axis=1)[None]
        return {"path": path, "f": path[:, -1], "ntk_end": self.ntk[None]}[observable]


def measure(cell: Cell, task: Task, limit: Limit) -> dict[str, np.ndarray]:
    """Runs one ensemble. Projections are [members, projection]; curves are means over members, with errors."""
    if cell.kind == "init":
        training = Training.of(task, 0, 1.0, centred=cell.centred)
        chunks = run_members(cell.net, task, training, cell.members, seed=cell.seed, kernels=("features", "ntk"))
        parts = [(limit.of_nngp(limit.readout(c["features"][:, 0])), limit.of_ntk(c["ntk"][:, 0])) for c in chunks]
        return {
            name: np.concatenate(column) for name, column in zip(("nngp", "ntk"), zip(*parts, strict=True), strict=True)
        }
    times = limit.run.times
    loss, f_mean, columns = Moments(), Moments(), {"f": [], "path": [], "ntk_end": []}
    training = Training.of(task, cell.steps, cell.learning_rate, centred=cell.centred)
    chunks = run_members(cell.net, task, training, cell.members, times, cell.seed, ("ntk",), [cell.steps])
    for chunk in chunks:
        f = chunk["f"].astype(np.float64)
        train = f[:, :, : len(task.x_train)]
        loss.add(losses(task, train, task.y_train))
        f_mean.add(f)
        columns["f"].append(limit.of_f(f[:, -1]))
        columns["path"].append(limit.of_path(f))
        columns["ntk_end"].append(limit.of_ntk(chunk["ntk"][:, -1]))
    return {
        **{name: np.concatenate(parts) for name, parts in columns.items()},
        "loss": loss.mean,
        "loss_sem": loss.sem,
        "f_mean": f_mean.mean,
        "f_sem": f_mean.sem,
    }


def run_grid(
    cells: list[Cell],
    task: Task,
    limits: dict[Any, Limit],
    limit_of: Callable[[Cell], Any],
    folder: Path | None,
    console: Console,
) -> tuple[dict[Cell, dict[str, np.ndarray]], dict[Cell, str]]:
    """(results of all cells, why some of them have none: their training diverged).

    Those that an earlier run left in `folder` are read back. Two shapes at a time, so that one compiles while the other
    computes.
    """
    results: dict[Cell, dict[str, np.ndarray]] = {}
    diverged: dict[Cell, str] = {}
    store = None if folder is None else Store(folder, console.print)
    todo: dict[Any, list[Cell]] = {}  # by shape: cells of one shape share their compilation
    for cell in sorted(cells, key=lambda cell: -cell.net.width):  # the long ones first: the last to finish are short
        kept = None if store is None else store.get(cell.key(task))
        if kept is None:
            todo.setdefault((cell.net.width, cell.net.depth), []).append(cell)
        else:
            results[cell] = kept
    if results:
        console.print(f"{len(results)} of {len(cells)} cells were already there: continuing from them.")

    with parts_bar(console) as bar:
        count = add_parts(bar, "ensembles", sum(map(_work, cells)), sum(map(_work, results)))

        stop = threading.Event()

        def work(group: list[Cell]) -> None:
            for cell in group:
                if stop.is_set():
                    return
                try:
                    results[cell] = measure(cell, task, limits[limit_of(cell)])
                except FloatingPointError as error:
                    diverged[cell] = str(error)
                    console.print(
                        f"{cell.label}, depth {cell.net.depth}, width {cell.net.width}: diverged; the others go on."
                    )
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
    flops = cell.members * (1 + cell.steps) * cell.net.depth * cell.net.width**2
    return 1e9 + flops
