"""The coordinate check: whether training moves features and outputs by as much at every width and every depth."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.progress import track

from limits.finite.forward import shows_inside
from train.evaluate.drawing import at_sizes, panels
from train.evaluate.finding import Finding
from train.evaluate.interval import Interval, mean
from train.evaluate.report import Picture, Report, Table
from train.evaluate.statistics import slope
from train.variables import descend, draws, forward, initial, split
from zoo import checks
from zoo.attention import WEIGHTS
from zoo.messages import as_text
from zoo.modules import Pair
from zoo.plain import PlainNetwork
from zoo.rescaled import within
from zoo.starts import starts

if TYPE_CHECKING:
    import matplotlib.figure

TOLERANCE = 0.1  # of an exponent
COLUMNS = ("quantity", "over", "sizes", "exponent", "95 % interval", "verdict")


@dataclasses.dataclass(frozen=True)
class Slope:
    """How a quantity's movement scales: size^exponent, with its 95 % interval over seeds."""

    quantity: str
    over: str
    sizes: tuple[int, ...]
    movement: np.ndarray  # [size, seed], root mean square change after the last step
    exponent: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """flat (the interval lies within ± TOLERANCE), grows, shrinks (it lies outside), undecided, or diverged."""
        if not np.isfinite(self.movement).all():
            return "diverged"
        flat = Interval(self.exponent, self.low, self.high).near(0.0, TOLERANCE)
        return {True: "flat", None: "undecided", False: "grows" if self.low > 0 else "shrinks"}[flat]

    @property
    def finding(self) -> Finding:
        """Whether the change is the same at every size."""
        holds = {"flat": True, "undecided": None}.get(self.verdict, False)
        figures = f"{self.verdict}: {self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"
        return Finding(f"The change of {self.quantity} is the same at every {self.over}", holds, figures)


