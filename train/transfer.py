"""Learning-rate sweeps over width and depth: where the optimum lies at every size, and how far it moves."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.progress import track
from rich.table import Table

_DRAWS = 1000  # of the bootstrap


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Losses of one size: `curves` [rate, seed, step], infinite from the step on at which a run diverged."""

    width: int
    depth: int
    rates: np.ndarray
    curves: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """The mean over the last tenth of the steps, [rate, seed]; infinite for runs that diverged."""
        return self.curves[..., -max(self.curves.shape[-1] // 10, 1) :].mean(-1)

    @property
    def diverged(self) -> np.ndarray:
        """How many seeds diverged at each rate."""
        return np.sum(~np.isfinite(self.losses), axis=1)

    def optimum(self, seeds: Any = slice(None)) -> "Optimum":
        """Of the mean loss over these seeds."""
        return optimum(self.rates, self.losses[:, seeds].mean(1))

    def optima(self, draws: int = _DRAWS, seed: int = 0) -> np.ndarray:
        """log₂ of the optimum for seeds drawn with replacement, [draw]."""
        random, count = np.random.default_rng(seed), self.losses.shape[1]
        return np.array([self.optimum(random.integers(count, size=count)).log_rate for _ in range(draws)])


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best learning rate of a curve, log₂ of it, the loss there; `edge`: the grid ends there, so it may lie beyond."""

    log_rate: float
    loss: float
    edge: bool

    @property
    def rate(self) -> float:
        """The learning rate."""
        return 2.0**self.log_rate


def optimum(rates: Sequence[float] | np.ndarray, losses: np.ndarray) -> Optimum:
    """The minimum of the parabola in log₂ rate through the least loss and its neighbours.

    Beside a diverged rate, or at an end of the grid, it is the grid point itself.

    >>> optimum([0.25, 0.5, 1.0], np.array([2.0, 1.0, 2.0])).rate
    0.5
    """
    x, best = np.log2(np.asarray(rates, float)), int(np.argmin(losses))
    if not np.isfinite(losses[best]):
        return Optimum(float(x[0]), float("inf"), True)
    inside = 0 < best < len(x) - 1
    if not inside or not np.isfinite(losses[best - 1 : best + 2]).all():
        return Optimum(float(x[best]), float(losses[best]), not inside)
    a, b, c = np.polyfit(x[best - 1 : best + 2] - x[best], losses[best - 1 : best + 2], 2)
    if a <= 0:
        return Optimum(float(x[best]), float(losses[best]), False)
    return Optimum(float(x[best] - b / (2 * a)), float(c - b**2 / (4 * a)), False)


def loss_at(rates: np.ndarray, losses: np.ndarray, log_rate: float) -> float:
    """The loss at a rate between those of the grid, by straight lines in log₂ rate; infinite beside divergence."""
    return float(np.interp(log_rate, np.log2(rates), losses))


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Sweeps of several sizes, in the order of their size along `over`."""

    over: str
    sweeps: tuple[Sweep, ...]

    @property
    def sizes(self) -> np.ndarray:
        """Widths or depths."""
        return np.array([getattr(sweep, self.over) for sweep in self.sweeps], float)

    def slope(self) -> tuple[float, float, float]:
        """log₂ optimum against log₂ size: (slope, low, high), a 95 % bootstrap interval over seeds."""
        x = np.log2(self.sizes) - np.log2(self.sizes).mean()
        fitted = [np.array([s.optimum().log_rate for s in self.sweeps])]
        fitted += list(np.stack([s.optima(seed=i) for i, s in enumerate(self.sweeps)], axis=1))
        slopes = np.array(fitted) @ x / (x @ x)
        low, high = np.percentile(slopes[1:], [2.5, 97.5])
        return float(slopes[0]), float(low), float(high)

    def shift(self) -> float:
        """How many octaves the optimum moves from the smallest to the largest size."""
        return self.sweeps[-1].optimum().log_rate - self.sweeps[0].optimum().log_rate

    def regret(self) -> tuple[float, float, float]:
        """What the smallest size's optimum costs at the largest, over the loss at its own: (loss ratio − 1, low, high)."""
        small, large = self.sweeps[0], self.sweeps[-1]
        random = np.random.default_rng(0)

        def once(a: Any, b: Any) -> float:
            losses = large.losses[:, b].mean(1)
            own = optimum(large.rates, losses).loss
            return loss_at(large.rates, losses, small.optimum(a).log_rate) / own - 1

        counts = [sweep.losses.shape[1] for sweep in (small, large)]
        drawn = [once(*(random.integers(n, size=n) for n in counts)) for _ in range(_DRAWS)]
        low, high = np.percentile(drawn, [2.5, 97.5], method="nearest")
        return once(slice(None), slice(None)), float(low), float(high)

    def __rich__(self) -> Table:
        slope, low, high = self.slope()
        cost, least, most = self.regret()
        caption = (
            f"log₂ optimum moves {slope:.2f} [{low:.2f}, {high:.2f}] a doubling of the {self.over}, {self.shift():+.2f} octaves "
            f"in all; the smallest size's optimum costs the largest {cost:.1%} [{least:.1%}, {most:.1%}] of its loss."
        )
        table = Table(title=f"Optimal learning rate over {self.over}", caption=caption)
        for column in ("width", "depth", "optimum", "95 % interval", "loss", "diverged runs"):
            table.add_column(column, justify="right")
        for sweep in self.sweeps:
            best, (low, high) = sweep.optimum(), 2.0 ** np.percentile(sweep.optima(), [2.5, 97.5])
            mark = " (edge of the grid)" if best.edge else ""
            table.add_row(
                str(sweep.width), str(sweep.depth), f"{best.rate:.3g}{mark}", f"[{low:.3g}, {high:.3g}]", f"{best.loss:.4g}",
                f"{sweep.diverged.sum()} of {sweep.losses.size}",
            )  # fmt: skip
        return table


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

    make(width, depth): a model with `init` and `apply`. optimizer(model, learning_rate): an Optax transformation; the
    rate is traced. batches: (inputs, targets) with a leading axis of steps. loss_fn(outputs, targets): a number, before
    each step. Runs go `together` at a time (None: all on an accelerator, one by one on a CPU, where side by side is no
    faster). Seed i has the same initial weights at every rate.

    >>> from zoo import MLP, Parameterization, scaled
    >>> def make(width, depth):
    ...     return MLP(width, depth, parameterization=Parameterization.mup.based(8))
    >>> x, y = jnp.ones((20, 4, 3)), jnp.ones((20, 4, 1))
    >>> found = sweep_rates(make, lambda net, rate: scaled(optax.sgd(rate), net), lambda f, y: jnp.mean((f - y) ** 2),
    ...                     (x, y), 8, 2, rates=[0.01, 0.1], seeds=2)
    >>> found.curves.shape
    (2, 2, 20)
    """
    if seeds < 2 or len(rates) < 2:
        raise ValueError(f"sweep_rates: at least 2 seeds and 2 learning rates, got {seeds} and {len(rates)}.")
    net = make(width, depth)
    x, y = (jnp.asarray(part) for part in batches)

    def run(job: Any) -> Any:
        rate, key = job
        tx, variables = optimizer(net, rate), net.init(key, x[0])

        def step(carry: Any, batch: Any) -> Any:
            variables, state = carry
            loss, slope = jax.value_and_grad(lambda v: loss_fn(net.apply(v, batch[0]), batch[1]))(variables)
            updates, state = tx.update(slope, state, variables)
            return (optax.apply_updates(variables, updates), state), loss

        return jax.lax.scan(step, (variables, tx.init(variables)), (x, y))[1]

    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(0), seed))(jnp.arange(seeds))
    jobs = jnp.repeat(jnp.asarray(rates, float), seeds), jnp.tile(keys, len(rates))
    batch_size = together or (1 if jax.default_backend() == "cpu" else len(jobs[0]))
    curves = np.asarray(jax.jit(lambda jobs: jax.lax.map(run, jobs, batch_size=batch_size))(jobs), np.float64)
    broken = np.maximum.accumulate(~np.isfinite(curves), axis=1)  # a run that was lost does not come back
    curves = np.where(broken, np.inf, curves).reshape(len(rates), seeds, -1)
    return Sweep(width, depth, np.asarray(rates, float), curves)


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

    With `folder`, every size is kept there as soon as it is finished, and an interrupted call goes on: give every model,
    optimiser and task a folder of its own. Where `Optimum.edge` says that a grid ends at its optimum, widen it.
    """
    cells = [*((width, depths[0]) for width in widths), *((widths[0], depth) for depth in depths[1:])]
    found = {}
    for width, depth in track(list(dict.fromkeys(cells)), "sizes", disable=not progress, console=Console(stderr=True)):
        file = None if folder is None else Path(folder) / f"width_{width}_depth_{depth}.json"
        found[width, depth] = _kept(file, rates, seeds) or _keep(
            file, sweep_rates(make, optimizer, loss_fn, batches, width, depth, rates, seeds)
        )
    result = []
    if len(widths) > 1:
        result.append(Transfer("width", tuple(found[width, depths[0]] for width in widths)))
    if len(depths) > 1:
        result.append(Transfer("depth", tuple(found[widths[0], depth] for depth in depths)))
    return result


def _keep(file: Path | None, sweep: Sweep) -> Sweep:
    """Whole or not at all."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        held = dataclasses.asdict(sweep) | {"rates": sweep.rates.tolist(), "curves": sweep.curves.tolist()}
        part.write_text(json.dumps(held))
        part.replace(file)
    return sweep


def _kept(file: Path | None, rates: Sequence[float], seeds: int) -> Sweep | None:
    if file is None or not file.exists():
        return None
    held = json.loads(file.read_text())
    if not np.allclose(held["rates"], rates) or len(held["curves"][0]) != seeds:
        raise ValueError(
            f"{file} holds learning rates {held['rates']} and {len(held['curves'][0])} seeds, other than asked for: use "
            "another folder, or delete it."
        )
    return Sweep(held["width"], held["depth"], np.array(held["rates"]), np.array(held["curves"]))
