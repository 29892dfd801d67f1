"""The sizes of a comparison: one sweep each, kept on disk as soon as it is finished."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optax
from rich.console import Console
from rich.progress import track

from limits.kept.identity import identity, numerics
from limits.kept.store import Store, npz_bytes, write_whole
from train.transfer.kept import KeptRuns, complete, held
from train.transfer.runs import shuffled, train_runs
from train.transfer.shift import Transfer, along
from train.transfer.sweep import Sweep
from zoo import checks

_SWEPT = {
    **dict.fromkeys(("make", "optimizer", "loss_fn"), checks.function),
    "batches": checks.steps,
    "rates": checks.several(checks.number(positive=True), least=2, distinct=True),
    "seeds": checks.count(2, 10**6),
}


@checks.arguments(
    **_SWEPT,
    width=checks.count(1),
    depth=checks.count(1),
    together=checks.count(),
)
def sweep_rates(
    make: Callable[[int, int], Any],
    optimizer: Callable[[Any, Any], optax.GradientTransformation],
    loss_fn: Callable[[Any, Any], Any],
    batches: tuple[Any, Any],
    width: int,
    depth: int,
    rates: Sequence[float],
    seeds: int = 5,
    together: int | None = None,
) -> Sweep:
    """Trains one size at every learning rate and seed, in one compiled program in which both are arguments.

    make(width, depth): a model with `init` and `apply`; batch statistics are kept where it has them. optimizer(model,
    learning_rate): an Optax transformation; the rate is traced. batches: (inputs, targets) with a leading axis of steps.
    loss_fn(outputs, targets): a number, before each step. Seed i has the same initial weights, and the batches in the same
    order of its own, at every rate. How runs are placed: `train_runs`.

    >>> import jax.numpy as jnp
    >>> from zoo import MLP, Parameterization, scaled
    >>> def make(width, depth):
    ...     return MLP(width, depth, parameterization=Parameterization.mup.based(8))
    >>> x, y = jnp.ones((20, 4, 3)), jnp.ones((20, 4, 1))
    >>> found = sweep_rates(make, lambda net, rate: scaled(optax.adam(rate), net), lambda f, y: jnp.mean((f - y) ** 2),
    ...                     (x, y), 8, 2, rates=[0.01, 0.1], seeds=2)
    >>> found.curves.shape
    (2, 2, 20)
    """
    grid = np.sort(np.asarray(rates, float))
    runs = np.repeat(grid, seeds), np.tile(np.arange(seeds), len(grid))
    curves = curves_of((make, optimizer, loss_fn, batches), width, depth, *runs, together)
    return Sweep(width, depth, grid, curves.reshape(len(grid), seeds, -1))


def curves_of(
    what: tuple[Any, Any, Any, Any],
    width: int,
    depth: int,
    rates: np.ndarray,
    seeds: np.ndarray,
    together: int | None = None,
) -> np.ndarray:
    """The losses [run, step] of one size at these rates [run] with these seeds [run]; what: the first four of `sweep_rates`."""
    make, optimizer, loss_fn, batches = what
    net, steps = make(width, depth), len(batches[0])
    return train_runs(
        lambda job: (net, optimizer(net, job["rate"])),
        loss_fn,
        lambda seed: shuffled(zip(*batches, strict=True), steps, seed),
        steps,
        {"rate": rates},
        seeds,
        together,
    )


@checks.arguments(
    **_SWEPT,
    widths=checks.several(checks.count(1), distinct=True),
    depths=checks.several(checks.count(1), distinct=True),
    folder=checks.path,
    progress=checks.flag,
)
def transfer(
    make: Callable[[int, int], Any],
    optimizer: Callable[[Any, Any], optax.GradientTransformation],
    loss_fn: Callable[[Any, Any], Any],
    batches: tuple[Any, Any],
    widths: Sequence[int],
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int = 5,
    folder: str | Path | None = None,
    progress: bool = False,
) -> list[Transfer]:
    """Sweeps over widths (at the first depth) and over depths (at the first width), see `sweep_rates`.

    With `folder`, the runs of every size are kept there as soon as they are finished, under a name that holds the content of what
    a run depends on (functions by their code): an interrupted call goes on, and of more rates or seeds only what is missing is
    trained. More batches are other runs. Where `Optimum.edge` says that a grid ends at its
    optimum, widen it. With a report, further hyperparameters, and grids split between machines: `launch.transfer`.
    """
    grid = np.sort(np.asarray(rates, float))
    cells = [*((width, depths[0]) for width in widths), *((widths[0], depth) for depth in depths[1:])]
    if len(set(cells)) < 2:
        raise ValueError(
            f"transfer: width {widths[0]} and depth {depths[0]} alone leave nothing to compare: give two or more of either, or "
            "call sweep_rates."
        )
    found, what = {}, (make, optimizer, loss_fn, batches)
    word = "" if folder is None else identity("runs", *what, numerics())
    for width, depth in track(list(dict.fromkeys(cells)), "sizes", disable=not progress, console=Console(stderr=True)):
        if folder is None:
            found[width, depth] = sweep_rates(*what, width, depth, grid.tolist(), seeds)
            continue
        file = Path(folder) / f"width_{width}_depth_{depth}_{word}.npz"

        def train(jobs: Any, each: np.ndarray, width: int = width, depth: int = depth) -> KeptRuns:
            return KeptRuns.of(jobs, each, curves_of(what, width, depth, jobs["rate"], each))

        complete(file, {"rate": np.repeat(grid, seeds)}, np.tile(np.arange(seeds), len(grid)), train)
        there = held(file)
        assert there is not None
        whole = there.table("rate", {}).grid(width, depth, grid.tolist(), range(seeds))
        assert whole is not None
        found[width, depth] = whole
    return along(found)


def write(file: Path, sweeps: Iterable[Sweep]) -> None:
    """Sweeps of one size over one grid."""
    sweeps = list(sweeps)
    sizes = np.array([(sweep.width, sweep.depth) for sweep in sweeps], float)
    curves = np.stack([sweep.curves for sweep in sweeps])
    Store(file.parent).put(file.stem, {"sizes": sizes, "rates": sweeps[0].rates, "curves": curves})


def save_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """For the reader to look at: whole or not at all, whoever else writes there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, npz_bytes(arrays, compressed=True))


def read(file: Path) -> list[Sweep] | None:
    """What `write` wrote, None where there is nothing that can be trusted."""
    held = Store(file.parent).get(file.stem)
    if held is None:
        return None
    sizes = ((width if np.isinf(width) else int(width), int(depth)) for width, depth in held["sizes"].tolist())
    return [Sweep(*size, held["rates"], curves) for size, curves in zip(sizes, held["curves"], strict=True)]