@dataclasses.dataclass(frozen=True)
class CoordinateCheck:
    """What `coord_check` found. Falsy where something speaks against transfer."""

    slopes: tuple[Slope, ...]
    steps: int

    @property
    def against(self) -> list[Slope]:
        """What speaks against transfer."""
        return [slope for slope in self.slopes if slope.finding.holds is False]

    def __bool__(self) -> bool:
        return not self.against

    @property
    def sentence(self) -> str:
        """The verdict. It never says that hyperparameters transfer: that takes a sweep (launch.transfer)."""
        if self.against:
            named = "; ".join(
                f"{s.quantity} diverges at some {s.over}"
                if s.verdict == "diverged"
                else f"the change of {s.quantity} {s.verdict} as {s.over}^{s.exponent:.2f} [{s.low:.2f}, {s.high:.2f}]"
                for s in self.against
            )
            return f"Against transfer: {named}."
        unsure = [f"{s.quantity} over {s.over}" for s in self.slopes if s.finding.holds is None]
        more = f" Undecided: {', '.join(unsure)}; use more seeds or a wider range." if unsure else ""
        return (
            f"Nothing speaks against transfer in the first {self.steps} steps, which does not show that it holds.{more}"
        )

    def __str__(self) -> str:
        return as_text(self)

    @property
    def table(self) -> Table:
        """A row a slope."""
        rows = [
            (s.quantity, s.over, ", ".join(map(str, s.sizes)), f"{s.exponent:.3f}", f"[{s.low:.3f}, {s.high:.3f}]", s.verdict)
            for s in self.slopes
        ]  # fmt: skip
        title, kinds = f"Changes after {self.steps} steps", [s.finding.kind for s in self.slopes]
        return Table(COLUMNS, rows, kinds, title=title, caption=self.sentence)

    def __rich__(self) -> Any:
        return self.table

    def plot(self) -> "matplotlib.figure.Figure":
        """Change against width and against depth, a line a quantity; shaded: one standard deviation over seeds."""
        kinds = list(dict.fromkeys(s.over for s in self.slopes))
        figure, axes = panels(1, len(kinds), 6.4, 4.2, margin=1.0)
        for axis, over in zip(axes[0], kinds, strict=True):
            for s in (s for s in self.slopes if s.over == over):
                middle, spread = s.movement.mean(1), s.movement.std(1)
                style = "--" if s.finding.holds is False else "-"
                (line,) = axis.plot(s.sizes, middle, style, marker="o", ms=4, label=f"{s.quantity}: {s.exponent:.2f}")
                axis.fill_between(s.sizes, middle - spread, middle + spread, alpha=0.15, color=line.get_color())
            axis.set(
                xscale="log", yscale="log", xlabel=over, ylabel=f"root mean square change after {self.steps} steps"
            )
            at_sizes(axis, s.sizes)
            axis.legend(fontsize=8, title="exponent", title_fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
        return figure

    def save(self, folder: str | Path) -> Path:
        """Writes coordinates.html and coordinates.json into the folder; returns the former."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        rows = [{**dataclasses.asdict(s), "verdict": s.verdict} for s in self.slopes]
        picture = Picture(
            "Change against size", "Lines: means over seeds; shaded: one standard deviation.", self.plot()
        )
        report = Report("Coordinate check", [self.table, picture], {"verdict": self.sentence, "slopes": rows})
        return report.write(folder, "coordinates")[1]


@checks.arguments(
    make=checks.function,
    widths=checks.several(checks.count()),
    depths=checks.several(checks.count()),
    loss_fn=checks.function,
    optimizer=checks.function | checks.transformation,
    steps=checks.count(most=10**6),
    seeds=checks.count(most=10**6),
    batch=checks.pair,
    look=checks.function,
    predict=checks.function,
    progress=checks.flag,
)
def coord_check(
    make: Callable[[int, int], Any],
    widths: Sequence[int],
    depths: Sequence[int],
    batch: tuple[Any, Any],
    loss_fn: Callable[[Any, Any], Any],
    optimizer: Any,
    steps: int = 4,
    seeds: int = 8,
    look: Callable[[Any, Any, Any], dict[str, Any]] | None = None,
    predict: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> CoordinateCheck:
    """Trains `steps` steps at every width (at the first depth) and every depth (at the middle width), and compares.

    make(width, depth) returns a model: any object with `init(key, inputs)` and `apply(variables, inputs)`, such as a Linen
    module (batch statistics are kept, in training mode) or `zoo.Rescaled`, or a pair of such functions; batch is (inputs,
    targets); loss_fn(outputs, targets) a number; optimizer an Optax transformation, or a function from the model to one.
    Of every feature, of the outputs and of predict(outputs) the root mean square change is measured, which the right rules
    make independent of the size. Features: the definition's h^l, or what every submodule of a Flax module returns; or
    look(model, variables, inputs), a dictionary of arrays. Over depth, of layers that differ by their number only the
    first and the last are compared. What outputs are at the start falls as 1/√width and moves features of small networks
    by itself: a readout that starts at zero, or many seeds, make for clean exponents. A rule that fails here does not
    transfer; one that passes may still fail later.

    >>> from zoo import MLP, Parameterization, scaled
    >>> def make(width, depth):
    ...     return MLP(width, depth, activation="tanh", parameterization=Parameterization.mup.based(32))
    >>> batch = jnp.ones((2, 3)), jnp.array([[1.0], [-1.0]])
    >>> check = coord_check(make, (32, 64, 128), (2,), batch, lambda f, y: jnp.mean((f - y) ** 2),
    ...                     lambda net: scaled(optax.adam(1e-3), net))
    >>> bool(check)
    True
    """
    if len(widths) < 2 and len(depths) < 2:
        raise ValueError("coord_check: give at least two widths or two depths.")
    if seeds < 2:
        raise ValueError(f"coord_check: an interval needs at least 2 seeds, got {seeds}.")
    middle = widths[len(widths) // 2]
    cells = [*((width, depths[0]) for width in widths), *((middle, depth) for depth in depths[1:])]
    moved = {}
    for width, depth in track(dict.fromkeys(cells), "training", disable=not progress):
        net = _model(make(width, depth))
        tx = optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(net)
        moved[width, depth] = _movement(net, tx, batch, loss_fn, steps, seeds, look or _look, predict)
    slopes = []
    if len(widths) > 1:
        slopes += _slopes("width", widths, [moved[width, depths[0]] for width in widths])
    if len(depths) > 1:
        slopes += _slopes("depth", depths, [_ends(moved[middle, depth]) for depth in depths])
    return CoordinateCheck(tuple(slopes), steps)


def _model(net: Any) -> Any:
    """Something with init and apply, or an error that says how to make it."""
    if isinstance(net, tuple) and len(net) == 2 and all(map(callable, net)):
        return Pair(*net)
    if callable(getattr(net, "init", None)) and callable(getattr(net, "apply", None)):
        return net
    name = type(net).__name__
    if any(cls.__module__.startswith("flax.nnx") for cls in type(net).__mro__):
        raise ValueError(
            f"coord_check: make returned the NNX module {name}, which has its parameters already, and every seed needs its own: "
            f"return zoo.in_parameterization({name}, …, width=width), where {name}(width, rngs) makes it, or a pair of "
            "functions (init, apply)."
        )
    raise ValueError(
        f"coord_check: make must return a model with init(key, inputs) and apply(variables, inputs), got {name}."
    )


def _look(net: Any, variables: Any, x: Any) -> dict[str, Any]:
    """The features of a model by name."""
    if not isinstance(within(net), nn.Module):
        return {}
    if shows_inside(within(net)):
        (_, inside), _ = forward(net, *split(variables), x, intermediates=True)
        return {f"h{l}": h for l, h in enumerate(inside["h"], start=1)}
    _, seen = forward(net, *split(variables), x, collect=("intermediates",), capture_intermediates=True)
    leaves = jax.tree_util.tree_leaves_with_path(seen["intermediates"])
    names = [".".join(str(k.key) for k in path if hasattr(k, "key")) for path, _ in leaves]
    found = {
        name.removesuffix(".__call__"): leaf
        for name, (_, leaf) in zip(names, leaves, strict=True)
        if not name.startswith("__call__") and not name.endswith(WEIGHTS) and jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    if isinstance(net, PlainNetwork):  # of which the readout's is γ times the output, and is no feature
        for name, start in starts(net, x).items():
            if start.role == "readout":
                found.pop(name.rpartition(".")[0], None)
    return found


def _outputs(f: Any) -> dict[str, Any]:
    """The outputs; where they are several arrays, each by its key or number."""
    leaves = jax.tree_util.tree_leaves_with_path(f)
    return {
        f"outputs{jax.tree_util.keystr(path)}": leaf
        for path, leaf in leaves
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }


def _movement(
    net: Any, tx: Any, batch: Any, loss_fn: Callable, steps: int, seeds: int, look: Callable, predict: Any
) -> dict[str, np.ndarray]:
    """The change of every quantity [seed]: one compilation, seeds one after the other."""
    x, _ = batch

    def seen(variables: Any) -> dict[str, Any]:
        f, _ = forward(net, *split(variables), x)
        found = {**look(net, variables, x), **_outputs(f)}
        return found if predict is None else found | {"predictions": predict(f)}

    def run(key: Any) -> dict[str, Any]:
        trained, state = initial(net, key, x)
        start = {**trained, **state} if state else trained

        def step(number: Any, carry: Any) -> Any:
            return descend(net, tx, loss_fn, carry, batch, **draws(net, jax.random.fold_in(key, 1), number))[0]

        trained, state, _ = jax.lax.fori_loop(0, steps, step, (trained, state, tx.init(trained)))
        end = {**trained, **state} if state else trained
        return jax.tree.map(lambda a, b: jnp.sqrt(jnp.mean((a - b) ** 2)), seen(end), seen(start))

    keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(0), seed))(jnp.arange(seeds))
    return jax.tree.map(np.asarray, jax.jit(lambda keys: jax.lax.map(run, keys))(keys))


def _ends(moved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Layers that differ by their numbers only: the first and the last of them."""
    groups: dict[str, list[tuple[list[int], str]]] = {}
    for name in moved:
        numbers = [int(n) for n in re.findall(r"\d+", name)]
        groups.setdefault(re.sub(r"\d+", "#", name), []).append((numbers, name))
    found = {}
    for group, members in groups.items():
        first, *_, last = [*sorted(members), max(members)]
        if first == last:
            found[first[1]] = moved[first[1]]
        else:
            found |= {f"{group} (first)": moved[first[1]], f"{group} (last)": moved[last[1]]}
    return found


def _slopes(over: str, sizes: Sequence[int], moved: list[dict[str, np.ndarray]]) -> list[Slope]:
    """A straight line in log-log for every seed; the interval is Student's over seeds."""
    found = []
    for name in moved[0]:
        if any(name not in each for each in moved):
            continue
        movement = np.stack([each[name] for each in moved])
        if not movement.any():
            continue  # a layer that does not move, such as a frozen one
        with np.errstate(divide="ignore", invalid="ignore"):
            each = slope(np.log2(sizes), np.log2(movement).T)
        found.append(Slope(name, over, tuple(sizes), movement, *map(float, mean(each).ends)))
    return found
