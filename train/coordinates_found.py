"""What the coordinate check finds: how movements scale with the size, and what of it speaks against transfer."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.evaluate.drawing import at_sizes, panels
from train.evaluate.finding import Finding
from train.evaluate.interval import Interval, every
from train.evaluate.report import Picture, Report, Table
from zoo.messages import as_text

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
    movement: np.ndarray  # [size, seed], root mean square change after the last step (first: after the first)
    exponent: float
    low: float
    high: float
    least: float = (
        0.0  # how it may fall by the rule itself: layers in L branches move by less each, and together as much
    )
    centred: bool = False  # measured anew with f(0) subtracted from the outputs that the loss sees
    first: bool = False  # after the first step, and not the last

    @property
    def key(self) -> tuple[str, str, bool]:
        """What is compared: a quantity, over width or depth, after the first step or the last."""
        return self.quantity, self.over, self.first

    @property
    def name(self) -> str:
        """The quantity, and whether it is that after the first step."""
        return f"{self.quantity} after the first step" if self.first else self.quantity

    @property
    def verdict(self) -> str:
        """flat (the interval lies within ± TOLERANCE), by its rule (a layer in branches that falls as these ask), grows,
        shrinks (it lies outside), undecided, or diverged."""
        if not np.isfinite(self.movement).all():
            return "diverged"
        interval = Interval(self.exponent, self.low, self.high)
        flat = interval.near(0.0, TOLERANCE)
        if self.least and flat is not True:
            fits = every(interval.above(self.least - TOLERANCE), interval.below(TOLERANCE))
            if fits is not False:
                return "by its rule" if fits else "undecided"
        return {True: "flat", None: "undecided", False: "grows" if self.low > 0 else "shrinks"}[flat]

    @property
    def against(self) -> bool:
        """Whether it speaks against transfer; after the first step, which may be small by a right rule, only where it grows."""
        return self.finding.holds is False and (not self.first or self.verdict == "grows")

    @property
    def finding(self) -> Finding:
        """Whether the change is the same at every size."""
        holds = {"flat": True, "by its rule": True, "undecided": None}.get(self.verdict, False)
        figures = f"{self.verdict}: {self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"
        return Finding(f"The change of {self.name} is the same at every {self.over}", holds, figures)


@dataclasses.dataclass(frozen=True)
class CoordinateCheck:
    """What `coord_check` found. Falsy where something speaks against transfer."""

    slopes: tuple[Slope, ...]
    steps: int
    unseen: tuple[str, ...] = ()  # layers whose outputs no row shows
    early: tuple[Slope, ...] = ()  # what grows after the first step, and not after the last as slopes do
    alone: bool = False  # outputs only, of a model whose inside is not seen

    @property
    def against(self) -> list[Slope]:
        """What speaks against transfer."""
        return [slope for slope in (*self.slopes, *self.early) if slope.against]

    def __bool__(self) -> bool:
        return not self.against

    @property
    def sentence(self) -> str:
        """The verdict. It never says that hyperparameters transfer: that takes a sweep (launch.transfer)."""
        if self.against:
            named = "; ".join(
                f"{s.quantity} diverges at some {s.over}"
                if s.verdict == "diverged"
                else f"the change of {s.name} {s.verdict} as {s.over}^{s.exponent:.2f} [{s.low:.2f}, {s.high:.2f}]"
                for s in self.against
            )
            return f"Against transfer: {named}.{self._hidden}"
        unsure = [f"{s.quantity} over {s.over}" for s in self.slopes if s.finding.holds is None]
        more = f" Undecided: {', '.join(unsure)}; use more seeds or a wider range." if unsure else ""
        centred = [f"{s.quantity} over {s.over}" for s in self.slopes if s.centred]
        more += f" With f(0), which falls as 1/√width, subtracted: {', '.join(centred)}." if centred else ""
        more += self._hidden
        return (
            f"Nothing speaks against transfer in the first {self.steps} steps, which does not show that it holds.{more}"
        )

    @property
    def _hidden(self) -> str:
        if self.alone:
            return (
                " Only outputs were looked at: look(model, variables, inputs), a dictionary of arrays, gives features."
            )
        few = ", ".join(self.unseen[:3]) + ", …" * (len(self.unseen) > 3)
        return (
            f" No rows for {few}: layers inside nn.scan or nn.vmap, or of another method; look=… shows them."
            if self.unseen
            else ""
        )

    def __str__(self) -> str:
        return as_text(self)

    @property
    def table(self) -> Table:
        """A row a slope."""
        rows = [
            (s.name, s.over, ", ".join(map(str, s.sizes)), f"{s.exponent:.3f}", f"[{s.low:.3f}, {s.high:.3f}]", s.verdict)
            for s in (*self.slopes, *self.early)
        ]  # fmt: skip
        kinds = [s.finding.kind for s in (*self.slopes, *self.early)]
        title = f"Changes after {self.steps} steps"
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
        rows = [{**dataclasses.asdict(s), "verdict": s.verdict} for s in (*self.slopes, *self.early)]
        picture = Picture(
            "Change against size", "Lines: means over seeds; shaded: one standard deviation.", self.plot()
        )
        report = Report("Coordinate check", [self.table, picture], {"verdict": self.sentence, "slopes": rows})
        return report.write(folder, "coordinates")[1]
